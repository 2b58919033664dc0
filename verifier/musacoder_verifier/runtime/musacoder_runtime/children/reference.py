"""Reference child: makes the expected values, and judges what the candidate child returns.

Messages have an `op` (a method of `Judge`); an exception of the user's code is answered with
`{"failure": ...}` as `children.probe.explain` makes it. Before an answer there may be messages
`{"user_code": ...}`, see `user_time`. File descriptors: outputs of the Candidate
(read here), parameters of the Reference (written here).
"""

from __future__ import annotations

import copy
import time
from typing import Any, Callable, Optional

import torch

from musacoder_runtime import (
    devices,
    judge,
    kernelbench,
    oracle,
    precision,
    recipes,
    reference_module,
    scope,
    tensor_state,
    tensor_tree,
    user_time,
)
from musacoder_runtime import runner as running
from musacoder_runtime.channel import Channel
from musacoder_runtime.children import probe
from musacoder_runtime.expected import Flat, Trial, bytes_of, doubled, useful, varies
from musacoder_runtime.judge import Comparison

# A float64 run is slow. Calls come in random order, so that these few stand for the others.
_EXCUSED = 4
# Outputs above this are compared with all threads.
_MANY_BYTES = 32 << 20
# Making the inputs once takes so many seconds at least where it is not done twice to compare.
_SLOW_INPUTS = 1.0


def main(channel: Channel, spec: dict[str, Any]) -> None:
    """`spec`: `reference` (see `reference_module`), `device`, `threads`, `tf32`."""
    outputs_fd, state_fd = channel.fds
    judging = Judge(spec, outputs_fd, state_fd, channel.send)
    running.serve(channel, judging.operations())


