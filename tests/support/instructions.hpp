// SPDX-License-Identifier: Apache-2.0
// Counts the instructions that the compilers here make of a source of tests/data.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

#include "support/shared.hpp"

namespace holdfast::testing {

inline std::string output_of(const std::string& command) {
  std::FILE* f = popen((command + " 2>/dev/null").c_str(), "r");
  std::string text;
  char chunk[4096];
  for (std::size_t n = 0; f != nullptr && (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  if (f != nullptr) pclose(f);
  return text;
}

// The instructions of each function without padding, and of these how many come before the first return.
struct InstructionCount {
  int all = 0, to_return = 0;
};
using InstructionCounts = std::map<std::string, InstructionCount>;
inline InstructionCounts count_instructions(const std::string& disassembly) {
  InstructionCounts counts;
  InstructionCount* now = nullptr;
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

/// Calls `check` with the counts of every compiler here, at -O2.
template <class Check>
void each_compiler(const char* source, Check check) {
  int compilers = 0;
  for (const std::string compiler : {"g++", "clang++", "clang++-14", "clang++-19"}) {
    if (output_of("command -v " + compiler).empty() || output_of("command -v objdump").empty()) continue;
    const std::string object = "/tmp/holdfast_" + std::string(source) + "." + std::to_string(getpid()) + ".o";
    const std::string made = output_of(compiler + " -std=c++20 -O2 -fno-exceptions -I'" + data_path("../../include") +
                                       "' -c '" + data_path(source) + "' -o " + object + " && echo made");
    CAPTURE(compiler);
    CHECK(made == "made\n");
    InstructionCounts counts = count_instructions(output_of("objdump -d --no-show-raw-insn " + object));
    std::remove(object.c_str());
    check(counts);
    ++compilers;
  }
  if (compilers == 0) skip_case("no compiler or no objdump");
}

}  // namespace holdfast::testing
