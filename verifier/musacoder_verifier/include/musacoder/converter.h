// The types that cross between Python and an extension, and their codes.
#pragma once

#include <ATen/core/Tensor.h>

namespace musacoder {

// Codes of types, read by the trampoline: a letter for a plain type, a prefix for a composed one.
// A type without a code does not compile here, and takes the stock lane.
template <class T>
using bare = std::remove_cv_t<std::remove_reference_t<T>>;

template <class T, class = void>
struct Converter;

template <class T, char letter>
struct IntegerConverter {
  static void code(char*& text) { *text++ = letter; }
  static T take(const mc_value& value) { return static_cast<T>(value.integer); }
  static mc_value give(T integer) { return pack_integer(MC_INT, static_cast<int64_t>(integer)); }
};
template <> struct Converter<int8_t> : IntegerConverter<int8_t, 'a'> {};
template <> struct Converter<uint8_t> : IntegerConverter<uint8_t, 'A'> {};
template <> struct Converter<int16_t> : IntegerConverter<int16_t, 'h'> {};
template <> struct Converter<uint16_t> : IntegerConverter<uint16_t, 'H'> {};
template <> struct Converter<int32_t> : IntegerConverter<int32_t, 'i'> {};
template <> struct Converter<uint32_t> : IntegerConverter<uint32_t, 'I'> {};
template <> struct Converter<long> : IntegerConverter<long, 'l'> {};
template <> struct Converter<unsigned long> : IntegerConverter<unsigned long, 'L'> {};
template <> struct Converter<long long> : IntegerConverter<long long, 'l'> {};
template <> struct Converter<unsigned long long> : IntegerConverter<unsigned long long, 'L'> {};

template <class T, char letter>
struct RealConverter {
  static void code(char*& text) { *text++ = letter; }
  static T take(const mc_value& value) { return static_cast<T>(value.real); }
  static mc_value give(T real) { return pack(static_cast<double>(real)); }
};
template <> struct Converter<float> : RealConverter<float, 'f'> {};
template <> struct Converter<double> : RealConverter<double, 'd'> {};

template <>
struct Converter<bool> {
  static void code(char*& text) { *text++ = 'b'; }
  static bool take(const mc_value& value) { return value.integer != 0; }
  static mc_value give(bool flag) { return pack(flag); }
};
template <>
struct Converter<void> {
  static void code(char*& text) { *text++ = 'v'; }
};

inline mc_value give_text(std::string_view text) {
  mc_value value = pack_list(MC_STRING, mc_allocate(text.size() + 1), text.size());
  std::memcpy(value.data, text.data(), text.size());
  static_cast<char*>(value.data)[text.size()] = 0;
  return value;
}
template <>
struct Converter<std::string> {
  static void code(char*& text) { *text++ = 's'; }
  static std::string take(const mc_value& value) {
    return std::string(static_cast<const char*>(value.data), static_cast<size_t>(value.size));
  }
  static mc_value give(const std::string& text) { return give_text(text); }
};
template <>
struct Converter<std::string_view> {
  static void code(char*& text) { *text++ = 's'; }
  static std::string_view take(const mc_value& value) {
    return std::string_view(static_cast<const char*>(value.data), static_cast<size_t>(value.size));
  }
  static mc_value give(std::string_view text) { return give_text(text); }
};

template <>
struct Converter<at::Tensor> {
  static void code(char*& text) { *text++ = 'T'; }
  static at::Tensor take(const mc_value& value) {
    mc_tensor_retain(value.tensor);
    return at::Tensor::mc_adopt(value.tensor);
  }
  static mc_value give(at::Tensor tensor) {
    mc_value value = pack_tag(MC_TENSOR);
    value.tensor = std::move(tensor).mc_release();
    return value;
  }
};
template <>
struct Converter<at::Scalar> {
  static void code(char*& text) { *text++ = 'S'; }
  // PyTorch's own caster takes no Scalar as an argument.
  static at::Scalar take(const mc_value& value) = delete;
  static mc_value give(const at::Scalar& scalar) { return scalar.mc_pack(); }
};
template <>
struct Converter<at::ScalarType> {
  static void code(char*& text) { *text++ = 't'; }
  static at::ScalarType take(const mc_value& value) {
    return static_cast<at::ScalarType>(value.integer);
  }
  static mc_value give(at::ScalarType type) {
    return pack_integer(MC_DTYPE, static_cast<int>(type));
  }
};
template <>
struct Converter<at::Device> {
  static void code(char*& text) { *text++ = 'D'; }
  static at::Device take(const mc_value& value) {
    return at::Device(static_cast<at::DeviceType>(value.integer),
                      static_cast<at::DeviceIndex>(value.extra));
  }
  static mc_value give(at::Device device) { return pack(device); }
};
template <>
struct Converter<at::IntArrayRef> {
  static void code(char*& text) { *text++ = 'R'; }
  static at::IntArrayRef take(const mc_value& value) {
    return at::IntArrayRef(static_cast<const int64_t*>(value.data),
                           static_cast<size_t>(value.size));
  }
  static mc_value give(at::IntArrayRef list) {
    mc_value value = pack_list(MC_INTS, mc_allocate(list.size() * sizeof(int64_t)), list.size());
    std::copy(list.begin(), list.end(), static_cast<int64_t*>(value.data));
    return value;
  }
};

template <class T>
struct Converter<std::optional<T>> {
  static void code(char*& text) {
    *text++ = '?';
    Converter<T>::code(text);
  }
  static std::optional<T> take(const mc_value& value) {
    return value.tag == MC_NONE ? std::nullopt : std::optional<T>(Converter<T>::take(value));
  }
  static mc_value give(std::optional<T> optional) {
    return optional.has_value() ? Converter<T>::give(*std::move(optional)) : pack_tag(MC_NONE);
  }
};
template <class T>
struct Converter<std::vector<T>> {
  static void code(char*& text) {
    *text++ = '[';
    Converter<T>::code(text);
  }
  static std::vector<T> take(const mc_value& value) {
    std::vector<T> list;
    list.reserve(static_cast<size_t>(value.size));
    for (int64_t i = 0; i < value.size; ++i) {
      list.push_back(Converter<T>::take(static_cast<const mc_value*>(value.data)[i]));
    }
    return list;
  }
  static mc_value give(std::vector<T> list) {
    mc_value value = pack_list(MC_LIST, mc_allocate(list.size() * sizeof(mc_value)), list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      static_cast<mc_value*>(value.data)[i] =
          Converter<T>::give(static_cast<T>(std::move(list[i])));
    }
    return value;
  }
};

template <class Tuple, class... T>
struct TupleConverter {
  static void code(char*& text) {
    *text++ = '(';
    (Converter<T>::code(text), ...);
    *text++ = ')';
  }
  static Tuple take(const mc_value& value) { return take(value, std::index_sequence_for<T...>()); }
  static mc_value give(Tuple tuple) { return give(tuple, std::index_sequence_for<T...>()); }

 private:
  template <size_t... I>
  static Tuple take(const mc_value& value, std::index_sequence<I...>) {
    return Tuple(Converter<T>::take(static_cast<const mc_value*>(value.data)[I])...);
  }
  template <size_t... I>
  static mc_value give(Tuple& tuple, std::index_sequence<I...>) {
    mc_value value =
        pack_list(MC_TUPLE, mc_allocate(sizeof...(T) * sizeof(mc_value)), sizeof...(T));
    ((static_cast<mc_value*>(value.data)[I] = Converter<T>::give(std::move(std::get<I>(tuple)))),
     ...);
    return value;
  }
};
template <class... T>
struct Converter<std::tuple<T...>> : TupleConverter<std::tuple<T...>, T...> {};
template <class A, class B>
struct Converter<std::pair<A, B>> : TupleConverter<std::pair<A, B>, A, B> {};

} // namespace musacoder
