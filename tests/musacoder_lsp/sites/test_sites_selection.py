"""Calls and selections: what is taken, what is missing, what is refused."""

from __future__ import annotations

import pytest
from site_markers import HEADER, at_cursor, selected

from musacoder_lsp.sites import (
    Edit,
    Refused,
    Site,
    SiteIndex,
    Unbuildable,
    annotation_template,
    build_reference,
)

FUNCTION = HEADER + "def f(x: torch.Tensor, w: torch.Tensor, n):\n    {}\n"


@pytest.mark.parametrize(
    "body, taken",
    [
        ("return torch.relu(¦x @ w) + 1", "x @ w"),
        ("return torch.relu(x ¦@ w) + 1", "x @ w"),
        ("return torch.¦relu(x @ w) + 1", "torch.relu(x @ w)"),
        ("return torch.relu(x @ w) ¦+ 1", "torch.relu(x @ w) + 1"),
        ("return (x @ w).exp().¦sum(0)", "(x @ w).exp().sum(0)"),
        ("return (x @ w).e¦xp().sum(0)", "(x @ w).exp()"),
        ("return (x * 2).¦view(-1).exp()", "(x * 2).view(-1).exp()"),
        ("s = '漢🙂'; return torch.¦exp(x)", "torch.exp(x)"),
        ("x ¦+= w; return x", "x += w"),
    ],
)
def test_the_innermost_operation_is_taken(body: str, taken: str) -> None:
    index, site = at_cursor(FUNCTION.format(body))
    assert isinstance(site, Site), site
    assert (site.kind, index.text[site.start : site.end]) == ("call", taken)


@pytest.mark.parametrize(
    "text, reason",
    [
        (FUNCTION.format("y = ¦n + 1; return x @ w"), "no tensor operation here"),
        (FUNCTION.format("return x.¦shape"), "no tensor operation here"),
        (HEADER + "y = torch.¦exp(torch.ones(3))\n", "only inside a function"),
        (HEADER + "¦", "only inside a function"),
        ("def f(a):\n    return ¦a + 1\n", "no tensor operation here"),
    ],
)
def test_no_call_here(text: str, reason: str) -> None:
    _, refused = at_cursor(text)
    assert isinstance(refused, Refused)
    assert reason in refused.reason


@pytest.mark.parametrize(
    "body, reason",
    [
        ("«  »return x @ w", "Nothing is selected"),
        ("«y = n + 1»\n    return x @ w", "no tensor operation"),
        ("«if n:\n        return x\n    y = x @ w»\n    return y", "returns in the middle"),
        ("for i in n:\n        «y = x @ w\n        break»", "leaves a loop"),
        ("«yield x @ w»", "yields"),
        ("«y = super().f(x @ w)»\n    return y", "calls super()"),
        ("«global z\n    z = x @ w»", "changes a global name"),
    ],
)
def test_selections_that_cannot_run_alone(body: str, reason: str) -> None:
    _, refused = selected(FUNCTION.format(body))
    assert isinstance(refused, Refused), refused
    assert reason in refused.reason


def test_a_kernel_keeps_no_state() -> None:
    text = HEADER + (
        "class N(nn.Module):\n    def __init__(self):\n        self.last = None\n"
        "    def forward(self, x):\n        «self.last = x * 2»\n        return x\n"
    )
    _, refused = selected(text)
    assert isinstance(refused, Refused)
    assert "changes `self.last`" in refused.reason


def test_a_loop_may_be_left_when_it_is_selected() -> None:
    _, site = selected(FUNCTION.format("«for i in range(3):\n        x = x @ w\n        break»"))
    assert isinstance(site, Site)


def test_a_broken_selection_is_refused() -> None:
    _, refused = selected(FUNCTION.format("«y = x @\n    z = x @ w»"))
    assert isinstance(refused, Refused)


def test_a_selected_class_or_function_is_that_site() -> None:
    index, site = selected(HEADER + "«@torch.no_grad()\ndef f(x):\n    return torch.exp(x)\n»\n")
    assert site == index.sites()[0]


def test_what_is_unknown_is_missing_by_name() -> None:
    index, site = selected(FUNCTION.format("k = load(n)\n    «y = (x @ w) * k»\n    return y"))
    assert isinstance(site, Site)
    assert (site.missing, site.workload_origin) == (("x", "w", "k"), None)
    built = build_reference(site, index.text, None)
    assert isinstance(built, Unbuildable)
    assert built.missing == ("x", "w", "k")
    offset, comment = annotation_template(site, index.text) or (0, "")
    assert comment == "    # musacoder: x: f32[?], w: f32[?], k: f32[?]\n"
    filled = comment.replace("?", "4, 4", 2).replace("k: f32[?]", "k=2.0")
    site = index.update([Edit(offset, offset, filled)]) and index.selection(
        site.start + len(filled), site.end + len(filled)
    )
    assert isinstance(site, Site)
    assert (site.missing, site.workload_origin) == ((), "annotation")


def test_constructor_arguments_of_what_is_used_are_missing() -> None:
    text = HEADER + (
        "class N(nn.Module):\n    def __init__(self, a, b):\n        super().__init__()\n"
        "        self.p = nn.Linear(a, a)\n        self.q = nn.Linear(b, b)\n"
        "    # musacoder: x: f32[2, 3]\n    def forward(self, x):\n        return self.¦p(x)\n"
    )
    index, site = at_cursor(text)
    assert isinstance(site, Site)
    assert site.missing == ("a",)
    assert annotation_template(site, index.text) == (
        index.text.index("        return"),
        "        # musacoder: init: a=?\n",
    )


def test_a_scalar_is_not_carried_over_a_changed_shape() -> None:
    # `d` was read from another `x` than the selection's.
    body = (
        "d = x.shape[0]\n    x = x[1:]\n    # musacoder: x: f32[3]\n    «y = x * d»\n    return y"
    )
    _, site = selected(FUNCTION.format(body))
    assert isinstance(site, Site)
    assert site.missing == ("d",)


def test_ids_and_fingerprints_are_stable_elsewhere() -> None:
    text = FUNCTION.format("a = torch.exp(x)\n    b = torch.exp(w)\n    return a + b")
    index = SiteIndex(text)
    place = text.index("exp(w)")
    site = index.call_at(place)
    assert isinstance(site, Site)
    assert site.id == "call:f:exp:2"
    index.update([Edit(0, 0, "# comment\nimport os\n")])
    again = index.call_at(place + len("# comment\nimport os\n"))
    assert isinstance(again, Site)
    assert (again.id, again.fingerprint) == (site.id, site.fingerprint)


def test_the_file_is_binary() -> None:
    index = SiteIndex("\0")
    assert isinstance(index.call_at(0), Refused)
    assert isinstance(index.selection(0, 1), Refused)
