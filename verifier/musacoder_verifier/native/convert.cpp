#include "convert.h"

#include "tensor.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <limits>
#include <type_traits>

namespace musacoder {

namespace {

bool mismatch() {
  PyErr_Clear();
  return false;
}

template <class T>
bool in_range(long long integer) {
  return integer >= static_cast<long long>(std::numeric_limits<T>::min()) &&
      integer <= static_cast<long long>(std::numeric_limits<T>::max());
}

bool fits(char code, long long integer) {
  switch (code) {
    case 'a':
      return in_range<int8_t>(integer);
    case 'A':
      return in_range<uint8_t>(integer);
    case 'h':
      return in_range<int16_t>(integer);
    case 'H':
      return in_range<uint16_t>(integer);
    case 'i':
      return in_range<int32_t>(integer);
    case 'I':
      return in_range<uint32_t>(integer);
    default:
      return true;
  }
}

bool load_integer(char code, PyObject* object, bool convert, mc_value& value) {
  if (PyFloat_Check(object) || (!convert && !PyLong_Check(object) && !PyIndex_Check(object))) {
    return false;
  }
  PyObject* number = nullptr;
  if (PyLong_Check(object)) {
    number = Py_NewRef(object);
  } else if (PyIndex_Check(object)) {
    number = PyNumber_Index(object);
  }
  if (number == nullptr) {
    PyErr_Clear();
    if (!convert || PyNumber_Check(object) == 0) {
      return false;
    }
    number = PyNumber_Long(object);
    if (number == nullptr) {
      return mismatch();
    }
  }
  value.tag = MC_INT;
  bool fitting = false;
  if (code == 'L') {
    const unsigned long long integer = PyLong_AsUnsignedLongLong(number);
    value.integer = static_cast<int64_t>(integer);
    fitting = PyErr_Occurred() == nullptr;
  } else {
    const long long integer = PyLong_AsLongLong(number);
    value.integer = integer;
    fitting = PyErr_Occurred() == nullptr && fits(code, integer);
  }
  Py_DECREF(number);
  return fitting || mismatch();
}

bool load_real(PyObject* object, bool convert, mc_value& value) {
  if (!convert && !PyFloat_Check(object) && !PyLong_Check(object)) {
    return false;
  }
  value.tag = MC_DOUBLE;
  value.real = PyFloat_AsDouble(object);
  if (value.real == -1.0 && PyErr_Occurred() != nullptr) {
    return mismatch();
  }
  return true;
}

bool load_bool(PyObject* object, bool convert, mc_value& value) {
  value.tag = MC_BOOL;
  if (object == Py_True || object == Py_False) {
    value.integer = object == Py_True ? 1 : 0;
    return true;
  }
  const char* type = Py_TYPE(object)->tp_name;
  if (!convert && std::strcmp(type, "numpy.bool") != 0 && std::strcmp(type, "numpy.bool_") != 0) {
    return false;
  }
  if (object == Py_None) {
    value.integer = 0;
    return true;
  }
  const PyNumberMethods* number = Py_TYPE(object)->tp_as_number;
  if (number == nullptr || number->nb_bool == nullptr) {
    return false;
  }
  const int truth = number->nb_bool(object);
  if (truth < 0) {
    return mismatch();
  }
  value.integer = truth;
  return true;
}

bool load_text(PyObject* object, mc_value& value) {
  value.tag = MC_STRING;
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      return mismatch();
    }
    value.data = const_cast<char*>(text);
    value.size = size;
    return true;
  }
  if (PyBytes_Check(object)) {
    value.data = PyBytes_AS_STRING(object);
    value.size = PyBytes_GET_SIZE(object);
    return true;
  }
  return false;
}

bool load_integers(PyObject* object, mc_value& value, Arena& arena) {
  if (!PyList_Check(object) && !PyTuple_Check(object)) {
    return false;
  }
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  auto* integers = arena.array<int64_t>(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    mc_value item{};
    if (!load_integer('l', PySequence_Fast_GET_ITEM(object, i), false, item)) {
      return false;
    }
    integers[i] = item.integer;
  }
  value.tag = MC_INTS;
  value.size = size;
  value.data = integers;
  return true;
}

