// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/read_attributes.hpp"
#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

/// What a header says about the entry computation before that is read.
struct HeaderParts {
  struct Alias {
    std::size_t at = 0;
    IndexRange output;     // in `numbers`
    IndexRange parameter;  // in `numbers`
    std::uint32_t number = 0;
    bool must = false;
  };
  std::vector<std::int64_t> numbers;
  std::vector<Alias> aliases;
  std::vector<Alias> donors;  // `output` unused
  std::vector<ShapeId> layout_parameters;
  ShapeId layout_result = no_id<ShapeId>;
  std::size_t layout_at = 0;
};

/// Appends the path that was read last.
constexpr IndexRange keep_path(TextState& st, HeaderParts& parts) {
  const IndexRange out{static_cast<std::uint32_t>(parts.numbers.size()),
                       static_cast<std::uint32_t>(st.path.size())};
  parts.numbers.insert(parts.numbers.end(), st.path.begin(), st.path.end());
  return out;
}

/// Reads `(number, {index}`, the common part of an alias and a donor.
constexpr bool read_parameter_place(TextState& st, HeaderParts& parts, HeaderParts::Alias& out) {
  Lexer& in = st.in;
  if (!in.expect('(', "expected ( before a parameter's number")) return false;
  in.skip_space();
  if (!in.index(out.number) || !in.expect(',', "expected , after a parameter's number") ||
      !st.shape_index())
    return false;
  out.parameter = keep_path(st, parts);
  in.skip_space();
  return true;
}

constexpr bool read_alias_table(TextState& st, HeaderParts& parts) {
  Lexer& in = st.in;
  return read_list(in, [&] {
    HeaderParts::Alias alias;
    alias.at = in.offset();
    if (!st.shape_index()) return false;
    alias.output = keep_path(st, parts);
    if (!in.expect(':', "expected : after an output index")) return false;
    if (!read_parameter_place(st, parts, alias)) return false;
    if (in.take(',')) {
      in.skip_space();
      const std::string_view kind = in.word();
      if (kind != "may-alias" && kind != "must-alias")
        return in.fail("expected may-alias or must-alias");
      alias.must = kind == "must-alias";
    }
    parts.aliases.push_back(alias);
    return in.expect(')', "expected ) after an alias");
  });
}

constexpr bool read_donor_table(TextState& st, HeaderParts& parts) {
  return read_list(st.in, [&] {
    HeaderParts::Alias donor;
    donor.at = st.in.offset();
    if (!read_parameter_place(st, parts, donor)) return false;
    parts.donors.push_back(donor);
    return st.in.expect(')', "expected ) after a donor");
  });
}

constexpr bool read_entry_layout(TextState& st, HeaderParts& parts) {
  Lexer& in = st.in;
  parts.layout_at = in.offset();
  if (!in.expect('{', "expected {(shapes)->shape}") ||
      !in.expect('(', "expected {(shapes)->shape}"))
    return false;
  in.skip_space();
  if (!in.take(')'))
    for (;;) {
      ShapeId shape{};
      in.skip_space();
      if (!st.shapes.shape(shape)) return false;
      parts.layout_parameters.push_back(shape);
      in.skip_space();
      if (in.take(')')) break;
      if (!in.take(',')) return in.fail("expected , or ) in the parameters");
    }
  in.skip_space();
  if (!in.take("->")) return in.fail("expected -> after the parameters");
  in.skip_space();
  return st.shapes.shape(parts.layout_result) && in.expect('}', "expected } after the result");
}

/// Reads `HloModule name, attributes`; the first word was taken.
constexpr bool read_header(TextState& st, HeaderParts& parts) {
  Lexer& in = st.in;
  Module& m = st.module;
  in.skip_space();
  // A module's name is any word: nothing refers to it.
  in.take('%');
  m.name = in.word();
  if (m.name.empty()) return in.fail("expected the module's name");
  std::uint32_t seen = 0;
  for (;;) {
    in.skip_space();
    if (!in.take(',')) return true;
    in.skip_space();
    const std::size_t key_from = in.offset();
    const std::string_view key = in.word();
    if (key.empty()) return in.fail("expected an attribute");
    if (!in.take('=')) return in.fail("= has to follow the attribute's name at once");
    in.skip_space();
    std::size_t number = 0;
    while (number < std::size(header_words) && header_words[number] != key) ++number;
    if (number < std::size(header_words)) {
      if ((seen >> number & 1) != 0)
        return in.fail_at(key_from, "attribute is given twice (duplicate)");
      seen |= 1u << number;
    } else {
      if (st.options.strict)
        return in.fail_at(
            key_from,
            "unknown attribute of a module; known are is_scheduled, replica_count, num_partitions, "
            "input_output_alias, buffer_donor, entry_computation_layout, alias_passthrough_params, "
            "frontend_attributes, allow_spmd_sharding_propagation_to_parameters, "
            "allow_spmd_sharding_propagation_to_output, origin_recovery_table");
      for (const Attribute& a : m.header_attributes)
        if (a.key == key) return in.fail_at(key_from, "attribute is given twice (duplicate)");
      if (m.header_attributes.size() > 128)
        return in.fail_at(key_from, "more than 128 unknown attributes", Errc::over_budget);
      st.warnings.add(key_from, "unknown attribute of a module", key);
    }
    const std::size_t from = in.offset();
    bool good = false;
    bool keep = false;
    switch (static_cast<HeaderKey>(number)) {
      case HeaderKey::is_scheduled:
        good = in.boolean(m.is_scheduled);
        break;
      case HeaderKey::replica_count:
        good = in.index(m.replica_count);
        break;
      case HeaderKey::num_partitions:
        good = in.index(m.num_partitions);
        break;
      case HeaderKey::input_output_alias:
        good = read_alias_table(st, parts);
        break;
      case HeaderKey::buffer_donor:
        good = read_donor_table(st, parts);
        break;
      case HeaderKey::entry_computation_layout:
        good = keep = read_entry_layout(st, parts);
        break;
      default:
        good = keep = in.value();
    }
    if (!good) return false;
    if (keep) m.header_attributes.push_back({key, in.since(from)});
  }
}

/// Passes over the tables of files, functions and frames, which are kept as text.
constexpr bool read_frame_index(TextState& st) {
  Lexer& in = st.in;
  const std::size_t from = in.offset();
  std::size_t end = from;
  for (const std::string_view section :
       {std::string_view("FileNames"), std::string_view("FunctionNames"),
        std::string_view("FileLocations"), std::string_view("StackFrames")}) {
    if (in.peek_word() != section) continue;
    in.word();
    end = in.offset();
    for (std::int64_t wanted = 1;; ++wanted) {
      in.skip_space();
      if ((hlo_chars[static_cast<unsigned char>(in.peek())] & is_digit) == 0) break;
      const std::size_t at = in.offset();
      std::int64_t number = 0;
      if (!in.integer(number)) return false;
      if (number != wanted)
        return in.fail_at(at, "the entries of a table have to be numbered from 1");
      in.skip_space();
      if (in.peek() == '{' ? !in.group() : !in.quoted()) return false;
      end = in.offset();
    }
  }
  st.module.frame_index = in.text_at(from, end - from);
  return true;
}

}  // namespace holdfast::detail
