// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/core/wire.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/hlo/detail/text_builder.hpp"

namespace holdfast::detail {

/// The fields of one message, read once, then asked by number. Field numbers from 128 on are not
/// kept.
class ProtoFields {
 public:
  constexpr Error read(const WireField& message) {
    fields_.clear();
    seen_[0] = seen_[1] = 0;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);)
      if (f.number < 128) {
        seen_[f.number / 64] |= std::uint64_t{1} << (f.number % 64);
        fields_.push_back(f);
      }
    return reader.error();
  }
  [[nodiscard]] constexpr bool has(std::uint32_t number) const noexcept {
    return number < 128 && ((seen_[number / 64] >> (number % 64)) & 1) != 0;
  }
  /// The last value of a scalar; 0 when absent.
  [[nodiscard]] constexpr std::int64_t number(std::uint32_t n) const noexcept {
    std::int64_t out = 0;
    if (has(n))
      for (const WireField& f : fields_)
        if (f.number == n && f.kind == WireKind::varint) out = f.signed_value();
    return out;
  }
  /// An int32 field: what does not fit is cut, as protobuf does.
  [[nodiscard]] constexpr std::int32_t number32(std::uint32_t n) const noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(number(n)));
  }
  [[nodiscard]] constexpr bool flag(std::uint32_t n) const noexcept { return number(n) != 0; }
  /// The bits of the last double or float; 0 when absent.
  [[nodiscard]] constexpr std::uint64_t fixed(std::uint32_t n) const noexcept {
    std::uint64_t out = 0;
    if (has(n))
      for (const WireField& f : fields_)
        if (f.number == n && (f.kind == WireKind::fixed64 || f.kind == WireKind::fixed32))
          out = f.value;
    return out;
  }
  /// The last string; empty when absent.
  [[nodiscard]] constexpr std::string_view text(std::uint32_t n) const noexcept {
    std::string_view out;
    if (has(n))
      for (const WireField& f : fields_)
        if (f.number == n && f.kind == WireKind::bytes) out = f.bytes;
    return out;
  }
  /// A sub-message; one that is written in several parts is put together in memory that `module`
  /// keeps.
  [[nodiscard]] constexpr WireField message(std::uint32_t n, Module& module) const {
    WireField out;
    std::size_t parts = 0;
    if (has(n))
      for (const WireField& f : fields_)
        if (f.number == n && f.kind == WireKind::bytes && parts++ == 0) out = f;
    if (parts < 2) return out;
    std::vector<char> all;
    for (const WireField& f : fields_)
      if (f.number == n && f.kind == WireKind::bytes)
        all.insert(all.end(), f.bytes.begin(), f.bytes.end());
    out.bytes = module.own({all.data(), all.size()});
    return out;
  }
  /// Appends a repeated integer field.
  constexpr Error numbers(std::uint32_t n, std::vector<std::int64_t>& out) const {
    if (has(n))
      for (const WireField& f : fields_)
        if (f.number == n)
          if (const Error e = append_numbers(f, out); !e.ok()) return e;
    return {};
  }
  /// All fields in the order of the file.
  [[nodiscard]] constexpr const std::vector<WireField>& all() const noexcept { return fields_; }

 private:
  std::vector<WireField> fields_;
  std::uint64_t seen_[2] = {};
};

/// What the parts of the proto reader share: the module they fill, scratch, and the first failure.
struct ProtoContext {
  Module module;
  TextBuilder out;  ///< the attribute text being built
  Error failure;
  std::uint32_t depth_limit = wire_depth_limit;
  bool default_layouts = true;

  /// Records the first failure; always false.
  HOLDFAST_COLD constexpr bool fail(const char* what, std::uint64_t offset,
                                    Errc code = Errc::corrupt) noexcept {
    if (failure.ok()) failure = make_error_at(code, what, offset);
    return false;
  }
  /// Takes an error over; true when there is none.
  constexpr bool check(const Error& e) noexcept {
    if (e.ok()) return true;
    if (failure.ok()) failure = e;
    return false;
  }
  /// Keeps what was built in `out` as a text of the module.
  constexpr std::string_view keep() {
    const std::string_view text = module.own(out.view());
    out.clear();
    return text;
  }
};

}  // namespace holdfast::detail
