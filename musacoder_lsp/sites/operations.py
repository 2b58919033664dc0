"""What a resolved name or a method of a tensor does: compute, view, create, or none of these."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    COMPUTE = "compute"
    VIEW = "view"  # moves no data: nothing for a kernel to win alone
    CREATE = "create"
    MODULE = "module"  # an nn.Module class
    PARAMETER = "parameter"
    TENSOR_TYPE = "tensor type"
    TRAINING = "training"  # loops, files, data, processes: code around tensors, not on them


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CREATE = _words(
    """
    arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted
    empty_strided eye from_dlpack from_numpy frombuffer full full_like hamming_window
    hann_window kaiser_window linspace logspace normal ones ones_like rand rand_like randint
    randint_like randn randn_like randperm range scalar_tensor tensor tril_indices
    triu_indices zeros zeros_like
    """
)
_VIEW = _words(
    """
    T mT H mH adjoint as_strided broadcast_to chunk conj data detach diagonal expand
    expand_as flatten imag movedim moveaxis narrow permute real rearrange reshape reshape_as
    select split squeeze squeeze_ swapaxes swapdims t transpose transpose_ t_ tensor_split
    unbind unflatten unfold_ unsqueeze unsqueeze_ view view_as view_as_complex view_as_real
    hsplit vsplit dsplit atleast_1d atleast_2d atleast_3d ravel requires_grad_
    """
)
_MULTIPLE = _words(
    """
    aminmax chunk split tensor_split unbind topk sort kthvalue mode frexp slogdet svd qr
    eigh lstsq hsplit vsplit dsplit broadcast_tensors meshgrid var_mean std_mean unique
    unique_consecutive
    """
)
# Attributes and methods of a tensor that give no tensor.
_NOT_TENSOR = _words(
    """
    size dim shape ndim numel nelement item tolist numpy device dtype layout stride data_ptr
    is_contiguous is_cuda is_sparse is_floating_point is_complex requires_grad backward
    element_size nbytes itemsize register_hook retain_grad storage untyped_storage
    storage_offset has_names names get_device grad_fn is_leaf is_quantized is_meta is_nested
    is_pinned is_shared items values keys get append extend insert format copy pop
    ndimension data_ptr __len__ is_inference is_signed is_same_size is_set_to type
    """
)
# Same values elsewhere or as another type: a tensor again, but a copy that no kernel should own.
_MOVE = _words(
    """
    to cpu cuda xpu musa float half bfloat16 double int long short byte bool pin_memory
    share_memory_ grad
    """
)
# Methods that other array libraries lack: such a call says that its object is a tensor.
TELLING_METHODS = _words(
    """
    softmax log_softmax matmul bmm addmm baddbmm unsqueeze masked_fill masked_fill_ permute
    sigmoid relu relu_ logsumexp rsqrt clamp clamp_ clamp_min scatter scatter_add
    index_select gather contiguous masked_select addcmul lerp erf new_zeros new_ones
    new_empty new_full unsqueeze_ amax amin
    """
)
_NOT_COMPUTE = _words(
    """
    allclose equal is_tensor is_storage is_complex is_floating_point is_nonzero numel save
    load manual_seed seed initial_seed compile device dtype no_grad enable_grad
    inference_mode set_grad_enabled autocast broadcast_shapes can_cast promote_types
    result_type typename finfo iinfo layout memory_format fork wait vmap cond while_loop
    compiled_with_cxx11_abi use_deterministic_algorithms
    are_deterministic_algorithms_enabled Size Generator
    """
)
_NOT_COMPUTE_PREFIXES = ("is_", "set_", "get_", "autocast_", "init_", "sym_", "merge_", "parse_")
_TRAINING_CALLS = frozenset({"torch.save", "torch.load", "torch.manual_seed", "torch.compile"})
_TRAINING_PREFIXES = (
    "torch.utils.data.",
    "torch.optim.",
    "torch.distributed.",
    "torch.multiprocessing.",
    "torch.profiler.",
    "torch.onnx.",
    "torch.testing.",
    "torch.cuda.Event",
    "torch.cuda.synchronize",
)
_FUNCTION_NAMESPACES = ("torch.nn.functional.", "torch.special.", "torch.linalg.", "torch.fft.")
_EINOPS = {
    "einops.rearrange": Role.VIEW,
    "einops.repeat": Role.COMPUTE,
    "einops.reduce": Role.COMPUTE,
    "einops.einsum": Role.COMPUTE,
}
# A pass-through: calls its first argument on the others.
CALLS_ITS_ARGUMENT = frozenset({"torch.utils.checkpoint.checkpoint"})

_TENSOR_TYPES = frozenset({"torch.Tensor", "torch.FloatTensor", "torch.LongTensor"})
_JAXTYPING = _words(
    """
    Float Float16 Float32 Float64 BFloat16 Int Int8 Int16 Int32 Int64 UInt8 Bool Num Shaped
    Real Inexact Integer Complex
    """
)
MODULE_BASES = frozenset(
    {
        "torch.nn.Module",
        "torch.jit.ScriptModule",
        "pytorch_lightning.LightningModule",
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
        "transformers.PreTrainedModel",
    }
)
OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_divide", "%": "remainder",
    "**": "pow", "@": "matmul", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor",
    "<<": "lshift", ">>": "rshift", "<": "lt", ">": "gt", "<=": "le", ">=": "ge", "==": "eq",
    "!=": "ne", "~": "bitwise_not",
}  # fmt: skip


def role_of(dotted: str) -> Role | None:
    """Role of a fully resolved dotted name such as `torch.nn.functional.relu`."""
    if dotted in MODULE_BASES:
        return Role.MODULE
    if dotted in _TENSOR_TYPES:
        return Role.TENSOR_TYPE
    if dotted in _EINOPS:
        return _EINOPS[dotted]
    if dotted.startswith("jaxtyping."):
        return Role.TENSOR_TYPE if dotted[len("jaxtyping.") :] in _JAXTYPING else None
    if not dotted.startswith("torch."):
        return None
    if dotted in _TRAINING_CALLS or dotted.startswith(_TRAINING_PREFIXES):
        return Role.TRAINING
    name = dotted.rpartition(".")[2]
    for namespace in _FUNCTION_NAMESPACES:
        if dotted.startswith(namespace):
            return Role.COMPUTE if dotted == namespace + name and name.islower() else None
    if dotted.startswith("torch.ops."):
        return Role.COMPUTE if dotted.count(".") >= 3 else None
    if dotted.startswith("torch.Tensor."):
        return method_role(name)
    if dotted.startswith("torch.nn."):
        return _nn_role(dotted, name)
    if dotted != "torch." + name:
        return None
    if name in _CREATE:
        return Role.CREATE
    if name in _VIEW:
        return Role.VIEW
    if name in _NOT_COMPUTE or name.startswith(_NOT_COMPUTE_PREFIXES) or not name.islower():
        return None
    return Role.COMPUTE


def _nn_role(dotted: str, name: str) -> Role | None:
    if name in ("Parameter", "Buffer", "UninitializedParameter"):
        return Role.PARAMETER
    if dotted.startswith(("torch.nn.init.", "torch.nn.utils.", "torch.nn.parallel.")):
        return None
    return Role.MODULE if name[:1].isupper() else None


def method_role(name: str) -> Role | None:
    """Role of attribute or method `name` of a tensor; None when it gives no tensor."""
    if name in _NOT_TENSOR:
        return None
    if name in _VIEW:
        return Role.VIEW
    if name in _MOVE:
        return Role.CREATE
    if name.startswith("new_") or name in ("type_as",):
        return Role.CREATE
    return Role.COMPUTE


def gives_many(name: str) -> bool:
    """The operation gives a tuple of tensors whatever its arguments are."""
    return name in _MULTIPLE
