// SPDX-License-Identifier: Apache-2.0
// How much memory reading takes, counted at operator new.
#define HOLDFAST_COUNT_ALLOCATIONS  // for the whole binary
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/allocations.hpp"
#include "support/hlo.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

/// The most memory that reading a text holds at a time, its own tables included.
std::size_t peak_of(std::string_view text, bool& good) {
  const AllocationPeak peak;
  const Result<Module> m = parse_hlo_text(text);
  good = m.ok();
  return peak.highest();
}

}  // namespace

TEST_CASE("parser: J.21 a constant of 50 MB is read with under 2 MB of memory") {
  std::string text =
      "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  c = f32[4000000]{0} constant({";
  while (text.size() < 50000000) text += "1.25, -3e-05, ";
  text += "0})\n  ROOT n = f32[] negate(p)\n}\n";
  bool good = false;
  CHECK(peak_of(text, good) < 2000000);
  CHECK(good);
}

TEST_CASE("parser: I.5 no text takes more than 64 times its size") {
  // Dense texts of one kind of entry each; # is a number that counts up.
  const auto ratio = [](std::string_view head, std::string_view part, std::string_view tail) {
    std::string text(head);
    for (std::size_t i = 0; text.size() < 300000; ++i)
      for (const char c : part) {
        if (c == '#')
          text += std::to_string(i);
        else
          text += c;
      }
    text += tail;
    bool good = false;
    const std::size_t peak = peak_of(text, good);
    CAPTURE(part);
    CHECK(good);
    return static_cast<double>(peak) / static_cast<double>(text.size());
  };
  const std::string_view body = "HloModule m\nENTRY e{";
  CHECK(ratio(body, "a# = u1[]b()", "}") < 64);
  CHECK(ratio(body, "%a#=u1[]b() ", "}") < 64);
  CHECK(ratio(body, "%a#=u1[#]b#() ", "}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=u1[]b() %b=u1[]b(", "a,", "a)}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=u1[]b(), control-predecessors={} %b=u1[]b(), "
              "control-predecessors={",
              "a,", "a}}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=(", "(),", "()) b()}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=(", "u1[],", "()) b()}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=(", "u1[#],", "()) b()}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=(", "u1[1]{0:M(#)},", "()) b()}") < 64);
  CHECK(ratio("HloModule m\nENTRY e{%a=(", "(()),", "()) b()}") < 64);
  CHECK(ratio("HloModule m\n", "a#{%b=u1[]c()}", "") < 64);
  CHECK(ratio("HloModule m\na{%b=u1[]c()}e{%b=u1[]c(),called_computations={", "a,", "a}}") < 64);
  CHECK(ratio(body, "%a#=u1[]call(),to_apply={%b=u1[]c()} ", "}") < 64);
  CHECK(ratio(body, "%a#=((),())tuple-start(),x=# ", "}") < 64);
  CHECK(ratio(body, "%a#=u1[]c(u1[]c()) ", "}") < 64);
  CHECK(ratio(body, "%a#=u1[]b(),k={},x={},y={} ", "}") < 64);
}

TEST_CASE("parser: I.5 a chain of nested tuples stays in proportion") {
  std::string text = "HloModule m\nENTRY e {\n";
  for (int i = 0; i < 100; ++i) {
    text += "v" + std::to_string(i) + " = " + std::string(490, '(') + "u8[" + std::to_string(i) +
            "]" + std::string(490, ')') + " frob()\n";
  }
  bool good = false;
  CHECK(peak_of(text, good) <= text.size() * 64);
}
