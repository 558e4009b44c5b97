// SPDX-License-Identifier: Apache-2.0
// Tables of lifetimes: planned, and carried out by writing and testing each block.
#pragma once

#include "input.hpp"
#include "options.hpp"

namespace program {

int plan_intervals(const Input& input, const Options& options);
int run_intervals(const Input& input, const Options& options);

}  // namespace program
