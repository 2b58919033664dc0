// at::Tensor over the C ABI. The methods that call operators are declared from the user's own PyTorch
// headers (musacoder_generated/methods.h), and those that this file calls are defined (core.h), once
// per installation; the others are defined for each candidate, those whose names its text holds.
#pragma once

#include <ATen/core/TensorAccessor.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>

namespace c10 {
template <class T>
class List;
} // namespace c10

namespace at {
inline namespace mc_facade {

class Tensor;
using TensorList = ArrayRef<Tensor>;

// Types of PyTorch that no value of the fast lane can have: an overload that takes one is still
// declared, so that overload resolution is the same, but only its default can be passed.
struct Generator {
  Generator() = delete;
};
struct Dimname {
  Dimname() = delete;
};
using DimnameList = ArrayRef<Dimname>;
struct Storage;

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) : impl_(other.impl_) { mc_tensor_retain(impl_); }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  ~Tensor() {
    if (impl_ != nullptr) {
      mc_tensor_release(impl_);
    }
  }
  Tensor& operator=(const Tensor& other) & noexcept {
    mc_tensor_retain(other.impl_);
    mc_tensor* const before = std::exchange(impl_, other.impl_);
    mc_tensor_release(before);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    mc_tensor* const before = std::exchange(impl_, std::exchange(other.impl_, nullptr));
    mc_tensor_release(before);
    return *this;
  }
  Tensor& operator=(const Scalar& value) && { return fill_(value); }
  Tensor& operator=(const Tensor& other) && { return copy_(other); }
  Tensor& operator=(Tensor&& other) && { return copy_(other); }

  // Takes over an owned reference.
  static Tensor mc_adopt(mc_tensor* owned) {
    Tensor tensor;
    tensor.impl_ = owned;
    return tensor;
  }
  mc_tensor* mc_get() const { return impl_; }
  mc_tensor* mc_release() && { return std::exchange(impl_, nullptr); }

