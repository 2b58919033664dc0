"""One evaluation by KernelBench's own evaluator, in an interpreter that has torch.

Started by file path with one argument, a JSON object: `checkout`, `reference`, `candidate` (texts),
`build` (an empty folder), `correct_trials`, `perf_trials`, `device`, `compile_only`. The last line
on standard output is a JSON object: `import_seconds`, `compile_seconds`, `seconds` (the whole call,
as a user waits for it), `compiled`, `correct`, `runtime`, `ref_runtime`, or `error`.

`kernelbench/__init__.py` imports `utils`, and that the clients of language models, which no
evaluation uses: where they are not installed, empty modules stand in for them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import types
from typing import Any

_CLIENTS = {
    "openai": ("OpenAI",),
    "litellm": ("completion",),
    "dotenv": ("load_dotenv",),
    "tqdm": ("tqdm",),
    "requests": (),
}


def _stand_in(name: str, attributes: tuple[str, ...]) -> None:
    if importlib.util.find_spec(name) is not None:
        return
    module = types.ModuleType(name)
    for attribute in attributes:
        setattr(module, attribute, lambda *arguments, **keywords: None)
    sys.modules[name] = module


def _pydantic() -> None:
    """KernelExecResult derives from BaseModel and uses it as a record of fields with defaults."""
    if importlib.util.find_spec("pydantic") is not None:
        return

    class BaseModel:
        def __init__(self, **fields: Any) -> None:
            for name in type(self).__annotations__:
                default = getattr(type(self), name)
                copied = dict(default) if isinstance(default, dict) else default
                setattr(self, name, fields.get(name, copied))

    module = types.ModuleType("pydantic")
    module.BaseModel = BaseModel  # type: ignore[attr-defined]
    sys.modules["pydantic"] = module


def main() -> None:
    order = json.loads(sys.argv[1])
    started = time.perf_counter()
    for name, attributes in _CLIENTS.items():
        _stand_in(name, attributes)
    _pydantic()
    sys.path.insert(0, os.path.join(order["checkout"], "src"))  # noqa: PTH118
    import torch
    from kernelbench import eval as evaluator  # type: ignore[import-not-found]

    answer: dict[str, Any] = {"import_seconds": time.perf_counter() - started}
    spent = [0.0]
    load = evaluator.load_custom_model

    def timed(*arguments: Any, **keywords: Any) -> Any:
        before = time.perf_counter()
        try:
            return load(*arguments, **keywords)
        finally:
            spent[0] += time.perf_counter() - before

    evaluator.load_custom_model = timed
    before = time.perf_counter()
    try:
        if order["compile_only"]:
            evaluator.load_custom_model(order["candidate"], {}, order["build"])
        else:
            result = evaluator.eval_kernel_against_ref(
                order["reference"],
                order["candidate"],
                num_correct_trials=order["correct_trials"],
                num_perf_trials=order["perf_trials"],
                measure_performance=True,
                build_dir=order["build"],
                device=torch.device(order["device"]),
            )
            if result is None:
                raise RuntimeError("KernelBench gave no result")
            answer["compiled"] = result.compiled
            answer["correct"] = result.correctness
            answer["runtime"], answer["ref_runtime"] = result.runtime, result.ref_runtime
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"[:500]
    answer["seconds"] = time.perf_counter() - before
    answer["compile_seconds"] = spent[0]
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
