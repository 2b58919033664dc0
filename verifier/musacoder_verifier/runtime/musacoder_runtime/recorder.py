"""Stands in for `torch.utils.cpp_extension` and its relatives while a Candidate is imported.

In the collect child every `load`, `load_inline` and `load_native` is recorded and answered by a
stub. In the candidate child the same calls are answered with what was compiled from them, found by
content key.
The stand-in module knows the other names of the real one too, and imports it only for them: that
alone costs longer than most Candidates run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Optional

from musacoder_runtime import native_form

# Where generated code imports its loader from. The last is Young-Lord/KernelBench's.
MODULES = (
    "torch.utils.cpp_extension",
    "torch_musa.utils.musa_extension",
    "kernelbench.musa_extension",
)
_REAL = {"torch.utils.cpp_extension", "torch_musa.utils.musa_extension"}
_DEVICE_SUFFIXES = (".cu", ".cuh", ".mu", ".muh")

Answer = Callable[[dict[str, Any]], Any]


class NotCompiledYetError(BaseException):
    """A recorded extension was called. Not an Exception: `try/except` fallbacks must not eat it."""


class RecordedExtension(ModuleType):
    """What `load_inline` returns while recording: any attribute is a function that cannot run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def stub(*arguments: Any, **keywords: Any) -> Any:
            raise NotCompiledYetError(f"{self.__name__}.{name} is not compiled yet")

        stub.__name__ = name
        return stub


