#pragma once

#include <pybind11/stl.h>
#include <torch/types.h>

#include <musacoder/binding.h>
