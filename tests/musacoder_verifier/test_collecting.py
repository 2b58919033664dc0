"""Recorder, positions and hints: what is known of a Candidate before anything is compiled."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from musacoder_runtime import lint, operator_gate, recorder, source_positions
from musacoder_verifier.allow_list import allowed, plumbing, struct_listed
from musacoder_verifier.build_request import BuildRequest, SourceText


def _find(source: str, text: str) -> tuple[int, int, bool] | None:
    place = source_positions.SourcePositions(source).find(text)
    return (place.line, place.column, place.escaped) if place else None


@pytest.mark.parametrize(
    ("source", "text", "place"),
    [
        ('S = r"""int f();"""\n', "int f();", (1, 9, False)),
        ('S = """\nint f();"""\n', "\nint f();", (1, 8, False)),
        ('S = """\\\nint f();"""\n', "int f();", (2, 1, False)),
        ("load(cpp='a;b')\n", "a;b", (1, 11, False)),
        ('é = "ä"; S = "int f();"\n', "int f();", (1, 15, False)),
        ('S = "a\\tb"\n', "a\tb", (1, 6, True)),
        ('S = ("a;"\n     "b;")\n', "a;b;", (1, 7, True)),
        ('S = """\n  int f();\n"""\n', "int f();", (2, 3, False)),
        ('S = f"{1};"\n', "1;", None),
    ],
)
def test_a_source_string_is_found_where_it_stands(
    source: str, text: str, place: tuple[int, int, bool] | None
) -> None:
    assert _find(source, text) == place


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from("ab;{}\n\té😀 '"), min_size=1, max_size=30), st.integers(0, 3))
def test_the_position_points_at_the_first_character(text: str, above: int) -> None:
    source = "# é\n" * above + f'S = r"""{text}"""\n'
    found = _find(source, text)
    assert found is not None
    line, column, escaped = found
    assert not escaped
    lines = source.split("\n")
    rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
    assert rest.startswith(text)


_SOURCES = st.lists(st.tuples(st.sampled_from(["cpp", "cuda"]), st.text(max_size=9)), max_size=3)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=5), _SOURCES, st.lists(st.text(max_size=5), max_size=2), st.booleans())
def test_both_sides_compute_the_same_key(
    name: str, sources: list[tuple[Any, str]], flags: list[str], python_module: bool
) -> None:
    request = BuildRequest(
        name,
        tuple(SourceText(language, text, 3, 4) for language, text in sources),
        functions=(("f", "doc"),),
        extra_cflags=tuple(flags),
        is_python_module=python_module,
    )
    recorded = {
        "name": name,
        "sources": [{"language": language, "text": text} for language, text in sources],
        "functions": [["f", "doc"]],
        "extra_cflags": flags,
        "extra_cuda_cflags": [],
        "extra_ldflags": [],
        "extra_include_paths": [],
        "with_cuda": None,
        "is_python_module": python_module,
        "launches": None,
    }
    assert recorder.request_key(json.loads(json.dumps(recorded))) == request.key


def _hints(source: str) -> list[tuple[str, int]]:
    return [(hint.rule, hint.line) for hint in lint.hints(textwrap.dedent(source))]


def test_hints_name_rule_and_line() -> None:
    found = _hints("""\
        import torch
        import torch.nn.functional as F
        from torch.utils.cpp_extension import load_inline
        ext = load_inline(name="x", cpp_sources="", functions=[])
        class Model(torch.nn.Module): pass
        class ModelNew(Model):
            def forward(self, x):
                try:
                    return F.relu(x)
                except RuntimeError:
                    return x @ x
        """)
    assert found == [
        ("extension-unused", 4),
        ("subclasses-model", 6),
        ("try-except", 8),
        ("torch-compute", 9),
        ("torch-compute", 11),
    ]


@pytest.mark.parametrize(
    "use",
    [
        "return ext.f(torch.empty_like(x))",
        "return helper(x)",
    ],
)
def test_an_honest_candidate_has_no_hint(use: str) -> None:
    assert not _hints(f"""\
        import torch
        from torch.utils.cpp_extension import load_inline
        ext = load_inline(name="x", cpp_sources="", functions=["f"])
        def helper(x): return ext.f(x)
        class ModelNew(torch.nn.Module):
            def forward(self, x):
                {use}
        """)


def test_recorded_calls_hold_what_load_inline_was_given(tmp_path: Path) -> None:
    recording = recorder.Recorder()
    modules = {name: __import__("sys").modules.get(name) for name in recorder.MODULES}
    try:
        recorder.install(recording.answer)
        from torch.utils.cpp_extension import load, load_inline

        extension = load_inline("a", ["x", "y"], cuda_sources="z", functions="f", with_cuda=True)
        file = tmp_path / "k.cu"
        file.write_text("kernel")
        load(name="b", sources=[str(file)])
        with pytest.raises(recorder.NotCompiledYetError):
            extension.f(1)
    finally:
        import sys

        import torch.utils

        for name, module in modules.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
        if modules["torch.utils.cpp_extension"] is None:
            vars(torch.utils).pop("cpp_extension", None)
    first, second = recording.requests
    assert first["sources"] == [
        {"language": "cpp", "text": "x"},
        {"language": "cpp", "text": "y"},
        {"language": "cuda", "text": "z"},
    ]
    assert (first["functions"], first["with_cuda"]) == ([["f", "f"]], True)
    assert second["sources"] == [{"language": "cuda", "text": "kernel"}]


def test_only_outermost_operators_count_on_every_thread() -> None:
    event = operator_gate.Event
    capture = operator_gate.outermost(
        [
            event("aten::reshape", 1, 0, 100),
            event("aten::_unsafe_view", 1, 10, 20),
            event("aten::mm", 2, 15, 50),
            event("mine::op", 1, 200, 300),
            event("aten::add", 1, 210, 220),
        ],
        {"mine::op"},
    )
    assert capture.operators == ("aten::reshape", "aten::mm", "aten::add")
    assert capture.custom == ("mine::op",)


def test_allow_list_is_read_with_its_suffix_rule() -> None:
    assert allowed("aten::empty.memory_format") and allowed("aten::_assert_async.msg")
    assert not allowed("aten::mm") and not allowed("aten::zeros_like")
    assert plumbing("aten::zeros_like") and not plumbing("aten::relu")
    assert struct_listed("aten::empty_memory_format") and not struct_listed("aten::add_Tensor")
