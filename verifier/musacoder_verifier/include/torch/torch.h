#pragma once

#ifndef MC_DEVICE_UNIT
#include <ATen/Parallel.h>
#endif
#include <torch/cuda.h>
#include <torch/types.h>
