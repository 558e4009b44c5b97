// SPDX-License-Identifier: Apache-2.0
// A tracked buffer without holds compiles to the instructions of a hand-written holder of a pointer and its size.
#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "support/shared.hpp"

namespace {

std::string output_of(const std::string& command) {
  std::FILE* f = popen((command + " 2>/dev/null").c_str(), "r");
  std::string text;
  char chunk[4096];
  for (std::size_t n = 0; f != nullptr && (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  if (f != nullptr) pclose(f);
  return text;
}

// The instructions of each function without padding, and of these how many come before the first return.
struct Count {
  int all = 0, to_return = 0;
};
std::map<std::string, Count> count(const std::string& disassembly) {
  std::map<std::string, Count> counts;
  Count* now = nullptr;
  bool returned = false;
  for (std::size_t at = 0; at < disassembly.size();) {
    const std::size_t end = disassembly.find('\n', at);
    const std::string line = disassembly.substr(at, end - at);
    at = end == std::string::npos ? disassembly.size() : end + 1;
    const std::size_t name = line.find(" <"), colon = line.find(":\t");
    if (line.ends_with(">:")) {
      now = &counts[line.substr(name + 2, line.size() - name - 4)];
      returned = false;
    } else if (now != nullptr && colon != std::string::npos) {
      const std::string what = line.substr(colon + 2);
      if (what.find("nop") != std::string::npos || what.starts_with("xchg   %ax,%ax")) continue;
      ++now->all;
      if (!returned) ++now->to_return;
      returned = returned || what.starts_with("ret");
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("no_hold: make, use and destroy have the instructions of a bare pointer and size, under every compiler here") {
  int compilers = 0;
  for (const char* compiler : {"g++", "clang++", "clang++-14", "clang++-19"}) {
    if (output_of(std::string("command -v ") + compiler).empty() || output_of("command -v objdump").empty()) continue;
    const std::string object = "/tmp/holdfast_no_hold_cost." + std::to_string(getpid()) + ".o";
    const std::string source = holdfast::testing::data_path("no_hold_cost.cpp");
    const std::string include = holdfast::testing::data_path("../../include");
    const std::string made = output_of(std::string(compiler) + " -std=c++20 -O2 -fno-exceptions -I'" + include + "' -c '" + source +
                                       "' -o " + object + " && echo made");
    CHECK(made == "made\n");
    auto counts = count(output_of("objdump -d --no-show-raw-insn " + object));
    std::remove(object.c_str());
    for (const char* what : {"make", "use", "destroy", "whole"}) {
      const Count bare = counts[std::string("bare_") + what], tracked = counts[std::string("tracked_") + what];
      CAPTURE(compiler);
      CAPTURE(what);
      CHECK(bare.all > 0);
      CHECK(tracked.to_return == bare.to_return);
      if (std::string(what) != "whole") CHECK(tracked.all == bare.all);  // g++ lays the failure's exit out twice
    }
    ++compilers;
  }
  if (compilers == 0) holdfast::testing::skip_case("no compiler or no objdump");
}
