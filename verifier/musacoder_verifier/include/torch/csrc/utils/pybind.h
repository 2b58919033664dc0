#pragma once

#include <torch/cuda.h>
#include <torch/types.h>

#ifndef MC_DEVICE_UNIT
#include <musacoder/binding.h>
#endif
