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

// Offsets of real programs, by policies; the sum of all offsets is a figure that changes with any decision.
TEST_CASE("bfc_replay: on a program's trace exact splits need less than the original's, and every policy its own, fixed offsets") {
  const std::string path = shared_path("data/traces/xla_train_12.events.csv");
  if (path.empty()) return;
  const std::string text = read_file(path);
  std::vector<BfcEvent> events;
  Bytes live = 0, peak = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    char op = 0;
    unsigned id = 0;
    long long size = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "%c,%u,%lld", &op, &id, &size) == 3);
    events.push_back({op == 'a', id, size});
    live += op == 'a' ? size : -size;
    peak = std::max(peak, live);
  }
  const auto reserved = [&](const Result<BfcReplay>& r) {
    REQUIRE(r.ok());
    CHECK(r->failures == 0);
    CHECK(r->statistics.in_use == 0);
    return r->statistics.peak_in_use;
  };
  const Bytes original = reserved(replay_bfc(events)), exact = reserved(replay_bfc<BestFit, ExactSplit>(events));
  CHECK(exact >= peak);
  CHECK(exact <= original);
  CHECK(reserved(replay_bfc<BestFit, BoundedWaste>(events)) <= exact + exact / 8);
  for (const Bytes n : {reserved(replay_bfc<FirstFit, ExactSplit>(events)), reserved(replay_bfc<WorstFit, ExactSplit>(events)),
                        reserved(replay_bfc<TwoLevelFit, ExactSplit>(events))})
    CHECK(n == exact);  // what is in use does not depend on where it lies
  CHECK(replay_bfc(events)->offsets == replay_bfc(events)->offsets);
}
