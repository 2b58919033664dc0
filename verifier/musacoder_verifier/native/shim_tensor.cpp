// The shim library: tensors, memory, errors and threads of the C ABI.
#include "errors.h"
#include "tensor.h"

#include <ATen/Parallel.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DefaultDtype.h>

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

using musacoder::guarded;
using musacoder::impl;

namespace {

struct LastError {
  int kind = 0;
  std::string message;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

int (*translator)(void) = nullptr;

mc_value string_value(const std::string& text) {
  mc_value value{};
  value.tag = MC_STRING;
  value.size = static_cast<int64_t>(text.size());
  value.data = mc_allocate(text.size() + 1);
  std::memcpy(value.data, text.c_str(), text.size() + 1);
  return value;
}

template <class T>
std::optional<T> given(int code) {
  if (code < 0) {
    return std::nullopt;
  }
  return static_cast<T>(code);
}

std::optional<at::Device> given_device(int type, int index) {
  if (type < 0) {
    return std::nullopt;
  }
  return at::Device(static_cast<at::DeviceType>(type), static_cast<at::DeviceIndex>(index));
}

void print(std::ostream& stream, const mc_value& value) {
  switch (value.tag) {
    case MC_TENSOR:
      stream << musacoder::shared(value.tensor);
      break;
    case MC_BOOL:
    case MC_INT:
      stream << value.integer;
      break;
    case MC_DOUBLE:
      stream << value.real;
      break;
    case MC_CHARACTER:
      stream << static_cast<char>(value.integer);
      break;
    case MC_STRING:
      stream.write(static_cast<const char*>(value.data), value.size);
      break;
    case MC_INTS:
      stream << at::IntArrayRef(static_cast<const int64_t*>(value.data),
                                static_cast<size_t>(value.size));
      break;
    default:
      break;
  }
}

} // namespace

extern "C" {

void mc_concatenate(const mc_value* parts, int count, mc_value* text) {
  std::ostringstream stream;
  for (int i = 0; i < count; ++i) {
    if (musacoder::guarded([&] { print(stream, parts[i]); }) != 0) {
      stream << "<unprintable>";
    }
  }
  *text = string_value(stream.str());
}

void mc_set_translator(int (*translate)(void)) { translator = translate; }

int mc_translate(void) { return translator == nullptr ? 0 : translator(); }

void mc_set_error(int kind, const char* message, size_t size) {
  LastError& error = last_error();
  error.kind = kind;
  error.message.assign(message, size);
}

int mc_last_error(const char** message, size_t* size) {
  const LastError& error = last_error();
  *message = error.message.data();
  *size = error.message.size();
  return error.kind;
}

void mc_warn(const char* file, int line, const char* message, size_t size) {
  (void)guarded([&] {
    ::c10::warn(::c10::Warning(::c10::UserWarning(),
                               {"", file, static_cast<uint32_t>(line)},
                               std::string(message, size), /*verbatim=*/false));
  });
}

void* mc_allocate(size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    std::abort();
  }
  return memory;
}

void mc_free(void* memory) { std::free(memory); }

void mc_value_clear(mc_value* value) {
  switch (value->tag) {
    case MC_TENSOR:
      mc_tensor_release(value->tensor);
      break;
    case MC_TENSORS:
    case MC_OPTIONAL_TENSORS:
      for (int64_t i = 0; i < value->size; ++i) {
        mc_tensor_release(static_cast<mc_tensor**>(value->data)[i]);
      }
      mc_free(value->data);
      break;
    case MC_LIST:
    case MC_TUPLE:
      for (int64_t i = 0; i < value->size; ++i) {
        mc_value_clear(static_cast<mc_value*>(value->data) + i);
      }
      mc_free(value->data);
      break;
    case MC_STRING:
    case MC_INTS:
    case MC_DOUBLES:
    case MC_BOOLS:
      mc_free(value->data);
      break;
    default:
      break;
  }
  value->tag = MC_NONE;
}

void mc_tensor_retain(mc_tensor* tensor) {
  if (tensor != nullptr) {
    c10::raw::intrusive_ptr::incref(impl(tensor));
  }
}

void mc_tensor_release(mc_tensor* tensor) {
  if (tensor != nullptr) {
    c10::raw::intrusive_ptr::decref(impl(tensor));
  }
}

int64_t mc_tensor_use_count(const mc_tensor* tensor) {
  return tensor == nullptr ? 0 : static_cast<int64_t>(c10::raw::intrusive_ptr::use_count(impl(tensor)));
}

int mc_tensor_sizes(const mc_tensor* tensor, const int64_t** sizes, int64_t* dim) {
  return guarded([&] {
    const at::IntArrayRef all = impl(tensor)->sizes();
    *sizes = all.data();
    *dim = static_cast<int64_t>(all.size());
  });
}

int mc_tensor_strides(const mc_tensor* tensor, const int64_t** strides, int64_t* dim) {
  return guarded([&] {
    const at::IntArrayRef all = impl(tensor)->strides();
    *strides = all.data();
    *dim = static_cast<int64_t>(all.size());
  });
}

int mc_tensor_numel(const mc_tensor* tensor, int64_t* numel) {
  return guarded([&] { *numel = impl(tensor)->numel(); });
}

int mc_tensor_storage_offset(const mc_tensor* tensor, int64_t* offset) {
  return guarded([&] { *offset = impl(tensor)->storage_offset(); });
}

int mc_tensor_data(mc_tensor* tensor, int writes, void** data) {
  return guarded([&] {
    *data = writes != 0 ? impl(tensor)->mutable_data() : const_cast<void*>(impl(tensor)->data());
  });
}

int mc_tensor_dtype(const mc_tensor* tensor) {
  return static_cast<int>(c10::typeMetaToScalarType(impl(tensor)->dtype()));
}

int mc_tensor_device(const mc_tensor* tensor, int* type, int* index) {
  return guarded([&] {
    const at::Device device = impl(tensor)->device();
    *type = static_cast<int>(device.type());
    *index = device.index();
  });
}

int mc_tensor_layout(const mc_tensor* tensor, int* layout) {
  return guarded([&] { *layout = static_cast<int>(impl(tensor)->layout()); });
}

int mc_tensor_is_contiguous(const mc_tensor* tensor, int memory_format, int* result) {
  return guarded([&] {
    *result = impl(tensor)->is_contiguous(static_cast<at::MemoryFormat>(memory_format)) ? 1 : 0;
  });
}

int mc_tensor_is_non_overlapping_and_dense(const mc_tensor* tensor, int* result) {
  return guarded([&] { *result = impl(tensor)->is_non_overlapping_and_dense() ? 1 : 0; });
}

int mc_tensor_suggest_memory_format(const mc_tensor* tensor, int* memory_format) {
  return guarded([&] {
    *memory_format = static_cast<int>(musacoder::shared(tensor).suggest_memory_format());
  });
}

int mc_tensor_requires_grad(const mc_tensor* tensor, int* result) {
  return guarded([&] { *result = musacoder::shared(tensor).requires_grad() ? 1 : 0; });
}

int mc_tensor_set_requires_grad(mc_tensor* tensor, int value) {
  return guarded([&] { musacoder::shared(tensor).set_requires_grad(value != 0); });
}

int mc_tensor_has_storage(const mc_tensor* tensor, int* result) {
  return guarded([&] { *result = impl(tensor)->has_storage() ? 1 : 0; });
}

int mc_tensor_is_alias_of(const mc_tensor* tensor, const mc_tensor* other, int* result) {
  return guarded([&] {
    *result = musacoder::shared(tensor).is_alias_of(musacoder::shared(other)) ? 1 : 0;
  });
}

int mc_tensor_to_string(const mc_tensor* tensor, mc_value* text) {
  return guarded([&] {
    std::ostringstream stream;
    stream << musacoder::shared(tensor);
    *text = string_value(stream.str());
  });
}

int mc_tensor_type_to_string(const mc_tensor* tensor, mc_value* text) {
  return guarded([&] { *text = string_value(musacoder::shared(tensor).toString()); });
}

int mc_from_blob(void* data, const int64_t* sizes, const int64_t* strides, int64_t dim,
                 void (*deleter)(void* context), void* context, int dtype, int device_type,
                 int device_index, mc_tensor** result) {
  return guarded([&] {
    const auto length = static_cast<size_t>(dim);
    auto options = at::TensorOptions().dtype(given<at::ScalarType>(dtype));
    if (device_type >= 0) {
      options = options.device(given_device(device_type, device_index));
    }
    auto maker = at::for_blob(data, at::IntArrayRef(sizes, length));
    maker.options(options);
    if (strides != nullptr) {
      maker.strides(at::IntArrayRef(strides, length));
    }
    if (deleter != nullptr) {
      maker.deleter([deleter, context](void*) { deleter(context); });
    }
    *result = musacoder::released(maker.make_tensor());
  });
}

int mc_empty(const int64_t* sizes, int64_t dim, int dtype, int layout, int device_type,
             int device_index, int pin_memory, int memory_format, mc_tensor** result) {
  return guarded([&] {
    *result = musacoder::released(at::_ops::empty_memory_format::call(
        c10::fromIntArrayRefSlow(at::IntArrayRef(sizes, static_cast<size_t>(dim))),
        given<at::ScalarType>(dtype), given<at::Layout>(layout),
        given_device(device_type, device_index), given<bool>(pin_memory),
        given<at::MemoryFormat>(memory_format)));
  });
}

int mc_empty_like(mc_tensor* self, int dtype, int layout, int device_type, int device_index,
                  int pin_memory, int memory_format, mc_tensor** result) {
  return guarded([&] {
    *result = musacoder::released(at::_ops::empty_like::call(
        musacoder::shared(self), given<at::ScalarType>(dtype), given<at::Layout>(layout),
        given_device(device_type, device_index), given<bool>(pin_memory),
        given<at::MemoryFormat>(memory_format)));
  });
}

int mc_parse_device(const char* text, size_t size, int* type, int* index) {
  return guarded([&] {
    const at::Device device(std::string(text, size));
    *type = static_cast<int>(device.type());
    *index = device.index();
  });
}

const char* mc_device_type_name(int type) {
  thread_local std::string name;
  name = c10::DeviceTypeName(static_cast<at::DeviceType>(type), /*lower_case=*/true);
  return name.c_str();
}

const char* mc_dtype_name(int dtype) {
  return c10::toString(static_cast<at::ScalarType>(dtype));
}

const char* mc_cpp_type_name(int dtype) {
  thread_local std::string name;
  const auto view = c10::scalarTypeToTypeMeta(static_cast<at::ScalarType>(dtype)).name();
  name.assign(view.data(), view.size());
  return name.c_str();
}

int mc_get_num_threads(void) {
  at::internal::lazy_init_num_threads();
  return at::get_num_threads();
}

int mc_in_parallel_region(void) { return at::in_parallel_region() ? 1 : 0; }

int mc_get_thread_num(void) { return at::get_thread_num(); }

void mc_set_thread_num(int number) { at::internal::set_thread_num(number); }

int mc_grad_mode(int enabled) {
  const bool before = at::GradMode::is_enabled();
  if (enabled >= 0) {
    at::GradMode::set_enabled(enabled != 0);
  }
  return before ? 1 : 0;
}

int mc_default_dtype(void) {
  return static_cast<int>(c10::get_default_dtype_as_scalartype());
}

// The interpreter is found at run time, so that the shim does not depend on one.
void* mc_gil_release(void) {
  using Save = void* (*)();
  static const auto save = reinterpret_cast<Save>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
  return save == nullptr ? nullptr : save();
}

void mc_gil_acquire(void* state) {
  using Restore = void (*)(void*);
  static const auto restore = reinterpret_cast<Restore>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
  if (restore != nullptr && state != nullptr) {
    restore(state);
  }
}

} // extern "C"
