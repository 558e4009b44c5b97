// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/core/units.hpp"

namespace program {

/// The memory that this process could still have: what the machine has available, or less where a
/// control group limits it.
holdfast::Bytes available_memory();

}  // namespace program
