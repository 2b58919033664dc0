"""What is left of an exception whose report cannot be made."""

from __future__ import annotations

from musacoder_runtime import failure


class _Hostile(Exception):
    def __str__(self) -> str:
        raise RecursionError("no report of this one")


def test_an_exception_whose_text_cannot_be_had_still_says_where_it_was_raised() -> None:
    try:
        raise _Hostile
    except _Hostile as error:
        report = failure.describe(error)
    assert report["message"] == "_Hostile, whose report failed with RecursionError"
    assert f"{__file__}:" in report["traceback"]
    assert "in test_an_exception_whose_text_cannot_be_had" in report["traceback"]
    assert "in __str__" in report["traceback"]
