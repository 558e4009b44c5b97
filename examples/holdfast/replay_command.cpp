// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/trace/replay.hpp"
#include "machine_memory.hpp"
#include "progress.hpp"
#include "report.hpp"

namespace program {

using namespace holdfast;
using namespace holdfast::literals;

namespace {

/// Blocks that a report lists of those never released.
constexpr std::size_t most_left = 16;

std::uint32_t line_of(const Input& input, const LogEvent& e) {
  return static_cast<std::uint32_t>(place_of(input.bytes, static_cast<std::size_t>(e.offset)) >>
                                    32);
}

ReplayOptions options_of(const MemoryLog& log, const Options& o) {
  ReplayOptions out;
  out.alignment = Alignment(o.alignment > 0 ? o.alignment : 64);
  Bytes values = 0;
  for (const LogEvent& e : log.events)
    if (e.op == LogOp::allocate) values = saturating_add(values, e.size);
  const bool page = o.check == "page" || (o.check.empty() && values >= 4_GiB);
  out.check = page ? PatternCheck::page : PatternCheck::full;
  out.verify = o.check != "none";
  return out;
}

Result<ReplayReport> replay_on(const MemoryLog& log, const Options& o) {
  const ReplayOptions options = options_of(log, o);
  const auto shown = [&](std::size_t i) {
    if (i % 64 == 0)
      progress("replaying", static_cast<double>(i) / static_cast<double>(log.events.size()));
  };
  const Bytes limit = o.limit >= 0 ? o.limit : max_bytes;
  if (o.replay_backend == "system") {
    using Limiting = Stack<SystemMemory, Limited>;
    MemoryLimit cap(limit);
    return replay(log, make_stack<Limiting>(SystemMemory{}, cap), options, shown);
  }
  // A pool's own limit holds for what it reserves; what is never touched needs no memory.
  if (o.replay_backend == "bfc") {
    Result<BfcHeap<SystemMemory>> heap =
        BfcHeap<SystemMemory>::make(SystemMemory{}, {.limit = std::max<Bytes>(limit, 256)});
    if (!heap.ok()) return heap.error();
    return replay(log, heap->pool(), options, shown);
  }
  Result<HostHeap> heap =
      HostHeap::make({.limit = std::max<Bytes>(limit, 1), .heed_system = options.verify});
  if (!heap.ok()) return heap.error();
  return replay(log, heap->pool(), options, shown);
}

int status_of(const Error& e) {
  if (e.ok()) return done;
  if (e.code == Errc::corrupt) return bad_input;
  return e.code == Errc::out_of_memory || e.code == Errc::over_budget ? no_plan : not_verified;
}

/// The sentence of what failed, without its place.
std::string sentence(const Error& error) {
  std::string text;
  StringSink sink{&text};
  static_cast<void>(write_error(sink, error));
  return text;
}

/// Of the blocks never released the largest, with the lines of their allocations.
Json left_json(const Input& input, const MemoryLog& log, const ReplayReport& r) {
  std::vector<std::size_t> events = r.left_events;
  std::stable_sort(events.begin(), events.end(), [&](std::size_t a, std::size_t b) {
    return log.events[a].size > log.events[b].size;
  });
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(events.size(), most_left); ++i) {
    const LogEvent& e = log.events[events[i]];
    list.push_back({{"event", events[i] + 1}, {"line", line_of(input, e)}, {"bytes", e.size}});
  }
  return list;
}

Json replay_json(const Input& input, const MemoryLog& log, const ReplayReport& r,
                 const Options& o) {
  Json j;
  j["log"] = input.file;
  j["events"] = log.events.size();
  j["lost_events"] = log.lost;
  j["recorded_failures"] = r.recorded_failures;
  j["allocations"] = r.allocations;
  j["allocated_bytes"] = r.allocated;
  j["peak_live_bytes"] = r.peak_live;
  j["peak_live_blocks"] = r.peak_blocks;
  j["left_bytes"] = r.left;
  j["left_blocks"] = r.left_events.size();
  j["left"] = left_json(input, log, r);
  j["backend"] = o.replay_backend;
  j["peak_reserved_bytes"] = r.peak_reserved >= 0 ? Json(r.peak_reserved) : Json(nullptr);
  j["blocks_checked"] = r.verified;
  j["verified"] = r.error.ok() && r.verified == r.allocations;
  j["failed"] = nullptr;
  j["samples"] = Json::array();
  for (const ReplaySample& s : r.samples)
    j["samples"].push_back({{"event", s.event + 1},
                            {"live_bytes", s.live},
                            {"reserved_bytes", s.reserved},
                            {"free_bytes", s.free},
                            {"largest_free_bytes", s.largest_free},
                            {"fragmentation", s.external_fragmentation()}});
  return j;
}

/// Says which event failed and why, and where a block that was overwritten came from.
Json report_failure(const Input& input, const MemoryLog& log, const ReplayReport& r) {
  const bool after_all = r.failed == log.events.size();
  const std::size_t at = after_all ? r.overwritten : r.failed;
  std::string what = sentence(r.error);
  if (r.error.code == Errc::internal && !after_all)
    what += ", allocated by event " + std::to_string(r.overwritten + 1);
  const std::uint32_t line = line_of(input, log.events[at]);
  std::fprintf(stderr, "%s:%u:1: event %zu: %s\n", input.file.c_str(), line, at + 1, what.c_str());
  return {{"event", at + 1}, {"line", line}, {"what", what}};
}

void print_replay(const Input& input, const MemoryLog& log, const ReplayReport& r,
                  const Options& o) {
  const auto line = [](const char* what, Bytes bytes) {
    std::printf("  %-13s %16lld  %s\n", what, static_cast<long long>(bytes), human(bytes).c_str());
  };
  std::printf("%s: %zu events, %lld allocations on %s\n", input.file.c_str(), log.events.size(),
              static_cast<long long>(r.allocations), o.replay_backend.c_str());
  line("peak live", r.peak_live);
  if (r.peak_reserved >= 0) line("peak reserved", r.peak_reserved);
  if (!r.left_events.empty()) line("never released", r.left);
  std::printf("%lld blocks checked\n", static_cast<long long>(r.verified));
}

}  // namespace

int replay_command(const Options& options) {
  Input input;
  if (!read_input(options.file, input)) return bad_input;
  input.kind = InputKind::csv;
  Clock clock;
  Result<MemoryLog> log = read_memory_log(input.bytes);
  if (!log.ok()) return print_error(input, log.error()), bad_input;
  const double parse_seconds = clock.lap();
  const Bytes peak = live_peak(*log);
  if (options.check != "none" && peak > available_memory()) {
    std::fprintf(stderr, "%s: the log needs %lld bytes, this machine has %lld available\n",
                 input.file.c_str(), static_cast<long long>(peak),
                 static_cast<long long>(available_memory()));
    return no_plan;
  }
  const Result<ReplayReport> report = replay_on(*log, options);
  end_progress();
  if (!report.ok()) return print_error(input, report.error()), status_of(report.error());
  Json j = replay_json(input, *log, *report, options);
  j["parse_seconds"] = parse_seconds;
  j["replay_seconds"] = clock.lap();
  if (!report->error.ok()) j["failed"] = report_failure(input, *log, *report);
  if (!write_json(options, j)) return usage;
  if (report->error.ok() && options.json != "-") print_replay(input, *log, *report, options);
  return status_of(report->error);
}

}  // namespace program
