// SPDX-License-Identifier: Apache-2.0
// Streams and events that are numbers, which keep a log, pass when they are told to, and fail on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "holdfast/core/result.hpp"

namespace holdfast::testing {

/// What fake streams saw, and how they behave.
struct FakeStreamLog {
  struct Wait {
    int waiter, source;
    std::uint64_t position;  ///< of the source
    friend bool operator==(const Wait&, const Wait&) = default;
  };
  std::map<int, std::uint64_t> position, passed;  ///< by stream: what was enqueued, and how much of it has passed
  std::vector<Wait> waits;
  std::vector<int> records;  ///< the streams of recorded events, in order
  int asked = 0;             ///< questions whether something has passed
  int blocked = 0;           ///< how often a host asked until it had
  const void* last_asked = nullptr;
  int alive = 0, most_alive = 0;  ///< events that stand for a place
  int records_until_failure = 0;  ///< 0: none
  int waits_left = -1;            ///< so many succeed; -1: all
  bool records_fail = false;
  bool streams_fail = false;     ///< a host that waits for a stream gets an error
  bool failed = false;           ///< all events have failed
  int misuse = 0;                ///< records on a stream that was destroyed
  std::map<int, bool> destroyed;

  static bool due(int& until) noexcept { return until != 0 && --until == 0; }
  void work(int stream) { ++position[stream]; }
  void pass(int stream) { passed[stream] = position[stream]; }
};

class FakeStream {
 public:
  FakeStream() = default;
  FakeStream(FakeStreamLog& l, int i) noexcept : log(&l), id(i) {}
  /// True after a question or two, as of a machine that goes on meanwhile.
  [[nodiscard]] Result<bool> idle() const noexcept {
    if (log->streams_fail) return make_error(Errc::device_fault, "the stream was told to fail");
    if (log->passed[id] == log->position[id]) return true;
    ++log->blocked;
    log->pass(id);
    return false;
  }
  friend bool operator==(const FakeStream&, const FakeStream&) noexcept = default;

  FakeStreamLog* log = nullptr;
  int id = 0;
};

class FakeEvent {
 public:
  using stream_type = FakeStream;
  FakeEvent() = default;
  FakeEvent(FakeEvent&& o) noexcept : log_(o.log_), stream_(o.stream_), position_(o.position_) { o.log_ = nullptr; }
  FakeEvent& operator=(FakeEvent&& o) noexcept {
    std::swap(log_, o.log_), std::swap(stream_, o.stream_), std::swap(position_, o.position_), asked_ = 0;
    return *this;
  }
  ~FakeEvent() {
    if (log_ != nullptr) --log_->alive;
  }

  [[nodiscard]] Error record(const FakeStream& s) noexcept {
    if (s.log->destroyed[s.id]) ++s.log->misuse;
    if (s.log->records_fail || FakeStreamLog::due(s.log->records_until_failure)) return make_error(Errc::device_fault, "a record was told to fail");
    if (log_ == nullptr && ++s.log->alive > s.log->most_alive) s.log->most_alive = s.log->alive;
    log_ = s.log;
    stream_ = s.id;
    position_ = ++log_->position[stream_];
    log_->records.push_back(stream_);
    return {};
  }
  [[nodiscard]] Error wait_on(const FakeStream& s) const noexcept {
    if (s.log->waits_left == 0) return make_error(Errc::device_fault, "a wait was told to fail");
    if (s.log->waits_left > 0) --s.log->waits_left;
    if (log_ != nullptr) log_->waits.push_back({s.id, stream_, position_});
    return {};
  }
  [[nodiscard]] bool ready() const noexcept {
    if (log_ == nullptr || log_->failed) return true;
    ++log_->asked;
    if (log_->passed[stream_] >= position_) return true;
    if (std::exchange(log_->last_asked, this) != this) asked_ = 0;
    if (++asked_ < 1000) return false;
    ++log_->blocked;  // whoever asks for nothing else waits
    log_->passed[stream_] = position_;
    return true;
  }
  [[nodiscard]] bool passed() const noexcept { return ready() && (log_ == nullptr || !log_->failed); }
  [[nodiscard]] Error wait() const noexcept { return {}; }

 private:
  FakeStreamLog* log_ = nullptr;
  int stream_ = 0;
  std::uint64_t position_ = 0;
  mutable int asked_ = 0;
};

}  // namespace holdfast::testing
