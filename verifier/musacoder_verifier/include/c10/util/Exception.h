#pragma once

#include <c10/macros/Macros.h>
#include <musacoder/abi.h>
#include <musacoder/std.h>

namespace c10 {
inline namespace mc_facade {

// What needs no more than the facade's own types stands in native/facade.cpp, compiled once.
class Error : public std::exception {
 public:
  explicit Error(std::string message, int kind = MC_RUNTIME_ERROR)
      : message_(std::move(message)), kind_(kind) {}
  Error(const Error&) = default;
  ~Error() override;
  const char* what() const noexcept override;
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }
  int mc_kind() const { return kind_; }

 private:
  std::string message_;
  int kind_;
};

#define MC_ERROR_CLASS(name, kind)                                             \
  class name : public Error {                                                  \
   public:                                                                     \
    explicit name(std::string message) : Error(std::move(message), kind) {}    \
    name(const name&) = default;                                               \
    ~name() override;                                                          \
  };
MC_ERROR_CLASS(IndexError, MC_INDEX_ERROR)
MC_ERROR_CLASS(ValueError, MC_VALUE_ERROR)
MC_ERROR_CLASS(TypeError, MC_TYPE_ERROR)
MC_ERROR_CLASS(NotImplementedError, MC_NOT_IMPLEMENTED_ERROR)
MC_ERROR_CLASS(OutOfMemoryError, MC_OUT_OF_MEMORY_ERROR)
MC_ERROR_CLASS(LinAlgError, MC_RUNTIME_ERROR)
#undef MC_ERROR_CLASS

} // namespace mc_facade
} // namespace c10

namespace c10 {
inline namespace mc_facade {
template <typename T>
class ArrayRef;
} // namespace mc_facade
} // namespace c10

namespace musacoder {

// Parts of a message. What is common crosses the C ABI as it is, so that a check costs the
// candidate's compile no stream; the rest is printed by its own operator<<.
inline mc_value part_integer(int32_t tag, int64_t integer) {
  mc_value value;
  value.tag = tag;
  value.extra = 0;
  value.size = 0;
  value.integer = integer;
  return value;
}
inline mc_value part_text(std::string_view text) {
  mc_value value = part_integer(MC_STRING, 0);
  value.size = static_cast<int64_t>(text.size());
  value.data = const_cast<char*>(text.data());
  return value;
}
// `extra` marks text that the part owns.
inline mc_value part_owned(const std::string& text) {
  mc_value value = part_text(text);
  value.data = mc_allocate(text.size());
  std::memcpy(value.data, text.data(), text.size());
  value.extra = 1;
  return value;
}

// What an operator<< of our own types prints, as `mc_text(value)`, found in the type's namespace.
template <class T, class = void>
constexpr bool has_text = false;
template <class T>
constexpr bool has_text<T, std::void_t<decltype(mc_text(std::declval<const T&>()))>> = true;

template <class T>
mc_value part(const T& given) {
  if constexpr (std::is_convertible_v<const T&, const char*>) {
    const char* text = given;
    return part_text(text);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return part_text(given);
  } else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, signed char> ||
                       std::is_same_v<T, unsigned char>) {
    return part_integer(MC_CHARACTER, given);
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
      return part_owned(std::to_string(given));
    } else {
      return part_integer(MC_INT, static_cast<int64_t>(given));
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    mc_value value = part_integer(MC_DOUBLE, 0);
    value.real = static_cast<double>(given);
    return value;
  } else if constexpr (std::is_same_v<T, c10::ArrayRef<int64_t>>) {
    mc_value value = part_integer(MC_INTS, 0);
    value.size = static_cast<int64_t>(given.size());
    value.data = const_cast<int64_t*>(given.data());
    return value;
  } else if constexpr (std::is_enum_v<T> && std::is_convertible_v<T, int>) {
    return part_integer(MC_INT, static_cast<int64_t>(given));
  } else if constexpr (has_text<T>) {
    return part_owned(mc_text(given));
  } else {
#ifdef MC_DEVICE_UNIT
    static_assert(has_text<T>, "no operator<< matches this part of a message");
    return part_integer(MC_NONE, 0);
#else
    std::ostringstream stream;
    stream << given;
    return part_owned(stream.str());
#endif
  }
}

std::string join(const mc_value* parts, int count);

template <class E>
[[noreturn, gnu::noinline, gnu::cold]] void raise(const mc_value* parts, int count) {
  throw E(join(parts, count));
}
extern template void raise<c10::Error>(const mc_value*, int);
extern template void raise<c10::IndexError>(const mc_value*, int);
extern template void raise<c10::ValueError>(const mc_value*, int);
extern template void raise<c10::TypeError>(const mc_value*, int);
extern template void raise<c10::NotImplementedError>(const mc_value*, int);
extern template void raise<c10::OutOfMemoryError>(const mc_value*, int);
extern template void raise<c10::LinAlgError>(const mc_value*, int);

