// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/leak_report.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;

namespace {

using Point = Checkpoint<SystemMemory>;
using Watch = GrowthWatch<SystemMemory>;

Block at(std::uintptr_t address, Bytes size) {
  return {reinterpret_cast<std::byte*>(address << 6), size};
}

std::string report(const Point& point, const Watch& watch, const LeakRules& rules,
                   LeakSummary* summary = nullptr) {
  testing::StringSink out;
  CHECK(write_leaks(point, watch, rules, out, summary).ok());
  return out.text;
}
std::string text_of(const LiveFault& f) {
  testing::StringSink out;
  CHECK(write_fault(f, out).ok());
  return out.text;
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "leak_report: LK1, at the end the third of three is leaked, with size and tag; what may stay "
    "is expected") {
  LiveSet<SystemMemory> set(SystemMemory{});
  set.on_allocate(at(1, 100), {"a", 0});
  set.on_allocate(at(2, 200), {"b", 0});
  set.on_allocate(at(3, 300), {"c", 9});
  set.on_deallocate(at(1, 100));
  set.on_deallocate(at(2, 200));
  set.on_allocate(at(4, 5000), {"static table", 0});
  const std::string_view stays[] = {"static table"};
  LeakSummary sum;
  const Watch none;
  const Point point = std::move(*Point::take(set));
  CHECK(
      report(point, none, {.expected = stays, .owners_gone = true}, &sum) ==
      "leaked: 300 bytes in 1 group\n"
      "expected: 5000 bytes in 1 group\n"
      "leaked: 300 bytes in 1 block of 300 bytes, tag c 9, since step 0 (event 3)\n"
      "expected: 5000 bytes in 1 block of 5000 bytes, tag static table, since step 0 (event 6)\n");
  CHECK(sum.count(LeakVerdict::leaked) == 1);
  // On demand, while owners live, it is no leak yet.
  CHECK(has(report(point, none, {.expected = stays}), "still alive: 300 bytes in 1 block of"));
  set.on_deallocate(at(3, 300));
  CHECK(report(*Point::take(set), none, {.expected = stays, .owners_gone = true}, &sum)
            .find("leaked") == std::string::npos);
  CHECK(sum.count(LeakVerdict::leaked) == 0);
}

TEST_CASE("leak_report: rows go by bytes, and what is not written is counted") {
  LiveSet<SystemMemory> set(SystemMemory{});
  for (std::uintptr_t i = 1; i <= 30; ++i)
    set.on_allocate(at(i, 10), {nullptr, i});  // all the same size
  set.on_allocate(at(31, 5000), {nullptr, 77});
  const std::string text = report(*Point::take(set), Watch{}, {.rows = 3});
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);
  CHECK(has(text,
            "bytes, tag none 77, since step 0 (event 31)\nstill alive: 10 bytes in 1 block of 10 "
            "bytes, tag none 1, "));
  CHECK(has(text, "tag none 2, since"));
  CHECK(has(text, "28 groups more\n"));
  CHECK(report(*Point::take(LiveSet<SystemMemory>(SystemMemory{})), Watch{}, {}) == "");
}

TEST_CASE("leak_report: the first failure of a sink ends it") {
  struct Full {
    int left;
    Error write(std::string_view) noexcept {
      return left-- > 0 ? Error{} : make_error(Errc::internal, "full");
    }
  };
  LiveSet<SystemMemory> set(SystemMemory{});
  set.on_allocate(at(1, 10), {});
  const Point point = std::move(*Point::take(set));
  for (int n = 0; n < 5; ++n) {
    Full out{n};
    CHECK(write_leaks(point, Watch{}, {}, out).code == Errc::internal);
    CHECK(out.left == -1);
  }
}

namespace {

/// The rows of case 26 on a live set, with what each free passes on to the provider.
struct CaseRun {
  LiveSet<SystemMemory> set{SystemMemory{}};
  Watch watch;
  std::map<std::string, std::uintptr_t> addresses;
  std::vector<std::string> provider;
  std::vector<Bytes> in_use, marks;  ///< by row, from 1; by mark
  std::vector<std::string> errors;   ///< by row
  Bytes peak = 0;
  std::uint32_t step = 0;

