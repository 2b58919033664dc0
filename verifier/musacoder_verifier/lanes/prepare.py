"""What the fast lane needs once per PyTorch, interpreter and compiler: the shim library, the
trampoline, and the facade precompiled. Built from our native sources against the user's own
headers, in the cache folder, by one process at a time."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filelock import AsyncFileLock, Timeout

from musacoder_verifier import tools
from musacoder_verifier.artefacts import ArtefactCache, content_key, tree_digest
from musacoder_verifier.lanes import operators
from musacoder_verifier.toolchain import Compiler, Toolkit
from musacoder_verifier.worker import WorkerInfo

PACKAGE = Path(__file__).resolve().parent.parent
NATIVE = PACKAGE / "native"
INCLUDE = PACKAGE / "include"
SHIM = "libmusacoder_shim.so"
FACADE = "facade.cpp"
SHIM_SOURCES = (
    "shim_tensor.cpp", "shim_operator.cpp", "shim_module.cpp", "shim_cuda.cpp", "shim_native.cpp",
)  # fmt: skip
TRAMPOLINE_SOURCES = ("convert.cpp", "trampoline.cpp")
# Code that runs once per call around the kernel: small is as good as fast, and builds sooner.
_NATIVE_FLAGS = ("-O1", "-fPIC", "-fopenmp", "-fvisibility-inlines-hidden", "-w")


class PrepareError(Exception):
    """The shim or the trampoline cannot be built: one sentence; `detail` is the output."""

    def __init__(self, sentence: str, detail: str = "") -> None:
        super().__init__(sentence)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Prepared:
    """The folder of one preparation, and what stands in it."""

    folder: Path
    torch_include: Path
    seconds: float  # that it took to build, 0 when it was there

    @property
    def shim(self) -> Path:
        return self.folder / SHIM

    @property
    def trampoline(self) -> Path:
        return next(self.folder.glob("musacoder_trampoline*.so"))

    @property
    def prefix(self) -> Path:
        """The header to force in; its precompiled form lies beside it."""
        return self.folder / "prefix.h"

    @property
    def facade(self) -> Path:
        """The object to link into every Candidate: what the facade's headers only declare."""
        return self.folder / "facade.o"

    @property
    def store(self) -> Path:
        """The folder of the cache that this preparation is an entry of."""
        return self.folder.parents[1]

    @property
    def key(self) -> str:
        return self.folder.name


@cache
def sources_digest() -> str:
    """Changes whenever our headers or native sources do."""
    return tree_digest(NATIVE, INCLUDE)


def torch_include(info: WorkerInfo) -> Path:
    """The folder that holds `ATen/`. Raises PrepareError where the headers are missing."""
    for folder in info.torch_include_dirs:
        if (Path(folder) / "ATen" / "core" / "TensorBody.h").is_file():
            return Path(folder)
    raise PrepareError(
        f"the torch of {info.python} comes without its C++ headers; reinstall it from its wheel: "
        f"{info.python} -m pip install --force-reinstall torch"
    )


def language_standard(info: WorkerInfo) -> str:
    """The flag by which the user's torch compiles extensions: `-std=c++17`, later `-std=c++20`."""
    try:
        text = (Path(info.torch_path) / "utils" / "cpp_extension.py").read_text("utf-8")
    except OSError:
        return "-std=c++17"
    found = re.search(r"""cflags \+= \['(-std=c\+\+\d\d)'|['"](-std=c\+\+\d\d)['"]\] \+""", text)
    found = found or re.search(r"""['"](-std=c\+\+\d\d)['"]""", text)
    return (
        next((group for group in found.groups() if group), "-std=c++17") if found else "-std=c++17"
    )


