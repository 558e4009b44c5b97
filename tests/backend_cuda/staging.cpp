// SPDX-License-Identifier: Apache-2.0
// Copies through staging memory to a CUDA pool.
#include "double/cuda_place.hpp"

#include "../buffer/staging.cpp"
