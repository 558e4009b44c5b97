// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/core/result.hpp"

namespace holdfast {

/// How a field lies on the protobuf wire.
enum class WireKind : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, group = 3, fixed32 = 5 };

/// How deep messages or groups may nest.
inline constexpr std::uint32_t wire_depth_limit = 200;

/// One field of a message: `value` of the three number kinds, `bytes` of strings, messages and
/// packed numbers.
///
/// Units: `offset` is where the value, or the first of the bytes, stands in the file.
struct WireField {
  std::uint32_t number = 0;
  WireKind kind = WireKind::varint;
  std::uint64_t value = 0;
  std::string_view bytes = {};
  std::uint64_t offset = 0;

  [[nodiscard]] constexpr std::int64_t signed_value() const noexcept {
    return static_cast<std::int64_t>(value);
  }
};

/// Reads the fields of one message in order, without copying; groups come as one field of kind
/// `group`.
///
/// `WireReader r(bytes); for (WireField f; r.next(f);) ...; if (!r.error().ok()) ...`
/// Errors: corrupt, at a byte offset. Threads: as any value.
class WireReader {
 public:
  /// `offset` is where the message stands in the file: errors and fields count from there.
  constexpr explicit WireReader(std::string_view message, std::uint64_t offset = 0) noexcept
      : bytes_(message), base_(offset) {}

  /// Reads the next field; false at the end of the message, and on damage.
  [[nodiscard]] constexpr bool next(WireField& out) noexcept {
    begin_ = at_;
    if (at_ == bytes_.size() || !error_.ok()) return false;
    WireTag tag;
    if (!read_tag(tag)) return false;
    out.number = tag.number;
    if (tag.kind == 3) {
      const std::size_t content = at_;
      if (!skip_group(tag.number)) return false;
      out = {tag.number, WireKind::group, 0, bytes_.substr(content, at_ - content),
             base_ + content};
      return true;
    }
    return tag.kind == 4 ? fail("group ends that did not begin") : read_value(tag.kind, out);
  }
  /// Why `next` stopped early; `ok` at the end of the message.
  [[nodiscard]] constexpr const Error& error() const noexcept { return error_; }
  /// The last field as written, its tag included: what keeps an unknown field.
  [[nodiscard]] constexpr std::string_view raw() const noexcept {
    return bytes_.substr(begin_, at_ - begin_);
  }
  /// Where the next field begins in the file.
  [[nodiscard]] constexpr std::uint64_t offset() const noexcept { return base_ + at_; }
  /// Reads one bare varint, as in a packed blob; false at the end and on damage.
  [[nodiscard]] constexpr bool next_varint(std::uint64_t& out) noexcept {
    return at_ != bytes_.size() && error_.ok() && read_varint(out);
  }

 private:
  struct WireTag {
    std::uint32_t number = 0;
    std::uint32_t kind = 0;
  };
  std::string_view bytes_;
  std::uint64_t base_ = 0;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;
  Error error_;

