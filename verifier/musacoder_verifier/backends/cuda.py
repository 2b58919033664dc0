"""An NVIDIA GPU as a Backend. It is asked through NVML alone: no torch, no CUDA context here."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from musacoder_verifier import toolchain
from musacoder_verifier.backends import nvml
from musacoder_verifier.backends.base import Conditions
from musacoder_verifier.backends.nvml import Gpu, Nvml, NvmlError, Readings
from musacoder_verifier.limits import DeviceAccess
from musacoder_verifier.toolchain import Toolkit
from musacoder_verifier.worker import WorkerInfo

# What is compiled for where no GPU is; such an artefact runs on none, but its errors show.
_DEFAULT_CAPABILITY = (9, 0)
_VERSION_SECONDS = 20.0
# A clock this share below the card's highest, in a look under load, is worth a word.
_SLOW = 0.85
# nvidia-smi's own threshold for "in use" lies near; a display server idles below it.
_BUSY_PERCENT = 10


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """`gpu` None: `why` says what is missing, and only compiling works."""

    index: int
    gpu: Gpu | None
    why: str | None = None
    name: str = "cuda"
    runtime_device: str = "cuda"
    host_flags: tuple[str, ...] = ("-O2",)
    narrow: float = 0.007
    compile_modes: tuple[str, ...] = ("default", "reduce-overhead", "max-autotune")

    @property
    def label(self) -> str:
        return f"cuda:{self.index}"

    @property
    def capability(self) -> tuple[int, int]:
        return self.gpu.capability if self.gpu is not None else _DEFAULT_CAPABILITY

    @property
    def device_flags(self) -> tuple[str, ...]:
        arch = "{}{}".format(*self.capability)
        return (f"-gencode=arch=compute_{arch},code=sm_{arch}",)

    def missing(self) -> str | None:
        return self.why

    def unfit(self, info: WorkerInfo) -> str | None:
        if info.cuda_version is not None:
            return None
        return (
            f"torch {info.torch_version} in {info.python} is built without CUDA; install one that "
            "is built with it, or set musacoder.python to an interpreter that has it"
        )

    def toolkit(self, site_folders: Sequence[str]) -> Toolkit | None:
        return toolchain.cuda_toolkit(site_folders=site_folders)

    def no_toolkit(self) -> str:
        return (
            "nvcc was not found; install the CUDA toolkit, or its packages beside torch: "
            "pip install nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-cccl "
            "nvidia-cuda-runtime, or set CUDA_HOME"
        )

    def device_name(self) -> str:
        return self.gpu.name if self.gpu is not None else self.label

    def versions(self) -> Mapping[str, str]:
        found = {"architecture": "sm_{}{}".format(*self.capability)}
        if self.gpu is not None and self.gpu.driver:
            found["driver"] = self.gpu.driver
        toolkit = _toolkit()
        if toolkit is not None:
            found["toolkit"] = toolkit
        return found

    def lock_name(self) -> str:
        """By UUID: what `cuda:0` is depends on the window's environment."""
        return self.gpu.uuid if self.gpu is not None else self.label.replace(":", "-")

    def environment(self) -> Mapping[str, str]:
        chosen = {"CUDA_LAUNCH_BLOCKING": "0", "CUDA_MODULE_LOADING": "LAZY"}
        if self.gpu is not None:
            # The worker sees this GPU alone, as its device 0.
            chosen["CUDA_VISIBLE_DEVICES"] = self.gpu.uuid
        if "PYTORCH_CUDA_ALLOC_CONF" in os.environ:
            # Poisoning freed memory needs torch's own allocator.
            chosen["PYTORCH_CUDA_ALLOC_CONF"] = "backend:native"
        return chosen

    def access(self) -> DeviceAccess:
        places = [*Path("/dev").glob("nvidia*"), *Path("/dev/nvidia-caps").glob("*")]
        places.append(Path("/dev/dxg"))  # Windows' GPU, in WSL
        files = sorted(str(path) for path in places if _is_device(path))
        # CUDA names its threads, by writing beneath /proc/self/task, and serves a socket on which
        # other processes could ask for memory; it does not start where it cannot.
        return DeviceAccess((*files, "/proc/self/task"), local_server=True)

    def memory_in_use(self) -> float | None:
        if self.gpu is None:
            return None
        try:
            return nvml.open_library().memory_in_use(self.gpu.uuid)
        except NvmlError:
            return None

    def watch(self, own: Sequence[int]) -> GpuWatch:
        try:
            library = nvml.open_library()
        except NvmlError:
            return GpuWatch(None, "", own)
        return GpuWatch(library, self.gpu.uuid if self.gpu is not None else "", own)


