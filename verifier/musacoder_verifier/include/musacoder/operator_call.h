// Calling an operator of the dispatcher by name: values packed into plain structs and back.
// The second half of ATen/core/Tensor.h, which includes it.
#pragma once

// Leaves the operator's name in a section of its own wherever a call to it is really emitted, so
// that the operators that an object calls can be read from the object.
#define MC_NAME_OPERATOR(name, overload)                                                 \
  __asm__ volatile(".pushsection .musacoder.operators,\"a\",@progbits\n\t.asciz \"" name \
                   "." overload "\"\n\t.popsection")

namespace musacoder {

inline mc_value pack_tag(int32_t tag) {
  mc_value value;
  value.tag = tag;
  value.extra = 0;
  value.size = 0;
  value.integer = 0;
  return value;
}
inline mc_value pack_integer(int32_t tag, int64_t integer) {
  mc_value value = pack_tag(tag);
  value.integer = integer;
  return value;
}
inline mc_value pack_list(int32_t tag, const void* data, size_t size) {
  mc_value value = pack_tag(tag);
  value.size = static_cast<int64_t>(size);
  value.data = const_cast<void*>(data);
  return value;
}

inline mc_value pack(const at::Tensor& tensor) {
  mc_value value = pack_tag(MC_TENSOR);
  value.tensor = tensor.mc_get();
  return value;
}
inline mc_value pack(int64_t integer) { return pack_integer(MC_INT, integer); }
inline mc_value pack(bool flag) { return pack_integer(MC_BOOL, flag ? 1 : 0); }
inline mc_value pack(double real) {
  mc_value value = pack_tag(MC_DOUBLE);
  value.real = real;
  return value;
}
inline mc_value pack(const at::Scalar& scalar) { return scalar.mc_pack(); }
inline mc_value pack(std::string_view text) {
  return pack_list(MC_STRING, text.data(), text.size());
}
inline mc_value pack(at::ScalarType type) { return pack_integer(MC_INT, static_cast<int>(type)); }
inline mc_value pack(at::Layout layout) { return pack_integer(MC_INT, static_cast<int>(layout)); }
inline mc_value pack(at::MemoryFormat format) {
  return pack_integer(MC_INT, static_cast<int>(format));
}
inline mc_value pack(at::Device device) {
  mc_value value = pack_integer(MC_DEVICE, static_cast<int>(device.type()));
  value.extra = device.index();
  return value;
}
inline mc_value pack(at::IntArrayRef list) {
  return pack_list(MC_INTS, list.data(), list.size());
}
inline mc_value pack(at::ArrayRef<double> list) {
  return pack_list(MC_DOUBLES, list.data(), list.size());
}
// A Tensor is one pointer, so that a list of tensors is already the list of pointers.
static_assert(sizeof(at::Tensor) == sizeof(mc_tensor*));
inline mc_value pack(at::TensorList list) {
  return pack_list(MC_TENSORS, list.data(), list.size());
}
template <size_t N>
mc_value pack(const std::array<bool, N>& list) {
  return pack_list(MC_BOOLS, list.data(), N);
}
inline mc_value pack(const at::Generator&) { return pack_tag(MC_NONE); }
inline mc_value pack(at::OptionalIntArrayRef list) {
  return list.has_value() ? pack(*list) : pack_tag(MC_NONE);
}
template <class T>
mc_value pack(const std::optional<T>& optional) {
  return optional.has_value() ? pack(*optional) : pack_tag(MC_NONE);
}

inline std::string take_string(mc_value& value) {
  std::string text(static_cast<const char*>(value.data), static_cast<size_t>(value.size));
  mc_value_clear(&value);
  return text;
}

template <class T>
struct Unpack;
template <>
struct Unpack<at::Tensor> {
  static at::Tensor take(mc_value& value) {
    return at::Tensor::mc_adopt(value.tag == MC_TENSOR ? value.tensor : nullptr);
  }
};
template <>
struct Unpack<bool> {
  static bool take(mc_value& value) { return value.integer != 0; }
};
template <>
struct Unpack<int64_t> {
  static int64_t take(mc_value& value) { return value.integer; }
};
template <>
struct Unpack<double> {
  static double take(mc_value& value) { return value.real; }
};
template <>
struct Unpack<at::ScalarType> {
  static at::ScalarType take(mc_value& value) { return static_cast<at::ScalarType>(value.integer); }
};
template <>
struct Unpack<at::Scalar> {
  static at::Scalar take(mc_value& value) { return at::Scalar::mc_unpack(value); }
};
template <>
struct Unpack<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> take(mc_value& value) {
    std::vector<at::Tensor> list;
    list.reserve(static_cast<size_t>(value.size));
    for (int64_t i = 0; i < value.size; ++i) {
      list.push_back(at::Tensor::mc_adopt(static_cast<mc_tensor**>(value.data)[i]));
    }
    mc_free(value.data);
    return list;
  }
};

template <class R>
struct Results {
  static constexpr int count = 1;
  static R take(mc_value* values) { return Unpack<R>::take(values[0]); }
};
template <>
struct Results<void> {
  static constexpr int count = 0;
  static void take(mc_value*) {}
};
template <class... R>
struct Results<std::tuple<R...>> {
  static constexpr int count = sizeof...(R);
  static std::tuple<R...> take(mc_value* values) {
    return take(values, std::index_sequence_for<R...>());
  }

 private:
  template <size_t... I>
  static std::tuple<R...> take(mc_value* values, std::index_sequence<I...>) {
    return std::tuple<R...>(Unpack<R>::take(values[I])...);
  }
};

const mc_operator* find_operator(const char* name, const char* overload);

template <class R, class... A>
R call_operator(const mc_operator* target, const A&... arguments) {
  const mc_value packed[] = {pack(arguments)...};
  mc_value results[Results<R>::count + 1];
  ensure(mc_call_operator(target, packed, static_cast<int>(sizeof...(A)), results,
                          Results<R>::count));
  return Results<R>::take(results);
}

template <class T>
int code(const std::optional<T>& optional) {
  return optional.has_value() ? static_cast<int>(*optional) : -1;
}

inline at::Tensor call_empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                             std::optional<at::Layout> layout, std::optional<at::Device> device,
                             std::optional<bool> pin_memory,
                             std::optional<at::MemoryFormat> memory_format) {
  mc_tensor* result = nullptr;
  ensure(mc_empty(size.data(), static_cast<int64_t>(size.size()), code(dtype), code(layout),
                  device.has_value() ? static_cast<int>(device->type()) : -1,
                  device.has_value() ? device->index() : -1, code(pin_memory),
                  code(memory_format), &result));
  return at::Tensor::mc_adopt(result);
}

inline at::Tensor call_empty_like(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                                  std::optional<at::Layout> layout,
                                  std::optional<at::Device> device, std::optional<bool> pin_memory,
                                  std::optional<at::MemoryFormat> memory_format) {
  mc_tensor* result = nullptr;
  ensure(mc_empty_like(self.mc_get(), code(dtype), code(layout),
                       device.has_value() ? static_cast<int>(device->type()) : -1,
                       device.has_value() ? device->index() : -1, code(pin_memory),
                       code(memory_format), &result));
  return at::Tensor::mc_adopt(result);
}

} // namespace musacoder
