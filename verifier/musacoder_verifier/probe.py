"""What a Reference is, found by running the user's code once in a child: Workload or Failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from musacoder_verifier.limits import Limits
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages.pair import reference_spec
from musacoder_verifier.stages.side import reference_failure
from musacoder_verifier.verdict import Failure
from musacoder_verifier.worker import Child, ChildDied, ChildTimeout, Worker
from musacoder_verifier.workload import InputSpec, Workload

_DOING = {
    "import": "executing the Reference",
    "model": "building Model",
    "inputs": "get_inputs",
    "forward": "Model.forward",
}


@dataclass(frozen=True, slots=True)
class Probe:
    """Exactly one of the two is set."""

    workload: Workload | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Export:
    """`graph` is the JSON of docs/graph.md; where it is None, `error` is one sentence."""

    graph: dict[str, Any] | None
    error: str | None


async def probe(
    worker: Worker,
    reference: Reference,
    *,
    timeout: float,
    sandbox: bool,
    memory_bytes: int | None = None,
) -> Probe:
    """Run the Reference once. WorkerError passes through, nothing else."""
    limits = Limits(
        seconds=timeout + 5.0, memory_bytes=memory_bytes, processes="some", file_bytes=1 << 30
    )
    stage = "import"
    spec = reference_spec(reference)
    try:
        async with worker.child("probe", spec, limits=limits, sandbox=sandbox) as child:
            answer: Mapping[str, Any] = await child.receive(timeout)
            while "stage" in answer:
                stage = str(answer["stage"])
                answer = await child.receive(timeout)
    except ChildTimeout as error:
        message = f"{_DOING.get(stage, stage)} did not finish within {timeout:g} s"
        return Probe(None, reference_failure(reference, message, error.stderr_tail, None))
    except ChildDied as error:
        if error.reason == "worker":
            return Probe(None, Failure("infra_error", "reference", f"{error}; try again"))
        message = f"{error}, while {_DOING.get(stage, stage)} ran".replace(
            "the process", "the Reference's process", 1
        )
        return Probe(None, reference_failure(reference, message, error.stderr_tail, None))
    if "failure" in answer:
        problem = answer["failure"]
        return Probe(
            None,
            reference_failure(
                reference, problem["message"], problem["detail"], problem.get("line")
            ),
        )
    if "inputs" not in answer:
        return Probe(None, Failure("infra_error", "reference", "the probe gave no answer"))
    return Probe(workload_of(answer["inputs"], reference.training), None)


def workload_of(inputs: list[Mapping[str, Any]], training: bool) -> Workload:
    """A Workload from what a child said about the leaves of `get_inputs()`."""
    return Workload(
        "get_inputs",
        tuple(
            InputSpec(
                name=str(item["name"]),
                dtype=str(item["dtype"]),
                shape=tuple(item.get("shape", ())),
                stride=tuple(item.get("stride", ())),
                device=str(item.get("device", "cpu")),
                low=item.get("low"),
                high=item.get("high"),
                value=item.get("value"),
            )
            for item in inputs
        ),
        training,
    )


async def export(worker: Worker, reference: Reference, *, timeout: float, sandbox: bool) -> Export:
    """The operator graph of the Reference. WorkerError passes through, nothing else."""
    limits = Limits(seconds=timeout + 5.0, processes="some", file_bytes=1 << 30)
    spec = reference_spec(reference)
    child: Child
    try:
        async with worker.child("export", spec, limits=limits, sandbox=sandbox) as child:
            answer = await child.receive(timeout)
    except (ChildTimeout, ChildDied) as error:
        return Export(None, f"the Reference cannot be exported: {error}")
    if answer.get("graph") is None:
        problem = answer.get("error")
        text = problem.get("message") if isinstance(problem, Mapping) else problem
        return Export(None, str(text or "the Reference cannot be exported"))
    return Export(dict(answer["graph"]), None)
