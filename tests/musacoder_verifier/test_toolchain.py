"""Finding compilers; one sentence for what is missing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from musacoder_verifier import toolchain
from musacoder_verifier.toolchain import ToolchainError, Toolkit


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


GCC = "echo 'g++ (Debian 12.2.0-14+deb12u1) 12.2.0'"


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright", "gcc", (12, 2, 0)),
        ("g++ (GCC) 14.2.1 20250110 (Red Hat 14.2.1-7)", "gcc", (14, 2, 1)),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)\nTarget: x86_64", "clang", (18, 1, 3)),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", "clang", (15, 0, 0)),
        ("", "gcc", ()),
        ("hello", "gcc", ()),
    ],
)
def test_versions(text: str, family: str, version: tuple[int, ...]):
    assert toolchain.parse_version(text) == (family, version)


def test_the_setting_wins_over_the_variable_and_the_path(tmp_path: Path):
    chosen = program(tmp_path / "mine" / "my-g++", GCC)
    other = program(tmp_path / "other" / "g++", GCC)
    environment = {"CXX": str(other), "PATH": f"{other.parent}:/usr/bin:/bin"}
    assert toolchain.host_compiler(str(chosen), environment).path == str(chosen)
    assert toolchain.host_compiler(None, environment).path == str(other)
    del environment["CXX"]
    assert toolchain.host_compiler(None, environment).path == str(other)


def test_a_compiler_cache_in_front_is_left_out(tmp_path: Path):
    compiler = program(tmp_path / "g++", GCC)
    found = toolchain.host_compiler(None, {"CXX": f"ccache {compiler}", "PATH": "/usr/bin:/bin"})
    assert found.path == str(compiler)


def test_no_compiler_names_the_package(tmp_path: Path):
    with pytest.raises(ToolchainError, match="no C\\+\\+ compiler was found; install one: "):
        toolchain.host_compiler(None, {"PATH": str(tmp_path)})


def test_a_wrong_name_is_not_replaced_by_another_compiler(tmp_path: Path):
    program(tmp_path / "g++", GCC)
    with pytest.raises(ToolchainError, match="named by CXX does not exist"):
        toolchain.host_compiler(None, {"CXX": "nope++", "PATH": str(tmp_path)})


def test_a_changed_compiler_has_another_identity(tmp_path: Path):
    path = program(tmp_path / "g++", GCC)
    first = toolchain.host_compiler(str(path), {})
    program(path, GCC + "\n# updated")
    assert toolchain.host_compiler(str(path), {}).identity != first.identity


def test_something_that_is_no_compiler_is_refused(tmp_path: Path):
    path = program(tmp_path / "g++", "exit 1")
    with pytest.raises(ToolchainError, match="as gcc or clang do"):
        toolchain.host_compiler(str(path), {})


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "sudo apt-get install -y g++"),
        ('ID="linuxmint"\nID_LIKE="ubuntu debian"\n', "sudo apt-get install -y g++"),
        ("ID=fedora\n", "sudo dnf install -y gcc-c++"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install -y gcc-c++"),
        ("ID=arch\n", "sudo pacman -S --needed gcc"),
        ("ID=alpine\n", "sudo apk add g++"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "sudo zypper install -y gcc-c++"),
        ("ID=unheard\n", "g++ or clang++, by your system's package manager"),
        ("", "g++ or clang++, by your system's package manager"),
    ],
)
def test_the_install_command_is_that_of_the_system(release: str, command: str):
    assert toolchain.install_command("compiler", release) == command


def test_debian_names_headers_by_version():
    command = toolchain.install_command("headers", "ID=debian\n", "3.11.7")
    assert command == "sudo apt-get install -y python3.11-dev"


def test_missing_python_header(tmp_path: Path):
    assert "Python.h of /usr/bin/py is missing" in (
        toolchain.missing_python_header("/usr/bin/py", "3.11", [str(tmp_path)]) or ""
    )
    (tmp_path / "Python.h").touch()
    assert toolchain.missing_python_header("/usr/bin/py", "3.11", [str(tmp_path)]) is None


def test_toolkits_are_found_in_order(tmp_path: Path):
    carried = program(tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "")
    variable = program(tmp_path / "variable" / "bin" / "nvcc", "")
    setting = program(tmp_path / "setting" / "bin" / "nvcc", "")
    sites = [str(tmp_path / "site")]
    environment = {"CUDA_HOME": str(tmp_path / "variable"), "PATH": str(tmp_path)}
    found = toolchain.cuda_toolkit(str(tmp_path / "setting"), environment, sites)
    assert found is not None
    assert (found.compiler, found.origin) == (str(setting), "setting")
    found = toolchain.cuda_toolkit(None, environment, sites)
    assert found is not None
    assert (found.compiler, found.origin) == (str(variable), "CUDA_HOME")
    found = toolchain.cuda_toolkit(None, {"PATH": str(tmp_path)}, sites)
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        assert found is not None
        assert (found.compiler, found.origin) == (str(carried), "pip package nvidia/cu13")


def test_mcc_is_found_by_its_variable(tmp_path: Path):
    program(tmp_path / "bin" / "mcc", "")
    found = toolchain.musa_toolkit(None, {"MUSA_HOME": str(tmp_path), "PATH": ""})
    assert found is not None
    assert found.origin == "MUSA_HOME"


@pytest.mark.parametrize(("code", "flags"), [(0, ("-fuse-ld=mold",)), (1, ())])
def test_a_faster_linker_is_used_where_it_links(tmp_path: Path, code: int, flags: tuple[str, ...]):
    linker = f"case $* in *fuse-ld=mold*) exit {code};; *fuse-ld*) exit 1;; esac"
    compiler = program(tmp_path / "g++", f"{linker}\n{GCC}")
    for name in ("mold", "lld", "gold"):
        program(tmp_path / f"ld.{name}", "exit 0")
    assert toolchain.host_compiler(str(compiler)).linker_flags == flags


def test_a_toolkit_of_another_cuda_than_torchs(tmp_path: Path):
    (tmp_path / "include").mkdir()
    toolkit = Toolkit("/x/bin/nvcc", str(tmp_path), "CUDA_HOME")
    assert toolkit.version is None
    assert toolkit.mismatch("12.8") is None
    (tmp_path / "include" / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  13020\n")
    assert toolkit.version == (13, 2)
    assert toolkit.mismatch("13.0") is None
    assert toolkit.mismatch(None) is None
    sentence = toolkit.mismatch("12.8")
    assert sentence is not None
    assert "CUDA 13.2" in sentence
    assert "toolkit of CUDA 12" in sentence


def test_a_script_on_the_path_is_not_the_home_of_a_toolkit(tmp_path: Path):
    real = program(tmp_path / "cuda" / "bin" / "nvcc", f"echo '#$ TOP={tmp_path}/cuda' >&2")
    (tmp_path / "local" / "include").mkdir(parents=True)
    program(tmp_path / "local" / "bin" / "nvcc", f'exec {real} "$@"')
    found = toolchain.cuda_toolkit(environment={"PATH": str(tmp_path / "local" / "bin")})
    assert found is not None
    assert found.home == str(tmp_path / "cuda")
    assert found.compiler == str(real)
