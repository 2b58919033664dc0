// The part of the C ABI that runs the native form: kernels from a device image, and launches that a
// table describes instead of compiled host code.
#pragma once

#include <musacoder/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

// Registers the functions of the table `launches` (musacoder_verifier/lanes/native.py writes it),
// whose kernels stand in the file `image`. Null on error. Nothing touches a device before the first
// call.
const mc_registry* mc_open_native(const char* image, const char* launches);

#ifdef __cplusplus
}
#endif
