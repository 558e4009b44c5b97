// SPDX-License-Identifier: Apache-2.0
// T-E9 and the other alias buffers on memory of a CUDA pool.
#include "double/cuda_place.hpp"

#include "../buffer/alias_buffer.cpp"
