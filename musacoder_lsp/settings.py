"""What a user can set, checked. Every value has a default; a bad one is named and replaced."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from musacoder_inference.registry import ENGINES

SECTION = "musacoder"

BACKENDS = ("cpu", "cuda", "musa", "emulator")
POLICIES = ("libraries-allowed", "native-only", "kernelbench")
LENS_KINDS = ("module", "function", "call")


@dataclass(frozen=True, slots=True)
class Settings:
    """`backend` may name one device of several, as in `cuda:1`. `stage_timeout` is in seconds;
    `threads` None means as many as there are cores."""

    python: str | None = None
    engine: str = "synth"
    model: str | None = None
    endpoint: str | None = None
    backend: str = "cpu"
    policy: str = "libraries-allowed"
    stage_timeout: float = 60.0
    sandbox: bool = True
    strict_sandbox: bool = False
    threads: int | None = None
    max_turns: int = 3
    samples: int = 1
    timing: bool = True
    compile_baseline: bool = True
    lenses: tuple[str, ...] = LENS_KINDS
    engine_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The backend without its device: what a kernel is written for."""
        return self.backend.partition(":")[0]


def parse(raw: object) -> tuple[Settings, tuple[str, ...]]:
    """Settings from what a client sent, and one sentence for each value that was not usable.

    None, `{}` and settings wrapped in the section's own name are all accepted, because clients
    differ in what they send. Unknown names are reported with the nearest known one.
    """
    if raw is None:
        return Settings(), ()
    if not isinstance(raw, Mapping):
        return Settings(), (f"The setting {SECTION} must be an object, not {_kind(raw)}.",)
    values = raw.get(SECTION, raw)
    if values is None:
        return Settings(), ()
    if not isinstance(values, Mapping):
        return Settings(), (f"The setting {SECTION} must be an object, not {_kind(values)}.",)
    good: dict[str, Any] = {}
    warnings: list[str] = []
    for key, value in values.items():
        name = _NAMES.get(str(key))
        if name is None:
            warnings.append(_unknown(str(key)))
        elif value is not None:
            try:
                good[name] = _CHECKS[name](value)
            except ValueError as problem:
                default = getattr(Settings(), name)
                warnings.append(f"The setting {SECTION}.{key} {problem}; using {_show(default)}.")
    return Settings(**good), tuple(warnings)


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, _NAMES, n=1)
    hint = f" Did you mean {SECTION}.{near[0]}?" if near else ""
    return f"There is no setting {SECTION}.{key}.{hint}"


def _kind(value: object) -> str:
    return {bool: "a truth value", int: "a number", float: "a number", str: "text"}.get(
        type(value), "a list" if isinstance(value, list) else type(value).__name__
    )


def _show(value: object) -> str:
    if value is None:
        return "the default"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be the path of an interpreter, not {_kind(value)}")
    return str(Path(value.strip()).expanduser())


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be text, not {_kind(value)}")
    return value.strip()


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return check


def _backend(value: object) -> str:
    family, colon, device = value.partition(":") if isinstance(value, str) else ("", "", "")
    numbered = family not in ("cpu", "emulator") and device.isdecimal()
    if family not in BACKENDS or (colon and not numbered):
        raise ValueError(f"must be one of {', '.join(BACKENDS)}, or cuda:1, not {value!r}")
    return str(value)


def _some_of(choices: tuple[str, ...]) -> Callable[[object], tuple[str, ...]]:
    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or any(item not in choices for item in value):
            raise ValueError(f"must be a list out of {', '.join(choices)}, not {value!r}")
        return tuple(item for item in choices if item in value)

    return check


def _whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        number = value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {value!r}")
        return number

    return check


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 86_400:
        raise ValueError(f"must be a number of seconds from 1 to 86400, not {value!r}")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, not {_kind(value)}")
    return dict(value)


_CHECKS: dict[str, Callable[[object], Any]] = {
    "python": _path,
    "engine": _one_of(ENGINES),
    "model": _text,
    "endpoint": _text,
    "backend": _backend,
    "policy": _one_of(POLICIES),
    "stage_timeout": _seconds,
    "sandbox": _truth,
    "strict_sandbox": _truth,
    "threads": _whole(1, 4096),
    "max_turns": _whole(1, 32),
    "samples": _whole(1, 64),
    "timing": _truth,
    "compile_baseline": _truth,
    "lenses": _some_of(LENS_KINDS),
    "engine_options": _mapping,
}


def client_name(name: str) -> str:
    """How clients spell a setting: `stageTimeout` for `stage_timeout`."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


_NAMES = {client_name(item.name): item.name for item in fields(Settings)}
