// SPDX-License-Identifier: Apache-2.0
// Runs real code, through the `sync` seam, under every interleaving of a few threads.
//
// Threads are coroutines with their own stacks; each atomic operation, wait and notify is a step, and before each step
// the explorer chooses who goes on. It goes through all choices depth first, replaying from the start. Two ways that lead
// to one state are followed once (so orders of independent steps, which always meet again, cost nothing), and what is
// printed is the number of interleavings that the run stands for. A state is all memory of the run, and every thread's
// stack and registers, clocks included: two that differ are never taken for one, up to a hash of 128 bits.
// Interleavings are sequentially consistent; that the memory orders suffice is checked by clocks: an acquire takes over what
// a release published, and two accesses to a `Data` that nothing orders are reported.
// Memory comes from an arena that starts anew for each run, so addresses repeat, nothing freed is reused, and a use after
// free, a double free and a leak are seen. A run in which nobody can go on is a lost wake-up or a deadlock.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "holdfast/concepts/sync.hpp"

namespace model {

inline constexpr int max_threads = 3;

enum class Kind : std::uint8_t { start, read, write, wait, notify };

/// The step a thread will take next: what it does to which address.
struct Step {
  const void* address = nullptr;
  Kind kind = Kind::start;
};

/// Vector clocks of accesses to plain data; the entry after the threads' is the harness's own.
struct Clock {
  std::uint32_t at[max_threads + 1] = {};
  void join(const Clock& other) {
    for (int i = 0; i <= max_threads; ++i)
      if (other.at[i] > at[i]) at[i] = other.at[i];
  }
  [[nodiscard]] bool covers(int thread, std::uint32_t time) const { return at[thread] >= time; }
};

// --- what code under test calls ------------------------------------------------------------------------------------------

/// Gives the turn back; returns when the explorer lets the running thread take this step.
void step(const void* address, Kind kind);
/// Parks the running thread until a notify on the address; its waking is a step.
void park(const void* address);
void wake_all(const void* address);
/// The running thread, or the harness.
int self();
Clock& clock_of(int thread);
/// Reports a fault of the run; the run goes on.
void fail(const char* what);
inline void require(bool condition, const char* what) {
  if (!condition) fail(what);
}

/// A value without atomics that threads share: reports two accesses, one of them a write, that nothing orders.
template <class T>
class Data {
 public:
  Data(T value = T{}) : value_(value) { written(); }
  ~Data() { write_access(); }
  [[nodiscard]] T get() {
    require(clock_of(self()).covers(writer_, write_time_), "a read of plain data is not ordered after its write");
    read_times_[self()] = ++clock_of(self()).at[self()];
    return value_;
  }
  void set(T value) {
    write_access();
    value_ = value;
  }

 private:
  void write_access() {
    require(clock_of(self()).covers(writer_, write_time_), "a write of plain data is not ordered after another write");
    for (int t = 0; t <= max_threads; ++t)
      require(clock_of(self()).covers(t, read_times_[t]), "a write of plain data is not ordered after a read");
    written();
  }
  void written() {
    writer_ = self();
    write_time_ = ++clock_of(self()).at[self()];
  }
  T value_;
  int writer_ = 0;
  std::uint32_t write_time_ = 0;
  std::uint32_t read_times_[max_threads + 1] = {};
};

/// The seam: atomics whose operations are steps, waits that park, notifies that use the address alone.
struct Sync {
  template <class T>
  class atomic {
   public:
    atomic() noexcept : atomic(T{}) {}
    atomic(T value) noexcept : value_(value) {}
    atomic(const atomic&) = delete;
    ~atomic() { alive_ = dead; }
    T load(std::memory_order order) const noexcept {
      touch(Kind::read);
      if (acquires(order)) clock_of(self()).join(released_);
      return value_;
    }
    void store(T value, std::memory_order order) noexcept {
      touch(Kind::write);
      released_ = releases(order) ? clock_of(self()) : Clock{};
      replace(value);
    }
    T exchange(T value, std::memory_order order) noexcept {
      touch(Kind::write);
      return modified(order), replace(value);
    }
    T fetch_add(T n, std::memory_order order) noexcept {
      touch(Kind::write);
      return modified(order), replace(static_cast<T>(value_ + n));
    }
    T fetch_sub(T n, std::memory_order order) noexcept { return fetch_add(static_cast<T>(T{} - n), order); }
    T fetch_or(T n, std::memory_order order) noexcept {
      touch(Kind::write);
      return modified(order), replace(static_cast<T>(value_ | n));
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure) noexcept {
      touch(Kind::write);
      if (value_ != expected) {
        if (acquires(failure)) clock_of(self()).join(released_);
        expected = value_;
        return false;
      }
      modified(success);
      replace(desired);
      return true;
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order s, std::memory_order f) noexcept {
      return compare_exchange_strong(expected, desired, s, f);
    }
    /// The value, outside of the schedule: for invariants.
    [[nodiscard]] T peek() const noexcept { return value_; }

