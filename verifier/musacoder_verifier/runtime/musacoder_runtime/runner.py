"""One model in one child: running it on recipes, watching what it does, and timing it.

Both sides of a Verdict use this class, so that whatever it costs, it costs both.

A timed sample answers with digests of all its outputs: they are made after the inside clock has
stopped and before the parent's has, so that a result that is only computed then costs outside time,
and one that is computed later still has another digest. Code in the same process can replace the
code that does this; `tamper` reports what it sees of that, and machine code of an extension that
rewrites this process's memory is beyond any check in it.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any, Callable, Optional

import torch

from musacoder_runtime import ceilings, devices, recipes, reference_module, tensor_tree

# Inputs of the calls of one timed sample together; more calls share what fits.
_SAMPLE_BYTES = 256 << 20
# After so long calibration ends with half of its rounds, which is enough for a slow call.
_CALIBRATION_NS = 300_000_000
# A queue is held up for so much longer than handing a call over takes, so that it is never empty.
HOLD = 4.0
MOST_HOLD_NS = 20e6


class Runner:
    """`module` makes inputs, `model` computes; both on `device`."""

    def __init__(
        self,
        module: ModuleType,
        model: torch.nn.Module,
        device: devices.Device,
        training: bool,
        host_inputs: bool = False,
    ) -> None:
        """`host_inputs`: inputs are made by the CPU's generator, whatever the device."""
        self.module = module
        self.device = device
        self._host_inputs = host_inputs
        self.model = model.to(device.torch_device).train(training)
        self._buffers = [(b, b.clone()) for b in model.buffers()] if training else []
        self._sets: list[list[Any]] = []
        self._outputs: list[Any] = []

    def inputs(self, seed: int, distribution: str) -> list[Any]:
        return make_inputs(self.module, self.device, seed, distribution, self._host_inputs)

    def forward(self, inputs: list[Any], seed: int) -> Any:
        """One call in the state that the model was built with; generators seeded before it."""
        with torch.no_grad():
            self.reset_buffers()
            recipes.seed_everything(seed)
            self.device.parallel(True)
            try:
                output = self.model(*inputs)
                self.device.synchronize()
            finally:
                self.device.parallel(False)
        return output

    def call(self, inputs: list[Any]) -> Any:
        """One call and nothing else: not even waiting for the device."""
        with torch.no_grad():
            return self.model(*inputs)

    def buffers(self) -> dict[str, torch.Tensor]:
        """As the last call left them; in training mode only, where calls change them."""
        return dict(self.model.named_buffers()) if self.model.training else {}

    def reset_buffers(self) -> None:
        """The buffers as every call finds them."""
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)

    def rebuffer(self) -> None:
        """The buffers as they are now are the ones that every call starts from."""
        self._buffers = [(buffer, buffer.clone()) for buffer, _ in self._buffers]

    def prepare(self, seed: int, calls: int) -> dict[str, Any]:
        """Fresh inputs, values and addresses, for one sample of `calls` calls."""
        first = self.inputs(seed, recipes.OWN)
        size = size_of(first)
        distinct = max(1, min(calls, _SAMPLE_BYTES // max(size, 1)))
        # The last sample's memory is still held here, so these lie elsewhere.
        self._sets = [first, *recipes.varied(first, seed, distinct - 1)]
        self._outputs = []
        self.device.synchronize()
        return {"distinct": distinct, "input_bytes": size}

    def cool(self) -> dict[str, Any]:
        """Cold caches, right before a sample."""
        self.device.warm_memory()
        self.device.flush()
        return {}

    def sample(self, calls: int, hold_ns: float = 0.0, span: bool = False) -> devices.Times:
        """Times of `calls` calls on what `prepare` made; keeps their outputs. `span`: back to back,
        by the host's clock."""
        model, sets = self.model, self._sets
        count = len(sets)
        # Of this call alone: what stands in an attribute can be replaced by walking up the frames.
        keep: list[Any] = []

        def call(index: int) -> None:
            keep.append(model(*sets[index % count]))

        device = self.device
        device.parallel(True)
        try:
            with torch.no_grad(), device.watching_memory():
                times = device.span(call, calls) if span else device.measure(call, calls, hold_ns)
        finally:
            device.parallel(False)
        self._outputs = keep
        return times

    def timed_outputs(self, calls: list[int]) -> list[Any]:
        return [self._outputs[call] for call in calls]

    def timed_inputs(self, seed: int, call: int) -> list[Any]:
        """The inputs that call number `call` of the sample that `seed` made began with."""
        first = self.inputs(seed, recipes.OWN)
        place = call % len(self._sets)
        return recipes.varied(first, seed, place)[-1] if place else first

    def most_calls(self, seed: int) -> int:
        """How many calls of one sample can have inputs of their own."""
        return max(1, _SAMPLE_BYTES // max(size_of(self.inputs(seed, recipes.OWN)), 1))

    def drop_timed_outputs(self) -> None:
        self._outputs = []

    def rest(self) -> None:
        """Give the device's memory back, the model's apart."""
        self._sets, self._outputs = [], []
        self.device.release()


def make_inputs(
    module: ModuleType,
    device: devices.Device,
    seed: int,
    distribution: str,
    host: bool = False,
) -> list[Any]:
    """Inputs of a recipe on `device`; the same bits for the same arguments in every process. They
    are made there, if the user's code lets them, unless `host`."""
    made = None
    if not host:
        try:
            with device.making():
                made = reference_module.inputs(module, seed, distribution)
        except Exception as error:
            # Code that wants an array of numpy, say, cannot have its tensors elsewhere. Where only
            # memory is missing the other side may have enough of it, and would have other values.
            if device.out_of_memory(error):
                raise
    if made is None:
        device.parallel(host)
        try:
            made = reference_module.inputs(module, seed, distribution)
        finally:
            device.parallel(False)
    return recipes.to_device(made, device.torch_device)


def size_of(tree: Any) -> int:
    """Bytes of the memory behind all tensors of `tree`."""
    return sum(t.untyped_storage().nbytes() for t in tensor_tree.tensors(tree))


def timing_operation(runner: Runner, message: dict[str, Any]) -> Optional[dict[str, Any]]:
    """The timing messages that both sides answer alike; None for another message."""
    operation = message["op"]
    if operation == "prepare":
        return runner.prepare(message["seed"], message["calls"])
    if operation == "cool":
        return runner.cool()
    if operation == "go":
        times = runner.sample(message["calls"], message["hold_ns"], message["span"])
        outputs = runner.timed_outputs(list(range(message["calls"])))
        return {
            "ns": times.span if message["span"] else times.device,
            "host_ns": times.host,
            "digests": [tensor_tree.digest(output) for output in outputs],
        }
    if operation == "calibrate":
        times = calibrate(runner, message["seed"], message["rounds"])
        return {
            "ns": times.device,
            "host_ns": times.host,
            "most_calls": runner.most_calls(message["seed"]),
            "sample_ns": runner.device.sample_ns,
            "own_clock": runner.device.own_clock,
        }
    if operation == "bandwidth":
        return {"bytes_per_second": runner.device.bandwidth()}
    if operation == "ceilings":
        return ceilings.measure(runner.device, message["dtypes"])
    if operation == "busy_threads":
        inputs = runner.inputs(message["seed"], recipes.OWN)
        return {"threads": ceilings.busy_threads(lambda: runner.forward(inputs, message["seed"]))}
    return None


def calibrate(runner: Runner, seed: int, rounds: int = 5) -> devices.Times:
    """Of one warm call: the fastest of `rounds`, or of half as many where they take long, after
    warming up."""
    times: list[devices.Times] = []
    ends = time.perf_counter_ns() + _CALIBRATION_NS
    for done in range(rounds + 1):
        if done > rounds // 2 and time.perf_counter_ns() > ends:
            break
        runner.prepare(seed, 1)
        runner.cool()
        hold = HOLD * times[-1].host if len(times) > 1 else 0.0
        times.append(runner.sample(1, min(hold, MOST_HOLD_NS)))
        runner.drop_timed_outputs()
    return devices.Times(
        min(t.device for t in times[1:]),
        min(t.host for t in times[1:]),
        min(t.span for t in times[1:]),
    )


def aliases(output: Any, inputs: list[Any]) -> list[list[int]]:
    """[output leaf, input leaf] for every pair that shares memory."""
    given = [
        (index, leaf.untyped_storage().data_ptr())
        for index, leaf in enumerate(tensor_tree.flatten(inputs)[1])
        if isinstance(leaf, torch.Tensor) and leaf.numel()
    ]
    found = []
    for place, leaf in enumerate(tensor_tree.flatten(output)[1]):
        if type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout == torch.strided:
            pointer = leaf.untyped_storage().data_ptr() if leaf.numel() else 0
            found += [[place, index] for index, other in given if pointer and other == pointer]
    return found


def changed(before: list[str], tree: Any) -> list[int]:
    """Which leaves are not what they were."""
    now = recipes.leaf_digests(tree)
    return [index for index, digest in enumerate(before) if now[index] != digest]


def serve(channel: Any, operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Answer messages until the other end closes."""
    while True:
        message = channel.receive()
        if message is None:
            return
        answer = operations[message["op"]](message)
        channel.send(answer)
        if answer.get("last"):
            return  # a device that is lost takes this process along, and no other
