// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/graph/module.hpp"

namespace holdfast {

/// How HLO text is read.
struct ParseOptions {
  ReaderLimits limits;
  bool strict = false;          ///< unknown words are errors, not warnings
  bool default_layouts = true;  ///< arrays written without a layout get the row-major one
};

}  // namespace holdfast