class Recorder:
    """The requests so far, in order."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def answer(self, request: dict[str, Any]) -> Any:
        self.requests.append(request)
        return RecordedExtension(request["name"])


def request_key(request: Mapping[str, Any]) -> str:
    """Equal to `musacoder_verifier.build_request.BuildRequest.key` of the same request."""
    body = [
        request["name"],
        [[source["language"], source["text"]] for source in request["sources"]],
        [list(function) for function in request["functions"]],
        list(request["extra_cflags"]),
        list(request["extra_cuda_cflags"]),
        list(request["extra_ldflags"]),
        list(request["extra_include_paths"]),
        request["with_cuda"],
        request["is_python_module"],
        request["launches"],
    ]
    text = json.dumps(body, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def install(answer: Answer) -> None:
    """From now on, `load` and `load_inline` of all known loaders give `answer(request)`."""

    def load_inline(
        name: str,
        cpp_sources: Any = None,
        cuda_sources: Any = None,
        sycl_sources: Any = None,
        functions: Any = None,
        extra_cflags: Any = None,
        extra_cuda_cflags: Any = None,
        extra_sycl_cflags: Any = None,
        extra_ldflags: Any = None,
        extra_include_paths: Any = None,
        build_directory: Any = None,
        verbose: bool = False,
        with_cuda: Optional[bool] = None,
        with_sycl: Optional[bool] = None,
        is_python_module: bool = True,
        **others: Any,
    ) -> Any:
        device = [*_texts(cuda_sources), *_texts(others.get("musa_sources"))]
        if _texts(sycl_sources):
            raise ValueError("SYCL sources are not supported; give C++, CUDA or MUSA sources")
        return answer(
            {
                "name": str(name),
                "sources": [
                    *({"language": "cpp", "text": text} for text in _texts(cpp_sources)),
                    *({"language": "cuda", "text": text} for text in device),
                ],
                "functions": _functions(functions),
                "extra_cflags": _texts(extra_cflags),
                "extra_cuda_cflags": [
                    *_texts(extra_cuda_cflags),
                    *_texts(others.get("extra_musa_cflags")),
                ],
                "extra_ldflags": _texts(extra_ldflags),
                "extra_include_paths": _texts(extra_include_paths),
                "with_cuda": with_cuda if with_cuda is not None else others.get("with_musa"),
                "is_python_module": bool(is_python_module),
                "launches": None,
            }
        )

    def load(
        name: str,
        sources: Any,
        extra_cflags: Any = None,
        extra_cuda_cflags: Any = None,
        extra_ldflags: Any = None,
        extra_include_paths: Any = None,
        build_directory: Any = None,
        verbose: bool = False,
        with_cuda: Optional[bool] = None,
        is_python_module: bool = True,
        **others: Any,
    ) -> Any:
        files = [Path(path) for path in _texts(sources)]
        return answer(
            {
                "name": str(name),
                "sources": [
                    {
                        "language": "cuda" if file.suffix in _DEVICE_SUFFIXES else "cpp",
                        "text": file.read_text(encoding="utf-8"),
                    }
                    for file in files
                ],
                "functions": [],
                "extra_cflags": _texts(extra_cflags),
                "extra_cuda_cflags": _texts(extra_cuda_cflags),
                "extra_ldflags": _texts(extra_ldflags),
                "extra_include_paths": [
                    *_texts(extra_include_paths),
                    *sorted({str(file.parent) for file in files}),
                ],
                "with_cuda": with_cuda,
                "is_python_module": bool(is_python_module),
                "launches": None,
            }
        )

    def load_native(
        name: str,
        source: str,
        functions: Mapping[str, native_form.Function],
        options: Any = None,
    ) -> Any:
        if not str(name).isidentifier():
            raise ValueError(f"the name {name!r} is not an identifier")
        return answer(
            {
                "name": str(name),
                "sources": [{"language": "cuda", "text": str(source)}],
                "functions": [],
                "extra_cflags": [],
                "extra_cuda_cflags": _texts(options),
                "extra_ldflags": [],
                "extra_include_paths": [],
                "with_cuda": True,
                "is_python_module": True,
                "launches": json.dumps(native_form.described(functions), sort_keys=True),
            }
        )

    for module in MODULES:
        _stand_in(module, {"load": load, "load_inline": load_inline})
    native = {"Function": native_form.Function, "Launch": native_form.Launch}
    _stand_in(native_form.MODULE, {**native, "load_native": load_native})


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, (str, Path)) else [str(item) for item in value]


def _functions(value: Any) -> list[list[str]]:
    """As `load_inline` reads it: a name, a list of names, or name -> docstring."""
    if isinstance(value, Mapping):
        return [[str(name), str(text)] for name, text in value.items()]
    return [[name, name] for name in _texts(value)]


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__name__ not in _REAL:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(_real(self.__name__), name)
        setattr(self, name, value)
        return value


def _real(name: str) -> ModuleType:
    """The module that the stand-in hides, loaded under another name."""
    parent = importlib.import_module(name.rpartition(".")[0])
    hidden = f"{name}__real"
    if hidden in sys.modules:
        return sys.modules[hidden]
    file = Path(parent.__path__[0]) / f"{name.rpartition('.')[2]}.py"
    spec = importlib.util.spec_from_file_location(hidden, file)
    if spec is None or spec.loader is None:
        raise AttributeError(f"module {name!r} has no source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[hidden] = module
    spec.loader.exec_module(module)
    return module


def _stand_in(name: str, functions: Mapping[str, Any]) -> None:
    module = sys.modules.get(name)
    if module is None:
        module = _StandIn(name)
        module.__package__ = name.rpartition(".")[0]
        sys.modules[name] = module
        _attach(name, module)
    for attribute, function in functions.items():
        setattr(module, attribute, function)


def _attach(name: str, module: ModuleType) -> None:
    """Make `import a.b.c` find it: as an attribute of its parent, made up where it is missing."""
    parent_name, _, last = name.rpartition(".")
    if not parent_name:
        return
    parent = sys.modules.get(parent_name)
    if parent is None:
        if importlib.util.find_spec(parent_name.partition(".")[0]) is not None:
            # A real package: Python imports it when the Candidate asks for its child.
            return
        parent = ModuleType(parent_name)
        parent.__path__ = []
        sys.modules[parent_name] = parent
        _attach(parent_name, parent)
    setattr(parent, last, module)
