#pragma once

#include <torch/cuda.h>
#include <torch/types.h>
