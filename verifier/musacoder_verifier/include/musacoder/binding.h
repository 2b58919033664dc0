// What pybind11 is used for in an extension, over the C ABI: every bound function becomes a record
// with its address, a code for each argument's type, and its names and defaults.
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

// An argument while its call lasts, so that a parameter may be a reference to it.
template <class T>
struct Held {
  decltype(Converter<bare<T>>::take(std::declval<const mc_value&>())) value;
  T get() {
    if constexpr (std::is_lvalue_reference_v<T>) {
      return value;
    } else {
      return std::move(value);
    }
  }
};

inline int fail(int kind, std::string_view message) noexcept {
  mc_set_error(kind, message.data(), message.size());
  return kind;
}

// The one place where an exception of a candidate ends; kinds as pybind11 maps them.
inline int fail_with_current_exception() noexcept {
  try {
    throw;
  } catch (const c10::Error& error) {
    return fail(error.mc_kind(), error.msg());
  } catch (const std::bad_alloc& error) {
    return fail(MC_MEMORY_ERROR, error.what());
  } catch (const std::domain_error& error) {
    return fail(MC_VALUE_ERROR, error.what());
  } catch (const std::invalid_argument& error) {
    return fail(MC_VALUE_ERROR, error.what());
  } catch (const std::length_error& error) {
    return fail(MC_VALUE_ERROR, error.what());
  } catch (const std::out_of_range& error) {
    return fail(MC_INDEX_ERROR, error.what());
  } catch (const std::range_error& error) {
    return fail(MC_VALUE_ERROR, error.what());
  } catch (const std::overflow_error& error) {
    return fail(MC_OVERFLOW_ERROR, error.what());
  } catch (const std::exception& error) {
    return fail(MC_RUNTIME_ERROR, error.what());
  } catch (...) {
    return fail(MC_RUNTIME_ERROR, "Caught an unknown exception!");
  }
}

template <class F, class R, class... A>
struct Bound {
  static int invoke(const mc_function* self, const mc_value* arguments, mc_value* result) noexcept {
    try {
      return call(*static_cast<F*>(self->callable), arguments, result,
                  std::index_sequence_for<A...>());
    } catch (...) {
      return fail_with_current_exception();
    }
  }

 private:
  template <size_t... I>
  static int call(F& function, [[maybe_unused]] const mc_value* arguments, mc_value* result,
                  std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) {
      function(Held<A>{Converter<bare<A>>::take(arguments[I])}.get()...);
      *result = pack_tag(MC_NONE);
    } else {
      *result = Converter<bare<R>>::give(
          function(Held<A>{Converter<bare<A>>::take(arguments[I])}.get()...));
    }
    return 0;
  }
};

} // namespace musacoder

