"""Stage legality: findings from what was seen while ModelNew ran, and from what was compiled.

Verdicts come from run-time evidence and from the compiled objects; static hints only lend lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from musacoder_verifier.allow_list import allowed, plumbing, struct_listed
from musacoder_verifier.policy import UNCHECKED, legal
from musacoder_verifier.stages.device_work import DeviceWork
from musacoder_verifier.stages.evidence import Evidence
from musacoder_verifier.stages.native_code import NativeCode, Place
from musacoder_verifier.verdict import Correctness, Finding, Legality

# Share of a pause after forward that other threads may compute in before we say so.
_BACKGROUND = 0.25
# fp32 results this much worse than the Reference's own, and worse than fp32 rounding explains.
_PRECISION_FACTOR = 64.0
_PRECISION_ERROR = 2e-5
# Halves and TF32 round to within 5e-4; float32 work stays far below this share of the outputs' RMS.
_PRECISION_SHARE = 5e-5
# Libraries that compute, by the name of their file.
_COMPUTING = re.compile(
    r"lib(?:cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|mublas|mudnn|musparse"
    r"|mkl|dnnl|onednn|openblas|scipy_openblas|blas|blis|lapack|atlas|nnpack|xnnpack|ipp)",
    re.IGNORECASE,
)
# What drivers and Python load for themselves; an extension module of Python names its ABI.
_COMPANIONS = re.compile(
    r"lib(?:cuda|cudadebugger|nvidia-|cupti|nvperf|gcc_s|dl|m|c|rt|pthread|util|nss|musa|mupti)"
    r"|.*\.(?:cpython-|abi3)"
)
# Less of the device's time than this in kernels of the sources is worth a word.
_OWN_SHARE = 0.3
_FRAMEWORK = re.compile(r"\bat::(?:native|cuda)\b|\bat_cuda_detail\b|\btriton_|\bc10::")
# Kernels behind listed operators: they fill, copy, or draw.
_ARRANGES = re.compile(
    r"FillFunctor|copy_kernel|CopyFunctor|arange|distribution_|CatArray|direct_copy", re.IGNORECASE
)
_VENDOR_KERNEL = re.compile(
    r"cublas|cudnn|cutlass|cusparse|cusolver|xmma_|_s\d{4}gemm|\b(?:ampere|volta|turing|maxwell|sm\d\d+)_"
    r"|(?:^|\W)(?:gemm|gemv)\w*_kernel|implicit_convolve|winograd|dgrad_|wgrad_|nchwToNhwc|nhwcToNchw"
    r"|splitKreduce|gemmSN|gemmk1|vector_fft|regular_fft|mublas|mudnn",
    re.IGNORECASE,
)


def judge(
    evidence: Evidence,
    hints: Sequence[Finding],
    native: NativeCode,
    correctness: Correctness | None,
    *,
    policy: str,
    path: str,
) -> Legality:
    """All findings."""
    findings = [
        *_operator_findings(evidence, hints, path),
        *_extension_findings(evidence, path, native.extensions),
        *_conduct_findings(evidence, path),
        *_symbol_findings(native, path),
        *_library_findings(evidence, native, path),
        *_precision_findings(native, correctness, path),
    ]
    return Legality(
        verdict=legal(policy, findings),
        findings=(*findings, *hints),
        operators=tuple(sorted(evidence.operators)),
    )


def _operator_findings(evidence: Evidence, hints: Sequence[Finding], path: str) -> list[Finding]:
    found = []
    for name in sorted(evidence.operators):
        if allowed(name):
            continue
        line = _line_of(name, hints)
        if plumbing(name):
            evidence_text = f"{name} is not in the list of allowed operators, but computes nothing"
            found.append(Finding("plumbing-operator", evidence_text, line, file=path))
        else:
            evidence_text = f"ModelNew.forward runs {name}, which computes"
            found.append(Finding("aten-operator", evidence_text, line, file=path))
    if evidence.unprofiled is not None:
        found.append(Finding(UNCHECKED, f"operators: {evidence.unprofiled}", None, "hint", path))
    elif evidence.runs == 0:
        found.append(Finding(UNCHECKED, "operators: ModelNew never ran", None, "hint", path))
    return found


def _line_of(operator: str, hints: Sequence[Finding]) -> int | None:
    """The line of the static hint that most likely speaks of this operator."""
    name = operator.removeprefix("aten::").split(".")[0].strip("_")
    calls = [hint for hint in hints if hint.rule == "torch-compute"]
    for hint in calls:
        if name and name in hint.evidence.lower():
            return hint.line
    return calls[0].line if calls else None


def _extension_findings(evidence: Evidence, path: str, compiled: int) -> list[Finding]:
    if evidence.runs == 0:
        return []
    if compiled == 0:
        return [Finding("no-native-code", "the Candidate compiles no extension", 1, file=path)]
    if evidence.runs_without_calls == 0 or evidence.custom:
        return []
    if not evidence.witness_complete:
        text = "calls of the extension: it offers objects whose calls are not seen"
        return [Finding(UNCHECKED, text, None, "hint", path)]
    return [
        Finding(
            "extension-not-called",
            f"in {evidence.runs_without_calls} of {evidence.runs} runs ModelNew.forward calls no "
            "function of the compiled extension",
            file=path,
        )
    ]


def _conduct_findings(evidence: Evidence, path: str) -> list[Finding]:
    found = [
        Finding(rule, f"replaced or switched: {what}", file=path)
        for rule, what in sorted(evidence.changes)
    ]
    found += [Finding(rule, f"it {what}", file=path) for rule, what in sorted(evidence.audited)]
    if evidence.threads_left:
        names = ", ".join(sorted(evidence.threads_left))
        found.append(Finding("thread-left", f"forward leaves threads running: {names}", file=path))
    if evidence.background > _BACKGROUND:
        text = "other threads still compute after forward has returned"
        found.append(Finding("work-after-return", text, file=path))
    for name in sorted(evidence.exported):
        text = f"forward hands tensors to another library through {name}"
        found.append(Finding("foreign-compute", text, file=path))
    if evidence.cached_result:
        found.append(Finding("cached-result", "forward returns an earlier result", file=path))
    if evidence.lazy_output is not None:
        text = f"forward returns a {evidence.lazy_output} instead of a plain tensor"
        found.append(Finding("lazy-output", text, file=path))
    return found


def _less_precise(correctness: Correctness) -> bool:
    ours, theirs = correctness.candidate_fp64_error, correctness.reference_fp64_error
    if ours is None or theirs is None or "float32" not in correctness.tolerance:
        return False
    coarse = ours > _PRECISION_ERROR or (correctness.max_rel_error or 0.0) > _PRECISION_SHARE
    return coarse and ours > _PRECISION_FACTOR * theirs


def _precision_findings(
    native: NativeCode, correctness: Correctness | None, path: str
) -> list[Finding]:
    """Instructions and build flags alone are hints, and so are figures alone; a result that is far
    less exact than the Reference's, from code that computes in fewer bits, is a violation."""
    found = []
    if native.flags:
        text = f"it is compiled with {', '.join(native.flags)}, which loosens arithmetic"
        found.append(Finding("fast-math", text, None, "hint", path))
    if correctness is None or "float32" not in correctness.tolerance:
        return found
    narrow = ", ".join(native.narrow[:4])
    if narrow:
        text = f"its code computes in fewer bits than float32: {narrow}"
        found.append(Finding("narrow-arithmetic", text, None, "hint", path))
    if correctness.passed and _less_precise(correctness):
        text = (
            f"its float64 error {correctness.candidate_fp64_error:.2g} is far above the "
            f"Reference's {correctness.reference_fp64_error:.2g}: lower precision inside?"
        )
        severity: Literal["violation", "hint"] = "violation" if narrow else "hint"
        found.append(Finding("lower-precision", text, None, severity, path))
    return found


