// Precompiled once for all sources of the library; what they take from torch comes from here.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
