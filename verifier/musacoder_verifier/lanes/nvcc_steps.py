"""The steps of nvcc, with those side by side that do not need each other.

nvcc runs its front end for the host code and then its compiler for the device code, one after the
other, though both read the same source. `nvcc --dryrun` prints the steps as shell commands; here
they become a script that runs the two branches at once. What does not look as expected (several
architectures, another order) stays with nvcc itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

DRY_RUN = ("--dryrun", "--keep", "--keep-dir", ".")
_LINE = re.compile(r"^#\$ (.*)$")
_SETTING = re.compile(r"^(\w+)=(.*)$")
_EXPORTED = ("TOP", "CICC_PATH", "NVVMIR_LIBRARY_DIR", "LD_LIBRARY_PATH", "PATH")
_MODULE_ID = re.compile(r'--gen_module_id_file --module_id_file_name "([^"]+)"')


@dataclass(frozen=True, slots=True)
class _Steps:
    settings: tuple[str, ...]
    host: tuple[str, str]
    device: tuple[str, str, str, str]
    last: str
    module_id: str  # the file that cudafe++ would write and cicc reads


def script(dry_run: str, identity: str) -> str | None:
    """The script for what `nvcc --dryrun` printed, None where it is not understood. `identity`, of
    letters and digits, sets the unit's names of internal linkage apart from those of others."""
    steps = _steps(dry_run)
    if steps is None:
        return None
    front_end = _MODULE_ID.sub(r'--module_id_file_name "\1"', steps.host[1])
    return "\n".join(
        [
            *steps.settings,
            f"printf %s _{identity}_6_device_{identity} > {shlex.quote(steps.module_id)}",
            f"( {' && '.join(steps.device)} ) > device.log 2>&1 &",
            "device=$!",
            f"( {steps.host[0]} && {front_end} )",
            "host=$?",
            "wait $device",
            "status=$?",
            # The front end sees every error of the language; the other branch would repeat it.
            "[ $host -eq 0 ] || exit $host",
            "cat device.log",
            "[ $status -eq 0 ] || exit $status",
            f"exec {steps.last}",
            "",
        ]
    )


def _steps(dry_run: str) -> _Steps | None:
    settings: list[str] = []
    commands: list[str] = []
    for line in dry_run.splitlines():
        found = _LINE.match(line)
        if found is None:
            return None
        text = found[1].strip()
        setting = _SETTING.match(text)
        if setting is None:
            commands.append(text)
        elif setting[1] in _EXPORTED:
            settings.append(f"export {setting[1]}={shlex.quote(setting[2].strip())}")
    commands = [command for command in commands if not command.startswith("rm ")]
    if [_kind(command) for command in commands] != [
        "preprocess", "cudafe++", "preprocess", "cicc", "ptxas", "fatbinary", "compile",
    ]:  # fmt: skip
        return None
    module_id = _MODULE_ID.search(commands[1])
    if module_id is None:
        return None
    device = (commands[2], commands[3], commands[4], commands[5])
    return _Steps(tuple(settings), (commands[0], commands[1]), device, commands[6], module_id[1])


def _kind(command: str) -> str:
    words: Sequence[str] = command.split()
    program = words[0].strip('"').rpartition("/")[2]
    if program in ("cudafe++", "cicc", "ptxas", "fatbinary"):
        return program
    return "preprocess" if "-E" in words else "compile" if "-c" in words else program
