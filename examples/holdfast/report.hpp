// SPDX-License-Identifier: Apache-2.0
// What the program prints: a summary for people, JSON for programs, offsets as CSV.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "planned.hpp"

namespace program {

using Json = nlohmann::ordered_json;

/// The figures of a plan under their documented keys.
Json plan_json(const Planned& p);
/// The figures that every kind of input has, all 0.
Json empty_json();
/// Prints the summary for people.
void print_summary(const Planned& p);
/// Names who holds the peak, to standard error: a line each, at most `most`.
void print_peak(const Planned& p, std::size_t most);
/// The entry's temporaries with their offsets, in columns that the program reads as input too.
std::string offsets_csv(const Planned& p);
/// Writes `--json` and `--csv`; false after a message.
bool write_json(const Options& options, const Json& json);

/// A shape such as `f32[2,3]{1,0}`, or its type and size for a tuple.
std::string shape_text(const holdfast::Module& m, holdfast::ShapeId shape);
/// The name of a place, such as `fusion.1{0}`.
std::string place_name(const Planned& p, holdfast::ValueId place);
/// A size for people: `1.5 MiB`.
std::string human(holdfast::Bytes bytes);

}  // namespace program
