// SPDX-License-Identifier: Apache-2.0
// The real recorder under every interleaving: writers that meet in a slot, and a reader beside them.
#include "holdfast/trace/recorder.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/explorer.hpp"

using namespace holdfast;
using model::check_all;
using model::require;

namespace {

template <std::size_t Slots>
struct Ring {
  using Recorder = BasicRecorder<model::Sync, NoClock>;
  alignas(64) std::array<std::byte, Slots * sizeof(Recorder::Slot)> memory{};
  Recorder recorder{Block{memory.data(), static_cast<Bytes>(memory.size())}};
  std::uint64_t written = 0;

  void write(std::uintptr_t n) {
    ++written;
    recorder.on_allocate({reinterpret_cast<std::byte*>(n), static_cast<Bytes>(3 * n)}, {nullptr, 7 * n});
  }
  std::uint64_t look() {
    std::uint64_t seen = 0;
    recorder.visit([&](const Record& r) {
      const auto n = reinterpret_cast<std::uintptr_t>(r.block.data);
      require(n != 0 && r.block.size == static_cast<Bytes>(3 * n) && r.tag.number == 7 * n, "a reader sees parts of two events");
      ++seen;
    });
    return seen;
  }
  void invariant() {}
  void finish() {
    require(recorder.count() == written, "an event has no number");
    const std::uint64_t kept = look();
    require(kept <= Slots, "more events than slots");
    require(recorder.lost() == written - kept, "lost events are not counted");
    for (std::uintptr_t n = 0; n < Slots; ++n) write(100 + n);
    require(look() == Slots, "a slot is stuck");
  }
};

struct TwoWriters : Ring<1> {
  static constexpr int threads = 2;
  void run(int t) { write(static_cast<std::uintptr_t>(t) + 1); }
};
struct ReaderWriter : Ring<1> {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) write(1), write(2);
    if (t == 1) look();
  }
};
struct Apart : Ring<2> {
  static constexpr int threads = 2;
  void run(int t) { write(static_cast<std::uintptr_t>(t) + 1); }
  void finish() {
    Ring::finish();
    require(look() == 2, "an event is lost though there is a slot for it");
  }
};
struct TwoWritersReader : Ring<1> {
  static constexpr int threads = 3;
  void run(int t) {
    if (t < 2) write(static_cast<std::uintptr_t>(t) + 1);
    if (t == 2) look();
  }
};

}  // namespace

TEST_CASE("recorder: two writers in one slot leave one whole event") { check_all<TwoWriters>("two writers, one slot"); }
TEST_CASE("recorder: two writers in two slots lose nothing") { check_all<Apart>("two writers, two slots"); }
TEST_CASE("recorder: a reader beside a writer that comes round sees whole events") { check_all<ReaderWriter>("reader, writer of two"); }
TEST_CASE("recorder: a reader beside two writers in one slot sees whole events") { check_all<TwoWritersReader>("two writers, reader"); }