class GpuWatch:
    """Clocks, throttling and strangers on one GPU. The first look, on an idle device, is made here:
    what loads it then is not ours."""

    def __init__(self, library: Nvml | None, uuid: str, own: Sequence[int]) -> None:
        self._library = library
        self._uuid = uuid
        self._own = set(own)
        self._looks: list[Readings] = []
        self._idle = self._read()

    def _read(self) -> Readings | None:
        return None if self._library is None else self._library.read(self._uuid)

    def look(self) -> None:
        readings = self._read()
        if readings is not None:
            self._looks.append(readings)

    def conditions(self) -> Conditions:
        return judge(self._idle, self._looks, self._own)


def judge(idle: Readings | None, looks: Sequence[Readings], own: set[int]) -> Conditions:
    """What disturbed a measurement, from one look before it and those during it."""
    if idle is None or not looks:
        return Conditions(unchecked=("throttling", "other work on the GPU"))
    notes: list[str] = []
    unchecked: list[str] = []
    figures: dict[str, float] = {}
    clocks = [look.sm_mhz for look in looks if look.sm_mhz]
    if clocks:
        figures["sm_mhz"] = float(median(clocks))
        if looks[0].most_sm_mhz:
            figures["most_sm_mhz"] = float(looks[0].most_sm_mhz)
    seen = {name for look in looks for name in look.throttles or ()}
    if all(look.throttles is None for look in looks):
        unchecked.append("throttling")
    elif seen:
        notes.append(f"the GPU was slowed down ({', '.join(sorted(seen))})")
    if clocks and min(clocks) < _SLOW * max(clocks):
        notes.append(f"its clock went from {min(clocks)} to {max(clocks)} MHz")
    strangers = _strangers(looks, own)
    if strangers is None:
        unchecked.append("other work on the GPU")
    elif strangers and (idle.load or 0) >= _BUSY_PERCENT:
        notes.append(
            f"{len(strangers)} other processes hold the GPU, which was {idle.load} % busy before"
        )
    temperatures = [look.temperature for look in looks if look.temperature is not None]
    if temperatures:
        figures["celsius"] = float(max(temperatures))
    return Conditions(tuple(notes), figures, tuple(unchecked))


def _strangers(looks: Sequence[Readings], own: set[int]) -> set[int] | None:
    """Processes that are not ours; None where the driver does not say, or numbers processes as
    another namespace does, so that not even our own are found."""
    lists = [set(look.processes) for look in looks if look.processes is not None]
    if not lists:
        return None
    found = set().union(*lists)
    return found - own if found & own else None


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


@cache
def _toolkit() -> str | None:
    """The toolkit's version, as nvcc gives it."""
    found = toolchain.cuda_toolkit()
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found.compiler, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return next((line.rpartition(" ")[2] for line in lines if "release" in line), None)


def cuda(index: int) -> CudaBackend:
    """The GPU that CUDA programs started here see under this number."""
    try:
        gpus = nvml.visible_here()
    except NvmlError as error:
        return CudaBackend(index, None, f"no kernel can run on cuda:{index}: {error}")
    if index < len(gpus):
        return CudaBackend(index, gpus[index])
    count = "one GPU is" if len(gpus) == 1 else f"{len(gpus) or 'no'} GPUs are"
    return CudaBackend(index, None, f"there is no cuda:{index}: {count} visible here")


def count() -> int:
    """How many GPUs CUDA programs started here see."""
    try:
        return len(nvml.visible_here())
    except NvmlError:
        return 0
