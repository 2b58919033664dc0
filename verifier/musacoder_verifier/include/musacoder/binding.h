// What pybind11 is used for in an extension, over the C ABI: every bound function becomes a record
// with its address, a code for each argument's type, and its names and defaults.
#pragma once

#include <musacoder/converter.h>

namespace musacoder {

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

// The one place where an exception of a candidate ends; kinds as pybind11 maps them.
int fail_with_current_exception() noexcept;

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

  mc_argument* push(const arg& one);
  void finish(mc_registry* registry);
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

int bind(mc_registry* registry, void (*body)(module_&)) noexcept;

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
