// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/proto_fields.hpp"

namespace holdfast::detail {

/// Tells whether text may stand as a raw value in braces: JSON-like, with balanced braces and
/// closed strings.
[[nodiscard]] constexpr bool is_raw_dictionary(std::string_view text) noexcept {
  if (text.empty() || text.front() != '{') return false;
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1 == text.size();
    }
  }
  return false;
}

/// Appends a value raw when it is a dictionary, otherwise quoted.
constexpr void put_config(TextBuilder& out, std::string_view value) {
  if (is_raw_dictionary(value))
    out.put(value);
  else
    out.quoted(value);
}

/// Appends `{k="v",...}` of a FrontendAttributes message, in the order of the keys; nothing when it
/// has none.
///
/// An entry whose key no text could hold is left out.
constexpr bool put_frontend_attributes(ProtoContext& c, const WireField& message) {
  struct Entry {
    std::string_view key, value;
    std::size_t place = 0;
  };
  std::vector<Entry> entries;
  WireReader reader(message.bytes, message.offset);
  for (WireField f; reader.next(f);) {
    if (f.number != 1 || f.kind != WireKind::bytes) continue;
    Entry entry{{}, {}, entries.size()};
    WireReader pair(f.bytes, f.offset);
    for (WireField g; pair.next(g);)
      if (g.kind == WireKind::bytes && (g.number == 1 || g.number == 2))
        (g.number == 1 ? entry.key : entry.value) = g.bytes;
    if (!c.check(pair.error())) return false;
    if (entry.key.empty() || !std::ranges::all_of(entry.key, [](char x) {
          return x > ' ' && x < 0x7F &&
                 std::string_view("\"'{}()[],=").find(x) == std::string_view::npos;
        }))
      continue;
    entries.push_back(entry);
  }
  if (!c.check(reader.error()) || entries.empty()) return c.failure.ok();
  // The last one of a key counts, as in every map of a proto.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.place < b.place;
  });
  c.out.put('{');
  bool first = true;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i + 1 < entries.size() && entries[i + 1].key == entries[i].key) continue;
    if (!first) c.out.put(',');
    first = false;
    c.out.put(entries[i].key), c.out.put('='), put_config(c.out, entries[i].value);
  }
  c.out.put('}');
  return true;
}

/// Appends the contents of an OpMetadata message, without braces; nothing when it names nothing.
constexpr bool put_metadata(ProtoContext& c, ProtoFields& fields, const WireField& message) {
  if (message.bytes.empty()) return true;
  if (!c.check(fields.read(message))) return false;
  if (fields.text(1).empty() && fields.text(2).empty() && fields.text(3).empty() &&
      fields.text(16).empty() && fields.number(15) == 0)
    return true;
  bool first = true;
  const auto key = [&](std::string_view word) {
    if (!first) c.out.put(' ');
    first = false;
    c.out.put(word), c.out.put('=');
  };
  const auto text = [&](std::uint32_t n, std::string_view word) {
    if (const std::string_view value = fields.text(n); !value.empty())
      key(word), c.out.quoted(value);
  };
  const auto number = [&](std::uint32_t n, std::string_view word) {
    if (const std::int32_t value = fields.number32(n); value != 0) key(word), c.out.number(value);
  };
  text(1, "op_type"), text(2, "op_name"), text(3, "source_file");
  number(4, "source_line"), number(17, "source_end_line"), number(18, "source_column"),
      number(19, "source_end_column");
  if (fields.has(5)) {
    std::vector<std::int64_t> types;
    if (!c.check(fields.numbers(5, types))) return false;
    if (!types.empty()) key("profile_type"), c.out.braced(types);
  }
  text(12, "deduplicated_name"), text(16, "scheduling_name");
  number(15, "stack_frame_id");
  return true;
}

/// Appends ` metadata={...}` lists of shardings. `separator` stands before the word.
constexpr bool put_metadata_list(ProtoContext& c, const ProtoFields& owner, std::uint32_t number,
                                 std::string_view separator, bool always_list) {
  if (!owner.has(number)) return true;
  std::size_t count = 0;
  for (const WireField& f : owner.all()) count += f.number == number && f.kind == WireKind::bytes;
  if (count == 0) return true;
  const bool list = always_list || count > 1;
  c.out.put(separator), c.out.put(list ? "metadata={{" : "metadata={");
  ProtoFields fields;
  bool first = true;
  for (const WireField& f : owner.all()) {
    if (f.number != number || f.kind != WireKind::bytes) continue;
    if (!first) c.out.put("}, {");
    first = false;
    if (!put_metadata(c, fields, f)) return false;
  }
  c.out.put(list ? "}}" : "}");
  return true;
}

}  // namespace holdfast::detail
