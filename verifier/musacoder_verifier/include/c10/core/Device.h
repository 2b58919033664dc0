#pragma once

#include <c10/core/ScalarType.h>

namespace c10 {
inline namespace mc_facade {

enum class DeviceType : int8_t {
  CPU = 0, CUDA = 1, MKLDNN = 2, OPENGL = 3, OPENCL = 4, IDEEP = 5, HIP = 6, FPGA = 7, MAIA = 8,
  XLA = 9, Vulkan = 10, Metal = 11, XPU = 12, MPS = 13, Meta = 14, HPU = 15, VE = 16, Lazy = 17,
  IPU = 18, MTIA = 19, PrivateUse1 = 20
};
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;
constexpr DeviceType kHIP = DeviceType::HIP;
constexpr DeviceType kMeta = DeviceType::Meta;
constexpr DeviceType kPrivateUse1 = DeviceType::PrivateUse1;

inline std::string mc_text(DeviceType type) {
  return mc_device_type_name(static_cast<int>(type));
}
#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& stream, DeviceType type) {
  return stream << mc_text(type);
}
#endif

using DeviceIndex = int8_t;

struct Device final {
  using Type = DeviceType;

  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) {
    int type = 0;
    int index = -1;
    ::musacoder::ensure(mc_parse_device(text.data(), text.size(), &type, &index));
    type_ = static_cast<DeviceType>(type);
    index_ = static_cast<DeviceIndex>(index);
  }

  bool operator==(const Device& other) const noexcept {
    return type_ == other.type_ && index_ == other.index_;
  }
  bool operator!=(const Device& other) const noexcept { return !(*this == other); }
  void set_index(DeviceIndex index) { index_ = index; }
  DeviceType type() const noexcept { return type_; }
  DeviceIndex index() const noexcept { return index_; }
  bool has_index() const noexcept { return index_ != -1; }
  bool is_cpu() const noexcept { return type_ == DeviceType::CPU; }
  bool is_cuda() const noexcept { return type_ == DeviceType::CUDA; }
  bool is_meta() const noexcept { return type_ == DeviceType::Meta; }
  bool is_privateuseone() const noexcept { return type_ == DeviceType::PrivateUse1; }
  std::string str() const {
    std::string text = mc_device_type_name(static_cast<int>(type_));
    if (has_index()) {
      text += ":" + std::to_string(index_);
    }
    return text;
  }

 private:
  DeviceType type_;
  DeviceIndex index_ = -1;
};

inline std::string mc_text(const Device& device) { return device.str(); }
#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& stream, const Device& device) {
  return stream << device.str();
}
#endif

enum class Layout : int8_t { Strided, Sparse, SparseCsr, Mkldnn, SparseCsc, SparseBsr, SparseBsc, Jagged };
constexpr Layout kStrided = Layout::Strided;
constexpr Layout kSparse = Layout::Sparse;

inline std::string mc_text(Layout layout) {
  static constexpr const char* names[] = {"Strided",   "Sparse",    "SparseCsr", "Mkldnn",
                                          "SparseCsc", "SparseBsr", "SparseBsc", "Jagged"};
  return names[static_cast<int>(layout)];
}
#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& stream, Layout layout) {
  return stream << mc_text(layout);
}
#endif

enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

} // namespace mc_facade
} // namespace c10
