// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace holdfast {

/// The name of code memory, as the process's map list, perf and debuggers show it. Threads: a value.
class MappingName {
 public:
  static constexpr std::size_t limit = 249;            ///< what the kernel takes for a memory file
  static constexpr std::size_t anonymous_limit = 79;   ///< and for anonymous pages

  constexpr MappingName() noexcept = default;

  /// Makes `jit:<program>:<id>` in printable ASCII; what is too long is cut in the middle, so that the id stays.
  [[nodiscard]] static constexpr MappingName make(std::string_view program, std::string_view id) noexcept {
    MappingName name;
    const std::string_view parts[] = {"jit:", program, id.empty() ? "" : ":", id};
    std::size_t whole = 0;
    for (const std::string_view part : parts) whole += part.size();
    const std::size_t over = whole > limit ? whole - limit + 2 : 0;  // 2: the dots where it is cut
    std::size_t keep_tail = id.size() + 1;
    if (keep_tail > limit - 6) keep_tail = limit - 6;
    const std::size_t cut_end = whole - keep_tail < over ? over : whole - keep_tail;  // the cut ends before the id
    std::size_t at = 0;
    for (const std::string_view part : parts)
      for (const char c : part) {
        const std::size_t place = at++;
        if (over != 0 && place >= cut_end - over && place < cut_end) {
          if (place < cut_end - over + 2) name.put('.');
          continue;
        }
        name.put(c > ' ' && c < 127 && c != '/' ? c : '_');
      }
    return name;
  }

  /// The name for anonymous pages: shorter, and without the characters that the kernel refuses there.
  [[nodiscard]] constexpr MappingName anonymous() const noexcept {
    MappingName name;
    constexpr std::size_t head = anonymous_limit / 2, tail = anonymous_limit - head;
    for (std::size_t i = 0; i < size_; ++i) {
      if (size_ > anonymous_limit && i >= head && i < size_ - tail) continue;
      const char c = text_[i];
      name.put(c == '[' || c == ']' || c == '\\' || c == '$' || c == '`' ? '_' : c);
    }
    return name;
  }

  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text_, size_}; }
  [[nodiscard]] constexpr const char* c_str() const noexcept { return text_; }

 private:
  constexpr void put(char c) noexcept {
    if (size_ < limit) text_[size_++] = c;
  }
  char text_[limit + 1] = {};
  std::size_t size_ = 0;
};

}  // namespace holdfast
