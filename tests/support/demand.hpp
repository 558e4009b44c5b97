// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace holdfast::testing {

/// What a fuzz target claims: a false claim ends the process, which is a finding.
inline void demand(bool good) {
  if (!good) std::abort();
}

}  // namespace holdfast::testing