  Block block(const std::string& id, Bytes bytes) {
    const std::uintptr_t address = addresses.try_emplace(id, addresses.size() + 1).first->second;
    return at(address, bytes);
  }
  void row(const std::string& op, const std::string& id, Bytes bytes) {
    std::string error;
    if (op == "alloc") CHECK(set.add(block(id, bytes)).ok());
    if (op == "free") {
      LiveBlock known;
      const Error e = set.remove(block(id, bytes), &known);
      if (e.ok()) provider.push_back("free " + id + " " + std::to_string(known.block.size));
      if (!e.ok())
        set.visit_faults([&](const LiveFault& f) {
          error = std::string(errc_name(e.code)) + ": " + text_of(f);
        });
    }
    if (op == "mark") {
      const Point point = std::move(*Point::take(set));
      CHECK(watch.note(point).ok());
      set.set_step(++step);
      marks.push_back(set.figures().bytes);
    }
    errors.push_back(error);
    in_use.push_back(set.figures().bytes);
    peak = std::max(peak, in_use.back());
  }
};

std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> out;
  for (std::size_t from = text.find('\n') + 1; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    std::vector<std::string> cells{""};
    for (const char c : text.substr(from, to - from))
      c == ',' ? cells.emplace_back() : cells.back().append(1, c);
    out.push_back(std::move(cells));
    from = to + 1;
  }
  return out;
}

}  // namespace

TEST_CASE("leak_report: case 26, sizes of zero, double releases and steady growth") {
  const std::string path = testing::shared_path("cases/26-leak-trace/events.csv");
  if (path.empty()) return;
  const auto rows = rows_of(testing::read_file(path));
  REQUIRE(rows.size() == 17);
  const LeakRules rules{.growth = {.checkpoints = 3, .age = 0}};
  CaseRun run;
  for (const auto& r : rows) {
    run.row(r[1], r[2], r[3].empty() ? 0 : std::stoll(r[3]));
    if (r[0] == "16") {
      const Point point = std::move(*Point::take(run.set));
      LeakSummary sum;
      const std::string text = report(point, run.watch, rules, &sum);
      CHECK(sum.count(LeakVerdict::suspicious) == 1);
      CHECK(has(text,
                "suspicious: 900 bytes in 3 blocks of 300 bytes, tag none, since step 0 (event "
                "11): grows by 300 bytes in 1 block a step\n"));
      CHECK(has(text, "still alive: 200 bytes in 1 block of 200 bytes"));
      CHECK(has(text, "still alive: 1000 bytes in 1 block of 1000 bytes"));
    }
  }
  CHECK(run.provider ==
        std::vector<std::string>{"free t1 500", "free t3 700", "free t2 500", "free w 1000"});
  // Rows 1 to 11 are the set's events 1 to 11.
  CHECK(has(run.errors[8],
            "wrong_state: event 9: a block of 500 bytes is released twice: 500 bytes, tag none, "
            "allocated at event 4, released at event 8"));
  CHECK(has(run.errors[9],
            "invalid_argument: event 10: a block of 64 bytes is released but not allocated here"));
  for (const std::size_t good : {0u, 5u, 7u, 16u}) CHECK(run.errors[good].empty());
  const std::map<std::size_t, Bytes> expected{{3, 1000},  {5, 2200},  {8, 1200},
                                              {9, 1200},  {10, 1200}, {12, 1500},
                                              {14, 1800}, {16, 2100}, {17, 1100}};
  for (const auto& [row, bytes] : expected) CHECK(run.in_use[row - 1] == bytes);
  CHECK(run.peak == 2200);
  CHECK(run.in_use[4] == run.peak);
  CHECK(run.marks == std::vector<Bytes>{1500, 1800, 2100});
  std::vector<Bytes> left;
  run.set.visit([&](const LiveBlock& b) { left.push_back(b.block.size); });
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<Bytes>{200, 300, 300, 300});
  const std::string end = report(*Point::take(run.set), run.watch, rules);
  CHECK_FALSE(has(end, "1000 bytes"));  // no false alarm for w
  CHECK(has(end, "suspicious: 900 bytes"));
}

TEST_CASE(
    "leak_report: case 26, with the blocks of rows 13 and 15 freed before their marks nothing "
    "grows") {
  const std::string path = testing::shared_path("cases/26-leak-trace/events.csv");
  if (path.empty()) return;
  CaseRun run;
  for (const auto& r : rows_of(testing::read_file(path))) {
    if (r[0] == "14") run.row("free", "t5", 300);
    if (r[0] == "16") run.row("free", "t6", 300);
    run.row(r[1], r[2], r[3].empty() ? 0 : std::stoll(r[3]));
  }
  LeakSummary sum;
  report(*Point::take(run.set), run.watch, {.growth = {.checkpoints = 3, .age = 0}}, &sum);
  CHECK(sum.count(LeakVerdict::suspicious) == 0);
  CHECK(sum.count(LeakVerdict::alive) == 2);
}

TEST_CASE("leak_report: a fault is a sentence") {
  const LiveBlock known{at(7, 64), {"t", 0}, 3, 0, 0, 0, 0, static_cast<StackId>(5)};
  CHECK(text_of({LiveFault::Kind::size_mismatch, 12, at(7, 60), known}) ==
        "event 12: a block of 60 bytes is released with another size than it has: 64 bytes, tag t, "
        "stack 5, allocated at event 3\n");
  CHECK(has(text_of({LiveFault::Kind::twice_live, 12, at(7, 60), known}),
            "allocated while it is live: 64 bytes"));
}
