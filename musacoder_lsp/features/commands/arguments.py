"""Arguments of commands, checked by hand: what is wrong is told in the result, never raised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lsprotocol import types


class BadArguments(Exception):
    """One sentence that says which argument is missing or wrong."""


def target(arguments: Sequence[Any]) -> dict[str, Any]:
    """The one object that commands take, with its `uri`."""
    if not arguments or not isinstance(arguments[0], dict):
        raise BadArguments("The command needs one object with uri and site.")
    if not isinstance(arguments[0].get("uri"), str):
        raise BadArguments("The command's argument needs a uri.")
    return arguments[0]


def site_of(argument: dict[str, Any]) -> str:
    site = argument.get("site")
    if not isinstance(site, str):
        raise BadArguments("The command's argument needs a site, as the lens gives it.")
    return site


def range_of(argument: dict[str, Any]) -> types.Range | None:
    """The range of a selection, None where there is none."""
    value = argument.get("range")
    if value is None:
        return None
    try:
        ends = [
            types.Position(int(value[name]["line"]), int(value[name]["character"]))
            for name in ("start", "end")
        ]
    except (KeyError, TypeError, ValueError) as problem:
        raise BadArguments("The command's range needs start and end positions.") from problem
    return types.Range(ends[0], ends[1])
