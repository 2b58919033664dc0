// The shim library: what an extension registers, kept until the process ends.
#include "musacoder/abi.h"

#include <deque>
#include <string>
#include <vector>

struct mc_registry {
  std::deque<std::string> texts;
  std::deque<std::vector<mc_argument>> arguments;
  std::vector<mc_function> functions;
  std::vector<std::pair<const char*, mc_value>> constants;
  const char* doc = nullptr;

  const char* keep(const char* text) {
    return text == nullptr ? nullptr : texts.emplace_back(text).c_str();
  }
};

extern "C" {

void mc_register_function(mc_registry* registry, const mc_function* function) {
  mc_function kept = *function;
  kept.name = registry->keep(function->name);
  kept.doc = registry->keep(function->doc);
  kept.signature = registry->keep(function->signature);
  if (function->arguments != nullptr) {
    auto& arguments = registry->arguments.emplace_back(
        function->arguments, function->arguments + function->argument_count);
    for (mc_argument& argument : arguments) {
      argument.name = registry->keep(argument.name);
    }
    kept.arguments = arguments.data();
  }
  registry->functions.push_back(kept);
}

void mc_register_constant(mc_registry* registry, const char* name, const mc_value* value) {
  registry->constants.emplace_back(registry->keep(name), *value);
}

void mc_register_doc(mc_registry* registry, const char* doc) { registry->doc = registry->keep(doc); }

const mc_registry* mc_open_registry(mc_extension_entry entry) {
  // Never freed: the functions of an extension can be called until the process ends.
  auto* registry = new mc_registry();
  if (entry(registry) != 0) {
    delete registry;
    return nullptr;
  }
  return registry;
}

int mc_registry_function_count(const mc_registry* registry) {
  return static_cast<int>(registry->functions.size());
}

const mc_function* mc_registry_function(const mc_registry* registry, int index) {
  return &registry->functions[static_cast<size_t>(index)];
}

int mc_registry_constant_count(const mc_registry* registry) {
  return static_cast<int>(registry->constants.size());
}

const char* mc_registry_constant(const mc_registry* registry, int index, const mc_value** value) {
  const auto& constant = registry->constants[static_cast<size_t>(index)];
  *value = &constant.second;
  return constant.first;
}

const char* mc_registry_doc(const mc_registry* registry) { return registry->doc; }

} // extern "C"