// A list of one type, or a tuple of exactly those types.
bool load_sequence(const Type& type, PyObject* object, bool convert, mc_value& value,
                   Arena& arena) {
  const bool list = type.code == '[';
  if (PySequence_Check(object) == 0 || PyUnicode_Check(object) || PyBytes_Check(object)) {
    return false;
  }
  PyObject* fast = PySequence_Fast(object, "not a sequence");
  if (fast == nullptr) {
    return mismatch();
  }
  arena.hold(fast);
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast);
  if (!list && static_cast<size_t>(size) != type.items.size()) {
    return false;
  }
  auto* values = arena.array<mc_value>(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    values[i] = mc_value{};
    const Type& item = type.items[list ? 0 : static_cast<size_t>(i)];
    if (!load(item, PySequence_Fast_GET_ITEM(fast, i), convert, values[i], arena)) {
      return false;
    }
  }
  value.tag = list ? MC_LIST : MC_TUPLE;
  value.size = size;
  value.data = values;
  return true;
}

template <class F>
PyObject* list_of(const mc_value& value, const F& item) {
  PyObject* list = PyList_New(value.size);
  for (int64_t i = 0; list != nullptr && i < value.size; ++i) {
    PyObject* object = item(i);
    if (object == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, i, object);
  }
  return list;
}