class Judge:
    def __init__(
        self,
        spec: dict[str, Any],
        outputs_fd: int,
        state_fd: int,
        tell: Callable[[dict[str, Any]], None] = lambda message: None,
    ) -> None:
        self._spec = spec
        self._user_code = user_time.UserTime(tell)
        self._outputs_fd = outputs_fd
        self._state_fd = state_fd
        self._device = devices.get(spec["device"])
        precision.configure(spec["tf32"])
        self._device.configure(spec["threads"])
        # While the sides take turns, nothing may wait in the device's memory.
        self._place = "cpu" if spec["take_turns"] else self._device.torch_device
        self._runner: Any = None
        self._trial: Any = None  # the one that is judged
        self._made: dict[Any, Trial] = {}  # those that will be, by index
        self._previous: Optional[Flat] = None
        self._seen: dict[str, int] = {}  # digest of a Candidate's output -> trial
        self._imposters: list[oracle.ImposterResult] = []
        # Tensors so large that none may wait in the device's memory.
        self._sparing: bool = spec["take_turns"]

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        names = ("prepare", "cool", "go", "calibrate", "bandwidth", "ceilings")
        own = {"setup": self.setup, "trial": self.trial, "state": self.state}
        return {
            **{name: self._guarded(name, operation) for name, operation in own.items()},
            **{name: self._guarded(name, self._time) for name in names},
            "judge": self._threaded(self.judge),
            "judge_effects": self._threaded(self.judge_effects),
            "trial_seeds": self.trial_seeds,
            "allclose": self._threaded(self.allclose),
            "oracle": self.oracle,
            "probe": self.probe,
            "recheck": self._threaded(self.recheck),
            "rest": self.rest,
        }

    def _guarded(
        self, stage: str, operation: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def call(message: dict[str, Any]) -> dict[str, Any]:
            try:
                answer = operation(message)
                # The next sample finds its memory as the last one left it.
                if operation != self._time:
                    self._device.tidy()
                return answer
            except BaseException as error:
                failure = probe.explain(error, self._stage if stage == "setup" else "forward")
                failure["device_full"] = self._device.out_of_memory(error)
                # Its frames hold what took the memory.
                error.__traceback__ = None
            return self._failed(failure)

        return call

    def _failed(self, failure: dict[str, Any]) -> dict[str, Any]:
        lost = self._device.lost()
        if not lost:
            self._device.release()
        return {"failure": failure, "last": lost}

    def _threaded(
        self, operation: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def call(message: dict[str, Any]) -> dict[str, Any]:
            self._device.parallel(message["outputs"]["end"] > _MANY_BYTES)
            try:
                answer = operation(message)
                if operation != self.recheck:
                    self._device.tidy()
                return answer
            except Exception as error:
                if not self._device.out_of_memory(error):
                    raise
                failure = probe.explain(error, "forward")
                failure["device_full"] = True
                error.__traceback__ = None
            finally:
                self._device.parallel(False)
            return self._failed(failure)

        return call

    _stage = "import"

    def setup(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load, build, and see that it gives the same outputs for the same inputs."""
        reference = self._spec["reference"]
        with self._user_code.running():
            module = reference_module.load(reference)
            self._stage = "model"
            model = reference_module.construct(module, reference_module.SEED)
        training = bool(reference.get("training", False))
        self._runner = running.Runner(
            module, model, self._device, training, self._spec["host_inputs"]
        )
        self._stage = "inputs"
        seed = message["seed"]
        started = time.monotonic()
        inputs = self._inputs(seed, recipes.OWN)
        digest = recipes.digest(inputs)
        # Where making them takes long, the Candidate's process alone makes them a second time.
        spent = time.monotonic() - started
        if spent < _SLOW_INPUTS and recipes.digest(self._inputs(seed, recipes.OWN)) != digest:
            raise reference_module.ReferenceFault(
                "get_inputs returns other values each time although the generators are seeded"
            )
        described = list(probe.describe_inputs(model, inputs))
        self._stage = "forward"
        first = self._run(inputs, seed)
        self._refuse_unsteady(inputs, seed, first)
        leaves = first[1]
        for leaf in leaves:
            entry = tensor_tree.describe(leaf)
            if entry["kind"] == "unsupported":
                raise reference_module.ReferenceFault(
                    f"Model.forward returns a {entry['type']}, which cannot be compared"
                )
        sizes = bytes_of(tensor_tree.tensors(inputs)), bytes_of(leaves)
        self._sparing = self._sparing or self._device.crowded(sum(sizes))
        return {
            "digest": digest,
            "inputs": described,
            "input_bytes": sizes[0],
            "output_bytes": sizes[1],
            "sparing": self._sparing,
            "versions": reference_module.versions(),
            "parameters": bool(tensor_state.tensors(model)),
        }

    def _kept(self, output: Any) -> Flat:
        """An output in memory of its own, where it is judged."""
        structure, leaves = tensor_tree.flatten(output)
        return structure, [
            tensor_tree.plain(leaf, self._place) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves
        ]

    def _refuse_unsteady(self, inputs: list[Any], seed: int, first: Flat) -> None:
        other = self._run(inputs, seed + 1)
        if judge.compare_trees(other, first).passes:
            return
        again = judge.compare_trees(self._run(inputs, seed), first).passes
        raise reference_module.unsteady(self._runner.model.training, again)

    def _run(self, inputs: list[Any], seed: int) -> Flat:
        """Expected outputs on a copy of the inputs, as host tensors of their own memory."""
        return self._kept(self._forward(recipes.clone(inputs), seed))

    def _inputs(self, seed: int, distribution: str) -> list[Any]:
        with self._user_code.running():
            made: list[Any] = self._runner.inputs(seed, distribution)
            self._device.synchronize()
        return made

    def _forward(self, inputs: list[Any], seed: int) -> Any:
        with self._user_code.running():
            return self._runner.forward(inputs, seed)

    def trial(self, message: dict[str, Any]) -> dict[str, Any]:
        """Expected values of one recipe. A recipe that the Reference refuses is skipped, unless
        it is the Workload's own."""
        seed, distribution = message["seed"], message["distribution"]
        own = distribution == recipes.OWN
        if self._sparing:
            self._trial = None
            self._made.clear()
            self._device.release()
        inputs = self._inputs(seed, distribution)
        before = recipes.leaf_digests(inputs)
        digest = recipes.combined(before)
        # They are made once more where they are needed.
        used = inputs if self._sparing else recipes.clone(inputs)
        try:
            output = self._forward(used, seed)
        except Exception as error:
            if own or (self._device.out_of_memory(error) and not self._spec["take_turns"]):
                raise
            return {"skip": f"the Reference refuses it: {type(error).__name__}"}
        mutated = running.changed(before, used)
        effects = tensor_tree.effects(used, mutated, self._runner.buffers())
        aliases = running.aliases(output, used)
        kept = {name: self._kept(value) for name, value in effects.items()}
        if self._sparing:
            inputs = []
        del used, effects
        expected = self._kept(output)
        if not own and not useful(expected):
            return {"skip": "the Reference's own outputs are mostly not finite"}
        trial = Trial(message["index"], own, seed, distribution, inputs, expected)
        trial.effects = kept
        self._keep(message, trial)
        return {"digest": digest, "mutated": mutated, "aliases": aliases}

    def _keep(self, message: dict[str, Any], trial: Any) -> None:
        """Until it is judged; of those that never are, only the last is held."""
        while len(self._made) > 1:
            del self._made[next(iter(self._made))]
        self._made[message["index"]] = trial

    def _take(self, message: dict[str, Any]) -> Any:
        """The trial that a message names; it is the current one until another is named."""
        self._trial = self._made.pop(message["index"], self._trial)
        return self._trial

    def judge_effects(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compare changed inputs and buffers of both sides by name. `missing` are names of buffers
        that the Candidate does not have."""
        trial = self._trial
        try:
            structure, leaves = tensor_tree.read(message["outputs"], self._outputs_fd, self._place)
            actual = {str(key): leaves[node["leaf"]] for key, node in structure["mapping"]}
        except (tensor_tree.TreeError, KeyError, TypeError, ValueError, IndexError) as error:
            return {"check": "effects", "detail": str(error), "missing": []}
        missing = sorted(set(trial.effects) - set(actual))
        for name, expected in trial.effects.items():
            if name in missing:
                continue
            flat = ({"leaf": 0}, [actual[name]])
            comparison = judge.compare_trees(flat, expected, stress=not trial.own)
            if not comparison.passes:
                detail = f"{name}: {comparison.detail}"
                return {"check": "effects", "detail": detail, "missing": missing}
        return {"check": None, "detail": "", "missing": missing}

    def judge(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compare what the Candidate wrote with the expected values of a trial, the current one
        from now on. Trials are judged in the order that they were made in."""
        trial = self._take(message)
        try:
            actual = tensor_tree.read(message["outputs"], self._outputs_fd, self._place)
        except tensor_tree.TreeError as error:
            return {"check": "structure", "detail": str(error), "scaled_passes": False}
        integers = trial.distribution not in recipes.AMBIGUOUS_INDICES
        options = {"stress": not trial.own, "compare_integers": integers}
        comparison = judge.compare_trees(actual, trial.expected, None, **options)
        if comparison.check == "values" or (trial.own and trial.index == 0):
            golden = self._golden(trial)
            comparison = judge.compare_trees(actual, trial.expected, golden, **options)
        answer = {**vars(comparison), "near_miss": comparison.near_miss}
        if message.get("first", True):
            self._imposters += oracle.probe(
                trial.expected,
                trial.golden,
                tensor_tree.flatten(self._inputs_of(trial))[1],
                self._previous,
                own=trial.own,
                compare_integers=integers,
                settled=oracle.settled(self._imposters),
            )
            self._previous = trial.expected
            answer["same_as_trial"] = self._earlier(actual, comparison.passes)
        if self._sparing:
            trial.golden = None
        return answer

    def trial_seeds(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"seeds": kernelbench.trial_seeds(message["seed"], message["count"])}

    def allclose(self, message: dict[str, Any]) -> dict[str, Any]:
        """KernelBench's comparison with the current trial, at each of `tolerances`. `by_dtype` has
        the tolerances that KernelBench gives to the dtypes of the expected outputs."""
        expected = self._take(message).expected
        if self._sparing:
            self._trial = None
        tensors = [leaf for leaf in expected[1] if isinstance(leaf, torch.Tensor)]
        by_dtype = {
            str(leaf.dtype)[len("torch.") :]: judge.tolerance_of(leaf.dtype) for leaf in tensors
        }
        try:
            actual = tensor_tree.read(message["outputs"], self._outputs_fd, self._place)
            told = kernelbench.compare(actual, expected, message["tolerances"])
        except tensor_tree.TreeError as error:
            told = kernelbench.compare((None, []), expected, message["tolerances"])
            told["error"] = str(error)
        return {**told, "by_dtype": by_dtype}

    def _earlier(self, actual: Flat, right: bool) -> Optional[int]:
        """The trial whose right output a wrong one repeats: a cache, not a mistake. An output of
        equal elements is left out, since a mistake may well give it."""
        digest = recipes.digest(actual[1])
        if not right:
            return self._seen.get(digest)
        if any(varies(leaf) for leaf in actual[1]):
            self._seen.setdefault(digest, self._trial.index)
        return None

    def oracle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Whether the trials so far could tell wrong outputs from right ones."""
        state, imposters = oracle.conclude(self._imposters)
        return {"state": state, "imposters": list(imposters)}

    def probe(self, message: dict[str, Any]) -> dict[str, Any]:
        """Expected values for inputs of another form; skipped where the Reference refuses them."""
        try:
            inputs = scope.change(self._inputs(message["seed"], recipes.OWN), message["probe"])
            expected = self._run(inputs, message["seed"])
        except Exception as error:
            return {"skip": f"the Reference refuses it: {type(error).__name__}"}
        trial = Trial(-1, True, message["seed"], recipes.OWN, inputs, expected)
        self._keep(message, trial)
        return {}

    def _golden(self, trial: Any) -> Optional[list[Any]]:
        """A float64 run of the Reference; None where it cannot run in float64."""
        if trial.golden is None:
            try:
                self._runner.reset_buffers()
                model = copy.deepcopy(self._runner.model).double()
                inputs = [doubled(value) for value in recipes.clone(self._inputs_of(trial))]
                with torch.no_grad():
                    recipes.seed_everything(trial.seed)
                    flat = self._kept(model(*inputs))
            except Exception as error:
                if self._device.out_of_memory(error) and not self._spec["take_turns"]:
                    raise
                return None  # whatever user code says to float64, it is not the kernel's fault
            if flat[0] == trial.expected[0]:
                trial.golden = flat[1]
        golden: Optional[list[Any]] = trial.golden
        return golden

    def _inputs_of(self, trial: Any) -> list[Any]:
        """The inputs of a trial, on the device."""
        if trial.inputs:
            return recipes.to_device(trial.inputs, self._device.torch_device)
        return self._inputs(trial.seed, trial.distribution)

    def state(self, message: dict[str, Any]) -> dict[str, Any]:
        """The parameters, changed by `seed` unless it is None, in the memory file."""
        self._runner.reset_buffers()
        if message["seed"] is not None:
            tensor_state.change(self._runner.model, message["seed"])
            self._runner.rebuffer()
        found = tensor_state.tensors(self._runner.model)
        return {"names": list(found), "state": tensor_tree.write(found, self._state_fd)}

    def _time(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = running.timing_operation(self._runner, message)
        assert answer is not None
        return answer

    def rest(self, message: dict[str, Any]) -> dict[str, Any]:
        """Hold no more of the device's memory than the model."""
        for trial in (self._trial, *self._made.values()):
            if trial is not None:
                trial.inputs = recipes.to_device(trial.inputs, "cpu")
        if self._runner is not None:
            self._runner.rest()
        return {}

    def recheck(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compare the Candidate's outputs of timed calls with this side's outputs of them.
        `changed`: a call whose output is not the one that the Candidate announced, or None."""
        calls = message["calls"]
        expected = [self._kept(output) for output in self._runner.timed_outputs(calls)]
        self._runner.drop_timed_outputs()
        try:
            structure, leaves = tensor_tree.read(message["outputs"], self._outputs_fd, self._place)
            actual = tensor_tree.split(structure, leaves)
        except tensor_tree.TreeError as error:
            return {"check": "structure", "detail": str(error), "changed": None}
        changed = [
            call
            for call, flat, digest in zip(calls, actual, message["digests"])
            if tensor_tree.digest_flat(*flat) != digest
        ]
        answer = vars(self._compare_timed(actual, expected, calls, message["seed"]))
        return {**answer, "changed": changed[0] if changed else None}

    def _compare_timed(
        self, actual: list[Flat], expected: list[Flat], calls: list[int], seed: int
    ) -> Comparison:
        if len(actual) != len(expected):
            return Comparison("structure", f"{len(actual)} outputs of {len(expected)} calls")
        together = judge.compare_calls(actual, expected)
        if together.passes:
            return together
        excused = 0
        for call, ours, theirs in zip(calls, actual, expected):
            comparison = judge.compare_trees(ours, theirs)
            if comparison.check == "values":
                # Over tolerance, but perhaps no further from the truth than the Reference itself.
                inputs = self._runner.timed_inputs(seed, call)
                trial = Trial(-1, True, seed, recipes.OWN, inputs, theirs)
                comparison = judge.compare_trees(ours, theirs, self._golden(trial))
                excused += 1
            if not comparison.passes:
                return comparison
            if excused == _EXCUSED:
                break
        return Comparison()