def runtime_library(info: WorkerInfo, toolkit: Toolkit | None) -> Path | None:
    """The device runtime that the user's torch has loaded, else the toolkit's: an extension names
    it by file name, so that one process has one runtime. None where there is none."""
    site = Path(info.torch_path).parent
    folders = [Path(info.torch_library_dir), *sorted(site.glob("nvidia/*/lib"), reverse=True)]
    folders += [Path(folder) for folder in toolkit.library_dirs] if toolkit is not None else []
    major = info.cuda_version.split(".")[0] if info.cuda_version else "*"
    found = (path for folder in folders for path in sorted(folder.glob(f"libcudart.so.{major}")))
    return next(found, None)


def with_cuda(info: WorkerInfo, toolkit: Toolkit | None) -> bool:
    """Whether the shim can reach streams and devices: the user's torch has CUDA, and there are
    headers to compile that part against."""
    return toolkit is not None and Path(info.torch_library_dir, "libc10_cuda.so").is_file()


async def prepare(
    info: WorkerInfo,
    compiler: Compiler,
    flags: Sequence[str],
    cache_dir: Path,
    timeout: float,
    toolkit: Toolkit | None = None,
) -> Prepared:
    """Returns the preparation for this torch, interpreter, compiler, toolkit and flags; builds it
    when it is missing, which takes some tens of seconds, once. Raises PrepareError."""
    include = torch_include(info)
    if not with_cuda(info, toolkit):
        toolkit = None
    key = await asyncio.to_thread(
        lambda: content_key(
            sources_digest(),
            compiler.identity,
            list(flags),
            info.torch_version,
            info.torch_path,
            info.python_version,
            info.extension_suffix,
            str(include),
            toolkit.identity if toolkit is not None else None,
        )
    )
    store = ArtefactCache(cache_dir / "prepared")
    found = await asyncio.to_thread(store.find, key)
    if found is not None:
        return Prepared(found, include, 0.0)
    async with _lock(cache_dir, key, timeout):
        found = await asyncio.to_thread(store.find, key)
        if found is not None:
            return Prepared(found, include, 0.0)
        started = asyncio.get_running_loop().time()
        try:
            with store.building() as folder:
                await _build(info, compiler, toolkit, flags, include, folder, timeout)
                entry = await asyncio.to_thread(store.publish, key, folder)
        except OSError as error:
            raise PrepareError(
                f"the fast lane cannot be prepared in {cache_dir}: {error.strerror or error}; "
                "free some space or set another cache folder"
            ) from error
        return Prepared(entry, include, asyncio.get_running_loop().time() - started)


@asynccontextmanager
async def _lock(cache_dir: Path, key: str, timeout: float) -> AsyncIterator[None]:
    lock = AsyncFileLock(cache_dir / f"prepared-{key[:16]}.lock", timeout=timeout)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        await lock.acquire()
    except (OSError, Timeout) as error:
        raise PrepareError(
            f"the fast lane's preparation in {cache_dir} cannot be locked: {error}"
        ) from error
    try:
        yield
    finally:
        await lock.release()


