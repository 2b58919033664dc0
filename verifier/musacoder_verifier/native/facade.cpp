// The parts of the facade that are no templates over a candidate's types, compiled once against the
// facade's own headers and linked into every candidate: they are its own copy, so that no exception
// crosses into the shim library.
#include <torch/extension.h>

namespace c10 {
inline namespace mc_facade {

Error::~Error() = default;
const char* Error::what() const noexcept { return message_.c_str(); }
IndexError::~IndexError() = default;
ValueError::~ValueError() = default;
TypeError::~TypeError() = default;
NotImplementedError::~NotImplementedError() = default;
OutOfMemoryError::~OutOfMemoryError() = default;
LinAlgError::~LinAlgError() = default;

} // namespace mc_facade
} // namespace c10

namespace musacoder {

std::string join(const mc_value* parts, int count) {
  mc_value joined;
  mc_concatenate(parts, count, &joined);
  std::string text(static_cast<const char*>(joined.data), static_cast<size_t>(joined.size));
  mc_free(joined.data);
  for (int i = 0; i < count; ++i) {
    if (parts[i].tag == MC_STRING && parts[i].extra != 0) {
      mc_free(parts[i].data);
    }
  }
  return text;
}

template void raise<c10::Error>(const mc_value*, int);
template void raise<c10::IndexError>(const mc_value*, int);
template void raise<c10::ValueError>(const mc_value*, int);
template void raise<c10::TypeError>(const mc_value*, int);
template void raise<c10::NotImplementedError>(const mc_value*, int);
template void raise<c10::OutOfMemoryError>(const mc_value*, int);
template void raise<c10::LinAlgError>(const mc_value*, int);

void raise_last_error() {
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

const mc_operator* find_operator(const char* name, const char* overload) {
  const mc_operator* found = nullptr;
  ensure(mc_find_operator(name, overload, &found));
  return found;
}

namespace {

int fail(int kind, std::string_view message) noexcept {
  mc_set_error(kind, message.data(), message.size());
  return kind;
}

} // namespace

int fail_with_current_exception() noexcept {
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

} // namespace musacoder

namespace pybind11 {
inline namespace mc_facade {
namespace detail {

mc_argument* Extras::push(const arg& one) {
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

void Extras::finish(mc_registry* registry) {
  if (count != 0) {
    TORCH_CHECK(count == capacity, function.name, "(): the number of py::arg annotations does "
                "not match the number of arguments");
    function.arguments = arguments;
    function.argument_count = count;
  }
  mc_register_function(registry, &function);
}

int bind(mc_registry* registry, void (*body)(module_&)) noexcept {
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
