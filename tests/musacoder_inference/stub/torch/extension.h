// The few names of torch/extension.h that generated sources use, over plain memory, so that many
// sources compile in seconds and run without libtorch.
#pragma once

#include <omp.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__CUDACC__)
#define STUB_DEVICE __host__ __device__
#else
#define STUB_DEVICE
#endif

namespace at {
#if defined(__CUDACC__)
struct Half {
  uint16_t bits = 0;
  Half() = default;
  STUB_DEVICE explicit Half(float value) : bits(value != 0) {}
  STUB_DEVICE operator float() const { return bits; }
};
#else
using Half = _Float16;
#endif

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  STUB_DEVICE explicit BFloat16(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    bits = value != value ? 0x7FC0 : static_cast<uint16_t>((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16);
  }
  STUB_DEVICE operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
};
}  // namespace at

namespace torch {
enum ScalarType { kHalf, kBFloat16, kFloat, kDouble, kUInt8, kInt8, kShort, kInt, kLong, kBool };

inline size_t size_of(ScalarType type) {
  static const size_t sizes[] = {2, 2, 4, 8, 1, 1, 2, 4, 8, 1};
  return sizes[type];
}

struct TensorOptions {
  ScalarType type = kFloat;
  TensorOptions dtype(ScalarType other) const { return {other}; }
};

struct IntArrayRef {
  std::vector<int64_t> values;
  std::vector<int64_t> vec() const { return values; }
};

struct Tensor {
  ScalarType type = kFloat;
  std::vector<int64_t> shape;
  std::shared_ptr<void> memory;

  ScalarType scalar_type() const { return type; }
  IntArrayRef sizes() const { return {shape}; }
  bool is_contiguous() const { return true; }
  TensorOptions options() const { return {type}; }
  template <typename T>
  T* data_ptr() const {
    return static_cast<T*>(memory.get());
  }
  size_t bytes() const {
    size_t count = size_of(type);
    for (int64_t n : shape) count *= n;
    return count;
  }
};

inline Tensor empty(std::vector<int64_t> shape, TensorOptions options) {
  Tensor result{options.type, shape, nullptr};
  const size_t bytes = (result.bytes() + 127) / 64 * 64;
  void* memory = std::aligned_alloc(64, bytes);
  std::memset(memory, 0xFF, bytes);  // what a kernel does not write shows as NaN
  result.memory = std::shared_ptr<void>(memory, std::free);
  return result;
}
}  // namespace torch

namespace stub {
struct Plain {
  int32_t type;
  int32_t rank;
  const int64_t* shape;
  void* data;
};

inline torch::Tensor borrow(const Plain& p) {
  return {static_cast<torch::ScalarType>(p.type), {p.shape, p.shape + p.rank}, {p.data, [](void*) {}}};
}

inline std::vector<torch::Tensor> listed(torch::Tensor one) { return {one}; }
inline std::vector<torch::Tensor> listed(std::vector<torch::Tensor> all) { return all; }

template <class Call>
const char* guarded(Call call, const Plain* results) {
  static thread_local std::string message;
  try {
    const std::vector<torch::Tensor> outputs = listed(call());
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::memcpy(results[i].data, outputs[i].memory.get(), outputs[i].bytes());
    }
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}
}  // namespace stub

#define TORCH_CHECK(condition, ...) \
  do {                              \
    if (!(condition)) stub::fail(__VA_ARGS__); \
  } while (0)