PyObject* wrap_tensor(at::Tensor&& tensor) {
  try {
    return THPVariable_Wrap(std::move(tensor));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

// torch.OutOfMemoryError, a RuntimeError in versions that do not have it; borrowed.
PyObject* out_of_memory_error() {
  static PyObject* const found = [] {
    PyObject* torch = PyImport_ImportModule("torch");
    PyObject* error = torch == nullptr ? nullptr : PyObject_GetAttrString(torch, "OutOfMemoryError");
    Py_XDECREF(torch);
    PyErr_Clear();
    return error == nullptr ? Py_NewRef(PyExc_RuntimeError) : error;
  }();
  return found;
}

// What the interpreter raised below the last failed call of this thread, owned.
thread_local PyObject* pending_error = nullptr;

PyObject* exception_of(int kind) {
  switch (kind) {
    case MC_INDEX_ERROR:
      return PyExc_IndexError;
    case MC_VALUE_ERROR:
      return PyExc_ValueError;
    case MC_TYPE_ERROR:
      return PyExc_TypeError;
    case MC_NOT_IMPLEMENTED_ERROR:
      return PyExc_NotImplementedError;
    case MC_OVERFLOW_ERROR:
      return PyExc_OverflowError;
    case MC_MEMORY_ERROR:
      return PyExc_MemoryError;
    case MC_OUT_OF_MEMORY_ERROR:
      return out_of_memory_error();
    default:
      return PyExc_RuntimeError;
  }
}

} // namespace

Type parse_type(const char*& text) {
  Type type;
  type.code = *text++;
  if (type.code == '?' || type.code == '[') {
    type.items.push_back(parse_type(text));
  } else if (type.code == '(') {
    while (*text != ')') {
      type.items.push_back(parse_type(text));
    }
    ++text;
  }
  return type;
}

std::string Type::name() const {
  switch (code) {
    case 'T':
      return "torch.Tensor";
    case 'b':
      return "bool";
    case 'f':
    case 'd':
      return "float";
    case 's':
      return "str";
    case 'v':
      return "None";
    case 'S':
      return "Union[int, float, bool]";
    case 't':
      return "torch.dtype";
    case 'D':
      return "torch.device";
    case 'R':
      return "Tuple[int, ...]";
    case '?':
      return "Optional[" + items[0].name() + "]";
    case '[':
      return "List[" + items[0].name() + "]";
    case '(': {
      std::string text = "Tuple[";
      for (size_t i = 0; i < items.size(); ++i) {
        text += (i == 0 ? "" : ", ") + items[i].name();
      }
      return text + "]";
    }
    default:
      return "int";
  }
}

bool load(const Type& type, PyObject* object, bool convert, mc_value& value, Arena& arena) {
  switch (type.code) {
    case 'T':
      if (!THPVariable_Check(object)) {
        return false;
      }
      value.tag = MC_TENSOR;
      value.tensor = reinterpret_cast<mc_tensor*>(
          const_cast<c10::TensorImpl*>(THPVariable_Unpack(object).unsafeGetTensorImpl()));
      return true;
    case 'f':
    case 'd':
      return load_real(object, convert, value);
    case 'b':
      return load_bool(object, convert, value);
    case 's':
      return load_text(object, value);
    case 't':
      if (!THPDtype_Check(object)) {
        return false;
      }
      value.tag = MC_DTYPE;
      value.integer = static_cast<int>(reinterpret_cast<THPDtype*>(object)->scalar_type);
      return true;
    case 'D':
      if (!THPDevice_Check(object)) {
        return false;
      }
      value.tag = MC_DEVICE;
      value.integer = static_cast<int>(reinterpret_cast<THPDevice*>(object)->device.type());
      value.extra = reinterpret_cast<THPDevice*>(object)->device.index();
      return true;
    case 'R':
      return load_integers(object, value, arena);
    case '?':
      if (object == Py_None) {
        value.tag = MC_NONE;
        return true;
      }
      return load(type.items[0], object, convert, value, arena);
    case '[':
    case '(':
      return load_sequence(type, object, convert, value, arena);
    default:
      return load_integer(type.code, object, convert, value);
  }
}

PyObject* wrap_copy(const mc_value& value) {
  switch (value.tag) {
    case MC_TENSOR:
      return value.tensor == nullptr ? Py_NewRef(Py_None) : wrap_tensor(shared(value.tensor));
    case MC_BOOL:
      return PyBool_FromLong(value.integer != 0);
    case MC_INT:
      return PyLong_FromLongLong(value.integer);
    case MC_DOUBLE:
      return PyFloat_FromDouble(value.real);
    case MC_STRING:
      return PyUnicode_DecodeUTF8(static_cast<const char*>(value.data), value.size, nullptr);
    case MC_DTYPE:
      return Py_NewRef(reinterpret_cast<PyObject*>(
          torch::getTHPDtype(static_cast<at::ScalarType>(value.integer))));
    case MC_DEVICE:
      return THPDevice_New(at::Device(static_cast<at::DeviceType>(value.integer),
                                      static_cast<at::DeviceIndex>(value.extra)));
    case MC_INTS:
      return list_of(value, [&](int64_t i) {
        return PyLong_FromLongLong(static_cast<const int64_t*>(value.data)[i]);
      });
    case MC_LIST:
      return list_of(value,
                     [&](int64_t i) { return wrap_copy(static_cast<mc_value*>(value.data)[i]); });
    case MC_TUPLE: {
      PyObject* list = list_of(
          value, [&](int64_t i) { return wrap_copy(static_cast<mc_value*>(value.data)[i]); });
      PyObject* tuple = list == nullptr ? nullptr : PyList_AsTuple(list);
      Py_XDECREF(list);
      return tuple;
    }
    default:
      return Py_NewRef(Py_None);
  }
}

PyObject* wrap(mc_value&& value) {
  if (value.tag == MC_TENSOR) {
    // The common case: the one reference moves on instead of being counted twice.
    return value.tensor == nullptr ? Py_NewRef(Py_None) : wrap_tensor(consumed(value.tensor));
  }
  PyObject* object = wrap_copy(value);
  mc_value_clear(&value);
  return object;
}

int translate_current_exception() {
  try {
    throw;
  } catch (python_error& error) {
    const PyGILState_STATE state = PyGILState_Ensure();
    error.restore();
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) {
      PyException_SetTraceback(value, trace);
    }
    PyObject* text = value == nullptr ? nullptr : PyObject_Str(value);
    const char* utf8 = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
    PyErr_Clear();
    const std::string message = utf8 == nullptr ? "an error of the interpreter" : utf8;
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    std::swap(pending_error, value);
    Py_XDECREF(value); // an earlier one that the candidate has caught
    PyGILState_Release(state);
    mc_set_error(MC_INTERPRETER_ERROR, message.data(), message.size());
    return MC_INTERPRETER_ERROR;
  } catch (...) {
    return 0;
  }
}

PyObject* raise_last_error() {
  const char* message = nullptr;
  size_t size = 0;
  const int kind = mc_last_error(&message, &size);
  if (kind == MC_INTERPRETER_ERROR && pending_error != nullptr) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(pending_error)), pending_error);
    Py_CLEAR(pending_error);
    return nullptr;
  }
  PyObject* text = PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(size), "replace");
  if (text != nullptr) {
    PyErr_SetObject(exception_of(kind), text);
    Py_DECREF(text);
  }
  return nullptr;
}

PyObject* call(const mc_function& function, const mc_value* values) {
  mc_value result{};
  int status = 0;
  try {
    torch::PyWarningHandler warnings; // turns TORCH_WARN into Python warnings on the way out
    if (function.release_gil != 0) {
      PyThreadState* state = PyEval_SaveThread();
      status = function.invoke(&function, values, &result);
      PyEval_RestoreThread(state);
    } else {
      status = function.invoke(&function, values, &result);
    }
    if (status != 0) {
      warnings.set_in_exception();
    }
  } catch (python_error& error) {
    mc_value_clear(&result);
    error.restore();
    return nullptr;
  }
  return status == 0 ? wrap(std::move(result)) : raise_last_error();
}

} // namespace musacoder
