"""Which standard headers a unit needs beyond those of the facade, told from the names it uses.

A device compiler reads each header three times: the whole set that PyTorch brings along costs more
than most kernels.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"\bstd\s*::\s*(\w+)")
_WHOLE = re.compile(r"\busing\s+namespace\s+std\b")
# Declared by the headers of `musacoder/std.h` for a device unit.
_KNOWN = """
    abort abs acos acosh array asin asinh atan atan2 atanh bad_alloc begin bool_constant cbegin
    cbrt ceil common_type common_type_t conditional conditional_t copy copy_n copysign cos cosh
    data decay decay_t declval distance domain_error double_t enable_if enable_if_t end equal
    erf erfc exception exit exp exp2 expm1 fabs false_type fdim fill fill_n float_t floor fma
    fmax fmin fmod forward fprintf free frexp get getenv hypot index_sequence initializer_list
    int16_t int32_t int64_t int8_t integer_sequence integral_constant invalid_argument
    invoke_result_t is_arithmetic is_arithmetic_v is_convertible_v is_floating_point
    is_floating_point_v is_integral is_integral_v is_same is_same_v is_signed is_unsigned
    isfinite isinf isnan isnormal iter_swap ldexp length_error lerp lgamma llround log log10
    log1p log2 logic_error lround make_index_sequence make_optional make_pair make_signed_t
    make_tuple make_unsigned_t malloc max memcpy memset min modf move nan nearbyint next nullopt
    nullopt_t nullptr_t numeric_limits optional out_of_range overflow_error pair pow prev printf
    ptrdiff_t range_error remainder remove_const_t remove_cv_t remove_reference_t rint round
    runtime_error signbit sin sinh size size_t snprintf sqrt stod stof stoi stol strcmp string
    string_view strlen swap tan tanh tgamma tie to_string true_type trunc tuple tuple_element_t
    tuple_size uint16_t uint32_t uint64_t uint8_t uintptr_t underlying_type_t vector void_t
"""
_HEADERS = {
    "algorithm": (
        "all_of any_of binary_search clamp count count_if find find_if for_each "
        "lower_bound max_element min_element minmax minmax_element none_of nth_element "
        "partial_sort reverse rotate sort stable_sort transform unique upper_bound"
    ),
    "atomic": "atomic atomic_int memory_order_relaxed",
    "complex": "complex",
    "functional": (
        "bit_and bit_or divides equal_to function greater less minus multiplies negate plus ref"
    ),
    "map": "map multimap",
    "memory": "addressof make_shared make_unique shared_ptr unique_ptr",
    "mutex": "call_once lock_guard mutex once_flag unique_lock",
    "numeric": "accumulate exclusive_scan inclusive_scan inner_product iota partial_sum reduce",
    "set": "set",
    "unordered_map": "hash unordered_map",
    "unordered_set": "unordered_set",
}
# Headers that the real <torch/extension.h> includes and ours leaves out for their size, with words
# that tell that a source counts on them.
_RARE_HEADERS = {
    "bitset": ("bitset",),
    "chrono": ("chrono",),
    "complex": ("complex",),
    "condition_variable": ("condition_variable",),
    "forward_list": ("forward_list",),
    "iomanip": ("setw", "setprecision", "setfill", "fixed", "scientific"),
    "mutex": ("mutex", "lock_guard", "unique_lock", "scoped_lock", "once_flag", "call_once"),
    "thread": ("thread", "this_thread"),
    "typeindex": ("type_index",),
    "valarray": ("valarray",),
    "variant": ("variant", "monostate", "get_if", "holds_alternative"),
}
_FEW = frozenset(_KNOWN.split())
_HEADER_OF = {name: header for header, names in _HEADERS.items() for name in names.split()}


def headers(text: str) -> list[str] | None:
    """Headers to include beside the few, sorted; None where the text needs the whole set."""
    if _WHOLE.search(text):
        return None
    names = set(_NAME.findall(text)) - _FEW
    if not names <= _HEADER_OF.keys():
        return None
    return sorted({_HEADER_OF[name] for name in names})


def rare_headers(names: frozenset[str]) -> list[str]:
    """Headers of the whole set that it leaves out for their size, for words that tell them."""
    found = [header for header, words in _RARE_HEADERS.items() if names & set(words)]
    if any(name.startswith(("_mm", "__m")) for name in names):
        found.append("immintrin.h")
    return found