def _symbol_findings(native: NativeCode, path: str) -> list[Finding]:
    found = []

    def add(rule: str, place: Place, text: str) -> None:
        found.append(Finding(rule, text, place.line, file=path))

    for place in native.operators:
        # A stock object names the operator's struct: `empty_memory_format` for empty.memory_format.
        name = place.text
        if not (allowed(name) or plumbing(name) or struct_listed(name)):
            add("aten-in-extension", place, f"the extension can call {name}")
    for place in native.switches:
        text = f"the extension can hide operators with at::{place.text}"
        add("hides-operators", place, text)
    for place in native.vendor:
        add("vendor-library", place, f"the extension calls {place.text}")
    for place in native.loaders:
        add("finds-code", place, f"the extension finds code at run time with {place.text}")
    for place in native.headers_loaders:
        # What they could find and run is told by the kernels that the device runs.
        text = f"a header of the toolkit that it includes calls {place.text}"
        found.append(Finding("finds-code", text, None, "hint", path))
    for place in native.persisting:
        # A word is no deed: what was set aside when the code ran is told by the device.
        text = f"it names {place.text}, which keeps data in the device's cache past any flush"
        found.append(Finding("persisting-cache", text, place.line, "hint", path))
    for place in native.rewriters:
        text = f"the extension can change this process's code with {place.text}"
        add("rewrites-code", place, text)
    return found


