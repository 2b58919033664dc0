#pragma once

#include <ATen/DeviceGuard.h>
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

namespace at {
inline namespace mc_facade {

struct AutoGradMode {
  explicit AutoGradMode(bool enabled) : before_(mc_grad_mode(enabled ? 1 : 0)) {}
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;
  ~AutoGradMode() { mc_grad_mode(before_); }

 private:
  int before_;
};
struct NoGradGuard : public AutoGradMode {
  NoGradGuard() : AutoGradMode(false) {}
};

} // namespace mc_facade
} // namespace at