namespace pybind11 {
inline namespace mc_facade {

struct none {};

struct doc {
  const char* value;
  explicit doc(const char* value) : value(value) {}
};

struct gil_scoped_release {
  gil_scoped_release() : state_(mc_gil_release()) {}
  ~gil_scoped_release() { mc_gil_acquire(state_); }
  gil_scoped_release(const gil_scoped_release&) = delete;
  gil_scoped_release& operator=(const gil_scoped_release&) = delete;

 private:
  void* state_;
};

template <class... Guard>
struct call_guard;
template <>
struct call_guard<gil_scoped_release> {};

enum class return_value_policy { automatic, automatic_reference, take_ownership, copy, move, reference, reference_internal };

struct arg_v;
struct arg {
  const char* name;
  bool flag_noconvert = false;
  bool flag_none = true;
  constexpr explicit arg(const char* name = nullptr) : name(name) {}
  template <class T>
  arg_v operator=(T&& value) const;
  arg& noconvert(bool flag = true) {
    flag_noconvert = flag;
    return *this;
  }
  arg& none(bool flag = true) {
    flag_none = flag;
    return *this;
  }
};
struct arg_v : arg {
  mc_value value;
  arg_v(const arg& base, mc_value value) : arg(base), value(value) {}
};
template <class T>
arg_v arg::operator=(T&& given) const {
  using Plain = std::decay_t<T>;
  if constexpr (std::is_same_v<Plain, ::pybind11::none> || std::is_same_v<Plain, std::nullopt_t>) {
    return arg_v(*this, ::musacoder::pack_tag(MC_NONE));
  } else if constexpr (std::is_same_v<Plain, const char*> || std::is_same_v<Plain, char*>) {
    return arg_v(*this, ::musacoder::give_text(given));
  } else {
    return arg_v(*this, ::musacoder::Converter<Plain>::give(std::forward<T>(given)));
  }
}
struct kw_only {};

namespace literals {
constexpr arg operator"" _a(const char* name, size_t) { return arg(name); }
} // namespace literals

namespace detail {

// Collects what follows the function in a call of `def`.
struct Extras {
  mc_function& function;
  mc_argument* arguments;
  int32_t capacity;
  int32_t count = 0;

  void take(const char* doc) { function.doc = doc; }
  void take(const doc& doc) { function.doc = doc.value; }
  void take(const arg& one) { push(one); }
  void take(const arg_v& one) {
    if (mc_argument* argument = push(one)) {
      argument->has_default = 1;
      argument->default_value = one.value;
    }
  }
  void take(const kw_only&) { function.keyword_only = count; }
  void take(return_value_policy) {}
  void take(const call_guard<gil_scoped_release>&) { function.release_gil = 1; }

  mc_argument* push(const arg& one) {
    if (count == capacity) {
      ++count;
      return nullptr;
    }
    mc_argument* argument = arguments + count++;
    argument->name = one.name;
    argument->none_allowed = one.flag_none ? 1 : 0;
    argument->no_convert = one.flag_noconvert ? 1 : 0;
    argument->has_default = 0;
    argument->default_value = ::musacoder::pack_tag(MC_NONE);
    return argument;
  }
  void finish(mc_registry* registry) {
    if (count != 0) {
      TORCH_CHECK(count == capacity, function.name, "(): the number of py::arg annotations does "
                  "not match the number of arguments");
      function.arguments = arguments;
      function.argument_count = count;
    }
    mc_register_function(registry, &function);
  }
};

} // namespace detail

class module_ {
 public:
  explicit module_(mc_registry* registry) : registry_(registry) {}

  template <class F, class... Extra>
  module_& def(const char* name, F&& function, const Extra&... extra) {
    using Plain = std::decay_t<F>;
    if constexpr (std::is_pointer_v<Plain>) {
      add(name, static_cast<Plain>(function), static_cast<Plain>(function), extra...);
    } else {
      add(name, std::forward<F>(function), &Plain::operator(), extra...);
    }
    return *this;
  }

  struct Attribute {
    mc_registry* registry;
    const char* name;
    template <class T>
    void operator=(T&& given) {
      const mc_value value = (arg() = std::forward<T>(given)).value;
      mc_register_constant(registry, name, &value);
    }
  };
  Attribute attr(const char* name) { return Attribute{registry_, name}; }
  struct Doc {
    mc_registry* registry;
    void operator=(const char* doc) { mc_register_doc(registry, doc); }
  };
  Doc doc() { return Doc{registry_}; }

 private:
  template <class F, class R, class... A, class... Extra>
  void add(const char* name, F&& function, R (*)(A...), const Extra&... extra) {
    record<std::decay_t<F>, R, A...>(name, std::forward<F>(function), extra...);
  }
  template <class F, class C, class R, class... A, class... Extra>
  void add(const char* name, F&& function, R (C::*)(A...) const, const Extra&... extra) {
    record<std::decay_t<F>, R, A...>(name, std::forward<F>(function), extra...);
  }
  template <class F, class C, class R, class... A, class... Extra>
  void add(const char* name, F&& function, R (C::*)(A...), const Extra&... extra) {
    record<std::decay_t<F>, R, A...>(name, std::forward<F>(function), extra...);
  }
  template <class F, class R, class... A, class G, class... Extra>
  void record(const char* name, G&& function, const Extra&... extra) {
    char signature[256] = {};
    static_assert(sizeof...(A) <= 64, "too many arguments");
    char* end = signature;
    ::musacoder::Converter<::musacoder::bare<R>>::code(end);
    (::musacoder::Converter<::musacoder::bare<A>>::code(end), ...);
    mc_argument arguments[sizeof...(A) + 1];
    mc_function made{};
    made.name = name;
    made.signature = signature;
    made.invoke = &::musacoder::Bound<F, R, A...>::invoke;
    made.callable = new F(std::forward<G>(function)); // lives as long as the process
    made.keyword_only = -1;
    detail::Extras extras{made, arguments, static_cast<int32_t>(sizeof...(A))};
    (extras.take(extra), ...);
    extras.finish(registry_);
  }

  mc_registry* registry_;
};
using module = module_;

namespace detail {

inline int bind(mc_registry* registry, void (*body)(module_&)) noexcept {
  try {
    module_ bound(registry);
    body(bound);
    return 0;
  } catch (...) {
    return ::musacoder::fail_with_current_exception();
  }
}

} // namespace detail
} // namespace mc_facade
} // namespace pybind11

namespace torch {
inline namespace mc_facade {
namespace py = pybind11;
template <class F>
F* wrap_pybind_function(F* function) {
  return function;
}
} // namespace mc_facade
} // namespace torch
namespace py = pybind11;

#define PYBIND11_MODULE(name, variable)                                                     \
  static void mc_bind_module(::pybind11::module_&);                                         \
  extern "C" __attribute__((visibility("default"))) int mc_extension(mc_registry* registry) { \
    return ::pybind11::detail::bind(registry, &mc_bind_module);                             \
  }                                                                                         \
  static void mc_bind_module([[maybe_unused]] ::pybind11::module_& variable)
