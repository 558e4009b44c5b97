// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/concepts/sink.hpp"

namespace holdfast::detail {

/// What lenient reading passed over, each word once.
class WarningList {
 public:
  /// Notes a word at an offset; offsets come in order. Always true.
  constexpr bool add(std::size_t at, const char* what, std::string_view word) {
    for (const Warning& w : list_)
      if (w.word == word && w.what == what) return true;
    if (list_.size() < most) list_.push_back({at, what, word});
    return true;
  }

  /// Writes `LINE:COLUMN: warning: what 'word'` for each. Cost: one pass over the text.
  template <sink S>
  constexpr void write(std::string_view text, S& out) const noexcept {
    std::int64_t line = 1;
    std::size_t start = 0;
    std::size_t at = 0;
    Error failure;
    const auto put = [&](std::string_view part) {
      if (failure.ok()) failure = out.write(part);
    };
    for (const Warning& w : list_) {
      for (; at < w.at; ++at)
        if (text[at] == '\n') ++line, start = at + 1;
      if (failure.ok()) failure = write_number(out, line);
      put(":");
      if (failure.ok()) failure = write_number(out, static_cast<std::int64_t>(w.at - start) + 1);
      put(": warning: "), put(w.what), put(" '"), put(w.word), put("'\n");
    }
  }

 private:
  struct Warning {
    std::size_t at = 0;
    const char* what = nullptr;
    std::string_view word;
  };
  static constexpr std::size_t most = 64;
  std::vector<Warning> list_;
};

}  // namespace holdfast::detail
