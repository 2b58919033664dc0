"""NVIDIA GPUs as the server sees them: a library that answers like libnvidia-ml, no card."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from musacoder_verifier.backends import cuda, nvml, registry
from musacoder_verifier.backends.cuda import CudaBackend, judge
from musacoder_verifier.backends.nvml import Gpu, Nvml, NvmlError, Readings, throttles, visible


class Library:
    """Functions of nvml.h for two cards; `missing` names those that this driver does not have."""

    def __init__(self, *, missing: tuple[str, ...] = (), processes: dict[int, int] | None = None):
        self._missing = missing
        self._running = {71: 1 << 30, 72: 1 << 20} if processes is None else processes

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_missing"] or not name.startswith("nvml"):
            raise AttributeError(name)
        return getattr(self, f"_{name}")

    @staticmethod
    def _write(pointer: Any, value: Any) -> int:
        pointer._obj.value = value
        return 0

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        return self._write(count, 2)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        return self._write(handle, index + 1)

    def _nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
        known = {b"GPU-aa11": 1, b"GPU-ab22": 2}
        return self._write(handle, known[uuid]) if uuid in known else 6

    def _nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> int:  # noqa: N802
        buffer.value = b"580.159.04"
        return 0

    def _nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:  # noqa: N802
        buffer.value = {1: b"GPU-aa11", 2: b"GPU-ab22"}[handle.value]
        return 0

    def _nvmlDeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:  # noqa: N802
        buffer.value = b"NVIDIA H200"
        return 0

    def _nvmlDeviceGetCudaComputeCapability(  # noqa: N802
        self, handle: Any, major: Any, minor: Any
    ) -> int:
        return self._write(major, 9) or self._write(minor, 0)

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.total = 150 << 30
        return 0

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: int, clock: Any) -> int:  # noqa: N802
        return self._write(clock, 1980)

    _nvmlDeviceGetMaxClockInfo = _nvmlDeviceGetClockInfo  # noqa: N815

    def _nvmlDeviceGetCurrentClocksEventReasons(  # noqa: N802
        self, handle: Any, reasons: Any
    ) -> int:
        return self._write(reasons, 0x24)

    def _nvmlDeviceGetCurrentClocksThrottleReasons(  # noqa: N802
        self, handle: Any, reasons: Any
    ) -> int:
        return self._write(reasons, 0x4)

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802
        rates._obj.gpu = 37
        return 0

    def _nvmlDeviceGetTemperature(self, handle: Any, which: int, degrees: Any) -> int:  # noqa: N802
        return self._write(degrees, 41)

    def _nvmlDeviceGetComputeRunningProcesses_v3(  # noqa: N802
        self, handle: Any, count: Any, room: Any
    ) -> int:
        for place, (pid, used) in enumerate(self._running.items()):
            room[place].pid, room[place].used = pid, used
        return self._write(count, len(self._running))


def test_cards_are_described_by_the_driver() -> None:
    first, second = Nvml(Library()).gpus()
    assert first == Gpu(0, "GPU-aa11", "NVIDIA H200", (9, 0), 150 << 30, "580.159.04")
    assert (second.index, second.uuid) == (1, "GPU-ab22")


def test_what_a_driver_does_not_answer_is_unknown() -> None:
    readings = Nvml(Library()).read("GPU-ab22")
    assert readings == Readings(
        1980, 1980, ("power cap", "software thermal slowdown"), 37, {71: 1 << 30, 72: 1 << 20}, 41
    )
    old = Nvml(
        Library(
            missing=(
                "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperature",
                "nvmlDeviceGetComputeRunningProcesses_v3",
            )
        )
    ).read("GPU-aa11")  # fmt: skip
    assert old is not None
    assert (old.throttles, old.temperature, old.processes) == (("power cap",), None, None)
    assert Nvml(Library()).read("GPU-none") is None
    with pytest.raises(NvmlError):
        Nvml(Library(missing=("nvmlDeviceGetCount_v2",))).gpus()


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1]),
        ("1,0", [1, 0]),
        ("GPU-ab", [1]),
        ("GPU-a", []),  # two begin so
        ("1,7,0", [1]),  # CUDA stops at the first that does not exist
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_numbers_what_the_environment_shows(setting: str | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in visible(Nvml(Library()).gpus(), setting)] == indices


def test_a_device_is_locked_by_what_it_is_not_by_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml, "open_library", lambda: Nvml(Library()))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    second = registry.backend("cuda:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    same = registry.backend("cuda")
    assert second.label == "cuda:1" and same.label == "cuda:0"
    assert second.lock_name() == same.lock_name() == "GPU-ab22"
    assert same.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-ab22"
    assert same.versions()["driver"] == "580.159.04" and same.versions()["architecture"] == "sm_90"
    assert same.device_flags == ("-gencode=arch=compute_90,code=sm_90",)
    assert registry.devices("cuda") == ("cuda:0",)
    beyond = registry.backend("cuda:1")
    assert beyond.missing() == "there is no cuda:1: one GPU is visible here"


def test_without_a_driver_there_is_one_sentence_and_compiling_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> Nvml:
        raise NvmlError("no NVIDIA driver was found (libnvidia-ml.so.1 is missing)")

    monkeypatch.setattr(nvml, "open_library", none)
    found = registry.backend("cuda")
    missing = found.missing()
    assert missing is not None and "no NVIDIA driver was found" in missing
    assert found.device_flags and registry.devices("cuda") == ()
    conditions = found.watch([1])
    conditions.look()
    assert conditions.conditions().unchecked == ("throttling", "other work on the GPU")


@pytest.mark.parametrize("name", ["tpu", "cpu:1", "cuda:", "cuda:x", "cuda:-1"])
def test_a_name_that_names_no_device_is_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=name.partition(":")[0]):
        registry.backend(name)


def _look(mhz: int = 1980, reasons: int | None = 0, **more: Any) -> Readings:
    given = {"processes": {7: 1, 8: 1}, "temperature": 50, **more}
    return Readings(mhz, 1980, None if reasons is None else throttles(reasons), **given)


def test_what_disturbs_a_measurement_is_said() -> None:
    quiet = judge(_look(load=0), [_look(), _look()], {7, 8})
    assert (quiet.notes, quiet.unchecked) == ((), ())
    assert quiet.figures == {"sm_mhz": 1980.0, "most_sm_mhz": 1980.0, "celsius": 50.0}
    hot = judge(_look(load=0), [_look(), _look(1300, 0x40)], {7, 8})
    assert hot.notes == (
        "the GPU was slowed down (hardware thermal slowdown)",
        "its clock went from 1300 to 1980 MHz",
    )
    shared = judge(_look(load=63), [_look(processes={7: 1, 8: 1, 99: 5})], {7, 8})
    assert shared.notes == ("1 other processes hold the GPU, which was 63 % busy before",)
    # A desktop keeps memory, but does nothing.
    assert judge(_look(load=2), [_look(processes={7: 1, 99: 5})], {7, 8}).notes == ()


def test_what_cannot_be_seen_is_not_called_quiet() -> None:
    assert judge(None, [], set()).unchecked == ("throttling", "other work on the GPU")
    blind = judge(_look(), [_look(reasons=None, processes=None)], {7})
    assert blind.unchecked == ("throttling", "other work on the GPU")
    # In a container the driver numbers processes otherwise.
    other = judge(_look(load=90), [_look(processes={4321: 1})], {7})
    assert other.unchecked == ("other work on the GPU",) and other.notes == ()


def test_only_device_files_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    access = CudaBackend(0, None).access()
    assert access.local_server and access.files[-1] == "/proc/self/task"
    assert all(path.startswith("/dev/") for path in access.files[:-1])


def test_a_users_allocator_setting_does_not_reach_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    assert CudaBackend(0, None).environment()["PYTORCH_CUDA_ALLOC_CONF"] == "backend:native"
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    assert "PYTORCH_CUDA_ALLOC_CONF" not in CudaBackend(0, None).environment()


def test_the_layout_of_a_process_entry_is_the_header_files() -> None:
    # nvmlProcessInfo_t: unsigned int, padding, unsigned long long, two unsigned ints.
    assert ctypes.sizeof(nvml._Process) == 24
    assert cuda.count() >= 0
