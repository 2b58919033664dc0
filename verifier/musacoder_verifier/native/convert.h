// Python objects to plain values and back, with the conversions that pybind11 and PyTorch's casters
// for it allow, and no others.
#pragma once

#include "musacoder/abi.h"

#include <Python.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace musacoder {

// A type of musacoder/converter.h: its letter, and what it is composed of.
struct Type {
  char code = 'v';
  std::vector<Type> items;

  std::string name() const; // as pybind11 prints it
};

// Reads one type at `text` and moves it on.
Type parse_type(const char*& text);

// Memory that converted arguments refer to while a call lasts.
class Arena {
 public:
  template <class T>
  T* array(size_t count) {
    const size_t bytes = count * sizeof(T);
    blocks_.push_back(std::make_unique<unsigned char[]>(bytes == 0 ? 1 : bytes));
    return reinterpret_cast<T*>(blocks_.back().get());
  }
  void hold(PyObject* owned) { objects_.push_back(owned); }
  ~Arena() {
    for (PyObject* object : objects_) {
      Py_DECREF(object);
    }
  }
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

 private:
  std::vector<std::unique_ptr<unsigned char[]>> blocks_;
  std::vector<PyObject*> objects_;
};

// False where the object is not of the type; no Python error is left behind then.
bool load(const Type& type, PyObject* object, bool convert, mc_value& value, Arena& arena);

// A new reference, or null with a Python error set. Consumes the value.
PyObject* wrap(mc_value&& value);
// The same for a value that stays: defaults and constants.
PyObject* wrap_copy(const mc_value& value);

// Raises what a call of the C ABI left behind; null.
PyObject* raise_last_error();

// An error of the interpreter that libtorch throws, put into the error slot; see mc_set_translator.
int translate_current_exception();

// Calls a function of an extension: a new reference, or null with a Python error set.
PyObject* call(const mc_function& function, const mc_value* arguments);

} // namespace musacoder
