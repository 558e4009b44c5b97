// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "holdfast/concepts/sink.hpp"

namespace holdfast::testing {

/// A sink that keeps what it gets.
struct StringSink {
  std::string text;
  Error write(std::string_view part) noexcept {
    text += part;
    return {};
  }
};

/// The whole sentence of an error.
inline std::string sentence(const Error& e) {
  StringSink out;
  static_cast<void>(write_error(out, e));
  return out.text;
}

/// Whether the sentence of an error has a fragment.
inline bool says(const Error& e, std::string_view fragment) {
  return sentence(e).find(fragment) != std::string::npos;
}

}  // namespace holdfast::testing