  HOLDFAST_COLD constexpr bool fail(const char* what) noexcept {
    error_ = make_error_at(Errc::corrupt, what, base_ + at_);
    return false;
  }
  constexpr bool read_varint(std::uint64_t& out) noexcept {
    if (at_ < bytes_.size() &&
        static_cast<unsigned char>(bytes_[at_]) < 0x80) {  // most are of one byte
      out = static_cast<unsigned char>(bytes_[at_++]);
      return true;
    }
    return read_long_varint(out);
  }
  constexpr bool read_long_varint(std::uint64_t& out) noexcept {
    out = 0;
    for (unsigned shift = 0; at_ < bytes_.size(); shift += 7) {
      const auto b = static_cast<unsigned char>(bytes_[at_]);
      if (shift == 63 && b > 1) return fail("number of more than 64 bits");
      ++at_;
      out |= static_cast<std::uint64_t>(b & 0x7F) << shift;
      if (b < 0x80) return true;
    }
    return fail("file ends inside a number");
  }
  constexpr bool read_tag(WireTag& out) noexcept {
    std::uint64_t tag = 0;
    if (!read_varint(tag)) return false;
    out = {static_cast<std::uint32_t>(tag >> 3), static_cast<std::uint32_t>(tag & 7)};
    return (tag >> 3) == 0 || tag > 0xFFFFFFFFu ? fail("field number out of range") : true;
  }
  constexpr bool read_fixed(std::size_t count, std::uint64_t& out) noexcept {
    if (bytes_.size() - at_ < count) return fail("message ends inside a number");
    out = 0;
    for (std::size_t i = 0; i < count; ++i)
      out |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_ + i])) << (8 * i);
    at_ += count;
    return true;
  }
  constexpr bool read_value(std::uint32_t kind, WireField& out) noexcept {
    out.kind = static_cast<WireKind>(kind);
    out.bytes = {};
    out.offset = base_ + at_;
    switch (kind) {
      case 0:
        return read_varint(out.value);
      case 1:
        return read_fixed(8, out.value);
      case 5:
        return read_fixed(4, out.value);
      case 2: {
        std::uint64_t size = 0;
        if (!read_varint(size)) return false;
        if (size > bytes_.size() - at_) return fail("length goes past the end of its message");
        out.value = 0;
        out.bytes = bytes_.substr(at_, static_cast<std::size_t>(size));
        out.offset = base_ + at_;
        at_ += static_cast<std::size_t>(size);
        return true;
      }
      default:
        return fail("unknown kind of field");
    }
  }
  // No recursion: the open groups' numbers are a stack of fixed size.
  constexpr bool skip_group(std::uint32_t number) noexcept {
    std::uint32_t open[wire_depth_limit] = {number};
    std::uint32_t depth = 1;
    while (depth != 0) {
      if (at_ == bytes_.size()) return fail("message ends inside a group");
      WireTag tag;
      WireField skipped;
      if (!read_tag(tag)) return false;
      if (tag.kind == 3) {
        if (depth == wire_depth_limit) return fail("groups nest too deep");
        open[depth++] = tag.number;
      } else if (tag.kind == 4) {
        if (open[--depth] != tag.number) return fail("group ends under another number");
      } else if (!read_value(tag.kind, skipped)) {
        return false;
      }
    }
    return true;
  }
};

/// Appends the numbers of a repeated integer field: one, or a packed blob of them.
///
/// Errors: corrupt, when the blob does not end with a number.
constexpr Error append_numbers(const WireField& field, std::vector<std::int64_t>& out) {
  if (field.kind == WireKind::varint) out.push_back(field.signed_value());
  if (field.kind != WireKind::bytes) return {};
  WireReader blob(field.bytes, field.offset);
  for (std::uint64_t n = 0; blob.next_varint(n);) out.push_back(static_cast<std::int64_t>(n));
  return blob.error();
}

/// Writes a message: fields in the order of the calls, absent where the value is the default.
///
/// Threads: as a vector. Cost: amortised O(1) a byte.
class WireWriter {
 public:
  constexpr void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  constexpr void tag(std::uint32_t number, WireKind kind) {
    varint((static_cast<std::uint64_t>(number) << 3) | static_cast<std::uint64_t>(kind));
  }
  /// A scalar; not written when it is 0.
  constexpr void number(std::uint32_t field, std::int64_t value) {
    if (value != 0) tag(field, WireKind::varint), varint(static_cast<std::uint64_t>(value));
  }
  /// A string or bytes; not written when empty.
  constexpr void text(std::uint32_t field, std::string_view value) {
    if (!value.empty()) message(field, value);
  }
  /// A sub-message or an element of a repeated field: written even when empty.
  constexpr void message(std::uint32_t field, std::string_view value) {
    tag(field, WireKind::bytes), varint(value.size()), raw(value);
  }
  constexpr void message(std::uint32_t field, const WireWriter& value) {
    message(field, value.bytes());
  }
  /// Repeated integers, packed; not written when there are none.
  constexpr void numbers(std::uint32_t field, std::span<const std::int64_t> values) {
    if (values.empty()) return;
    WireWriter blob;
    for (const std::int64_t v : values) blob.varint(static_cast<std::uint64_t>(v));
    message(field, blob);
  }
  /// Fields that were kept as written.
  constexpr void raw(std::string_view fields) {
    out_.insert(out_.end(), fields.begin(), fields.end());
  }

  [[nodiscard]] constexpr std::string_view bytes() const noexcept {
    return {out_.data(), out_.size()};
  }
  constexpr void clear() noexcept { out_.clear(); }

 private:
  std::vector<char> out_;
};

}  // namespace holdfast
