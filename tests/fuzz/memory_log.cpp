// SPDX-License-Identifier: Apache-2.0
// Any bytes as a log of memory: refused at a place within them, or read so that what it says holds
// together, and replayed on a small memory that ends as it began. What of it a recorder has seen
// comes back from the recorder's own text.
#include "holdfast/trace/memory_log.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/trace/replay.hpp"
#include "support/demand.hpp"

using namespace holdfast;
using testing::demand;

namespace {

/// The system's memory up to a few bytes, counted.
struct SmallMemory {
  static constexpr MemorySpace space = MemorySpace::host;
  Bytes* left;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size > *left) return make_error(Errc::out_of_memory, "small");
    const Result<Block> b = SystemMemory{}.allocate(size, alignment);
    if (b.ok()) *left -= size;
    return *b;
  }
  void deallocate(Block b) noexcept {
    *left += b.size;
    SystemMemory{}.deallocate(b);
  }
};

/// What each event says of the blocks must follow from the events before it.
void check_events(const MemoryLog& log, std::size_t size) {
  std::vector<Bytes> live(log.block_count, -1);
  std::uint32_t seen = 0;
  for (const LogEvent& e : log.events) {
    demand(e.offset < size && e.size >= 0);
    demand(log.error_of(e).ok() == (e.fault == LogFault::none));
    if (e.block == MemoryLog::no_block || e.op > LogOp::release) continue;
    if (e.op == LogOp::allocate) {
      demand(e.block == seen++);
      live[e.block] = e.size;
    } else if (e.fault == LogFault::none) {
      demand(e.block < seen && live[e.block] == e.size);
      live[e.block] = -1;
    }
  }
  demand(seen == log.block_count);
}

ReplayReport check_replay(const MemoryLog& log) {
  constexpr Bytes room = 1 << 16;
  Bytes left = room;
  ReplayReport r = replay(log, SmallMemory{&left});
  demand(left == room);
  demand(r.error.ok() == (r.failed == log.events.size()) && r.events == r.failed);
  if (r.error.ok()) {
    demand(r.peak_live == live_peak(log) && r.verified == r.allocations);
  } else {
    const LogEvent& e = log.events[r.failed];
    demand(e.fault != LogFault::none ? r.error.code == Errc::corrupt
                                     : r.error.code == Errc::out_of_memory && e.size > 0);
  }
  return r;
}

/// The events again through a recorder and its text: the same blocks and sizes.
void check_recorded(const MemoryLog& log) {
  struct Text {
    std::string text;
    Error write(std::string_view part) noexcept { return text.append(part), Error{}; }
  } out;
  constexpr std::size_t slots = 256;
  const auto memory = std::make_unique<RecordSlot<StdSync>[]>(slots);
  BasicRecorder<StdSync, NoClock> recorder(
      Block{reinterpret_cast<std::byte*>(memory.get()), slots * 64});
  std::uint32_t blocks = 0;
  std::size_t events = 0;
  for (const LogEvent& e : log.events) {
    if (e.fault != LogFault::none || events == slots) break;
    if (e.op > LogOp::release || e.block == MemoryLog::no_block) continue;
    const Block b{reinterpret_cast<std::byte*>(std::uintptr_t{e.block} + 1), e.size};
    e.op == LogOp::allocate ? recorder.on_allocate(b, {"a \"name\"\n, and more", e.block})
                            : recorder.on_deallocate(b);
    blocks += e.op == LogOp::allocate ? 1 : 0;
    ++events;
  }
  demand(write_memory_log(recorder, out).ok());
  const Result<MemoryLog> again = read_memory_log(out.text);
  demand(again.ok() && again->events.size() == events && again->block_count == blocks &&
         again->lost == 0);
  for (const LogEvent& e : again->events) demand(e.fault == LogFault::none);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<MemoryLog> log = read_memory_log(text);
  if (!log.ok()) {
    demand(log.error().code == Errc::corrupt && log.error().at_kind == AtKind::byte_offset &&
           log.error().at <= size);
    return 0;
  }
  demand(size > 4096 || is_memory_log(text));
  check_events(*log, size);
  check_replay(*log);
  check_recorded(*log);
  return 0;
}
