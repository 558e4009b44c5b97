// SPDX-License-Identifier: Apache-2.0
// T-G3, T-G5 and T-G11 on memory of a CUDA pool.
#include "double/cuda_place.hpp"

#include "../buffer/shaped_buffer.cpp"
