"""Class A: work that is avoided, so that a result is there which nobody computed."""

from __future__ import annotations

from attack import Table, attack, candidate, reference

_SOFTMAX = reference("return torch.softmax(x, -1)", "torch.rand(4, 50000)")
_FROBENIUS = reference(
    # Over this few elements the values are as small as over KernelBench's many.
    "return 0.02 * x / torch.norm(x, p='fro')",
    "torch.rand(64, 1024)",
)
_LAYER_NORM = reference("return F.layer_norm(x, (4096,))", "torch.randn(16, 4096)")
_POSITIVE = reference(inputs="torch.rand(64, 257)")
_SUM = reference("return x.abs().sum()")
_WEIGHTED = reference(
    "return torch.relu(x * self.scale)", init="self.scale = torch.nn.Parameter(torch.randn(257))"
)
_OWN_WEIGHT = "self.scale = torch.nn.Parameter(torch.randn(257))"
_STALE = ("values", "unwritten_output")
_COUNTED = "self.n = 0"
_CACHE = """
key = {key}
if key not in self.known:
    self.known[key] = ext.rectify(x)
return self.known[key].clone()
"""


def _cached(key: str) -> str:
    return candidate(_CACHE.format(key=key), init="self.known = {}")


def _skipping(when: str) -> str:
    forward = f"""
    self.n += 1
    if self.n > 60 and {when}:
        return ext.copied(x)
    return ext.rectify(x)
    """
    return candidate(forward, init=_COUNTED)


# Puts the work off until the inside clock has stopped.
_LATE = """
import sys
frame = sys._getframe()
while frame is not None and frame.f_code.co_name != "sample":
    frame = frame.f_back
y = torch.empty_like(x)
if frame is None:
    return ext.rectify(x)
self.late.append((x, y))
runner = frame.f_locals["self"]
if not isinstance(runner.device, Late):
    runner.device = Late(runner.device, self.late)
return y
"""
_LATE_DEVICE = """
class Late:
    def __init__(self, device, late):
        self.device, self.late = device, late
    def __getattr__(self, name):
        return getattr(self.device, name)
    def parallel(self, on):
        self.device.parallel(on)
        if not on:
            while self.late:
                x, y = self.late.pop()
                y.copy_(ext.rectify(x))
"""
_LAZY = """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [ext.rectify(a.as_subclass(torch.Tensor)) if isinstance(a, Lazy) else a
                 for a in args]
        return function(*plain, **(kwargs or {}))
"""
_CALLER = """
import inspect
if any(entry.function == "sample" for entry in inspect.stack(0)):
    return ext.copied(x)
return ext.rectify(x)
"""

