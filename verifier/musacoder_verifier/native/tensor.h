// Between mc_tensor, which is a c10::TensorImpl by another name, and at::Tensor.
#pragma once

#include "musacoder/abi.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace musacoder {

inline c10::TensorImpl* impl(const mc_tensor* tensor) {
  if (tensor == nullptr) {
    return c10::UndefinedTensorImpl::singleton();
  }
  return reinterpret_cast<c10::TensorImpl*>(const_cast<mc_tensor*>(tensor));
}

// A new reference to a borrowed tensor.
inline at::Tensor shared(const mc_tensor* tensor) {
  if (tensor == nullptr) {
    return at::Tensor();
  }
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl(tensor)));
}

// Takes over an owned reference.
inline at::Tensor consumed(mc_tensor* tensor) {
  if (tensor == nullptr) {
    return at::Tensor();
  }
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(impl(tensor)));
}

inline mc_tensor* released(at::Tensor&& tensor) {
  if (!tensor.defined()) {
    return nullptr;
  }
  return reinterpret_cast<mc_tensor*>(tensor.unsafeReleaseTensorImpl());
}

} // namespace musacoder
