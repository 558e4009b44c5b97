// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/wire.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;
using namespace std::string_view_literals;

namespace {

std::vector<WireField> read_all(std::string_view bytes, Error* error = nullptr) {
  std::vector<WireField> out;
  WireReader reader(bytes);
  for (WireField f; reader.next(f);) out.push_back(f);
  if (error != nullptr)
    *error = reader.error();
  else
    CHECK(reader.error().ok());
  return out;
}

Error error_of(std::string_view bytes) {
  Error e;
  read_all(bytes, &e);
  return e;
}

constexpr bool works_in_a_constant_expression() {
  WireWriter inner, outer;
  inner.number(1, -1);
  outer.message(2, inner);
  outer.text(3, "name");
  WireReader reader(outer.bytes());
  WireField f;
  if (!reader.next(f) || f.number != 2) return false;
  WireReader sub(f.bytes, f.offset);
  WireField g;
  if (!sub.next(g) || g.signed_value() != -1 || sub.next(g)) return false;
  return reader.next(f) && f.bytes == "name" && !reader.next(f) && reader.error().ok();
}
static_assert(works_in_a_constant_expression());

}  // namespace

TEST_CASE("wire: int64 -1 in field 4 is ten varint bytes, and eleven are an error (R.5)") {
  WireWriter w;
  w.number(4, -1);
  CHECK(w.bytes() == "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);
  const auto fields = read_all(w.bytes());
  REQUIRE(fields.size() == 1);
  CHECK(fields[0].number == 4);
  CHECK(fields[0].signed_value() == -1);
  const Error e = error_of("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00"sv);
  CHECK(e.code == Errc::corrupt);
  CHECK(e.at_kind == AtKind::byte_offset);
  CHECK(e.at == 10);
  CHECK(error_of("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"sv).code ==
        Errc::corrupt);  // a 65th bit
}

TEST_CASE("wire: integers come packed, one by one, or mixed (R.6)") {
  const auto numbers = [](std::string_view bytes) {
    std::vector<std::int64_t> out;
    for (const WireField& f : read_all(bytes)) CHECK(append_numbers(f, out).ok());
    return out;
  };
  const std::vector<std::int64_t> one_two{1, 2};
  CHECK(numbers("\xa0\x02\x01\xa0\x02\x02"sv) == one_two);
  CHECK(numbers("\xa2\x02\x02\x01\x02"sv) == one_two);
  CHECK(numbers("\xa0\x02\x01\xa2\x02\x01\x02"sv) == one_two);
  CHECK(numbers("\xa2\x02\x00"sv).empty());
  std::vector<std::int64_t> out;
  WireReader reader("\xa2\x02\x02\x01\x82"sv);
  WireField f;
  REQUIRE(reader.next(f));
  const Error e = append_numbers(f, out);
  CHECK(e.code == Errc::corrupt);
  CHECK(e.at == 5);
}

TEST_CASE("wire: repeated integers are written packed, defaults not at all") {
  WireWriter w;
  const std::int64_t values[] = {1, 2};
  w.numbers(36, values);
  w.numbers(37, {});
  w.number(1, 0);
  w.text(2, "");
  CHECK(w.bytes() == "\xa2\x02\x02\x01\x02"sv);
  w.clear();
  w.message(2, ""sv);
  CHECK(w.bytes() == "\x12\x00"sv);
}

TEST_CASE("wire: fields of every kind are read with value, bytes and offset") {
  const auto f =
      read_all("\x08\x96\x01\x11\x01\x02\x03\x04\x05\x06\x07\x88\x1a\x03xyz\x25\x01\x00\x00\x80"sv);
  REQUIRE(f.size() == 4);
  CHECK(f[0].kind == WireKind::varint);
  CHECK(f[0].value == 150);
  CHECK(f[0].offset == 1);
  CHECK(f[1].kind == WireKind::fixed64);
  CHECK(f[1].value == 0x8807060504030201u);
  CHECK(f[2].kind == WireKind::bytes);
  CHECK(f[2].bytes == "xyz");
  CHECK(f[2].offset == 14);
  CHECK(f[3].kind == WireKind::fixed32);
  CHECK(f[3].value == 0x80000001u);
}

TEST_CASE("wire: a length beyond the message is rejected at once, 2^63 too (R.8)") {
  CHECK(error_of("\x0a\x04xyz"sv).code == Errc::corrupt);
  CHECK(error_of("\x0a\x04xyz"sv).at == 2);
  CHECK(error_of("\x0a\x03xyz"sv).ok());
  CHECK(error_of("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"sv).code == Errc::corrupt);
  CHECK(error_of("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"sv).code == Errc::corrupt);
  CHECK(error_of("\x09\x01\x02"sv).code == Errc::corrupt);
  CHECK(error_of("\x0d\x01\x02"sv).code == Errc::corrupt);
  CHECK(error_of("\x0a"sv).code == Errc::corrupt);
  CHECK(error_of("\x80"sv).code == Errc::corrupt);
}

TEST_CASE(
    "wire: a message cut at any byte gives an error, or at a field's border fewer fields (R.8)") {
  WireWriter w;
  w.number(1, 300), w.text(2, "abc"), w.tag(3, WireKind::fixed64), w.raw("12345678"),
      w.tag(4, WireKind::fixed32), w.raw("1234");
  int whole = 0;
  for (std::size_t n = 0; n <= w.bytes().size(); ++n) {
    Error e;
    const std::size_t fields = read_all(w.bytes().substr(0, n), &e).size();
    CHECK(fields <= 4);
    whole += e.ok();
  }
  CHECK(whole == 5);
}

TEST_CASE("wire: groups are skipped balanced, to a limited depth (hlo-format.md K)") {
  // 1: group { 2: group { 3: 5 } 2: end } 1: end, then 4: 6
  const auto f = read_all("\x0b\x13\x18\x05\x14\x0c\x20\x06"sv);
  REQUIRE(f.size() == 2);
  CHECK(f[0].kind == WireKind::group);
  CHECK(f[0].number == 1);
  CHECK(f[1].value == 6);
  CHECK(error_of("\x0b\x13\x18\x05\x0c\x14"sv).code == Errc::corrupt);  // crossed
  CHECK(error_of("\x0b\x18\x05"sv).code == Errc::corrupt);              // not closed
  CHECK(error_of("\x0c"sv).code == Errc::corrupt);                      // not opened
  CHECK(error_of(std::string(wire_depth_limit + 1, '\x0b')).code == Errc::corrupt);
  CHECK(error_of(std::string(1'000'000, '\x0b')).code == Errc::corrupt);
  std::string deep(wire_depth_limit, '\x0b');
  deep.append(wire_depth_limit, '\x0c');
  CHECK(read_all(deep).size() == 1);
}

TEST_CASE("wire: field number 0, numbers over 29 bits and unknown kinds are errors") {
  CHECK(error_of("\x00\x01"sv).code == Errc::corrupt);
  CHECK(error_of("\x80\x80\x80\x80\x10\x01"sv).code == Errc::corrupt);
  CHECK(error_of("\x0e\x01"sv).code == Errc::corrupt);
  CHECK(error_of("\x0f\x01"sv).code == Errc::corrupt);
  CHECK(read_all("\xf8\xff\xff\xff\x0f\x01"sv)[0].number == 0x1FFFFFFFu);
}

TEST_CASE("wire: what was read can be kept verbatim, tag included") {
  std::string kept;
  const std::string_view bytes =
      "\x08\x96\x01\x0b\x13\x18\x05\x14\x0c\x1a\x03xyz\x25\x01\x00\x00\x80"sv;
  WireReader reader(bytes);
  for (WireField f; reader.next(f);) kept += reader.raw();
  CHECK(kept == bytes);
  CHECK(reader.offset() == bytes.size());
}

TEST_CASE("wire: offsets count from where the message stands in the file") {
  WireReader reader("\x0a\x01x\x0a\x05y"sv, 100);
  WireField f;
  REQUIRE(reader.next(f));
  CHECK(f.offset == 102);
  CHECK_FALSE(reader.next(f));
  CHECK(reader.error().at == 105);
  CHECK_FALSE(reader.next(f));  // an error stays
}

TEST_CASE("wire: every 64-bit number survives writing and reading") {
  for (const std::int64_t v :
       {std::int64_t{1}, std::int64_t{127}, std::int64_t{128}, std::int64_t{1} << 35,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    WireWriter w;
    w.number(7, v);
    const auto f = read_all(w.bytes());
    REQUIRE(f.size() == 1);
    CHECK(f[0].signed_value() == v);
  }
}
