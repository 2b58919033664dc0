"""Calls of bindings.cpp whose outcomes must be the same in both lanes; prints them as JSON."""

import json
from typing import Any

import torch


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    return [type(value).__name__, value]


def outcome(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    try:
        return plain(function(*arguments, **keywords))
    except Exception as error:
        return type(error).__name__


class Indexable:
    def __index__(self) -> int:
        return 3


def run(m: Any) -> None:
    x = torch.arange(4.0)
    parameter = torch.nn.Parameter(x).detach()
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (m.scaled, (x,), {}),
        (m.scaled, (x, 3), {}),
        (m.scaled, (x, 3.5, True), {}),
        (m.scaled, (), {"x": x, "negate": True}),
        (m.scaled, (x,), {"scale": 1.0}),
        (m.scaled, (x,), {"nope": 1}),
        (m.scaled, (), {}),
        (m.scaled, (None,), {}),
        (m.scaled, ([1.0],), {}),
        (m.scaled, (x, 1, True, 2), {}),
        (m.scaled, (x,), {"x": x}),
        (m.scaled, (x, "1"), {}),
        (m.both, (x, 1), {}),
        (m.both, (x, 1.5), {}),
        (m.both, (x, True), {}),
        (m.both, (x, Indexable()), {}),
        (m.both, (x, torch.tensor(2)), {}),
        (m.both, (), {"arg0": x, "arg1": 1}),
        (m.pieces, ([x, x],), {}),
        (m.pieces, ((x,), x), {}),
        (m.pieces, ([x, 1],), {}),
        (m.pieces, (x,), {}),
        (m.pieces, ([],), {"last": None}),
        (m.shout, ("a",), {}),
        (m.shout, ("ä😀",), {}),
        (m.shout, (b"b",), {}),
        (m.shout, (1,), {}),
        (m.total, ([1, 2],), {}),
        (m.total, ((1, 2),), {}),
        (m.total, ("12",), {}),
        (m.total, ([1.5],), {}),
        (m.total, (range(3),), {}),
        (m.narrow, (2**31 - 1,), {}),
        (m.narrow, (2**31,), {}),
        (m.narrow, (2**70,), {}),
        (m.narrow, ("1",), {}),
        (m.byte, (255,), {}),
        (m.byte, (256,), {}),
        (m.byte, (-1,), {}),
        (m.real, (1,), {}),
        (m.real, (0.5,), {}),
        (m.real, ("1",), {}),
        (m.real, (torch.tensor(2.5),), {}),
        (m.flag, (True,), {}),
        (m.flag, (0,), {}),
        (m.flag, (None,), {}),
        (m.flag, ("x",), {}),
        (m.nothing, (), {}),
        (m.nothing, (1,), {}),
        (m.undefined, (), {}),
        (m.made, ([2, 1], torch.int32), {}),
        (m.made, ((1,), torch.float16), {}),
        (m.made, (3, torch.int8), {}),
        (m.made, ([1], "float"), {}),
        (m.number, (2,), {}),
        (m.number, (2.5,), {}),
        (m.number, (True,), {}),
        (m.number, ("2",), {}),
        (m.pick, (3,), {}),
        (m.pick, ("s",), {}),
        (m.pick, (1.5,), {}),
        (m.free, (5,), {}),
        (m.both, (parameter, 0), {}),
    ]
    results = [outcome(*call) for call in calls]
    results.append([m.ANSWER, m.__doc__, m.__name__, m.scaled.__name__])
    print(json.dumps(results))
