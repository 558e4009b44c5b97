// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that says what takes so long.
#pragma once

#include <string_view>

namespace program {

/// Says what is being done now, if standard error is a terminal and a second has passed since the
/// start.
void progress(std::string_view what);
/// The same with how far it is.
void progress(std::string_view what, double share);
/// Clears the line.
void end_progress();

}  // namespace program
