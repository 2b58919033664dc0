"""Annotation comments: what they say, and what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_markers import HEADER

from musacoder_lsp.sites import annotation_template, find_sites
from musacoder_lsp.sites.reference.values import made, size
from musacoder_lsp.sites.workload import (
    Comment,
    TensorSpec,
    ValueSpec,
    jaxtyping_spec,
    parse_annotations,
)


def parse(*lines: str):  # type: ignore[no-untyped-def]
    return parse_annotations([Comment(n, f"# musacoder: {line}") for n, line in enumerate(lines)])


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x: f32[1024, 4096]", "torch.randn((1024, 4096))"),
        ("x: float16[3]", "torch.randn((3,), dtype=torch.float16)"),
        ("x: bf16[]", "torch.randn((), dtype=torch.bfloat16)"),
        ("x: f32[B, 4*H, (B+1)//2], B=8, H=16", "torch.randn((8, 64, 4))"),
        ("x: f32[3] >= 0", "torch.rand((3,)) * 1.0 + 0.0"),
        ("x: f32[3] in -1..1", "torch.rand((3,)) * 2.0 + -1.0"),
        ("x: f32[3] < 5", "torch.rand((3,)) * 1.0 + 4.0"),
        ("x: i64[8, 128] < 50257", "torch.randint(0, 50257, (8, 128), dtype=torch.int64)"),
        ("x: i32[8] in 2..V, V=9", "torch.randint(2, 9, (8,), dtype=torch.int32)"),
        ("x: u8[8]", "torch.randint(0, 256, (8,), dtype=torch.uint8)"),
        ("x: bool[2, 2]", "torch.rand((2, 2)) < 0.5"),
        ("x: 3", "3"),
        ("x=0.3", "0.3"),
        ("x=-1e-5", "-1e-5"),
        ("x='mean'", "'mean'"),
        ("x=(1, [2, None], torch.float16)", "(1, [2, None], torch.float16)"),
        ("x=(1,)", "(1,)"),
        ("x: [f32[2], f32[3]]", "[torch.randn((2,)), torch.randn((3,))]"),
        ("x: (f32[2], 3)", "(torch.randn((2,)), 3)"),
        ("x: (f32[2],)", "(torch.randn((2,)),)"),
    ],
)
def test_what_is_made(text: str, expected: str) -> None:
    annotations = parse(text)
    assert annotations.problems == ()
    spec = annotations.spec("x")
    assert spec is not None
    assert made(spec, annotations.values) == expected


def test_several_lines_and_sections() -> None:
    annotations = parse("x: f32[B]", "B=4, n: 3", "init: hidden=64, bias=True", "mode: train")
    assert annotations.inputs == {"x": TensorSpec("float32", ("B",))}
    assert annotations.values == {"B": "4", "n": "3"}
    assert annotations.init == {"hidden": ValueSpec("64"), "bias": ValueSpec("True")}
    assert annotations.training


@pytest.mark.parametrize(
    "text, part",
    [
        ("x: f32[?]", "still to be filled in"),
        ("x=?", "still to be filled in"),
        ("x: f32", "the shape of x is missing"),
        ("x: f31[3]", "`f31` is no dtype"),
        ("x: i64[3]", "needs a range"),
        ("x: f32[3", "`]`"),
        ("x: f32[3] y", "`,` is expected before `y`"),
        ("x f32[3]", "`:` is expected"),
        ("x: f32[1.5]", "no size of x"),
        ("x: f32[3,,4]", "a size of x is missing"),
        ("x: f32['a']", "no size of x"),
        ("3: f32[2]", "a name is expected"),
        ("mode: fast", "the mode is `train` or `eval`"),
        ("x: $", "`$` is not understood"),
        ("x:", "it ends early"),
        ("x: f32[3] < y", "no number"),
        ("x: f32[B], B=0.5", "no whole number"),
        ("x: f32[2 - 3]", "negative"),
        ("x: f32[2 // 0]", "by zero"),
    ],
)
def test_problems_are_one_sentence_with_their_line(text: str, part: str) -> None:
    code = HEADER + f"# musacoder: {text}\ndef f(x: torch.Tensor):\n    return x * 2\n"
    (site,) = find_sites(code)
    if site.problem is not None:
        assert part in site.problem
        assert site.problem.startswith("Line 4: ")
        assert site.workload_origin is None
        return
    # Sizes are worked out when the Reference is built.
    from musacoder_lsp.sites import Unbuildable, build_reference

    built = build_reference(site, code, None)
    assert isinstance(built, Unbuildable)
    assert part in built.reason


@given(st.text(alphabet=st.sampled_from("xB f32[](){}:=<>,.*/+-?'\"#0189é"), max_size=40))
def test_any_comment_is_read(text: str) -> None:
    annotations = parse(text)
    for spec in annotations.inputs.values():
        annotations.unbound(spec)


EXPRESSIONS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        "({0[0]} {0[1]} {0[2]})".format
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_sizes_are_python_arithmetic(expression: str) -> None:
    expected = eval(expression)
    if expected >= 0:
        assert size(expression, {}) == expected


@pytest.mark.parametrize(
    "annotation, expected",
    [
        ('Float[Tensor, "b c"]', TensorSpec("float32", ("b", "c"))),
        ('Float16[torch.Tensor, "4 c=8"]', TensorSpec("float16", ("4", "8"))),
        ("Bool[Tensor, '']", TensorSpec("bool", ())),
        ('Float[Tensor, "*batch c"]', None),
        ('Float[Tensor, "... c"]', None),
        ("Tensor", None),
        (None, None),
    ],
)
def test_jaxtyping(annotation: str | None, expected: TensorSpec | None) -> None:
    assert jaxtyping_spec(annotation) == expected


def test_jaxtyping_dimensions_come_from_comments() -> None:
    code = (
        "from jaxtyping import Float, Int\nfrom torch import Tensor\nimport torch\n{}"
        'def f(x: Float[Tensor, "b 4"], i: Int[Tensor, "b"]):\n    return x[i] * 2\n'
    )
    (site,) = find_sites(code.format(""))
    assert site.missing == ("b", "i")
    (site,) = find_sites(code.format("# musacoder: b=8, i: i64[b] < 8\n"))
    assert (site.missing, site.workload_origin) == ((), "annotation")


@pytest.mark.parametrize(
    "code",
    [
        # above the decorators, between them and the function, behind the colon, in the body
        "# musacoder: x: f32[2]\n# musacoder: n=3\n@d\ndef f(x: torch.Tensor, n):\n"
        "    return x * n\n",
        "@d\n# musacoder: x: f32[2], n=3\ndef f(x: torch.Tensor, n):\n    return x * n\n",
        "def f(x: torch.Tensor, n):  # musacoder: x: f32[2], n=3\n    return x * n\n",
        "def f(\n    x: torch.Tensor,  # musacoder: x: f32[2]\n    n,  # musacoder: n=3\n):\n"
        "    return x * n\n",
        'def f(x: torch.Tensor, n):\n    """Doc."""\n    # musacoder: x: f32[2], n=3\n'
        "    return x * n\n",
    ],
)
def test_places_of_comments(code: str) -> None:
    (site,) = find_sites(HEADER + code)
    assert (site.missing, site.problem, site.workload_origin) == ((), None, "annotation")


def test_a_comment_apart_belongs_to_nobody() -> None:
    code = "# musacoder: x: f32[2]\n\ndef f(x: torch.Tensor):\n    return x * 2\n"
    assert find_sites(HEADER + code)[0].missing == ("x",)


@pytest.mark.parametrize(
    "annotation, value",
    [
        ("torch.dtype", "torch.float16"),
        ("tuple[int, ...]", "(0, 1)"),
        ("Literal['sum', 'mean']", "'sum'"),
        ("int | None", "None"),
    ],
)
def test_values_that_are_no_tensors(annotation: str, value: str) -> None:
    code = f"# musacoder: x: f32[2], v={value}\ndef f(x: torch.Tensor, v: {annotation}):\n"
    (site,) = find_sites(HEADER + code + "    return torch.exp(x)\n")
    assert (site.missing, site.workload_origin) == ((), "annotation")


def test_starred_inputs_are_asked_for() -> None:
    code = "class N(nn.Module):\n    def forward(self, *xs):\n        return torch.stack(xs)\n"
    assert find_sites(HEADER + code)[0].missing == ("xs",)


def test_names_that_fit_nothing_are_a_problem() -> None:
    code = "# musacoder: x: f32[2], xx: f32[2]\ndef f(x: torch.Tensor):\n    return x * 2\n"
    (site,) = find_sites(HEADER + code)
    assert site.problem == "The annotation names xx, which is no input here."


@pytest.mark.parametrize(
    "code, template",
    [
        ("def f(x: torch.Tensor, n: int):\n    return x * n\n", "# musacoder: x: f32[?], n=?\n"),
        (
            "class N(nn.Module):\n    def __init__(self, dim, heads):\n        pass\n"
            "    def forward(self, x):\n        return x * 2\n",
            "# musacoder: init: dim=?, heads=?\n# musacoder: x: f32[?]\n",
        ),
        (
            "class Outer:\n\t@staticmethod\n\tdef f(x: torch.Tensor):\n\t\treturn x * 2\n",
            "\t# musacoder: x: f32[?]\n",
        ),
    ],
)
def test_the_template_asks_for_what_is_missing(code: str, template: str) -> None:
    text = HEADER + code
    (site,) = find_sites(text)
    offered = annotation_template(site, text)
    assert offered is not None
    offset, inserted = offered
    assert inserted == template
    after = text[:offset] + inserted + text[offset:]
    (asked,) = find_sites(after)
    # It is still missing, and says so at its line, until a person fills it in.
    assert asked.workload_origin is None
    assert "filled in" in (asked.problem or "")
    filled = after.replace("f32[?]", "f32[2, 2]").replace("=?", "=2")
    (done,) = find_sites(filled)
    assert (done.workload_origin, done.missing) == ("annotation", ())
    assert annotation_template(done, filled) is None


def test_the_template_keeps_the_line_ending() -> None:
    text = (HEADER + "def f(x: torch.Tensor):\n    return x * 2\n").replace("\n", "\r\n")
    (site,) = find_sites(text)
    assert (annotation_template(site, text) or (0, ""))[1].endswith("]\r\n")
