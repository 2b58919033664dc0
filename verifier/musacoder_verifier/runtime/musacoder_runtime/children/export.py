"""Export child: the operator graph of a Reference as plain JSON (docs/graph.md).

Runs in the user's interpreter. Only shapes, dtypes, names and numbers that stand in the program
text leave this process; of the user's tensors no element does.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

FORMAT = 1
# A tensor that forward itself writes down, such as torch.tensor([0.1, 0.2]), is program text and
# may be inlined up to this many elements.
INLINE_ELEMENTS = 64

# Operators that the core ATen decompositions keep whole, and that are simpler in parts.
_ALSO_DECOMPOSE = (
    "_log_softmax", "_softmax", "_prelu_kernel", "_weight_norm_interface", "addbmm", "addcdiv",
    "addcmul", "addr", "aminmax", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "celu",
    "diag_embed", "elu", "eye", "float_power", "frobenius_norm", "glu", "hardshrink", "hardsigmoid",
    "hardswish", "heaviside", "huber_loss", "lerp", "leaky_relu", "linalg_cross", "linspace",
    "log_sigmoid_forward", "logit", "logspace", "logsumexp", "mish", "mse_loss", "nan_to_num",
    "nll_loss2d_forward", "nll_loss_forward", "norm", "pixel_shuffle", "pixel_unshuffle",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu6", "renorm",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "rot90", "selu", "sinc",
    "smooth_l1_loss", "soft_margin_loss", "softplus", "softshrink", "std_mean", "threshold",
    "trace",
    "tril", "triu", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "xlogy",
    "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
# Kept whole although a decomposition exists: one loop nest is better than its parts.
_KEEP = (
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "addmm", "baddbmm", "cumprod", "cumsum", "embedding",
    "gelu", "index_select", "linalg_vector_norm", "mean", "native_dropout", "native_group_norm",
    "native_layer_norm", "repeat", "silu", "split", "split_with_sizes", "stack", "std", "sum",
    "unbind", "var", "var_mean", "_fused_rms_norm", "rms_norm", "addmv", "mv", "dot",
)  # fmt: skip


# Modules that compute something else in training mode; a kernel for one mode must refuse the other.
_MODE_SENSITIVE = (
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.RReLU,
    torch.nn.MultiheadAttention,
    torch.nn.RNNBase,
)


class ExportFailure(Exception):
    """Holds one sentence for the user."""


def main(channel: Any, spec: Dict[str, Any]) -> None:
    """Answers `{"graph": ..., "error": None}` or `{"graph": None, "error": sentence}`.

    `spec` holds what `musacoder_runtime.reference_module.load` needs and `training`.
    """
    from musacoder_runtime import reference_module

    try:
        loaded = reference_module.load(spec)
        model, inputs = reference_module.build(loaded, spec)
        graph = export(model, inputs, training=bool(spec.get("training", False)))
    except ExportFailure as failure:
        channel.send({"graph": None, "error": str(failure)})
        return
    except Exception as error:
        channel.send({"graph": None, "error": "the Reference fails: " + _one_line(error)})
        return
    channel.send({"graph": graph, "error": None})


def export(model: torch.nn.Module, inputs: List[Any], *, training: bool) -> Dict[str, Any]:
    """The graph of `model(*inputs)`; raises ExportFailure with one sentence."""
    model.train(training)
    if hasattr(torch.backends, "mha"):
        torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            program = torch.export.export(model, tuple(inputs), strict=False)
            program = program.run_decompositions(_decompositions())
    except Exception as error:
        raise ExportFailure("torch.export cannot trace this code: " + _one_line(error)) from error
    graph = _Writer(program, inputs, training).graph()
    graph["mode_sensitive"] = any(isinstance(module, _MODE_SENSITIVE) for module in model.modules())
    return graph


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return (type(error).__name__ + ": " + text)[:300].rstrip(": ")


def _decompositions() -> Dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions, get_decompositions

    table = dict(core_aten_decompositions())
    packets = [getattr(torch.ops.aten, name) for name in _ALSO_DECOMPOSE if _has(name)]
    for packet in packets:
        try:
            table.update(get_decompositions([packet]))
        except RuntimeError:  # this torch version has no decomposition for it
            continue
    kept = {"aten::" + name for name in _KEEP}
    return {op: rule for op, rule in table.items() if _packet_name(op) not in kept}


def _has(name: str) -> bool:
    try:
        getattr(torch.ops.aten, name)
    except AttributeError:
        return False
    return True


def _packet_name(op: Any) -> str:
    return str(op._schema.name) if hasattr(op, "_schema") else str(op)


class _Writer:
    def __init__(self, program: Any, inputs: List[Any], training: bool) -> None:
        self._program = program
        self._inputs = inputs
        self._training = training
        self._getitems: Dict[str, Tuple[str, int]] = {}

    def graph(self) -> Dict[str, Any]:
        module = self._program.graph_module
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        nodes = []
        outputs: List[Any] = []
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                source, position = node.args
                self._getitems[node.name] = (source.name, int(position))
            elif node.op == "call_function":
                nodes.append(self._node(node))
            elif node.op == "output":
                outputs = list(node.args[0])
            elif node.op == "get_attr":
                raise ExportFailure(f"the exported graph holds a nested graph ({node.target})")
        return {
            "format": FORMAT,
            "torch": torch.__version__,
            "exporter": "torch.export",
            "training": self._training,
            "inputs": self._graph_inputs(placeholders),
            "nodes": nodes,
            "outputs": self._graph_outputs(outputs),
            "output_spec": self._output_spec(),
        }

    def _node(self, node: Any) -> Dict[str, Any]:
        value = node.meta.get("val")
        several = isinstance(value, (tuple, list))
        return {
            "name": node.name,
            "op": _op_name(node.target),
            "args": [self._argument(a) for a in node.args],
            "kwargs": {k: self._argument(v) for k, v in node.kwargs.items()},
            "outputs": [_tensor(v) for v in (value if several else [value])],
        }

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value.name in self._getitems:
                name, index = self._getitems[value.name]
                return {"ref": name, "index": index}
            return {"ref": value.name}
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).replace("torch.", "")}
        if isinstance(value, (torch.device, torch.memory_format, torch.layout)):
            return {"other": str(value)}
        return _number(value)

    def _graph_inputs(self, placeholders: List[Any]) -> List[Dict[str, Any]]:
        kinds = {"USER_INPUT": "input", "PARAMETER": "parameter", "BUFFER": "buffer"}
        specs = self._program.graph_signature.input_specs
        result = []
        position = 0
        for node, spec in zip(placeholders, specs):
            kind = kinds.get(spec.kind.name, "constant")
            entry: Dict[str, Any] = {"name": node.name, "kind": kind, "target": spec.target}
            if kind == "input":
                entry["position"] = position
                position += 1
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                entry.update(_tensor(value) or {})
            else:
                entry["value"] = _number(getattr(spec.arg, "value", value))
            if kind == "constant":
                entry.update(self._constant(spec.target))
            result.append(entry)
        return result

    def _constant(self, target: str) -> Dict[str, Any]:
        """A tensor written down in forward is inlined; an attribute of the module goes by name."""
        tensor = self._program.constants.get(target)
        if not isinstance(tensor, torch.Tensor) or "lifted_tensor" not in str(target):
            return {}
        if tensor.numel() > INLINE_ELEMENTS:
            raise ExportFailure("forward builds a constant of more than 64 elements")
        return {"value": [_number(v) for v in tensor.reshape(-1).tolist()]}

    def _graph_outputs(self, arguments: List[Any]) -> List[Dict[str, Any]]:
        kinds = {
            "USER_OUTPUT": "output",
            "BUFFER_MUTATION": "buffer",
            "USER_INPUT_MUTATION": "input",
        }
        result = []
        for argument, spec in zip(arguments, self._program.graph_signature.output_specs):
            kind = kinds.get(spec.kind.name)
            if kind is None:
                raise ExportFailure(f"the graph has an output of kind {spec.kind.name}")
            result.append({"kind": kind, "target": spec.target, "value": self._argument(argument)})
        return result

    def _output_spec(self) -> Any:
        leaves = iter(range(1 << 30))
        return _spec(self._program.call_spec.out_spec, leaves)


def _spec(spec: Any, leaves: Any) -> Any:
    """A pytree spec as `{"leaf": i}` or `{"type": ..., "children": [...], "keys": [...]}`."""
    if spec.type is None:
        return {"leaf": next(leaves)}
    name = {tuple: "tuple", list: "list", dict: "dict"}.get(spec.type)
    if name is None:
        raise ExportFailure(
            f"forward returns a {spec.type.__name__}, which is not a tuple, list or dict"
        )
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    result: Dict[str, Any] = {"type": name, "children": [_spec(c, leaves) for c in children]}
    if name == "dict":
        result["keys"] = [str(key) for key in spec.context]
    return result


def _op_name(target: Any) -> str:
    name = str(target)
    return name if "." in name else getattr(target, "__name__", name)


def _tensor(value: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(value, torch.Tensor):
        return None
    return {
        "dtype": str(value.dtype).replace("torch.", ""),
        "shape": [int(n) for n in value.shape],
        "stride": [int(n) for n in value.stride()],
    }


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"other": type(value).__name__}