  bool defined() const { return impl_ != nullptr; }
  void reset() { *this = Tensor(); }
  bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }
  size_t use_count() const noexcept { return static_cast<size_t>(mc_tensor_use_count(impl_)); }

  IntArrayRef sizes() const {
    const int64_t* sizes = nullptr;
    int64_t dim = 0;
    ::musacoder::ensure(mc_tensor_sizes(impl_, &sizes, &dim));
    return IntArrayRef(sizes, static_cast<size_t>(dim));
  }
  IntArrayRef strides() const {
    const int64_t* strides = nullptr;
    int64_t dim = 0;
    ::musacoder::ensure(mc_tensor_strides(impl_, &strides, &dim));
    return IntArrayRef(strides, static_cast<size_t>(dim));
  }
  int64_t dim() const { return static_cast<int64_t>(sizes().size()); }
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t dim) const { return wrapped(sizes(), dim); }
  int64_t stride(int64_t dim) const { return wrapped(strides(), dim); }
  int64_t numel() const {
    int64_t numel = 0;
    ::musacoder::ensure(mc_tensor_numel(impl_, &numel));
    return numel;
  }
  int64_t storage_offset() const {
    int64_t offset = 0;
    ::musacoder::ensure(mc_tensor_storage_offset(impl_, &offset));
    return offset;
  }
  ScalarType scalar_type() const { return static_cast<ScalarType>(mc_tensor_dtype(impl_)); }
  caffe2::TypeMeta dtype() const { return scalarTypeToTypeMeta(scalar_type()); }
  size_t itemsize() const { return elementSize(scalar_type()); }
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * itemsize(); }
  Device device() const {
    int type = 0;
    int index = -1;
    ::musacoder::ensure(mc_tensor_device(impl_, &type, &index));
    return Device(static_cast<DeviceType>(type), static_cast<DeviceIndex>(index));
  }
  DeviceIndex get_device() const { return device().index(); }
  Layout layout() const { return static_cast<Layout>(query(mc_tensor_layout)); }
  TensorOptions options() const {
    return TensorOptions().dtype(dtype()).device(device()).layout(layout());
  }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_privateuseone() const { return device().is_privateuseone(); }
  bool is_sparse() const { return layout() == Layout::Sparse; }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    int result = 0;
    ::musacoder::ensure(mc_tensor_is_contiguous(impl_, static_cast<int>(format), &result));
    return result != 0;
  }
  bool is_non_overlapping_and_dense() const {
    return query(mc_tensor_is_non_overlapping_and_dense) != 0;
  }
  MemoryFormat suggest_memory_format() const {
    return static_cast<MemoryFormat>(query(mc_tensor_suggest_memory_format));
  }
  bool has_storage() const { return defined() && query(mc_tensor_has_storage) != 0; }
  bool is_alias_of(const Tensor& other) const {
    int result = 0;
    ::musacoder::ensure(mc_tensor_is_alias_of(impl_, other.impl_, &result));
    return result != 0;
  }
  bool requires_grad() const { return query(mc_tensor_requires_grad) != 0; }
  const Tensor& set_requires_grad(bool value) const {
    ::musacoder::ensure(mc_tensor_set_requires_grad(impl_, value ? 1 : 0));
    return *this;
  }
  const Tensor& requires_grad_(bool value = true) const { return set_requires_grad(value); }
  std::string toString() const;

  void* data_ptr() const { return data(true); }
  void* mutable_data_ptr() const { return data(true); }
  const void* const_data_ptr() const { return data(false); }
  template <typename T>
  T* data_ptr() const {
    return static_cast<T*>(typed_data(CppTypeToScalarType<T>::value, true));
  }
  template <typename T>
  [[deprecated("Tensor.data<T>() is deprecated. Please use Tensor.data_ptr<T>() instead.")]]
  T* data() const {
    return data_ptr<T>();
  }
  template <typename T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <typename T>
  const std::remove_const_t<T>* const_data_ptr() const {
    using U = std::remove_const_t<T>;
    return static_cast<const U*>(typed_data(CppTypeToScalarType<U>::value, false));
  }

  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
    TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
    T* pointer = nullptr;
    if constexpr (std::is_const_v<T>) {
      pointer = const_data_ptr<T>();
    } else {
      pointer = mutable_data_ptr<T>();
    }
    return TensorAccessor<T, N>(pointer, sizes().data(), strides().data());
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
            typename index_t = int64_t>
  GenericPackedTensorAccessor<T, N, PtrTraits, index_t> generic_packed_accessor() const& {
    static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
    TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
    return GenericPackedTensorAccessor<T, N, PtrTraits, index_t>(
        data_ptr<T>(), sizes().data(), strides().data());
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
            typename index_t = int64_t>
  GenericPackedTensorAccessor<T, N, PtrTraits, index_t> generic_packed_accessor() && = delete;
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() const& {
    TORCH_CHECK(numel() <= static_cast<int64_t>(std::numeric_limits<int32_t>::max()),
                "numel needs to be smaller than int32_t max; otherwise, please use "
                "packed_accessor64");
    return generic_packed_accessor<T, N, PtrTraits, int32_t>();
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() && = delete;
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() const& {
    return generic_packed_accessor<T, N, PtrTraits, int64_t>();
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() && = delete;
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
            typename index_t = int64_t>
  [[deprecated("packed_accessor is deprecated, use packed_accessor32 or packed_accessor64 instead")]]
  GenericPackedTensorAccessor<T, N, PtrTraits, index_t> packed_accessor() const& {
    return generic_packed_accessor<T, N, PtrTraits, index_t>();
  }

  template <typename T>
  T item() const {
    return item().to<T>();
  }
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    return is_contiguous(format) ? *this : __dispatch_contiguous(format);
  }
  Tensor toType(ScalarType type) const { return to(options().dtype(type), false, false); }
  Tensor cpu() const { return to(options().device(DeviceType::CPU), false, false); }
  Tensor cuda() const { return to(options().device(DeviceType::CUDA), false, false); }

  Tensor operator~() const { return bitwise_not(); }
  Tensor operator-() const { return neg(); }
  Tensor& operator+=(const Tensor& other) { return add_(other); }
  Tensor& operator+=(const Scalar& other) { return add_(other); }
  Tensor& operator-=(const Tensor& other) { return sub_(other); }
  Tensor& operator-=(const Scalar& other) { return sub_(other); }
  Tensor& operator*=(const Tensor& other) { return mul_(other); }
  Tensor& operator*=(const Scalar& other) { return mul_(other); }
  Tensor& operator/=(const Tensor& other) { return div_(other); }
  Tensor& operator/=(const Scalar& other) { return div_(other); }
  Tensor& operator&=(const Tensor& other) { return bitwise_and_(other); }
  Tensor& operator|=(const Tensor& other) { return bitwise_or_(other); }
  Tensor& operator^=(const Tensor& other) { return bitwise_xor_(other); }
  Tensor operator[](const Scalar& index) const {
    TORCH_CHECK_INDEX(index.isIntegral(false), "Can only index tensors with integral scalars");
    return this->operator[](index.toLong());
  }
  Tensor operator[](const Tensor& index) const {
    TORCH_CHECK_INDEX(index.defined(), "Can only index with tensors that are defined");
    TORCH_CHECK_INDEX(index.dim() == 0,
                      "Can only index with tensors that are scalars (zero-dim)");
    return this->operator[](index.item());
  }
  Tensor operator[](int64_t index) const { return select(0, index); }

#include <musacoder_generated/methods.h>

 private:
  int query(int (*function)(const mc_tensor*, int*)) const {
    int result = 0;
    ::musacoder::ensure(function(impl_, &result));
    return result;
  }
  static int64_t wrapped(IntArrayRef list, int64_t dim) {
    const auto length = static_cast<int64_t>(list.size());
    TORCH_CHECK_INDEX(length != 0, "Dimension specified as ", dim,
                      " but tensor has no dimensions");
    TORCH_CHECK_INDEX(-length <= dim && dim < length,
                      "Dimension out of range (expected to be in range of [", -length, ", ",
                      length - 1, "], but got ", dim, ")");
    return list[static_cast<size_t>(dim < 0 ? dim + length : dim)];
  }
  void* data(bool writes) const {
    void* data = nullptr;
    ::musacoder::ensure(mc_tensor_data(impl_, writes ? 1 : 0, &data));
    return data;
  }
  void* typed_data(ScalarType expected, bool writes) const {
    TORCH_CHECK(scalar_type() == expected, "expected scalar type ", c10::toString(expected),
                " but found ", c10::toString(scalar_type()));
    return data(writes);
  }

  mc_tensor* impl_ = nullptr;
};

} // namespace mc_facade
} // namespace at

