// The shim library: any operator of the dispatcher, called with plain values.
#include "errors.h"
#include "tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using musacoder::guarded;

namespace {

template <class T>
c10::List<T> list_of(const mc_value& value) {
  c10::List<T> list;
  list.reserve(static_cast<size_t>(value.size));
  return list;
}

c10::IValue to_ivalue(const mc_value& value) {
  switch (value.tag) {
    case MC_NONE:
      return {};
    case MC_TENSOR:
      return musacoder::shared(value.tensor);
    case MC_BOOL:
      return value.integer != 0;
    case MC_INT:
    case MC_DTYPE:
      return value.integer;
    case MC_DOUBLE:
      return value.real;
    case MC_STRING:
      return std::string(static_cast<const char*>(value.data), static_cast<size_t>(value.size));
    case MC_DEVICE:
      return at::Device(static_cast<at::DeviceType>(value.integer),
                        static_cast<at::DeviceIndex>(value.extra));
    case MC_INTS: {
      auto list = list_of<int64_t>(value);
      for (int64_t i = 0; i < value.size; ++i) {
        list.push_back(static_cast<const int64_t*>(value.data)[i]);
      }
      return list;
    }
    case MC_DOUBLES: {
      auto list = list_of<double>(value);
      for (int64_t i = 0; i < value.size; ++i) {
        list.push_back(static_cast<const double*>(value.data)[i]);
      }
      return list;
    }
    case MC_BOOLS: {
      auto list = list_of<bool>(value);
      for (int64_t i = 0; i < value.size; ++i) {
        list.push_back(static_cast<const uint8_t*>(value.data)[i] != 0);
      }
      return list;
    }
    case MC_TENSORS: {
      auto list = list_of<at::Tensor>(value);
      for (int64_t i = 0; i < value.size; ++i) {
        list.push_back(musacoder::shared(static_cast<mc_tensor* const*>(value.data)[i]));
      }
      return list;
    }
    case MC_OPTIONAL_TENSORS: {
      auto list = list_of<std::optional<at::Tensor>>(value);
      for (int64_t i = 0; i < value.size; ++i) {
        const mc_tensor* tensor = static_cast<mc_tensor* const*>(value.data)[i];
        list.push_back(tensor == nullptr ? std::optional<at::Tensor>()
                                         : std::optional<at::Tensor>(musacoder::shared(tensor)));
      }
      return list;
    }
    default:
      TORCH_CHECK(false, "value of tag ", value.tag, " cannot be an operator's argument");
  }
}

template <class T, class List, class F>
mc_value list_value(int32_t tag, const List& list, const F& convert) {
  mc_value value{};
  value.tag = tag;
  value.size = static_cast<int64_t>(list.size());
  auto* data = static_cast<T*>(mc_allocate(sizeof(T) * list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    data[i] = convert(i);
  }
  value.data = data;
  return value;
}

mc_value to_value(c10::IValue&& ivalue) {
  mc_value value{};
  if (ivalue.isTensor()) {
    value.tag = MC_TENSOR;
    value.tensor = musacoder::released(std::move(ivalue).toTensor());
  } else if (ivalue.isBool()) {
    value.tag = MC_BOOL;
    value.integer = ivalue.toBool() ? 1 : 0;
  } else if (ivalue.isInt()) {
    value.tag = MC_INT;
    value.integer = ivalue.toInt();
  } else if (ivalue.isDouble()) {
    value.tag = MC_DOUBLE;
    value.real = ivalue.toDouble();
  } else if (ivalue.isTensorList()) {
    const auto list = ivalue.toTensorVector();
    value = list_value<mc_tensor*>(MC_TENSORS, list, [&](size_t i) {
      return musacoder::released(at::Tensor(list[i]));
    });
  } else if (ivalue.isIntList()) {
    const auto list = ivalue.toIntVector();
    value = list_value<int64_t>(MC_INTS, list, [&](size_t i) { return list[i]; });
  } else if (!ivalue.isNone()) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "an operator returned a ", ivalue.tagKind(),
                                ", which the fast lane cannot carry");
  }
  return value;
}

} // namespace

extern "C" {

int mc_find_operator(const char* name, const char* overload, const mc_operator** result) {
  static std::mutex mutex;
  static std::map<std::string, c10::OperatorHandle> found; // nodes keep their address
  return guarded([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    const std::string key = std::string(name) + "." + overload;
    auto place = found.find(key);
    if (place == found.end()) {
      place = found.emplace(key, c10::Dispatcher::singleton().findSchemaOrThrow(name, overload))
                  .first;
    }
    *result = reinterpret_cast<const mc_operator*>(&place->second);
  });
}

int mc_call_operator(const mc_operator* operator_, const mc_value* arguments, int argument_count,
                     mc_value* results, int result_count) {
  return guarded([&] {
    const auto& handle = *reinterpret_cast<const c10::OperatorHandle*>(operator_);
    torch::jit::Stack stack;
    stack.reserve(static_cast<size_t>(argument_count));
    for (int i = 0; i < argument_count; ++i) {
      stack.push_back(to_ivalue(arguments[i]));
    }
    handle.callBoxed(stack);
    if (result_count == 0) {
      return;
    }
    TORCH_CHECK(stack.size() == static_cast<size_t>(result_count), "operator returned ",
                stack.size(), " values instead of ", result_count);
    for (int i = 0; i < result_count; ++i) {
      results[i].tag = MC_NONE;
    }
    try {
      for (int i = 0; i < result_count; ++i) {
        results[i] = to_value(std::move(stack[static_cast<size_t>(i)]));
      }
    } catch (...) {
      for (int i = 0; i < result_count; ++i) {
        mc_value_clear(results + i);
      }
      throw;
    }
  });
}

} // extern "C"
