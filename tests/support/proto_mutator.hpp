// SPDX-License-Identifier: Apache-2.0
// Changes one field somewhere in a message and writes the lengths around it anew: blind mutation
// breaks lengths only.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/core/wire.hpp"

namespace holdfast::testing {

class ProtoMutator {
 public:
  /// `blind` changes the bytes of a leaf.
  template <class Blind>
  std::string operator()(std::string_view message, unsigned seed, Blind blind) {
    random_.seed(seed);
    return mutate(message, 0, blind);
  }

 private:
  struct Part {
    WireField field;
    std::string raw;
  };
  std::minstd_rand random_;

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  static bool split(std::string_view message, std::vector<Part>& parts) {
    WireReader reader(message);
    for (WireField f; reader.next(f);) parts.push_back({f, std::string(reader.raw())});
    return reader.error().ok() && !parts.empty();
  }
  static void encode(Part& p, std::string_view bytes) {
    WireWriter w;
    if (p.field.kind == WireKind::varint)
      w.tag(p.field.number, WireKind::varint), w.varint(p.field.value);
    else
      w.message(p.field.number, bytes);
    p.raw.assign(w.bytes());
  }
  template <class Blind>
  std::string mutate(std::string_view message, int depth, Blind blind) {
    std::vector<Part> parts;
    if (depth > 12 || !split(message, parts) || below(24) == 0) return blind(message);
    const std::size_t at = below(parts.size());
    Part& p = parts[at];
    switch (below(10)) {
      case 0:
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(below(parts.size() + 1)), Part(p));
        break;
      case 2:
        std::swap(parts[at], parts[below(parts.size())]);
        break;
      case 3:
        p.field.number = static_cast<std::uint32_t>(1 + below(100));
        encode(p, p.field.bytes);
        break;
      default:
        if (p.field.kind == WireKind::bytes) {
          encode(p, mutate(p.field.bytes, depth + 1, blind));
        } else if (p.field.kind == WireKind::varint) {
          const std::uint64_t values[] = {0,
                                          1,
                                          2,
                                          p.field.value + 1,
                                          p.field.value - 1,
                                          below(40),
                                          ~std::uint64_t{0},
                                          std::uint64_t{1} << 63,
                                          std::uint64_t{1} << 32,
                                          0x7FFFFFFF,
                                          p.field.value ^ (std::uint64_t{1} << below(64)),
                                          random_()};
          p.field.value = values[below(std::size(values))];
          encode(p, {});
        }
    }
    std::string out;
    for (const Part& q : parts) out += q.raw;
    return out;
  }
};

}  // namespace holdfast::testing
