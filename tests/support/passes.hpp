// SPDX-License-Identifier: Apache-2.0
// Running passes in tests: each run is verified, printed and read again.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "holdfast/passes/verifier.hpp"
#include "support/check_module.hpp"
#include "support/hlo.hpp"
#include "support/same_module.hpp"

namespace holdfast::testing {

/// Runs a pass on a module that is good and has to be good behind it: whether it changed.
template <class Pass>
bool changed_by(Module& m, Pass&& pass) {
  const Error before = verify_module(m);
  REQUIRE_MESSAGE(before.ok(), sentence(before));
  const std::string text_before = print(m);
  const Result<bool> changed = run_verified(m, pass);
  REQUIRE_MESSAGE(changed.ok(), sentence(changed.error()));
  const char* const wrong = inconsistency(m);
  CHECK_MESSAGE(wrong == nullptr, wrong);
  const std::string text_after = print(m);
  CHECK(*changed == (text_before != text_after));
  const bool is_scheduled = std::exchange(m.is_scheduled, true);  // printed as it stands
  const std::string as_it_stands = print(m);
  const Module again = parse(as_it_stands);
  CHECK(difference(m, again) == "");
  m.is_scheduled = is_scheduled;
  const Result<bool> twice = run_verified(m, pass);
  CHECK((twice.ok() && !*twice));
  CHECK(print(m) == text_after);
  return *changed;
}

/// Runs a pass that has to fail and leave the module as it was: the error.
template <class Pass>
Error refused_by(Module& m, Pass&& pass) {
  const std::string before = print(m);
  const Result<bool> changed = run_verified(m, pass);
  CHECK(print(m) == before);
  CHECK(!changed.ok());
  return changed.ok() ? Error{} : changed.error();
}

/// The text of the shape of the instruction with this name.
inline std::string shape_of(const Module& m, std::string_view name) {
  return shape_text(m, m[find_instruction(m, name)].shape);
}

}  // namespace holdfast::testing
