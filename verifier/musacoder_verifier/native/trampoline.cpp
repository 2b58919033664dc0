// The extension module that loads a fast-lane extension into the interpreter and calls it.
#include "convert.h"

#include "musacoder/abi_native.h"

#include <dlfcn.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>

namespace {

using musacoder::Arena;
using musacoder::Type;

// One signature of a function; several of the same name are tried in the order of their `def`.
struct Overload {
  const mc_function* function;
  Type result;
  std::vector<Type> types;
  std::vector<PyObject*> names; // interned, null where an argument has none
  std::vector<PyObject*> defaults; // null where an argument has none

  std::string signature() const;
};

struct Function {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  std::vector<Overload>* overloads;
  PyObject* name;
  PyObject* doc;
  PyObject* module;
  Py_ssize_t calls; // of the Candidate's own code; legality asks whether there were any
};

constexpr size_t kMaxArguments = 64;

std::string repr(PyObject* object) {
  PyObject* text = PyObject_Repr(object);
  const char* utf8 = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  std::string result = utf8 == nullptr ? "..." : utf8;
  PyErr_Clear();
  Py_XDECREF(text);
  return result;
}

std::string Overload::signature() const {
  std::string text = "(";
  for (size_t i = 0; i < types.size(); ++i) {
    const mc_argument* argument =
        function->arguments == nullptr ? nullptr : function->arguments + i;
    text += i == 0 ? "" : ", ";
    if (static_cast<int32_t>(i) == function->keyword_only) {
      text += "*, ";
    }
    text += argument == nullptr || argument->name == nullptr ? "arg" + std::to_string(i)
                                                             : argument->name;
    text += ": " + types[i].name();
    if (i < defaults.size() && defaults[i] != nullptr) {
      text += " = " + repr(defaults[i]);
    }
  }
  return text + ") -> " + result.name();
}

// Puts each argument at its place; false where count or names do not match this overload.
bool place(const Overload& overload, PyObject* const* arguments, Py_ssize_t positional,
           PyObject* keywords, PyObject** placed) {
  const size_t count = overload.types.size();
  const mc_function& function = *overload.function;
  const size_t most = function.keyword_only < 0 ? count : static_cast<size_t>(function.keyword_only);
  if (static_cast<size_t>(positional) > most) {
    return false;
  }
  std::copy(arguments, arguments + positional, placed);
  std::fill(placed + positional, placed + count, nullptr);
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, i);
    size_t index = 0;
    while (index < overload.names.size() &&
           (overload.names[index] == nullptr ||
            (overload.names[index] != name &&
             PyUnicode_Compare(overload.names[index], name) != 0))) {
      ++index;
    }
    if (index >= overload.names.size() || placed[index] != nullptr) {
      return false;
    }
    placed[index] = arguments[positional + i];
  }
  for (size_t i = 0; i < count; ++i) {
    if (placed[i] == nullptr) {
      placed[i] = i < overload.defaults.size() ? overload.defaults[i] : nullptr;
      if (placed[i] == nullptr) {
        return false;
      }
    }
  }
  return true;
}

bool convert_all(const Overload& overload, PyObject* const* placed, bool convert, mc_value* values,
                 Arena& arena) {
  for (size_t i = 0; i < overload.types.size(); ++i) {
    const mc_argument* argument =
        overload.function->arguments == nullptr ? nullptr : overload.function->arguments + i;
    if (placed[i] == Py_None && argument != nullptr && argument->none_allowed == 0) {
      return false;
    }
    values[i] = mc_value{};
    const bool may_convert = convert && (argument == nullptr || argument->no_convert == 0);
    if (!musacoder::load(overload.types[i], placed[i], may_convert, values[i], arena)) {
      return false;
    }
  }
  return true;
}

PyObject* raise_mismatch(const Function* self, PyObject* const* arguments, Py_ssize_t positional,
                         PyObject* keywords) {
  std::string text = PyUnicode_AsUTF8(self->name);
  text += "(): incompatible function arguments. The following argument types are supported:\n";
  int number = 0;
  for (const Overload& overload : *self->overloads) {
    text += "    " + std::to_string(++number) + ". " + overload.signature() + "\n";
  }
  text += "\nInvoked with types: ";
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < positional + named; ++i) {
    text += i == 0 ? "" : ", ";
    if (i >= positional) {
      text += std::string(PyUnicode_AsUTF8(PyTuple_GET_ITEM(keywords, i - positional))) + "=";
    }
    text += Py_TYPE(arguments[i])->tp_name;
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
  return nullptr;
}