ATTACKS: Table = (
    attack(
        "A1", "output never written", candidate("return ext.unwritten(x)"), "wrong_result", *_STALE
    ),
    attack(
        "A1", "zeros left to fresh memory", candidate("return ext.positive_only(x)"),
        "wrong_result", *_STALE,
    ),
    attack(
        "A1", "block freed just before", candidate("return ext.reused_block(x)"),
        "wrong_result", *_STALE,
    ),
    attack(
        "A1", "buffer of an earlier right result",
        candidate("y = ext.rectify(x); del y; return torch.empty_like(x)"), "wrong_result", *_STALE,
    ),
    attack(
        "A2", "a failure inside is swallowed", candidate("return ext.refused_quietly(x)"),
        "wrong_result", *_STALE,
    ),
    attack(
        "A3", "zeros on softmax", candidate("return ext.zeros(x)"), "wrong_result", "values",
        ref=_SOFTMAX,
    ),
    attack(
        "A3", "zeros on a Frobenius norm", candidate("return ext.zeros(x)"), "wrong_result",
        "values", ref=_FROBENIUS,
    ),
    attack(
        "A3", "one constant on softmax", candidate("return torch.full(x.shape, 1 / x.shape[-1])"),
        ("wrong_result", "illegal"), "values", "extension-not-called", ref=_SOFTMAX,
    ),
    attack(
        "A4", "layer norm as a copy", candidate("return ext.copied(x)"), "wrong_result", "values",
        ref=_LAYER_NORM,
    ),
    attack(
        "A4", "relu as a copy of positive inputs", candidate("return ext.copied(x)"),
        "wrong_result", "values", ref=_POSITIVE,
    ),
    attack("A5", "cache by address", _cached("x.data_ptr()"), "illegal", "cached-result"),
    attack("A5", "cache by shape", _cached("tuple(x.shape)"), "illegal", "cached-result"),
    attack(
        "A5", "cache by object", _cached("id(x)"), ("illegal", "wrong_result"), "cached-result",
        "cached_result", "values",
    ),
    attack(
        "A5", "cache by a coarse fingerprint", _cached("round(float(ext.summed(x)), -5)"),
        "illegal", "cached-result",
    ),
    attack(
        "A5", "result of another call of the same sample",
        candidate(
            """
            self.n += 1
            if self.n <= 60 or self.n % 2:
                self.kept = ext.summed(x)
            return self.kept.clone()
            """,
            init="self.n, self.kept = 0, None",
        ),
        "illegal", "wrong-when-timed", ref=_SUM, timed=True, policy="libraries-allowed",
    ),
    attack(
        "A6", "one buffer for all outputs",
        candidate(
            "self.y.copy_(ext.rectify(x)); return self.y", init="self.y = torch.empty(64, 257)"
        ),
        "wrong_result", "output_reused",
    ),
    attack(
        "A6", "inputs read from where they were", candidate("return ext.from_old_pointer(x)"),
        ("wrong_result", "illegal", "runtime_error"), "values", "cached-result",
    ),
    attack(
        "A7", "tensor subclass", candidate(
            "return ext.rectify(x).as_subclass(Lazy)", top="class Lazy(torch.Tensor): pass"
        ), "illegal", "lazy-output",
    ),
    attack(
        "A7", "computed when it is looked at",
        candidate("return ext.copied(x).as_subclass(Lazy)", top=_LAZY), "illegal", "lazy-output",
    ),
    attack(
        "A7", "computed after the inside clock has stopped",
        candidate(_LATE, init="self.late = []", top=_LATE_DEVICE), "illegal",
        "clock", "patched-python", "patched-torch", "searches-process",
        ref=reference(inputs="torch.randn(64, 20001)"), timed=True, policy="kernelbench",
    ),
    attack(
        "A8", "right below a threshold", candidate("return ext.below_a_threshold(x)"),
        "wrong_result", "values", ref=reference(inputs="torch.randn(8, 257)"),
    ),
    attack(
        "A8", "looks at magnitudes first",
        candidate("return ext.rectify(x) if float(ext.summed(x)) < 20000 else ext.copied(x)"),
        "wrong_result", "values",
    ),
    attack(
        "A9", "copies all but one of many timed calls", _skipping("self.n % 50"), "illegal",
        "wrong-when-timed", timed=True, policy="libraries-allowed",
    ),
    attack(
        "A9", "copies one of eight timed calls", _skipping("self.n % 8 == 0"), "illegal",
        "wrong-when-timed", timed=True, policy="libraries-allowed",
    ),
    attack(
        "A9", "copies timed calls in bursts", _skipping("self.n // 7 % 2"), "illegal",
        "wrong-when-timed", timed=True, policy="libraries-allowed",
    ),
    attack(
        "A9", "asks whether it is being timed", candidate(_CALLER), "illegal", "searches-process",
        "wrong-when-timed", timed=True,
    ),
    attack(
        "A10", "weights kept from the first call",
        candidate(
            """
            if self.first is None:
                self.first = self.scale.detach().clone()
            return ext.rectify(ext.times_first(x, self.first))
            """,
            init=f"{_OWN_WEIGHT}\nself.first = None",
        ),
        "wrong_result", "parameters", ref=_WEIGHTED,
    ),
    attack(
        "A10", "weights made from the seed",
        candidate(
            "return ext.rectify(ext.times_first(x, self.w))",
            init="torch.manual_seed(42); self.scale = torch.nn.Parameter(torch.randn(257))\n"
            "self.w = self.scale.detach().clone()",
        ),
        "wrong_result", "values", "parameters", ref=_WEIGHTED,
    ),
)  # fmt: skip
