// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace holdfast {

/// How HLO text is written.
///
/// Units: `elide_above` counts elements; larger constants are written `{...}`, -1 writes all of them.
struct PrintOptions {
  bool percent = true;          ///< names begin with `%`
  bool signature = true;        ///< computations list their parameters and result
  bool operand_shapes = false;  ///< operands are written with their shapes
  std::int64_t elide_above = 10;
};

}  // namespace holdfast
