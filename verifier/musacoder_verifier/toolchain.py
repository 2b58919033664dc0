"""Finding compilers and what else a build needs; saying in one sentence what is missing.

Order: a setting, then environment variables (CXX, CUDA_HOME, MUSA_HOME), then PATH and the usual
folders, then toolkits that pip packages carry.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

_VERSION_SECONDS = 20.0
_COMPILERS = ("g++", "clang++", "c++")


# By which the home of a device compiler is known: a script in /usr/local/bin is no toolkit, though
# there is a /usr/local/include.
_HEADERS = {"nvcc": "cuda_runtime.h", "mcc": "musa_runtime.h"}


class ToolchainError(Exception):
    """Something that a build needs is missing: one sentence with the command that installs it."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A host compiler. `identity` changes whenever the program behind `path` does."""

    path: str
    family: Literal["gcc", "clang"]
    version: tuple[int, ...]
    identity: str

    @property
    def message_flags(self) -> tuple[str, ...]:
        """Flags that make messages easy to read for `diagnostics.parse`."""
        flags = ("-fdiagnostics-color=never" if self.family == "gcc" else "-fno-color-diagnostics",)
        if self.family == "gcc" and self.version >= (11,):
            # Bytes, as in clang: the display columns of gcc depend on tab stops and widths.
            return (*flags, "-fdiagnostics-column-unit=byte")
        return flags

    @property
    def linker_flags(self) -> tuple[str, ...]:
        """A faster linker where one works: linking is a good part of a small compile."""
        folder = Path(self.path).parent
        for name in ("mold", "lld", "gold"):
            installed = (folder / f"ld.{name}").exists() or shutil.which(f"ld.{name}") is not None
            if installed and _links(self.path, name):
                return (f"-fuse-ld={name}",)
        return ()

    @property
    def label(self) -> str:
        return f"{self.family} {'.'.join(map(str, self.version))}"


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A device compiler and where it was found."""

    compiler: str
    home: str
    origin: str  # "setting", "CUDA_HOME", "PATH", "pip package nvidia/cu13", ...

    @property
    def include_dirs(self) -> tuple[str, ...]:
        """Folders of its headers, those of its C++ libraries (CUB, Thrust) last."""
        root = Path(self.home, "include")
        found = [str(folder) for folder in (root, root / "cccl") if folder.is_dir()]
        # What a compiler looks through anyway must keep its place: its headers come in an order.
        return tuple(folder for folder in found if folder != "/usr/include")

    @property
    def library_dirs(self) -> tuple[str, ...]:
        names = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
        return tuple(str(Path(self.home, name)) for name in names if Path(self.home, name).is_dir())

    @property
    def version(self) -> tuple[int, int] | None:
        """Of CUDA, as its own header says; None where there is no such header."""
        try:
            header = Path(self.home, "include", "cuda_runtime_api.h").read_text("utf-8", "replace")
        except OSError:
            return None
        found = re.search(r"^#define CUDART_VERSION\s+(\d+)", header, re.M)
        return (int(found[1]) // 1000, int(found[1]) % 1000 // 10) if found is not None else None

    def mismatch(self, cuda: str | None) -> str | None:
        """One sentence where its runtime is another than that of a torch built with `cuda`, such
        as "13.0": what it compiles needs functions that the process does not have."""
        own = self.version
        if own is None or cuda is None or str(own[0]) == cuda.split(".")[0]:
            return None
        return (
            f"{self.compiler} is of CUDA {own[0]}.{own[1]}, but torch is built with CUDA {cuda}; "
            f"set CUDA_HOME to a toolkit of CUDA {cuda.split('.')[0]}"
        )

    @property
    def identity(self) -> str:
        """Changes whenever the compiler or its place does. Raises ToolchainError."""
        real = Path(self.compiler).resolve()
        try:
            status = real.stat()
        except OSError as error:
            raise ToolchainError(
                f"the device compiler {self.compiler} cannot be read: {error.strerror}"
            ) from error
        return f"{real} {self.home} {status.st_mtime_ns} {status.st_size}"


@lru_cache
def _links(compiler: str, linker: str) -> bool:
    """Whether a C++ library can be linked so. A compiler that was moved may hold links that lead
    nowhere, which one linker steps over and another one stumbles on."""
    with tempfile.TemporaryDirectory(prefix="musacoder-linker-") as folder:
        source = Path(folder, "empty.cpp")
        source.write_text("#include <new>\nint* one() { return new int(1); }\n", encoding="utf-8")
        command = [compiler, "-shared", "-fPIC", f"-fuse-ld={linker}", str(source), "-o"]
        try:
            return (
                subprocess.run(
                    [*command, str(Path(folder, "empty.so"))],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_VERSION_SECONDS,
                    start_new_session=True,
                ).returncode
                == 0
            )
        except (OSError, subprocess.TimeoutExpired):
            return False


def host_compiler(
    setting: str | None = None, environment: Mapping[str, str] | None = None
) -> Compiler:
    """The C++ compiler to use. Raises ToolchainError."""
    environment = os.environ if environment is None else environment
    search = environment.get("PATH", os.defpath)
    for value, origin in ((setting, "the setting"), (environment.get("CXX"), "CXX")):
        if value and value.strip():
            # CXX may be "ccache g++": the compiler is its last word, used without the wrapper.
            word = shlex.split(value)[-1]
            found = shutil.which(os.path.expanduser(word), path=search)  # noqa: PTH111
            if found is None:
                raise ToolchainError(
                    f"the C++ compiler {word} named by {origin} does not exist or is not "
                    f"executable; correct {origin} or leave it out"
                )
            return _described(found)
    for name in _COMPILERS:
        found = shutil.which(name, path=search)
        if found is not None:
            return _described(found)
    raise ToolchainError(f"no C++ compiler was found; install one: {install_command('compiler')}")


def _described(path: str) -> Compiler:
    real = Path(path).resolve()
    try:
        status = real.stat()
    except OSError as error:
        raise ToolchainError(f"the C++ compiler {path} cannot be read: {error.strerror}") from error
    return _describe(path, str(real), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _describe(path: str, real: str, modified: int, size: int) -> Compiler:
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolchainError(
            f"the C++ compiler {path} did not answer --version within {_VERSION_SECONDS:g} s; "
            "choose another one by CXX"
        ) from None
    except OSError as error:
        raise ToolchainError(
            f"the C++ compiler {path} cannot be started: {error.strerror}; "
            "choose another one by CXX"
        ) from error
    text = done.stdout.decode("utf-8", "replace")
    family, version = parse_version(text)
    if done.returncode != 0 or not version:
        raise ToolchainError(
            f"{path} does not answer --version as gcc or clang do; choose another compiler by CXX"
        )
    first = text.splitlines()[0].strip()
    return Compiler(path, family, version, f"{first} {real} {modified} {size}")


def parse_version(text: str) -> tuple[Literal["gcc", "clang"], tuple[int, ...]]:
    """Family and version in what `--version` prints; an empty version where there is none."""
    clang = re.search(r"clang version (\d+(?:\.\d+)*)", text)
    if clang:
        return "clang", tuple(map(int, clang[1].split(".")))
    first = text.splitlines()[0] if text.strip() else ""
    # "g++ (Debian 12.2.0-14) 12.2.0": what stands in brackets is the packager's.
    plain = re.sub(r"\([^()]*\)", "", first)
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", plain)
    return "gcc", tuple(map(int, found[1].split("."))) if found else ()


def cuda_toolkit(
    setting: str | None = None,
    environment: Mapping[str, str] | None = None,
    site_folders: Iterable[str] = (),
) -> Toolkit | None:
    """Where nvcc is; `site_folders` are those in which pip installs packages."""
    carried = [
        (str(home), f"pip package nvidia/{home.name}")
        for folder in site_folders
        for home in sorted(Path(folder, "nvidia").glob("cu*"), reverse=True)
    ]
    return _toolkit("nvcc", "CUDA_HOME", setting, environment, ["/usr/local/cuda"], carried)


def musa_toolkit(
    setting: str | None = None, environment: Mapping[str, str] | None = None
) -> Toolkit | None:
    """Where mcc is."""
    return _toolkit("mcc", "MUSA_HOME", setting, environment, ["/usr/local/musa"], [])


def _toolkit(
    program: str,
    variable: str,
    setting: str | None,
    environment: Mapping[str, str] | None,
    usual: list[str],
    carried: list[tuple[str, str]],
) -> Toolkit | None:
    environment = os.environ if environment is None else environment
    homes = [(setting, "setting"), (environment.get(variable), variable)]
    for home, origin in homes:
        if home and _executable(Path(home, "bin", program)):
            return Toolkit(str(Path(home, "bin", program)), home, origin)
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is not None:
        return _at_home(program, found)
    for home, origin in [*((home, home) for home in usual), *carried]:
        if _executable(Path(home, "bin", program)):
            return Toolkit(str(Path(home, "bin", program)), home, origin)
    return None


def _at_home(program: str, found: str) -> Toolkit:
    """The toolkit of a compiler on PATH, which may be a link or a script that calls the real one:
    nvcc itself tells where it lives."""
    home = Path(found).resolve().parent.parent
    if not (home / "include" / _HEADERS[program]).is_file():
        told = _told_home(found, Path(found).stat().st_mtime_ns)
        if told is not None and _executable(Path(told, "bin", program)):
            return Toolkit(str(Path(told, "bin", program)), told, "PATH")
    return Toolkit(found, str(home), "PATH")


@lru_cache(maxsize=8)
def _told_home(compiler: str, modified: int) -> str | None:
    try:
        done = subprocess.run(
            [compiler, "--dryrun", "-c", "x.cu"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"^#\$ TOP=(.+)$", done.stderr.decode("utf-8", "replace"), re.M)
    return str(Path(found[1].strip()).resolve()) if found else None


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


_PACKAGES = {
    "apt": ("sudo apt-get install -y", {"compiler": "g++", "headers": "python3-dev"}),
    "dnf": ("sudo dnf install -y", {"compiler": "gcc-c++", "headers": "python3-devel"}),
    "pacman": ("sudo pacman -S --needed", {"compiler": "gcc", "headers": "python"}),
    "apk": ("sudo apk add", {"compiler": "g++", "headers": "python3-dev"}),
    "zypper": ("sudo zypper install -y", {"compiler": "gcc-c++", "headers": "python3-devel"}),
}
_MANAGERS = {
    "debian": "apt", "ubuntu": "apt", "linuxmint": "apt", "fedora": "dnf", "rhel": "dnf",
    "centos": "dnf", "rocky": "dnf", "almalinux": "dnf", "amzn": "dnf", "arch": "pacman",
    "manjaro": "pacman", "alpine": "apk", "suse": "zypper", "opensuse": "zypper",
    "opensuse-leap": "zypper", "opensuse-tumbleweed": "zypper", "sles": "zypper",
}  # fmt: skip


def install_command(
    what: Literal["compiler", "headers"], os_release: str | None = None, version: str | None = None
) -> str:
    """The command by which this system installs a compiler or Python's headers. `os_release` is
    the text of /etc/os-release, `version` the Python version whose headers are wanted."""
    if os_release is None:
        try:
            os_release = Path("/etc/os-release").read_text("utf-8", "replace")
        except OSError:
            os_release = ""
    fields = dict(
        line.split("=", 1) for line in os_release.splitlines() if "=" in line and line[0] != "#"
    )
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    manager = next((_MANAGERS[name] for name in names if name in _MANAGERS), None)
    if manager is None:
        generic = {"compiler": "g++ or clang++", "headers": "Python's development files"}
        return f"{generic[what]}, by your system's package manager"
    command, packages = _PACKAGES[manager]
    package = packages[what]
    if what == "headers" and manager == "apt" and version:
        package = f"python{'.'.join(version.split('.')[:2])}-dev"
    return f"{command} {package}"


def ninja(python: str) -> str | None:
    """Where the stock lane finds ninja: beside the user's interpreter, else on PATH."""
    beside = Path(python).parent / "ninja"
    return str(beside) if _executable(beside) else shutil.which("ninja")


def missing_python_header(python: str, version: str, include_dirs: Iterable[str]) -> str | None:
    """A sentence where `Python.h` of the user's interpreter is missing, else None."""
    if any(Path(folder, "Python.h").is_file() for folder in include_dirs):
        return None
    return (
        f"Python.h of {python} is missing; install it: "
        f"{install_command('headers', version=version)}"
    )