def _library_findings(evidence: Evidence, native: NativeCode, path: str) -> list[Finding]:
    found = []
    own = {os.path.realpath(item) for item in native.paths}
    for library in sorted(evidence.libraries):
        # The system tells resolved paths, and of a file that was replaced meanwhile that it was.
        resolved = os.path.realpath(library.removesuffix(" (deleted)"))
        if resolved in own:
            continue
        name = Path(resolved).name
        if _COMPUTING.match(name):
            text = f"it loads {name} at run time"
            found.append(Finding("vendor-library", text, file=path))
        elif not _COMPANIONS.match(name):
            found.append(Finding("library-loaded", f"it loads {name}", None, "hint", path))
    return found


def device_findings(work: DeviceWork, own: Collection[str], path: str) -> list[Finding]:
    """What the device ran in one call of forward. `own`: the kernels that the Candidate's sources
    define."""
    kernels = {kernel.name: kernel.seconds or 0.0 for kernel in work.kernels}
    total = sum(kernels.values())
    if not total:
        return []
    found = []
    share = 0.0
    for name, spent in kernels.items():
        kind = kernel_kind(name, own)
        if kind == "own":
            share += spent / total
        elif kind == "vendor":
            text = f"the device runs {_short(name)}, {spent / total:.0%} of its time"
            found.append(Finding("vendor-library", text, file=path))
        elif kind == "framework":
            text = f"the device runs PyTorch's {_short(name)}, {spent / total:.0%} of its time"
            found.append(Finding("framework-kernel", text, file=path))
    for name in work.early:
        text = f"{_short(name)} runs on a stream of its own, out of order with the call"
        found.append(Finding("other-stream", text, file=path))
    if share < _OWN_SHARE:
        text = f"kernels of its sources take {share:.0%} of the device's time"
        found.append(Finding("small-share", text, None, "hint", path))
    return found


def kernel_kind(
    name: str, own: Collection[str]
) -> Literal["own", "vendor", "framework", "memory", "other"]:
    """Whose a device kernel is, by its name as the profiler shows it."""
    if name.startswith(("Memcpy", "Memset")):
        return "memory"
    plain = _base_name(name)
    if plain in own:
        return "own"
    if _FRAMEWORK.search(name):
        return "memory" if _ARRANGES.search(name) else "framework"
    return "vendor" if _VENDOR_KERNEL.search(name) else "other"


def _base_name(name: str) -> str:
    """`softmax` of "void (anonymous namespace)::softmax<float, 4>(float const*, ...)"."""
    text = name.replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", text, maxsplit=1)[0]
    return head.split("::")[-1].split()[-1] if head.strip() else name


def _short(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:97]}..."
