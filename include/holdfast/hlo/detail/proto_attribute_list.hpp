// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/proto_fields.hpp"
#include "holdfast/hlo/detail/proto_operations.hpp"

namespace holdfast::detail {

/// Adds attributes to the instruction being read: a key, and the text of a proto's field. Each call
/// is false on failure.
class ProtoAttributeList {
 protected:
  constexpr explicit ProtoAttributeList(ProtoContext& context) noexcept : c_(context) {}

  ProtoContext& c_;
  ProtoFields scratch_;             // of one sub-message
  std::vector<std::int64_t> list_;  // of one repeated field

  constexpr bool add(std::string_view key, std::string_view value) {
    c_.module.attributes.push_back({key, value});
    return true;
  }
  /// Adds the text that was built in the context.
  constexpr bool add(std::string_view key) { return add(key, c_.keep()); }
  constexpr bool add_number(std::string_view key, std::int64_t value) {
    c_.out.number(value);
    return add(key);
  }
  constexpr bool add_flag(const ProtoFields& f, std::uint32_t n, std::string_view key) {
    return !f.flag(n) || add(key, "true");
  }
  constexpr bool add_quoted(const ProtoFields& f, std::uint32_t n, std::string_view key) {
    if (f.text(n).empty()) return true;
    c_.out.quoted(f.text(n));
    return add(key);
  }
  /// A field of integers in braces; an empty one only if `always`.
  constexpr bool add_numbers(const ProtoFields& f, std::uint32_t n, std::string_view key,
                             bool always) {
    list_.clear();
    if (!c_.check(f.numbers(n, list_))) return false;
    if (list_.empty() && !always) return true;
    c_.out.braced(list_);
    return add(key);
  }
  /// Runs a function that appends the text of a message; adds it if that is any.
  template <class Put>
  constexpr bool add_message(const ProtoFields& f, std::uint32_t n, std::string_view key, Put put) {
    if (!f.has(n)) return true;
    c_.out.clear();
    if (!put(f.message(n, c_.module))) return false;
    return c_.out.text.empty() || add(key);
  }
  constexpr bool scratch(const ProtoFields& f, std::uint32_t n) {
    return c_.check(scratch_.read(f.message(n, c_.module)));
  }
  constexpr bool add_window(const ProtoFields& f) {
    return add_message(f, 15, "window", [&](const WireField& m) { return put_window(c_, m); });
  }
  constexpr bool add_precision(const ProtoFields& f) {
    if (!f.has(51)) return true;
    list_.clear();
    if (!scratch(f, 51) || !c_.check(scratch_.numbers(1, list_))) return false;
    if (put_precision(c_, list_)) add("operand_precision");
    c_.out.clear();
    const std::int32_t algorithm = scratch_.number32(2);
    return algorithm <= 0 || algorithm >= static_cast<std::int32_t>(std::size(dot_algorithms)) ||
           add("algorithm", dot_algorithms[algorithm]);
  }
  constexpr bool add_groups(const ProtoFields& f) {
    c_.out.clear();
    return put_replica_groups(c_, f) && add("replica_groups");
  }
  constexpr bool add_channel(const ProtoFields& f) {
    return f.number(26) <= 0 || add_number("channel_id", f.number(26));
  }
  constexpr bool add_collective(const ProtoFields& f) {
    return add_channel(f) && add_groups(f) && add_flag(f, 56, "constrain_layout") &&
           add_flag(f, 71, "use_global_device_ids");
  }
};

}  // namespace holdfast::detail
