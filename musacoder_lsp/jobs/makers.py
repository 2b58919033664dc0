"""Makes the parts that a Job works with. Imported late: a server that only shows Sites must not pay
for a verifier and an engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from musacoder_inference.engines.base import Engine

from musacoder_lsp.assistant import VerifierLike
from musacoder_lsp.places import cache_folder
from musacoder_lsp.settings import Settings


@dataclass(frozen=True, slots=True)
class Makers:
    """The seam between the loop and what it drives; `verifier` takes the interpreter's path."""

    engine: Callable[[Settings], Engine]
    verifier: Callable[[str, Settings], AbstractAsyncContextManager[VerifierLike]]
    options: Callable[[Settings], Any]


def make_engine(settings: Settings) -> Engine:
    """Raises ValueError with one sentence where the engine cannot be used here."""
    from musacoder_inference.registry import engine

    named = {"model": settings.model, "endpoint": settings.endpoint}
    given = {name: value for name, value in named.items() if value is not None}
    return engine(settings.engine, {**given, **settings.engine_options})


def make_verifier(python: str, settings: Settings) -> AbstractAsyncContextManager[VerifierLike]:
    from musacoder_verifier.verifier import Verifier, VerifierSettings

    return Verifier(
        VerifierSettings(
            python=python,
            backend=settings.backend,
            cache_dir=cache_folder(),
            sandbox=settings.sandbox,
            strict_sandbox=settings.strict_sandbox,
            stage_timeout=settings.stage_timeout,
            threads=settings.threads,
        )
    )


def make_options(settings: Settings) -> Any:
    from musacoder_verifier.verifier import VerifyOptions

    return VerifyOptions(
        backend=settings.backend,
        policy=settings.policy,
        mode="strict",
        stage_timeout=settings.stage_timeout,
        timing=settings.timing,
        compile_baseline=settings.compile_baseline,
    )


REAL = Makers(engine=make_engine, verifier=make_verifier, options=make_options)
