"""Says what this interpreter and its torch are; needs no device."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any

import torch

from musacoder_runtime.channel import Channel


def main(channel: Channel, spec: dict[str, Any]) -> None:
    folder = os.path.dirname(torch.__file__)
    include = os.path.join(folder, "include")
    paths = sysconfig.get_paths()
    channel.send(
        {
            "python": sys.executable,
            "python_version": sys.version.split()[0],
            "python_implementation": sys.implementation.name,
            "python_include_dirs": list(dict.fromkeys([paths["include"], paths["platinclude"]])),
            "extension_suffix": sysconfig.get_config_var("EXT_SUFFIX") or ".so",
            "torch_version": str(torch.__version__),
            "torch_path": folder,
            "torch_include_dirs": [
                include,
                os.path.join(include, "torch", "csrc", "api", "include"),
            ],
            "torch_library_dir": os.path.join(folder, "lib"),
            "cxx11_abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
            "cuda_version": torch.version.cuda,
            "hip_version": getattr(torch.version, "hip", None),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }
    )