#include <musacoder/operator_call.h>

#include <musacoder_generated/core.h>

namespace at {
inline namespace mc_facade {

inline std::string Tensor::toString() const {
  mc_value text{};
  ::musacoder::ensure(mc_tensor_type_to_string(impl_, &text));
  return ::musacoder::take_string(text);
}

inline std::string mc_text(const Tensor& tensor) {
  mc_value text{};
  ::musacoder::ensure(mc_tensor_to_string(tensor.mc_get(), &text));
  return ::musacoder::take_string(text);
}
#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << mc_text(tensor);
}
#endif

// What `empty_like(y).fill_(x)` is in PyTorch's own header of these operators.
inline Tensor mc_filled_like(const Tensor& y, const Scalar& x) {
  MC_NAME_OPERATOR("aten::empty_like", "");
  return ::musacoder::call_empty_like(y, {}, {}, {}, {}, MemoryFormat::Preserve).fill_(x);
}

#define MC_BINARY_OPERATOR(op, body, reverse_scalar_body)                        \
  inline Tensor operator op(const Tensor& x, const Tensor& y) { return body; }   \
  inline Tensor operator op(const Tensor& x, const Scalar& y) { return body; }   \
  inline Tensor operator op(const Scalar& x, const Tensor& y) { return reverse_scalar_body; }
MC_BINARY_OPERATOR(+, x.add(y), y.add(x))
MC_BINARY_OPERATOR(*, x.mul(y), y.mul(x))
MC_BINARY_OPERATOR(-, x.sub(y), mc_filled_like(y, x).sub_(y))
MC_BINARY_OPERATOR(/, x.div(y), mc_filled_like(y, x).div_(y))
MC_BINARY_OPERATOR(%, x.remainder(y), mc_filled_like(y, x).remainder_(y))
MC_BINARY_OPERATOR(&, x.bitwise_and(y), y.bitwise_and(x))
MC_BINARY_OPERATOR(|, x.bitwise_or(y), y.bitwise_or(x))
MC_BINARY_OPERATOR(^, x.bitwise_xor(y), y.bitwise_xor(x))
MC_BINARY_OPERATOR(<, x.lt(y), y.gt(x))
MC_BINARY_OPERATOR(<=, x.le(y), y.ge(x))
MC_BINARY_OPERATOR(>, x.gt(y), y.lt(x))
MC_BINARY_OPERATOR(>=, x.ge(y), y.le(x))
MC_BINARY_OPERATOR(==, x.eq(y), y.eq(x))
MC_BINARY_OPERATOR(!=, x.ne(y), y.ne(x))
#undef MC_BINARY_OPERATOR

} // namespace mc_facade
} // namespace at