   private:
    friend struct Sync;
    static constexpr std::uint32_t living = 0x600DF00D, dead = 0xDEADDEAD;
    static bool acquires(std::memory_order o) {
      return o == std::memory_order_acquire || o == std::memory_order_acq_rel || o == std::memory_order_seq_cst;
    }
    static bool releases(std::memory_order o) {
      return o == std::memory_order_release || o == std::memory_order_acq_rel || o == std::memory_order_seq_cst;
    }
    T replace(T value) {
      const T old = value_;
      value_ = value;
      return old;
    }
    // A read-modify-write continues the release sequence that it finds.
    void modified(std::memory_order order) {
      if (acquires(order)) clock_of(self()).join(released_);
      if (releases(order)) released_.join(clock_of(self()));
    }
    void touch(Kind kind) const {
      step(this, kind);
      require(alive_ == living, "an atomic is used after its object is gone");
    }
    T value_{};
    Clock released_;
    std::uint32_t alive_ = living;
  };

  template <class T>
  static void wait(const atomic<T>& a, T old) noexcept {
    for (step(&a, Kind::wait);; park(&a)) {
      require(a.alive_ == atomic<T>::living, "a wait on an atomic whose object is gone");
      if (a.value_ != old) {
        clock_of(self()).join(a.released_);
        return;
      }
    }
  }
  /// A deadline that is neither never nor past cannot be modelled: no clock takes part.
  template <class T>
  static void wait_until(const atomic<T>& a, T old, holdfast::Deadline d) noexcept {
    if (d.is_never()) wait(a, old);
  }
  template <class T>
  static void notify_one(atomic<T>& a) noexcept {
    notify_all(a);
  }
  template <class T>
  static void notify_all(atomic<T>& a) noexcept {
    step(&a, Kind::notify);
    wake_all(&a);
  }
  static void fence(std::memory_order) noexcept { fail("fences are not modelled"); }
  static std::size_t thread_slot() noexcept { return static_cast<std::size_t>(self()); }
};
static_assert(holdfast::sync<Sync>);

// --- what tests call -----------------------------------------------------------------------------------------------------

/// What a search has done.
struct Report {
  double interleavings = 0;  ///< all that there are
  std::uint64_t states = 0;  ///< different states met
  std::uint64_t runs = 0;    ///< started from the beginning
  std::size_t deepest = 0;
  bool exhausted = false;  ///< nothing was cut by the bound
  std::string fault;       ///< the first fault with its interleaving; empty: none
};

/// One scenario without its types: state made, threads run, state checked after each step and at the end, state ended.
struct Scenario {
  const char* name;
  int threads;
  void* (*make)();
  void (*run)(void* state, int thread);
  void (*invariant)(void* state);
  void (*finish)(void* state);
};
Report explore(const Scenario& scenario, std::uint64_t bound = 5'000'000);

/// Explores `S`: `S::threads`, `run(int thread)`, `invariant()` after every step, `finish()` when all threads have ended.
template <class S>
Report explore(const char* name, std::uint64_t bound = 5'000'000) {
  return explore({name, S::threads, []() -> void* { return new S; },
                  [](void* s, int t) { static_cast<S*>(s)->run(t); },
                  [](void* s) { static_cast<S*>(s)->invariant(); },
                  [](void* s) {
                    static_cast<S*>(s)->finish();
                    delete static_cast<S*>(s);
                  }},
                 bound);
}

/// Explores `S` and checks that all of its interleavings have run, more than one of them, and without a fault.
template <class S>
void check_all(const char* name) {
  const Report report = explore<S>(name);
  CHECK_MESSAGE(report.fault.empty(), report.fault);
  CHECK(report.exhausted);
  CHECK(report.interleavings > 1);
}

}  // namespace model
