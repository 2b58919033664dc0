"""One Verifier per interpreter and sandbox setting, started at the first need."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

from musacoder_lsp.assistant import VerifierLike
from musacoder_lsp.jobs.makers import Makers
from musacoder_lsp.settings import Settings

logger = logging.getLogger(__name__)

Key = tuple[str, str, bool, bool, float, int | None]


class VerifierPool:
    def __init__(self, makers: Makers) -> None:
        self._makers = makers
        self._open: dict[Key, tuple[AbstractAsyncContextManager[VerifierLike], VerifierLike]] = {}
        self._lock = asyncio.Lock()

    async def get(self, python: str, settings: Settings) -> VerifierLike:
        """The Verifier for an interpreter. Raises what its start raises."""
        key = (
            python, settings.backend, settings.sandbox, settings.strict_sandbox,
            settings.stage_timeout, settings.threads,
        )  # fmt: skip
        async with self._lock:
            held = self._open.get(key)
            if held is None:
                manager = self._makers.verifier(python, settings)
                held = self._open[key] = (manager, await manager.__aenter__())
        return held[1]

    async def close(self) -> None:
        """Ends all workers, at the same time."""
        managers = [manager for manager, _ in self._open.values()]
        self._open.clear()
        ends = [manager.__aexit__(None, None, None) for manager in managers]
        for outcome in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(outcome, BaseException):
                logger.warning("a verifier did not end cleanly: %r", outcome)
