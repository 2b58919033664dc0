"""Candidate child: imports a Candidate with its compiled extensions and runs ModelNew.

It makes the inputs itself, from seed and recipe; expected values never come here. Outputs leave
through a memory file, everything else as messages. File descriptors: outputs (written here),
parameters of the Reference (read here).
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Optional

from musacoder_runtime import (
    audit_watch,
    device_witness,
    devices,
    failure,
    loaded_libraries,
    module_source,
    operator_gate,
    precision,
    recipes,
    recorder,
    reference_module,
    tamper,
    tensor_state,
    tensor_tree,
)
from musacoder_runtime import runner as running
from musacoder_runtime.call_witness import CallWitness
from musacoder_runtime.channel import Channel

_NAME = "musacoder_candidate"
# Work that goes on after forward has returned shows within this time, in seconds.
_WATCH = 0.02
_WORK = 0.25  # share of the watched time that other threads must not compute


class NotCompiledError(Exception):
    """The Candidate asks for an extension that was not recorded when it was collected."""


def main(channel: Channel, spec: dict[str, Any]) -> None:
    """`spec`: `source`, `path`, `artefacts` (request key -> artefact), `reference`, `device`,
    `threads`, `seed`, `tf32`."""
    checked = CheckedCandidate(spec, *channel.fds)
    running.serve(channel, checked.operations())


class CheckedCandidate:
    # No instance attribute can stand before a method.
    __slots__ = (
        "_audit",
        "_device",
        "_extensions",
        "_gate",
        "_held",
        "_last",
        "_libraries",
        "_outputs_fd",
        "_runner",
        "_snapshot",
        "_sparing",
        "_spec",
        "_state_fd",
        "_watched",
    )  # fmt: skip

    def __init__(self, spec: dict[str, Any], outputs_fd: int, state_fd: int) -> None:
        self._spec = spec
        self._outputs_fd = outputs_fd
        self._state_fd = state_fd
        self._device = devices.get(spec["device"])
        self._gate = operator_gate.OperatorGate()
        self._extensions: list[Any] = []
        self._libraries: Any = None
        self._audit = audit_watch.AuditWatch()
        self._snapshot: Any = None
        self._runner: Any = None
        self._sparing = False  # tensors so large that none may wait in the device's memory
        self._held: list[Any] = []  # inputs of the last trial: refilled, or kept at their address
        self._last: Optional[tuple[Any, list[str]]] = None  # its output and digests
        self._watched = False  # whether that output must stay as it is

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        guarded = {
            "setup": self.setup,
            "load_state": self.load_state,
            "trial": self.trial,
            "again": self.again,
            "probe": self.probe,
            "device_work": self.device_work,
            **dict.fromkeys(("prepare", "cool", "go", "calibrate", "busy_threads"), self._time),
            "fetch": self.fetch,
            "rest": self.rest,
        }
        return {name: self._guarded(operation) for name, operation in guarded.items()}

    def _guarded(
        self, operation: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        # The next sample finds its memory as the last one left it.
        timed = operation in (self._time, self.fetch)

        def call(message: dict[str, Any]) -> dict[str, Any]:
            try:
                answer = operation(message)
                if not timed:
                    self._device.tidy()
                return answer
            except BaseException as error:
                failure = self._explain(error)
                # Its frames hold what took the memory.
                error.__traceback__ = None
            lost = self._device.lost()
            if not lost:
                self._device.tidy()
            return {"failure": failure, "last": lost}

        return call

    def _explain(self, error: BaseException) -> dict[str, Any]:
        described = failure.describe(error)
        own = [f["line"] for f in described["frames"] if f["file"] == self._spec["path"]]
        first = " ".join(described["message"].split())[:500]
        return {
            "message": f"{described['type']}: {first}" if first else described["type"],
            "traceback": described["traceback"],
            "line": own[-1] if own else None,
            "device_full": self._device.out_of_memory(error),
        }

    def setup(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make the first inputs, then import the Candidate and construct ModelNew."""
        spec = self._spec
        precision.configure(spec["tf32"])
        self._device.configure(spec["threads"])
        module = reference_module.load(spec["reference"])
        inputs = running.make_inputs(
            module, self._device, spec["seed"], recipes.OWN, spec["host_inputs"]
        )
        digest = recipes.digest(inputs)
        self._sparing = self._device.crowded(2 * running.size_of(inputs))
        del inputs
        # The profiler's first start takes as long as a trial; the Reference is being built now.
        self._gate.run(lambda: None)
        recorder.install(self._serve)
        # What this imports may replace functions of torch, so it comes before the snapshot.
        poison = self._try_poison()
        self._snapshot = tamper.Snapshot({"_gate": self, "_device": self})
        self._libraries = loaded_libraries.LibraryWatch()
        self._audit.watching = True
        candidate = module_source.load(spec["source"], spec["path"], _NAME)
        model = reference_module.construct(module, reference_module.SEED, candidate.ModelNew)
        self._audit.watching = False
        training = bool(spec["reference"].get("training", False))
        self._runner = running.Runner(module, model, self._device, training, spec["host_inputs"])
        self._snapshot.hold(self._runner, "device", "model", "module")
        return {
            "digest": digest,
            "changes": self._changes(),
            "audited": self._audited(),
            "extensions": len(self._extensions),
            "poison": poison,
            "watchable": device_witness.activity(self._device.torch_device) is not None,
        }

    def _try_poison(self) -> bool:
        works = self._device.poison(True)
        self._device.poison(False)
        return works

    def _serve(self, request: dict[str, Any]) -> Any:
        from musacoder_runtime import extension_loader

        artefact = self._spec["artefacts"].get(recorder.request_key(request))
        if artefact is None:
            raise NotCompiledError(
                f"the extension {request['name']} was not compiled: the Candidate asks for it "
                "only after calling another one, or its sources change from import to import"
            )
        ours = (artefact.get(part) for part in ("path", "trampoline", "shim"))
        self._libraries.expect(path for path in ours if path)
        before = operator_gate.registered()
        extension = extension_loader.load(artefact)
        self._gate.own |= operator_gate.registered() - before
        self._extensions.append(extension)
        return extension

    def _changes(self) -> list[list[str]]:
        found = [list(change) for change in (*self._snapshot.changes(), *self._device.changes())]
        tamper.restore(self._snapshot.state)
        return found

    def load_state(self, message: dict[str, Any]) -> dict[str, Any]:
        structure, leaves = tensor_tree.read(message["state"], self._state_fd)
        names = [key for key, _ in structure["mapping"]]
        state = dict(zip(names, leaves))
        answer = tensor_state.load(self._runner.model, state)
        self._runner.rebuffer()
        return answer

    def trial(self, message: dict[str, Any]) -> dict[str, Any]:
        """One watched run on the inputs of a recipe, in poisoned memory."""
        if self._sparing and not message["reuse"]:
            self._held = []
            self._device.release()
        made = self._runner.inputs(message["seed"], message["distribution"])
        previous = self._held
        inputs = recipes.refill(previous, made) if message["reuse"] and previous else made
        self._held = inputs
        before = recipes.leaf_digests(inputs)
        answer: dict[str, Any] = {"digest": recipes.combined(before)}
        witness = CallWitness(self._extensions)
        threads = set(threading.enumerate())
        self._device.poison(message["poison"])
        self._audit.watching = True
        try:
            output, capture = self._gate.run(
                lambda: witness.run(lambda: self._runner.forward(inputs, message["seed"])),
                message["shadow"],
            )
            # Written at once: what a thread computes later must not count.
            answer["outputs"] = tensor_tree.write(output, self._outputs_fd)
        finally:
            self._audit.watching = False
            self._device.poison(False)
        mutated = running.changed(before, inputs)
        effects = tensor_tree.effects(inputs, mutated, self._runner.buffers())
        answer["effects"] = tensor_tree.write(effects, self._outputs_fd, answer["outputs"]["end"])
        answer.update(
            mutated=mutated,
            aliases=running.aliases(output, inputs),
            operators=sorted(set(capture.operators)),
            custom=sorted(set(capture.custom)),
            unprofiled=capture.reason,
            calls=witness.calls,
            witness_complete=witness.complete,
            changes=[*self._changes(), *_switched(capture, witness)],
            exported=sorted(witness.exported),
            audited=self._audited(),
            libraries=self._libraries.added(),
            threads_left=sorted(t.name for t in set(threading.enumerate()) - threads),
            background=self._background() if message["index"] == 0 else 0.0,
            earlier_output_changed=self._earlier_changed(),
        )
        self._last = (output, recipes.leaf_digests(_plain(output)))
        # An input that is an output, as the Reference has it or not, changes when it is refilled.
        self._watched = not answer["aliases"]
        return answer

    def _audited(self) -> list[list[str]]:
        return [list(entry) for entry in sorted(self._audit.found)]

    def _background(self) -> float:
        """Share of a short pause that other threads of this process computed in."""
        time.sleep(_WATCH)  # OpenMP's threads spin for a moment after their last loop
        before = self._device.background_work()
        time.sleep(_WATCH)
        return (self._device.background_work() - before) / (_WATCH * 1e9)

    def _earlier_changed(self) -> bool:
        if self._last is None or not self._watched:
            return False
        output, digests = self._last
        return recipes.leaf_digests(_plain(output)) != digests

    def again(self, message: dict[str, Any]) -> dict[str, Any]:
        """The same run once more, unpoisoned and unwatched; written only where bits differ."""
        if self._sparing:
            self._held = []
        made = self._runner.inputs(message["seed"], message["distribution"])
        output = self._runner.forward(made, message["seed"])
        del made
        same = self._last is not None and recipes.leaf_digests(_plain(output)) == self._last[1]
        outputs = None if same else tensor_tree.write(output, self._outputs_fd)
        return {"same": same, "outputs": outputs}

    def device_work(self, message: dict[str, Any]) -> dict[str, Any]:
        """The device's kernels in one run; last of all, because launches are slower afterwards."""
        made = self._runner.inputs(message["seed"], recipes.OWN)
        try:
            # Inputs and model are there: the call itself is all that the device has to do.
            found, early = device_witness.kernels(
                lambda: self._runner.call(made), self._device.torch_device
            )
        except (RuntimeError, AttributeError, TypeError) as error:
            return {"kernels": [], "early": [], "unwatched": str(error).splitlines()[0][:200]}
        unwatched = None if found else "the profiler saw none"
        return {"kernels": found, "early": early, "unwatched": unwatched}

    def probe(self, message: dict[str, Any]) -> dict[str, Any]:
        """A run on inputs of another form (see `scope`); an exception means that it refuses."""
        from musacoder_runtime import scope

        made = scope.change(self._runner.inputs(message["seed"], recipes.OWN), message["probe"])
        output = self._runner.forward(made, message["seed"])
        return {"outputs": tensor_tree.write(output, self._outputs_fd)}

    def _time(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = running.timing_operation(self._runner, message)
        assert answer is not None
        return answer

    def rest(self, message: dict[str, Any]) -> dict[str, Any]:
        """Hold no more of the device's memory than the model."""
        self._held = []
        self._last = None
        if self._runner is not None:
            self._runner.rest()
        return {}

    def fetch(self, message: dict[str, Any]) -> dict[str, Any]:
        """The outputs of some timed calls, as a sequence."""
        outputs = tensor_tree.write(self._runner.timed_outputs(message["calls"]), self._outputs_fd)
        self._runner.drop_timed_outputs()
        return {"outputs": outputs, "changes": self._changes()}


def _switched(capture: operator_gate.Capture, witness: CallWitness) -> list[list[str]]:
    found = [["patched-torch", f"the watch over forward ({name})"] for name in witness.switched]
    if capture.muted:
        found.append(["patched-torch", "the recording of operators"])
    return sorted(found)


def _plain(output: Any) -> list[Any]:
    """The leaves whose bytes can be read without running anything."""
    leaves = tensor_tree.flatten(output)[1]
    return [leaf for leaf in leaves if tensor_tree.describe(leaf)["kind"] != "unsupported"]
