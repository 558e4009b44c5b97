// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/allocation_table.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "support/shared.hpp"

using namespace holdfast;
using namespace std::string_view_literals;
using holdfast::testing::data_path;
using holdfast::testing::read_file;

namespace {

std::string text(const std::vector<char>& bytes) { return {bytes.begin(), bytes.end()}; }

constexpr bool reads_in_a_constant_expression() {
  // R.4 as an allocation of an assignment
  const Result<AllocationTable> t =
      parse_buffer_assignment("\x1a\x0c\x08\x01\x10\x10\x38\x01\x4a\x04\x08\x01\x18\x10"sv);
  return t.ok() && t->allocations.size() == 1 && t->allocations[0].size == 16 &&
         t->allocations[0].maybe_live_out && t->assigned.size() == 1 && t->assigned[0].size == 16;
}
static_assert(reads_in_a_constant_expression());

}  // namespace

TEST_CASE(
    "allocation_table: allocation 1 of 16 live-out bytes with buffer 1 is twelve bytes (R.4)") {
  AllocationTable t;
  t.allocations.push_back({.index = 1, .size = 16, .assigned = {0, 1}, .maybe_live_out = true});
  t.assigned.push_back({1, 0, 16});
  CHECK(text(render_buffer_assignment(t)) ==
        "\x1a\x0c\x08\x01\x10\x10\x38\x01\x4a\x04\x08\x01\x18\x10"sv);
}

TEST_CASE(
    "allocation_table: everything that is read is written again, unknown fields too (R.7, P)") {
  AllocationTable t;
  t.numbers = {1, 0, 2};
  t.buffers.push_back(
      {.id = 4, .size = 64, .color = 5, .instruction_id = 77, .shape_index = {0, 2}});
  t.buffers.push_back({.id = 5, .size = 8, .computation_name = "main", .instruction_name = "old"});
  t.allocations.push_back({.index = 0,
                           .size = 64,
                           .color = 5,
                           .parameter_number = 3,
                           .parameter_index = {2, 1},
                           .assigned = {0, 2},
                           .is_thread_local = true,
                           .is_tuple = true,
                           .is_parameter = true,
                           .is_constant = true,
                           .is_aliased = true,
                           .maybe_live_out = true});
  t.assigned = {{4, 0, 64}, {5, 8, 8}};
  t.events = {{HeapEvent::Kind::alloc, 4, 0, "c", "i"},
              {HeapEvent::Kind::share_with, 5, 4, "", ""},
              {HeapEvent::Kind::free, 4, 0, "", ""}};
  t.traces.push_back({.events = {0, 3}, .allocation = 0, .whole_module = true});
  const std::string_view unknown =
      "\x12\x02\x08\x04\xca\x83\x06\x03xyz"sv;  // a buffer alias, and field 12345
  t.unknown_fields.assign(unknown.begin(), unknown.end());
  const std::string bytes = text(render_buffer_assignment(t));
  const Result<AllocationTable> back = parse_buffer_assignment(bytes);
  REQUIRE(back.ok());
  CHECK(text(render_buffer_assignment(*back)) == bytes);
  CHECK(back->buffers[0].instruction_id == 77);
  CHECK(back->numbers_of(back->buffers[0].shape_index).size() == 2);
  CHECK(back->buffers[1].instruction_name == "old");
  CHECK(back->buffers[1].computation_name == "main");
  const Allocation& a = back->allocations[0];
  CHECK((a.is_thread_local && a.is_tuple && a.is_parameter && a.is_constant && a.is_aliased &&
         a.maybe_live_out));
  CHECK(a.parameter_number == 3);
  CHECK(a.color == 5);
  CHECK(back->assigned_to(a)[1].offset == 8);
  CHECK(back->events_of(back->traces[0])[1].shares_with == 4);
  CHECK(back->traces[0].whole_module);
  CHECK(text(back->unknown_fields) == unknown);
}

TEST_CASE(
    "allocation_table: what XLA wrote comes out byte for byte, but for the element types that it "
    "adds (T-M8)") {
  for (const std::string_view name :
       {"tm1_rms", "tm2_products", "tm3_identity_donated", "tm4_scan", "tm5_sort"}) {
    CAPTURE(name);
    const std::string bytes = read_file(data_path("plan/" + std::string(name) + ".assignment.pb"));
    const Result<AllocationTable> t = parse_buffer_assignment(bytes);
    REQUIRE(t.ok());
    const std::string again = text(render_buffer_assignment(*t));
    const Result<AllocationTable> second = parse_buffer_assignment(again);
    REQUIRE(second.ok());
    CHECK(text(render_buffer_assignment(*second)) == again);
    CHECK(second->buffers.size() == t->buffers.size());
    CHECK(second->allocations.size() == t->allocations.size());
  }
}

TEST_CASE(
    "allocation_table: negative sizes, unknown events and cut files are errors with a place "
    "(openxla/xla#46105)") {
  const auto bad = [](std::string_view bytes) {
    const Result<AllocationTable> t = parse_buffer_assignment(bytes);
    REQUIRE_FALSE(t.ok());
    CHECK(t.error().code == Errc::corrupt);
    CHECK(t.error().at_kind == AtKind::byte_offset);
  };
  bad("\x0a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);          // buffer of -1 bytes
  bad("\x1a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);          // allocation of -1 bytes
  bad("\x1a\x0d\x4a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);  // offset -1
  bad("\x22\x04\x0a\x02\x08\x07"sv);                                      // event of kind 7
  bad("\x1a\x0c\x08\x01\x10\x10\x38\x01\x4a\x04\x08\x01\x18"sv);          // cut
}

TEST_CASE("allocation_table: an absent kind is an allocation, for ALLOC is 0 (P.4)") {
  const Result<AllocationTable> t = parse_buffer_assignment("\x22\x04\x0a\x02\x10\x09"sv);
  REQUIRE(t.ok());
  CHECK(t->events[0].kind == HeapEvent::Kind::alloc);
  CHECK(t->events[0].buffer == 9);
}
