// SPDX-License-Identifier: Apache-2.0
// An event as a sender of stdexec: what tests/peer/sender.py compiles and runs where that is installed.
#include "holdfast/event/sender.hpp"

#include <cstdio>
#include <thread>
#include <utility>

#include <stdexec/execution.hpp>

#include "holdfast/event/host_event.hpp"

using namespace holdfast;

namespace {

struct Tag {
  using operation_state_concept = stdexec::operation_state_t;
};
struct Sender : EventSender<HostEvent, Tag> {
  using EventSender::EventSender;
  using sender_concept = stdexec::sender_t;
  using completion_signatures = stdexec::completion_signatures<stdexec::set_value_t(), stdexec::set_error_t(Error)>;
};
static_assert(stdexec::sender<Sender>);

// 1: value, 2: the error of the event, 0: something else.
int outcome(HostEvent event) {
  int seen = 0;
  auto work = Sender(std::move(event)) | stdexec::then([&]() noexcept { seen = 1; }) |
              stdexec::upon_error([&](const Error& e) noexcept { seen = e.code == Errc::device_fault ? 2 : 0; });
  stdexec::sync_wait(std::move(work));
  return seen;
}

}  // namespace

int main() {
  int failed = 0;
  for (const bool late : {false, true})
    for (const bool fails : {false, true}) {
      HostPromise promise = *HostPromise::make();
      const HostEvent event = promise.get_event();
      const auto set = [&] { static_cast<void>(fails ? promise.set_error(make_error(Errc::device_fault, "link down")) : promise.set()); };
      if (!late) set();
      std::thread other([&] {
        if (late) set();
      });
      const int seen = outcome(event);
      other.join();
      failed += seen != (fails ? 2 : 1);
      std::printf("%s event, %s: %d\n", late ? "pending" : "ready", fails ? "failed" : "set", seen);
    }
  return failed;
}
