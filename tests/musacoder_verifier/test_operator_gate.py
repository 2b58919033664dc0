"""Which events of the profiler count as operators of a call."""

from __future__ import annotations

from musacoder_runtime.operator_gate import Event, outermost


def test_an_operator_that_the_extension_registers_is_its_own() -> None:
    events = [
        Event("hand_own::rectify", 1, 0, 100),
        Event("aten::relu", 1, 10, 20),
        Event("mkldnn::_linear_pointwise", 1, 30, 60),
        Event("aten::linear", 2, 0, 100),
        Event("mkldnn::_linear_pointwise", 2, 10, 20),
    ]
    capture = outermost(events, {"hand_own::rectify"}, {"mkldnn::_linear_pointwise"})
    assert capture.custom == ("hand_own::rectify",)
    assert sorted(capture.operators) == ["aten::linear", "aten::relu", "mkldnn::_linear_pointwise"]
