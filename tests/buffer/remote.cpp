// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/remote.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

const ArrayShape s32_256 = *ArrayShape::make(ElementType::s32, std::vector<std::int64_t>{256});

// Two ends of a wire: bytes move when both are there.
template <class E>
class Mailbox {
 public:
  using event_type = E;
  using Promise = typename E::promise_type;
  std::function<Promise()> promise = [] { return std::move(*Promise::make()); };
  int calls = 0;

  Result<E> send(std::uint64_t key, std::span<const std::byte> from) noexcept {
    if (key == 13) return make_error(Errc::aborted, "no such peer");
    entries_[key].from = from;
    return enter(entries_[key].sender, key);
  }
  Result<E> receive(std::uint64_t key, std::span<std::byte> to) noexcept {
    entries_[key].to = to;
    return enter(entries_[key].receiver, key);
  }

 private:
  struct Entry {
    std::span<const std::byte> from;
    std::span<std::byte> to;
    Promise sender, receiver;
  };
  Result<E> enter(Promise& mine, std::uint64_t key) {
    ++calls;
    mine = promise();
    E done = mine.get_event();
    Entry& e = entries_[key];
    if (e.sender.pending() && e.receiver.pending()) {
      std::copy(e.from.begin(), e.from.end(), e.to.begin());
      static_cast<void>(e.receiver.set());
      static_cast<void>(e.sender.set());
    }
    return done;
  }
  std::map<std::uint64_t, Entry> entries_;
};

std::vector<std::byte> pattern() {
  std::vector<std::byte> bytes(1024);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

}  // namespace

TEST_CASE_TEMPLATE("remote: T-D7 CrossHostSend cleanup, of two s32[256] the second is deleted: none is sent, the first can be deleted", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  Mailbox<typename W::Event> mail;
  auto a = std::move(*ShapedBuffer<typename W::Buffer>::allocate(place.backend(), s32_256));
  auto b = std::move(*ShapedBuffer<typename W::Buffer>::allocate(place.backend(), s32_256));
  CHECK(b.buffer().release().ok());
  typename W::Buffer* const both[] = {&a.buffer(), &b.buffer()};
  const std::uint64_t keys[] = {1, 2};
  typename W::Event sent[2];
  const Error e = send_buffers<typename W::Buffer>(both, keys, mail, Staging<SystemMemory>{SystemMemory{}, true}, sent);
  CHECK(status_kind(e) == StatusKind::invalid_argument);
  CHECK(mail.calls == 0);
  CHECK(a.buffer().counts() == HoldCounts{});
  CHECK(a.buffer().release(Deadline::now()).ok());
}

TEST_CASE_TEMPLATE("remote: T-D8 a receive of {s32[256], ()} is FAILED_PRECONDITION and asks nothing of the channel", Hold, SharedHold,
                   LocalHold, StripedHold) {
  HostPlace place;
  using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;
  Mailbox<HostEvent> mail;
  ArrayShape tuple;
  tuple.type = ElementType::tuple;
  const ArrayShape shapes[] = {s32_256, tuple};
  const std::uint64_t keys[] = {1, 2};
  std::optional<ShapedBuffer<Buffer>> received[2];
  const Error e = receive_buffers<Buffer>(place.backend(), shapes, keys, mail, received);
  CHECK(status_kind(e) == StatusKind::failed_precondition);
  CHECK(e.at == 1);
  CHECK(mail.calls == 0);
  CHECK(!received[0].has_value());
  CHECK(place.log.allocations == 0);
}

TEST_CASE_TEMPLATE("remote: what is sent after its contents arrives, whichever end is first; the sender may go meanwhile", W,
                   HOLDFAST_TEST_PLACES) {
  using Event = typename W::Event;
  using Target = TrackedBuffer<LoggedMemory, Event, SharedHold>;
  for (const bool receives_first : {false, true}) {
    MemoryLog log;
    typename W::Place place;
    Mailbox<Event> mail;
    mail.promise = [&] { return place.promise(); };
    const std::uint64_t keys[] = {7};
    std::optional<ShapedBuffer<Target>> received[1];
    const auto receive = [&] { CHECK(receive_buffers<Target>(LoggedMemory(log), std::span(&s32_256, 1), keys, mail, received).ok()); };
    if (receives_first) receive();
    auto written = place.promise();
    Event sent[1];
    {
      const Event definition[] = {written.get_event()};
      auto raw = *W::Raw::allocate(place.backend(), 1024);
      fill(raw, pattern());
      auto b = std::move(*W::Buffer::make(std::move(raw), definition));
      typename W::Buffer* const one[] = {&b};
      CHECK(send_buffers<typename W::Buffer>(one, keys, mail, Staging<SystemMemory>{SystemMemory{}, true}, sent).ok());
    }
    CHECK(!sent[0].ready());
    CHECK(written.set().ok());
    if constexpr (std::same_as<Event, RaceCheckedEvent>) place.machine.drain();
    if (!receives_first) receive();
    CHECK(sent[0].wait().ok());
    CHECK(received[0]->buffer().ready_event()->wait().ok());
    CHECK(bytes_of(received[0]->buffer().hold(HoldKind::usage)->raw()) == pattern());
  }
}

TEST_CASE_TEMPLATE("remote: a failed definition, or a channel that refuses, fails that buffer's event and sends nothing of it", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  Mailbox<typename W::Event> mail;
  auto written = place.promise();
  const typename W::Event definition[] = {written.get_event()};
  auto b = std::move(*W::Buffer::make(*W::Raw::allocate(place.backend(), 1024), definition));
  typename W::Buffer* const two[] = {&b, &b};
  const std::uint64_t keys[] = {7, 13};
  typename W::Event sent[2];
  CHECK(send_buffers<typename W::Buffer>(two, keys, mail, Staging<SystemMemory>{SystemMemory{}, true}, sent).ok());
  CHECK(written.set_error(make_error(Errc::internal, "kernel failed")).ok());
  CHECK(says(sent[0].wait(), "kernel failed"));
  CHECK(says(sent[1].wait(), "kernel failed"));
  CHECK(mail.calls == 0);
  auto good = std::move(*W::Buffer::allocate(place.backend(), 8));
  auto go = place.promise();
  typename W::Buffer* const one[] = {&good};
  const std::uint64_t refused[] = {13};
  const Error e = send_buffers<typename W::Buffer>(one, refused, mail, Staging<SystemMemory>{SystemMemory{}, true}, std::span(sent).first(1));
  CHECK((e.ok() ? sent[0].wait() : e).code == Errc::aborted);
  CHECK(send_buffers<typename W::Buffer>(one, refused, mail, Staging<SystemMemory>{SystemMemory{}, true}, std::span(sent).first(0)).code ==
        Errc::invalid_argument);
}
