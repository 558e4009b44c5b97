// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Resolves a promise as another event resolves, with one node and no allocation.
///
/// The object must live until the source is done; `Forwarding::start` may resolve at once. Threads: `start` once.
template <notifying_event Source, class Promise>
class Forwarding : private Continuation {
 public:
  Forwarding(Source source, Promise promise) noexcept : source_(std::move(source)), promise_(std::move(promise)) {}
  Forwarding(Forwarding&&) = delete;

  /// Begins to wait; `after` runs once the promise is resolved, and may destroy this object.
  void start(void (*after)(Forwarding&) noexcept = nullptr) noexcept {
    after_ = after;
    this->run = [](Continuation& node) noexcept { static_cast<Forwarding&>(node).resolve(); };
    if (!source_.then(*this)) resolve();
  }

 private:
  void resolve() noexcept {
    const Error error = source_.wait();
    static_cast<void>(error.ok() ? promise_.set() : promise_.set_error(error));
    if (after_ != nullptr) after_(*this);
  }
  Source source_;
  Promise promise_;
  void (*after_)(Forwarding&) noexcept = nullptr;
};

/// Makes a promise's event follow another event, success and first cause alike.
///
/// Without memory for the node it waits here. Threads: any. Cost: one allocation while the source is pending.
/// Source: runtime.md 2.1, indirect values.
template <notifying_event Source, class Promise>
void forward(Source source, Promise promise) noexcept {
  if (!source.ready()) {
    using Node = Forwarding<Source, Promise>;
    if (auto* node = new (std::nothrow) Node(source, std::move(promise)); node != nullptr)
      return node->start([](Node& done) noexcept { delete &done; });
  }
  const Error error = source.wait();
  static_cast<void>(error.ok() ? promise.set() : promise.set_error(error));
}

}  // namespace holdfast