PyObject* function_call(PyObject* object, PyObject* const* arguments, size_t flags,
                        PyObject* keywords) {
  auto* self = reinterpret_cast<Function*>(object);
  const Py_ssize_t positional = PyVectorcall_NARGS(flags);
  PyObject* placed[kMaxArguments + 1];
  mc_value values[kMaxArguments + 1];
  const bool overloaded = self->overloads->size() > 1;
  for (const bool convert : {false, true}) {
    if (!convert && !overloaded) {
      continue; // nothing to choose from: convert at once
    }
    for (const Overload& overload : *self->overloads) {
      Arena arena;
      if (place(overload, arguments, positional, keywords, placed) &&
          convert_all(overload, placed, convert, values, arena)) {
        ++self->calls;
        return musacoder::call(*overload.function, values);
      }
    }
  }
  return raise_mismatch(self, arguments, positional, keywords);
}

void function_free(PyObject* object) {
  auto* self = reinterpret_cast<Function*>(object);
  for (const Overload& overload : *self->overloads) {
    for (PyObject* name : overload.names) {
      Py_XDECREF(name);
    }
    for (PyObject* value : overload.defaults) {
      Py_XDECREF(value);
    }
  }
  delete self->overloads;
  Py_XDECREF(self->name);
  Py_XDECREF(self->doc);
  Py_XDECREF(self->module);
  PyObject_Free(object);
}

PyObject* function_repr(PyObject* object) {
  return PyUnicode_FromFormat("<musacoder function %U>", reinterpret_cast<Function*>(object)->name);
}

PyMemberDef function_members[] = {
    {"__name__", T_OBJECT, offsetof(Function, name), READONLY, nullptr},
    {"__qualname__", T_OBJECT, offsetof(Function, name), READONLY, nullptr},
    {"__doc__", T_OBJECT, offsetof(Function, doc), READONLY, nullptr},
    {"__module__", T_OBJECT, offsetof(Function, module), READONLY, nullptr},
    {"__calls__", T_PYSSIZET, offsetof(Function, calls), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject* function_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "musacoder_trampoline.function";
    made.tp_basicsize = sizeof(Function);
    made.tp_dealloc = function_free;
    made.tp_vectorcall_offset = offsetof(Function, vectorcall);
    made.tp_call = PyVectorcall_Call;
    made.tp_repr = function_repr;
    made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    made.tp_members = function_members;
    return made;
  }();
  return &type;
}

Overload make_overload(const mc_function* function) {
  Overload overload;
  overload.function = function;
  const char* text = function->signature;
  overload.result = musacoder::parse_type(text);
  while (*text != 0) {
    overload.types.push_back(musacoder::parse_type(text));
  }
  for (int32_t i = 0; i < function->argument_count; ++i) {
    const char* name = function->arguments[i].name;
    overload.names.push_back(name == nullptr ? nullptr : PyUnicode_InternFromString(name));
    // Kept as an object and converted at each call: `arg("scale") = 1` may stand for a double.
    const mc_argument& argument = function->arguments[i];
    overload.defaults.push_back(
        argument.has_default == 0 ? nullptr : musacoder::wrap_copy(argument.default_value));
  }
  return overload;
}

std::string documentation(const std::string& name, const std::vector<Overload>& overloads) {
  std::string text;
  if (overloads.size() > 1) {
    text = name + "(*args, **kwargs)\nOverloaded function.\n";
  }
  int number = 0;
  for (const Overload& overload : overloads) {
    if (overloads.size() > 1) {
      text += "\n" + std::to_string(++number) + ". ";
    }
    text += name + overload.signature() + "\n";
    if (overload.function->doc != nullptr && *overload.function->doc != 0) {
      text += "\n" + std::string(overload.function->doc) + "\n";
    }
  }
  return text;
}

