#pragma once

#include <musacoder/binding.h>
