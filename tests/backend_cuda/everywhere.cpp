// SPDX-License-Identifier: Apache-2.0
// The catalogue's tracked-buffer entries (T-G1, T-G2, T-G4, T-G6 to T-G9 and others) on memory of a CUDA pool with CUDA events.
#include "double/cuda_place.hpp"

#include "../buffer/everywhere.cpp"