PyObject* make_function(const std::vector<const mc_function*>& functions, PyObject* module_name) {
  auto* self = PyObject_New(Function, function_type());
  if (self == nullptr) {
    return nullptr;
  }
  self->vectorcall = function_call;
  self->overloads = new std::vector<Overload>();
  for (const mc_function* function : functions) {
    self->overloads->push_back(make_overload(function));
  }
  const std::string name = functions[0]->name;
  const std::string doc = documentation(name, *self->overloads);
  self->name = PyUnicode_InternFromString(name.c_str());
  self->doc = PyUnicode_DecodeUTF8(doc.data(), static_cast<Py_ssize_t>(doc.size()), "replace");
  self->module = Py_NewRef(module_name);
  self->calls = 0;
  return reinterpret_cast<PyObject*>(self);
}

bool add(PyObject* module, const char* name, PyObject* value) {
  const bool added = value != nullptr && PyObject_SetAttrString(module, name, value) == 0;
  Py_XDECREF(value);
  return added;
}

bool fill(PyObject* module, const mc_registry* registry) {
  PyObject* module_name = PyModule_GetNameObject(module);
  if (module_name == nullptr) {
    return false;
  }
  std::vector<std::vector<const mc_function*>> groups;
  for (int i = 0; i < mc_registry_function_count(registry); ++i) {
    const mc_function* function = mc_registry_function(registry, i);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return std::string(group[0]->name) == function->name;
    });
    if (same == groups.end()) {
      groups.push_back({function});
    } else {
      same->push_back(function);
    }
  }
  bool filled = true;
  for (const auto& group : groups) {
    filled = filled && add(module, group[0]->name, make_function(group, module_name));
  }
  for (int i = 0; i < mc_registry_constant_count(registry); ++i) {
    const mc_value* value = nullptr;
    const char* name = mc_registry_constant(registry, i, &value);
    filled = filled && add(module, name, musacoder::wrap_copy(*value));
  }
  const char* doc = mc_registry_doc(registry);
  if (doc != nullptr) {
    filled = filled && add(module, "__doc__", PyUnicode_FromString(doc));
  }
  Py_DECREF(module_name);
  return filled;
}

// A module of what was registered; null with a Python error where `registry` is null.
PyObject* make_module(const mc_registry* registry, const char* path, const char* name) {
  if (registry == nullptr) {
    return musacoder::raise_last_error();
  }
  PyObject* module = PyModule_New(name);
  if (module != nullptr && (!add(module, "__file__", PyUnicode_FromString(path)) ||
                            !fill(module, registry))) {
    Py_CLEAR(module);
  }
  return module;
}

// open(path, name): the extension at `path` as a module called `name`.
PyObject* open_extension(PyObject*, PyObject* arguments) {
  const char* path = nullptr;
  const char* name = nullptr;
  if (PyArg_ParseTuple(arguments, "ss", &path, &name) == 0) {
    return nullptr;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    PyErr_Format(PyExc_ImportError, "cannot load %s: %s", path, dlerror());
    return nullptr;
  }
  const auto entry = reinterpret_cast<mc_extension_entry>(dlsym(library, "mc_extension"));
  if (entry == nullptr) {
    PyErr_Format(PyExc_ImportError,
                 "dynamic module does not define module export function (PyInit_%s)", name);
    return nullptr;
  }
  return make_module(mc_open_registry(entry), path, name);
}

// open_native(path, name, launches): the kernels at `path` as a module called `name`.
PyObject* open_native(PyObject*, PyObject* arguments) {
  const char* path = nullptr;
  const char* name = nullptr;
  const char* launches = nullptr;
  if (PyArg_ParseTuple(arguments, "sss", &path, &name, &launches) == 0) {
    return nullptr;
  }
  return make_module(mc_open_native(path, launches), path, name);
}

PyMethodDef methods[] = {
    {"open", open_extension, METH_VARARGS,
     "open(path, name): load a fast-lane extension as a module called name."},
    {"open_native", open_native, METH_VARARGS,
     "open_native(path, name, launches): load kernels in the native form as a module called name."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "musacoder_trampoline", nullptr, -1, methods,
    nullptr, nullptr, nullptr, nullptr,
};

} // namespace

PyMODINIT_FUNC PyInit_musacoder_trampoline(void) {
  if (PyType_Ready(function_type()) < 0) {
    return nullptr;
  }
  mc_set_translator(musacoder::translate_current_exception);
  return PyModule_Create(&definition);
}
