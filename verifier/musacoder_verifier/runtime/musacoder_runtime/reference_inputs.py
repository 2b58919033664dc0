"""What `get_inputs` and `get_init_inputs` return, as the arguments of a call."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Callable, Dict, List, Tuple

_MOST = 1000


class ReferenceFault(Exception):
    """What the Reference lacks, or returns instead of what the convention asks: one sentence."""


def initial(given: Any) -> Tuple[List[Any], Dict[str, Any]]:
    """Positional and keyword arguments of `Model`: a list, a tuple, or a dict of keywords."""
    if isinstance(given, Mapping):
        return [], dict(given)
    if not isinstance(given, (list, tuple)):
        raise ReferenceFault(_wrong("get_init_inputs", given))
    return list(given), {}


def positional(module: ModuleType, given: Any) -> List[Any]:
    """Positional arguments of `module.Model.forward`: a list or tuple as it is, a generator run
    to its end, a dict put in the order of forward's parameters."""
    if isinstance(given, Iterator):
        given = list(itertools.islice(given, _MOST + 1))
        if len(given) > _MOST:
            raise ReferenceFault(f"get_inputs yields more than {_MOST} inputs")
    if isinstance(given, Mapping):
        try:
            bound = inspect.signature(module.Model.forward).bind(None, **given)
        except TypeError as error:
            raise ReferenceFault(f"the dict of get_inputs does not fit forward: {error}") from None
        if bound.kwargs:
            names = ", ".join(bound.kwargs)
            raise ReferenceFault(
                f"forward takes {names} of get_inputs by keyword only, which is not supported"
            )
        return list(bound.args[1:])
    if not isinstance(given, (list, tuple)):
        raise ReferenceFault(_wrong("get_inputs", given))
    return list(given)


def _wrong(function: str, given: Any) -> str:
    return f"{function} returns a {type(given).__name__}, not a list of arguments"


def names(forward: Callable[..., Any], count: int) -> List[str]:
    """A name for each of `count` positional arguments of the bound method `forward`."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found: List[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}{n}" for n in range(count - len(found))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append(parameter.name)
    found += [f"input{n}" for n in range(len(found), count)]
    return found[:count]
