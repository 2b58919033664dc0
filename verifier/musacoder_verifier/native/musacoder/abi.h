// The C ABI between a fast-lane extension, the shim library and the trampoline.
//
// Nothing but these plain structs and functions crosses a library border: no C++ type, no
// exception. A function that can fail returns 0 for success; the error is then in the shim's
// thread-local slot (mc_last_error).
#pragma once

#include <stdint.h>
#include <stddef.h>

#define MC_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

// A c10::TensorImpl. Null stands for the undefined tensor.
typedef struct mc_tensor mc_tensor;
// An operator handle of the dispatcher; lives as long as the process.
typedef struct mc_operator mc_operator;

// Tags of mc_value. An "s" at the end: `data` points to `size` elements of the plain C type.
enum mc_tag {
  MC_NONE = 0,
  MC_TENSOR = 1,            // tensor
  MC_BOOL = 2,              // integer, 0 or 1
  MC_INT = 3,               // integer
  MC_DOUBLE = 4,            // real
  MC_STRING = 5,            // data, size bytes of UTF-8
  MC_INTS = 6,              // int64_t
  MC_DOUBLES = 7,           // double
  MC_BOOLS = 8,             // uint8_t
  MC_TENSORS = 9,           // mc_tensor*
  MC_OPTIONAL_TENSORS = 10, // mc_tensor*, null for none
  MC_LIST = 11,             // mc_value
  MC_TUPLE = 12,            // mc_value
  MC_DEVICE = 13,           // integer = device type, extra = index (-1: none)
  MC_DTYPE = 14,            // integer = c10::ScalarType
  MC_CHARACTER = 15         // integer; in messages only
};

typedef struct mc_value {
  int32_t tag;
  int32_t extra;
  int64_t size;
  union {
    mc_tensor* tensor;
    int64_t integer;
    double real;
    void* data;
  };
} mc_value;

// Kinds of error, each raised as the Python exception of that name.
enum mc_error_kind {
  MC_RUNTIME_ERROR = 1,
  MC_INDEX_ERROR = 2,
  MC_VALUE_ERROR = 3,
  MC_TYPE_ERROR = 4,
  MC_NOT_IMPLEMENTED_ERROR = 5,
  MC_OVERFLOW_ERROR = 6,
  MC_MEMORY_ERROR = 7,
  MC_OUT_OF_MEMORY_ERROR = 8, // torch.OutOfMemoryError
  MC_INTERPRETER_ERROR = 9 // the exception that the interpreter itself raised
};

// Errors of an interpreter reach libtorch as C++ exceptions that only its own library can read.
// `translate` is called while any exception is handled: it sets the error and returns its kind, or
// returns 0 where the exception is none of its own.
void mc_set_translator(int (*translate)(void));
int mc_translate(void);
void mc_set_error(int kind, const char* message, size_t size);
int mc_last_error(const char** message, size_t* size); // the kind
// Joins values as an ostream prints them; the result is owned by the caller.
void mc_concatenate(const mc_value* parts, int count, mc_value* text);
void mc_warn(const char* file, int line, const char* message, size_t size);

// Memory of lists and strings inside results; freed by whoever consumes the result.
void* mc_allocate(size_t bytes);
void mc_free(void* memory);
void mc_value_clear(mc_value* value); // drops what an owned value holds

