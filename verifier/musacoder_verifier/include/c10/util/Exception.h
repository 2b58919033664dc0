#pragma once

#include <c10/macros/Macros.h>
#include <musacoder/abi.h>
#include <musacoder/std.h>

namespace c10 {
inline namespace mc_facade {

class Error : public std::exception {
 public:
  explicit Error(std::string message, int kind = MC_RUNTIME_ERROR)
      : message_(std::move(message)), kind_(kind) {}
  const char* what() const noexcept override { return message_.c_str(); }
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

namespace musacoder {

template <class T>
void append(std::string& text, const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    text += std::string_view(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    text += value ? '1' : '0';
  } else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, signed char> ||
                       std::is_same_v<T, unsigned char>) {
    text += static_cast<char>(value);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, wchar_t>) {
    text += std::to_string(value);
  } else {
    std::ostringstream stream;
    stream << value;
    text += stream.str();
  }
}

template <class... A>
std::string concatenate(const A&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

template <class E>
[[noreturn, gnu::noinline, gnu::cold]] void raise(std::string message) {
  throw E(std::move(message));
}

[[noreturn]] inline void raise_internal_assert(const char* condition, const char* file, int line,
                                               const std::string& message) {
  throw c10::Error(concatenate(condition, " INTERNAL ASSERT FAILED at \"", file, "\":", line,
                               ", please report a bug to PyTorch. ", message));
}

// The message of a check: what the caller wrote, else a standard sentence.
template <class... A>
std::string check_message(const char* condition, const A&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return concatenate("Expected ", condition,
                       " to be true, but got false.  (Could this error message be improved?  "
                       "If so, please report an enhancement request to PyTorch.)");
  } else {
    return concatenate(parts...);
  }
}

// Throws the error that a call of the C ABI left behind.
[[noreturn, gnu::noinline, gnu::cold]] inline void raise_last_error() {
  const char* text = nullptr;
  size_t size = 0;
  const int kind = mc_last_error(&text, &size);
  std::string message(text, size);
  switch (kind) {
    case MC_INDEX_ERROR:
      throw c10::IndexError(std::move(message));
    case MC_VALUE_ERROR:
      throw c10::ValueError(std::move(message));
    case MC_TYPE_ERROR:
      throw c10::TypeError(std::move(message));
    case MC_NOT_IMPLEMENTED_ERROR:
      throw c10::NotImplementedError(std::move(message));
    case MC_OUT_OF_MEMORY_ERROR:
      throw c10::OutOfMemoryError(std::move(message));
    case MC_MEMORY_ERROR:
      throw std::bad_alloc();
    default:
      throw c10::Error(std::move(message), kind);
  }
}

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

template <class... A>
std::string str(const A&... parts) {
  return ::musacoder::concatenate(parts...);
}

} // namespace mc_facade
} // namespace c10

#define TORCH_CHECK_WITH(error_t, cond, ...)                                              \
  if (C10_UNLIKELY(!(cond))) {                                                            \
    ::musacoder::raise<::c10::error_t>(::musacoder::check_message(#cond, ##__VA_ARGS__)); \
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
    ::musacoder::raise_internal_assert(#cond, __FILE__, __LINE__,       \
                                       ::c10::str(__VA_ARGS__));        \
  }
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) \
  while (false)                               \
  TORCH_INTERNAL_ASSERT(__VA_ARGS__)

#define MC_CHECK_OP(a, b, op)                                                              \
  if (!((a)op(b)))                                                                         \
  ::musacoder::raise<::c10::Error>(::c10::str("Check failed: " #a " " #op " " #b " (", (a), \
                                              " vs. ", (b), "). "))
#define TORCH_CHECK_EQ(val1, val2) MC_CHECK_OP(val1, val2, ==)
#define TORCH_CHECK_NE(val1, val2) MC_CHECK_OP(val1, val2, !=)
#define TORCH_CHECK_LE(val1, val2) MC_CHECK_OP(val1, val2, <=)
#define TORCH_CHECK_LT(val1, val2) MC_CHECK_OP(val1, val2, <)
#define TORCH_CHECK_GE(val1, val2) MC_CHECK_OP(val1, val2, >=)
#define TORCH_CHECK_GT(val1, val2) MC_CHECK_OP(val1, val2, >)
#define AT_ERROR(...)                                           \
  do {                                                          \
    ::musacoder::raise<::c10::Error>(::c10::str(__VA_ARGS__));  \
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
