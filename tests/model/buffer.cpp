// SPDX-License-Identifier: Apache-2.0
// The real tracked buffer under every interleaving: its hold, its usage events, its event cells and its memory together.
#include <doctest/doctest.h>

#include <new>
#include <optional>

#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "model/explorer.hpp"

using namespace holdfast;
using model::check_all;
using model::Data;
using model::require;

namespace {

using Event = BasicHostEvent<model::Sync>;
using Promise = BasicHostPromise<model::Sync>;

// Every block is one plain value, whose end is a write: a read that nothing orders before the free is a fault.
struct Memory {
  static constexpr MemorySpace space = MemorySpace::host;
  Result<Block> allocate(Bytes size, Alignment) noexcept {
    return Block{reinterpret_cast<std::byte*>(new Data<int>(7)), size};
  }
  void deallocate(Block block) noexcept {
    if (block.data != nullptr) delete reinterpret_cast<Data<int>*>(block.data);
  }
};
static_assert(memory_backend<Memory>);

using Buffer = TrackedBuffer<Memory, Event, BasicSharedHold<model::Sync>>;
int read(const Buffer::raw_type& raw) { return reinterpret_cast<Data<int>*>(raw.data())->get(); }

struct Base {
  std::optional<Buffer> buffer;
  std::optional<Promise> promise{std::move(*Promise::make())};
  Event event = promise->get_event();
  explicit Base(bool defined_by_event = false) {
    auto raw = *Buffer::raw_type::allocate({}, 4);
    buffer.emplace(std::move(*Buffer::make(std::move(raw), std::span<const Event>(&event, defined_by_event ? 1 : 0))));
  }
  void use_and_convert() {
    auto u = buffer->hold(HoldKind::usage);
    if (!u.ok()) return;
    require(read(u->raw()) == 7, "a usage hold reads other bytes");
    u->convert(event);
  }
  void set() { static_cast<void>(promise->set()); }
  void invariant() {}
  void finish() {}
};

// The last reader's event, a deletion and the reader itself: the memory goes once, after the event.
struct ConvertDeleteComplete : Base {
  static constexpr int threads = 3;
  void run(int t) { t == 0 ? use_and_convert() : t == 1 ? static_cast<void>(buffer->release()) : set(); }
};
struct DestroyAgainstEvent : Base {
  static constexpr int threads = 2;
  DestroyAgainstEvent() : Base(true) { buffer->hold(HoldKind::usage)->convert(event); }
  void run(int t) { t == 0 ? buffer.reset() : set(); }
};
// An external hold taken while the buffer is deleted either fails or keeps the bytes, and frees last.
struct ExternalAgainstDelete : Base {
  static constexpr int threads = 2;
  std::optional<ScopedHold<Buffer>> kept;
  void run(int t) {
    if (t == 1) return static_cast<void>(buffer->release());
    auto x = buffer->hold(HoldKind::external);
    if (!x.ok()) return require(x.error().code == Errc::deleted, "an external hold gets another error");
    require(read(x->raw()) == 7, "an external hold reads other bytes");
    kept.emplace(std::move(*x));
  }
  void finish() {
    require(!kept || read(kept->raw()) == 7, "an external hold loses its bytes");
    require(buffer->is_deleted(), "the deletion is lost");
  }
};
struct ExternalOutlives : Base {
  static constexpr int threads = 2;
  std::optional<ScopedHold<Buffer>> kept{std::move(*buffer->hold(HoldKind::external))};
  void run(int t) {
    if (t == 0) return buffer.reset();
    require(read(kept->raw()) == 7, "an external hold reads other bytes");
    kept.reset();
  }
};
// A donor takes the memory over while a reader is there; its output and the reader's event both keep it.
struct DonateAgainstReader : Base {
  static constexpr int threads = 3;
  Buffer::raw_type reused;
  void run(int t) {
    if (t == 0) return use_and_convert();
    if (t == 1) return set();
    auto d = buffer->hold(HoldKind::donation);
    require(d.ok(), "a donation beside a reader fails");
    reused = d->raw();
    d->confirm();
  }
  void finish() {
    require(read(reused) == 7, "the reused memory is gone");
    require(buffer->counts() == HoldCounts{0, 0, 0, false, true}, "a donated buffer shows another state");
  }
};
struct ReadyTwice : Base {
  static constexpr int threads = 3;
  Promise other = std::move(*Promise::make());
  Event ready[2];
  ReadyTwice() {
    const Event both[2] = {event, other.get_event()};
    buffer.emplace(std::move(*Buffer::make(*Buffer::raw_type::allocate({}, 4), both)));
  }
  void run(int t) {
    if (t == 2) return set();
    ready[t] = *buffer->ready_event();
  }
  void finish() {
    require(ready[0] == ready[1], "two ready events of one buffer");
    static_cast<void>(other.set());
    require(ready[0].wait().ok(), "the ready event is not ready");
  }
};

}  // namespace

TEST_CASE("model: T-G9 the memory is freed once, after the deletion and the last event, in every interleaving") {
  check_all<ConvertDeleteComplete>("TrackedBuffer convert | release | complete");
  check_all<DestroyAgainstEvent>("TrackedBuffer destroyed | its event completes");
}
TEST_CASE("model: I5, an external hold keeps the bytes against deletion and destruction, or fails") {
  check_all<ExternalAgainstDelete>("TrackedBuffer external | release");
  check_all<ExternalOutlives>("TrackedBuffer external dropped | destroyed");
}
TEST_CASE("model: I4, a donor sees the readers' events and takes the memory over") {
  check_all<DonateAgainstReader>("TrackedBuffer convert | complete | donate");
}
TEST_CASE("model: two that ask for the ready event get the same one") {
  check_all<ReadyTwice>("TrackedBuffer ready_event | ready_event | complete");
}
