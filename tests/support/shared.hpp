// SPDX-License-Identifier: Apache-2.0
// Data that a test reads: the folder shared/ beside the checkout (may be absent), and our own tests/data.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

namespace holdfast::testing {

/// Says on standard output that the running case is skipped, and why; tests/tally.py counts it as skipped, not passed.
inline void skip_case(std::string_view reason) {
  const auto* running = doctest::getContextOptions()->currentTest;
  std::printf("[holdfast] skipped: %s | %.*s\n", running != nullptr ? running->m_name : "?",
              static_cast<int>(reason.size()), reason.data());
  std::fflush(stdout);
}

/// Tells whether a sample should do instead of everything: in sanitizer runs, or with HOLDFAST_QUICK=1.
[[nodiscard]] inline bool quick() {
  const char* set = std::getenv("HOLDFAST_QUICK");
  return set != nullptr && *set != '\0' && *set != '0';
}

namespace detail {
inline bool exists(const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "rb");
  if (f != nullptr) std::fclose(f);
  return f != nullptr;
}
inline std::string below(const char* variable, const char* built_in, std::string_view relative) {
  const char* set = std::getenv(variable);
  return std::string(set != nullptr ? set : built_in) + "/" + std::string(relative);
}
inline std::string drain(std::FILE* f) {
  std::string text;
  char chunk[1 << 16];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  return text;
}
}  // namespace detail

/// The path of a file or folder below shared/; empty, after a visible skip of the case, where it is absent.
///
/// `const std::string path = shared_path("data/hlo/index.json"); if (path.empty()) return;`
[[nodiscard]] inline std::string shared_path(std::string_view relative) {
  std::string path = detail::below("HOLDFAST_SHARED", HOLDFAST_SHARED, relative);
  if (detail::exists(path)) return path;
  skip_case("no " + path);
  return {};
}

/// The path of a file or folder of our own below tests/data.
[[nodiscard]] inline std::string data_path(std::string_view relative) {
  return detail::below("HOLDFAST_TEST_DATA", HOLDFAST_TEST_DATA, relative);
}

/// The bytes of a file; one that ends in .xz or .gz is unpacked by the program of that name. Fails the case if it cannot.
[[nodiscard]] inline std::string read_file(const std::string& path) {
  const std::string_view all = path;
  const char* unpack = all.ends_with(".xz") ? "xz -dc '" : all.ends_with(".gz") ? "gzip -dc '" : nullptr;
  std::FILE* f = unpack != nullptr ? popen((unpack + path + "'").c_str(), "r") : std::fopen(path.c_str(), "rb");
  REQUIRE_MESSAGE(f != nullptr, "cannot read ", path);
  std::string text = detail::drain(f);
  const int status = unpack != nullptr ? pclose(f) : std::fclose(f);
  REQUIRE_MESSAGE(status == 0, "cannot unpack ", path);
  return text;
}

}  // namespace holdfast::testing
