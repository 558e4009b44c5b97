// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/replay.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

TEST_CASE("bfc_replay: a trace's offsets, with the step that fails") {
  const BfcOptions options{.limit = 4096, .region = 4096};
  const BfcEvent events[] = {{true, 0, 1024}, {true, 1, 1000}, {true, 2, 2048}, {false, 0}, {true, 3, 2048}, {false, 3}, {true, 3, 0},
                             {false, 1},      {true, 0, 2048}};
  const Result<BfcReplay> r = replay_bfc(events, options);
  REQUIRE(r.ok());
  CHECK(r->offsets == std::vector<Bytes>{0, 1024, 2048, 0, -1, 0, 0, 0, 0});
  CHECK(r->failures == 1);
  CHECK(r->first_failure == 4);
  CHECK(r->statistics.in_use == 4096);
  const BfcEvent ends[] = {{true, 0, 256}, {true, 1, 256, Alignment(1), BfcEnd::upper}, {false, 0}, {true, 0, 256, Alignment(1024), BfcEnd::upper}};
  const Result<BfcReplay> two = replay_bfc<BestFit, ExactSplit, TwoEnded>(ends, options);
  REQUIRE(two.ok());
  CHECK(two->offsets == std::vector<Bytes>{0, 3840, 0, 3072});
}

TEST_CASE("bfc_replay: a trace that frees what is not out, or takes a name twice, is corrupt at that event") {
  for (const std::vector<BfcEvent>& events : {std::vector<BfcEvent>{{true, 0, 1}, {true, 0, 1}}, std::vector<BfcEvent>{{true, 0, 1}, {false, 1}},
                                              std::vector<BfcEvent>{{true, 0, 1}, {true, 2, 1}}, std::vector<BfcEvent>{{true, 1, 1}, {false, 7}}}) {
    const Result<BfcReplay> r = replay_bfc(events);
    CHECK(r.error().code == Errc::corrupt);
    CHECK(r.error().at == 1);
  }
  CHECK(replay_bfc(std::vector<BfcEvent>{{true, 0, -1}})->failures == 1);
  CHECK(replay_bfc({})->offsets.empty());
}

namespace {

std::vector<BfcEvent> read_trace(const std::string& path, Bytes& peak) {
  const std::string text = read_file(path);
  std::vector<BfcEvent> events;
  Bytes live = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    char op = 0;
    unsigned id = 0;
    long long size = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "%c,%u,%lld", &op, &id, &size) == 3);
    events.push_back({op == 'a', id, size});
    live += op == 'a' ? size : -size;
    peak = std::max(peak, live);
  }
  return events;
}

}  // namespace

TEST_CASE("bfc_replay: on real programs no policy fails, and tight ones reserve less than the original's") {
  for (const char* name : {"mindspore_resnet50.events.csv", "mindspore_pangu_2.6B.events.csv.gz", "iopddl_G_1.events.csv",
                           "xla_train_12.events.csv", "xla_trinf_16.events.csv", "xla_conv_24.events.csv"}) {
    const std::string path = shared_path(std::string("data/traces/") + name);
    if (path.empty()) return;
    CAPTURE(name);
    Bytes peak = 0;
    const std::vector<BfcEvent> events = read_trace(path, peak);
    const auto statistics = [&](const Result<BfcReplay>& r) {
      REQUIRE(r.ok());
      CHECK(r->failures == 0);
      CHECK(r->statistics.in_use == 0);
      CHECK(r->statistics.peak_requested == peak);
      CHECK(r->statistics.peak_in_use >= peak);
      return r->statistics;
    };
    const BfcStatistics original = statistics(replay_bfc(events)), tight = statistics(replay_bfc<BestFit, BoundedWaste, ExactGrowth>(events)),
                        exact = statistics(replay_bfc<BestFit, ExactSplit>(events));
    CHECK(tight.peak_reserved < original.peak_reserved);
    CHECK(exact.peak_in_use <= tight.peak_in_use);
    CHECK(tight.peak_in_use <= exact.peak_in_use + exact.peak_in_use / 8);
    // What is in use does not depend on where it lies.
    CHECK(statistics(replay_bfc<FirstFit, ExactSplit>(events)).peak_in_use == exact.peak_in_use);
    CHECK(statistics(replay_bfc<TwoLevelFit, ExactSplit>(events)).peak_in_use == exact.peak_in_use);
  }
}

TEST_CASE("bfc_replay: the offsets of a program are what they were") {
  const std::string path = shared_path("data/traces/xla_train_12.events.csv");
  if (path.empty()) return;
  Bytes peak = 0;
  const std::vector<BfcEvent> events = read_trace(path, peak);
  const auto digest = [](const Result<BfcReplay>& r) {
    std::uint64_t sum = 0;
    for (const Bytes offset : r->offsets) sum = sum * 31 + static_cast<std::uint64_t>(offset);
    return sum;
  };
  // The first by a script of its own that follows 6.1-6.3; the second by this pool: a change there is a change of decisions.
  CHECK(digest(replay_bfc(events)) == 1864689360161224704u);
  CHECK(digest(replay_bfc<TwoLevelFit, ExactSplit>(events)) == 10688104343657797632u);
}