void mc_tensor_retain(mc_tensor* tensor);
void mc_tensor_release(mc_tensor* tensor);
int64_t mc_tensor_use_count(const mc_tensor* tensor);
int mc_tensor_sizes(const mc_tensor* tensor, const int64_t** sizes, int64_t* dim);
int mc_tensor_strides(const mc_tensor* tensor, const int64_t** strides, int64_t* dim);
int mc_tensor_numel(const mc_tensor* tensor, int64_t* numel);
int mc_tensor_storage_offset(const mc_tensor* tensor, int64_t* offset);
// `writes` tells whether the caller may write: a lazy copy is then made real, as in PyTorch.
int mc_tensor_data(mc_tensor* tensor, int writes, void** data);
int mc_tensor_dtype(const mc_tensor* tensor); // c10::ScalarType
int mc_tensor_device(const mc_tensor* tensor, int* type, int* index);
int mc_tensor_layout(const mc_tensor* tensor, int* layout);
int mc_tensor_is_contiguous(const mc_tensor* tensor, int memory_format, int* result);
int mc_tensor_is_non_overlapping_and_dense(const mc_tensor* tensor, int* result);
int mc_tensor_suggest_memory_format(const mc_tensor* tensor, int* memory_format);
int mc_tensor_requires_grad(const mc_tensor* tensor, int* result);
int mc_tensor_set_requires_grad(mc_tensor* tensor, int value);
int mc_tensor_has_storage(const mc_tensor* tensor, int* result);
int mc_tensor_is_alias_of(const mc_tensor* tensor, const mc_tensor* other, int* result);
int mc_tensor_to_string(const mc_tensor* tensor, mc_value* text);     // as operator<< prints it
int mc_tensor_type_to_string(const mc_tensor* tensor, mc_value* text); // Tensor::toString()
int mc_from_blob(void* data, const int64_t* sizes, const int64_t* strides, int64_t dim,
                 void (*deleter)(void* context), void* context, int dtype, int device_type,
                 int device_index, mc_tensor** result);

// Finds `name`.`overload` in the dispatcher; never null on success.
int mc_find_operator(const char* name, const char* overload, const mc_operator** result);
// Calls an operator: arguments are borrowed, results are owned by the caller. The operator must
// return exactly `result_count` values, except that a count of 0 drops whatever it returns.
int mc_call_operator(const mc_operator* operator_, const mc_value* arguments, int argument_count,
                     mc_value* results, int result_count);
// aten::empty and aten::empty_like without the boxed calling convention: the two that every
// small kernel pays for. An extra of -1 means "not given".
int mc_empty(const int64_t* sizes, int64_t dim, int dtype, int layout, int device_type,
             int device_index, int pin_memory, int memory_format, mc_tensor** result);
int mc_empty_like(mc_tensor* self, int dtype, int layout, int device_type, int device_index,
                  int pin_memory, int memory_format, mc_tensor** result);

int mc_parse_device(const char* text, size_t size, int* type, int* index);
const char* mc_device_type_name(int type); // "cpu", "cuda"
const char* mc_dtype_name(int dtype);      // "Float"
const char* mc_cpp_type_name(int dtype);   // "float"
int mc_get_num_threads(void);
int mc_in_parallel_region(void);
int mc_get_thread_num(void);
void mc_set_thread_num(int number);
int mc_grad_mode(int enabled); // -1: leave; returns what it was
int mc_default_dtype(void);
void* mc_gil_release(void);
void mc_gil_acquire(void* state);

// ---- what an extension registers -------------------------------------------------------------

struct mc_function;
typedef int (*mc_invoke)(const struct mc_function* self, const mc_value* arguments,
                         mc_value* result);

typedef struct mc_argument {
  const char* name; // null: positional only
  int has_default;
  int none_allowed; // py::arg().none()
  int no_convert;
  mc_value default_value; // owned
} mc_argument;

typedef struct mc_function {
  const char* name;
  const char* doc; // null: none
  // Return type, then argument types, in the codes of musacoder/converter.h.
  const char* signature;
  mc_invoke invoke;
  void* callable;
  const mc_argument* arguments; // null: no names, no defaults
  int32_t argument_count;       // length of `arguments`
  int32_t keyword_only;         // index of the first keyword-only argument; -1: none
  int32_t release_gil;
} mc_function;

typedef struct mc_registry mc_registry;

// Everything is copied, except `callable` and owned values, which are taken over.
void mc_register_function(mc_registry* registry, const mc_function* function);
void mc_register_constant(mc_registry* registry, const char* name, const mc_value* value);
void mc_register_doc(mc_registry* registry, const char* doc);

// For the trampoline: runs the entry of an extension. Null on error.
typedef int (*mc_extension_entry)(mc_registry* registry); // exported as mc_extension
const mc_registry* mc_open_registry(mc_extension_entry entry);
int mc_registry_function_count(const mc_registry* registry);
const mc_function* mc_registry_function(const mc_registry* registry, int index);
int mc_registry_constant_count(const mc_registry* registry);
const char* mc_registry_constant(const mc_registry* registry, int index, const mc_value** value);
const char* mc_registry_doc(const mc_registry* registry);

#ifdef __cplusplus
}
#endif