async def _build(
    info: WorkerInfo,
    compiler: Compiler,
    toolkit: Toolkit | None,
    flags: Sequence[str],
    include: Path,
    folder: Path,
    timeout: float,
) -> None:
    generated = folder / "musacoder_generated"
    declarations = await asyncio.to_thread(operators.method_declarations, include)
    core = await asyncio.to_thread(operators.core_definitions, include)
    generated.mkdir()
    (generated / "methods.h").write_text(declarations, encoding="utf-8")
    (generated / "core.h").write_text(core, encoding="utf-8")
    # Its precompiled form must stand beside it, in a folder of this key.
    (folder / "prefix.h").write_text("#include <torch/extension.h>\n", encoding="utf-8")
    standard = next(flag for flag in flags if flag.startswith("-std="))
    headers = [f"-isystem{path}" for path in info.torch_include_dirs]
    common = [
        compiler.path, *_NATIVE_FLAGS, standard, f"-I{NATIVE}", *headers,
        *(f"-I{path}" for path in info.python_include_dirs), abi_flag(info),
    ]  # fmt: skip
    trampoline = folder / f"musacoder_trampoline{info.extension_suffix}"
    libraries = [f"-L{info.torch_library_dir}", "-ltorch_cpu", "-lc10"]
    shim_libraries = list(libraries)
    if toolkit is not None:
        common += ["-DMC_WITH_CUDA", *(f"-isystem{path}" for path in toolkit.include_dirs)]
        shim_libraries += ["-lc10_cuda", "-ltorch_cuda"]
        runtime = runtime_library(info, toolkit)
        if runtime is not None:
            shim_libraries += [f"-L{runtime.parent}", f"-l:{runtime.name}"]
    compiles = [
        [*common, "-c", str(NATIVE / name), "-o", str(folder / f"{name}.o")]
        # The longest first: two run at a time.
        for name in (*TRAMPOLINE_SOURCES, *SHIM_SOURCES)
    ]
    own = [compiler.path, *_NATIVE_FLAGS, standard, abi_flag(info), *facade_includes(folder)]
    compiles.append([*own, "-c", str(NATIVE / FACADE), "-o", str(folder / "facade.o")])
    compiles.append(
        [compiler.path, *flags, *facade_includes(folder), "-x", "c++-header",
         str(folder / "prefix.h"), "-o", str(folder / "prefix.h.gch")]
    )  # fmt: skip
    turn = asyncio.Semaphore(2)

    async def one(arguments: Sequence[str]) -> None:
        async with turn:
            await _must(arguments, folder, timeout)

    await _together([one(arguments) for arguments in compiles])
    objects = [str(folder / f"{name}.o") for name in SHIM_SOURCES]
    await _must(
        [compiler.path, "-shared", "-fopenmp", *objects, f"-Wl,-soname,{SHIM}", "-Wl,-z,defs",
         *shim_libraries, "-o", str(folder / SHIM)],
        folder, timeout,
    )  # fmt: skip
    objects = [str(folder / f"{name}.o") for name in TRAMPOLINE_SOURCES]
    await _must(
        [compiler.path, "-shared", *objects, f"-L{folder}", f"-l:{SHIM}",
         f"-L{info.torch_library_dir}", "-ltorch_python", *libraries[1:], "-Wl,-rpath,$ORIGIN",
         "-o", str(trampoline)],
        folder, timeout,
    )  # fmt: skip
    for leftover in folder.glob("*.cpp.o"):
        leftover.unlink()
    versions = {"torch": info.torch_version, "python": info.python_version}
    (folder / "prepared.json").write_text(
        json.dumps({**versions, "compiler": compiler.identity}), encoding="utf-8"
    )


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all; the first failure ends the rest and is raised as it is, not as a group of one or
    more, which no caller's `except` would meet."""
    try:
        async with asyncio.TaskGroup() as group:
            for item in work:
                group.create_task(item)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def facade_includes(prepared: Path) -> list[str]:
    return [f"-I{prepared}", f"-I{INCLUDE}", f"-I{NATIVE}"]


def abi_flag(info: WorkerInfo) -> str:
    return f"-D_GLIBCXX_USE_CXX11_ABI={int(info.cxx11_abi)}"


async def _must(arguments: Sequence[str], folder: Path, timeout: float) -> None:
    try:
        # Somebody waits for this, once: it runs at the priority of the program itself.
        result = await tools.run(arguments, cwd=folder, timeout=timeout, niceness=0)
    except tools.ToolError as error:
        raise PrepareError(str(error)) from error
    if result.timed_out:
        raise PrepareError(f"{arguments[0]} did not finish within {timeout:g} s; it was stopped")
    if result.returncode != 0:
        first = next((line for line in result.output.splitlines() if "error" in line), "")
        raise PrepareError(
            f"the fast lane cannot be built for this torch: {first.strip() or 'no message'}",
            result.output,
        )
