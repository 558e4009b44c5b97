// SPDX-License-Identifier: Apache-2.0
// What tests/device runs on a GPU, on the double: so that those tests are known to be right.
#include "double/cuda_machine.hpp"

#define HOLDFAST_TEST_MACHINE
#include "../device/sharing.cpp"