template <class E>
[[noreturn]] inline void raise_check(const char* condition) {
  const mc_value parts[] = {
      part_text("Expected "), part_text(condition),
      part_text(" to be true, but got false.  (Could this error message be improved?  "
                "If so, please report an enhancement request to PyTorch.)")};
  raise<E>(parts, 3);
}
template <class E, class... A>
[[noreturn]] inline void raise_check(const char*, const A&... given) {
  const mc_value parts[] = {part(given)...};
  raise<E>(parts, static_cast<int>(sizeof...(A)));
}
template <class... A>
[[noreturn]] inline void raise_internal_assert(const char* condition, const char* file, int line,
                                               const A&... given) {
  const mc_value parts[] = {part_text(condition),
                            part_text(" INTERNAL ASSERT FAILED at \""),
                            part_text(file),
                            part_text("\":"),
                            part_integer(MC_INT, line),
                            part_text(", please report a bug to PyTorch. "),
                            part(given)...};
  raise<c10::Error>(parts, static_cast<int>(6 + sizeof...(A)));
}

// Throws the error that a call of the C ABI left behind.
[[noreturn, gnu::cold]] void raise_last_error();

inline void ensure(int status) {
  if (C10_UNLIKELY(status != 0)) {
    raise_last_error();
  }
}

inline void warn(const char* file, int line, const std::string& message) {
  mc_warn(file, line, message.data(), message.size());
}

} // namespace musacoder

namespace c10 {
inline namespace mc_facade {

inline std::string str() { return std::string(); }
template <class... A>
std::string str(const A&... given) {
  const mc_value parts[] = {::musacoder::part(given)...};
  return ::musacoder::join(parts, static_cast<int>(sizeof...(A)));
}

} // namespace mc_facade
} // namespace c10

#define TORCH_CHECK_WITH(error_t, cond, ...)                                              \
  if (C10_UNLIKELY(!(cond))) {                                                            \
    ::musacoder::raise_check<::c10::error_t>(#cond, ##__VA_ARGS__);                       \
  }
#define TORCH_CHECK(cond, ...) TORCH_CHECK_WITH(Error, cond, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) TORCH_CHECK_WITH(IndexError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) TORCH_CHECK_WITH(ValueError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) TORCH_CHECK_WITH(TypeError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_LINALG(cond, ...) TORCH_CHECK_WITH(LinAlgError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...) \
  TORCH_CHECK_WITH(NotImplementedError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_ARG(cond, argN, ...) \
  TORCH_CHECK(cond, "invalid argument ", argN, ": ", __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(cond, ...)                                \
  if (C10_UNLIKELY(!(cond))) {                                          \
    ::musacoder::raise_internal_assert(#cond, __FILE__, __LINE__, ##__VA_ARGS__); \
  }
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) \
  while (false)                               \
  TORCH_INTERNAL_ASSERT(__VA_ARGS__)

#define MC_CHECK_OP(a, b, op)                                                              \
  if (!((a)op(b)))                                                                         \
  ::musacoder::raise_check<::c10::Error>("", "Check failed: " #a " " #op " " #b " (", (a), \
                                         " vs. ", (b), "). ")
#define TORCH_CHECK_EQ(val1, val2) MC_CHECK_OP(val1, val2, ==)
#define TORCH_CHECK_NE(val1, val2) MC_CHECK_OP(val1, val2, !=)
#define TORCH_CHECK_LE(val1, val2) MC_CHECK_OP(val1, val2, <=)
#define TORCH_CHECK_LT(val1, val2) MC_CHECK_OP(val1, val2, <)
#define TORCH_CHECK_GE(val1, val2) MC_CHECK_OP(val1, val2, >=)
#define TORCH_CHECK_GT(val1, val2) MC_CHECK_OP(val1, val2, >)
#define AT_ERROR(...)                                           \
  do {                                                          \
    ::musacoder::raise_check<::c10::Error>("", ::c10::str(__VA_ARGS__)); \
  } while (false)
#define AT_ASSERT(...)                  \
  do {                                  \
    TORCH_INTERNAL_ASSERT(__VA_ARGS__); \
  } while (false)
#define AT_ASSERTM(cond, ...)                 \
  do {                                        \
    TORCH_INTERNAL_ASSERT(cond, __VA_ARGS__); \
  } while (false)
#define TORCH_WARN(...) ::musacoder::warn(__FILE__, __LINE__, ::c10::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                 \
  [[maybe_unused]] static const bool C10_ANONYMOUS_VARIABLE( \
      torch_warn_once_) = [&] {                              \
    TORCH_WARN(__VA_ARGS__);                                 \
    return true;                                             \
  }()
