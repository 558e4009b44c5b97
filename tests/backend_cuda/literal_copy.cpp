// SPDX-License-Identifier: Apache-2.0
// Literals in and out of memory of a CUDA pool.
#include "double/cuda_place.hpp"

#include "../buffer/literal_copy.cpp"
