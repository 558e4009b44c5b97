// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/core/result.hpp"

namespace holdfast {

/// The calls of a simulated device that can be told to fail.
enum class SimulatedCall : std::uint8_t { allocate, copy, launch, record, wait };

/// A failure that is still to come.
struct SimulatedFault {
  SimulatedCall call = SimulatedCall::allocate;
  std::uint64_t at = 1;  ///< which such call fails, 1: the next one
  Error error = make_error(Errc::device_fault, "a fault was injected");
  bool sticks = false;   ///< the device is dead from then on: all calls and all pending work fail with this error
  bool late = false;     ///< the call succeeds and the work fails, as its event says; no bytes move (copy and launch only)
};

/// Whether a simulated device works, and when it will cease to. Threads: the timeline serialises.
class DeviceHealth {
 public:
  void inject(const SimulatedFault& fault) noexcept { faults_.push_back(fault); }
  /// The error that the device died of.
  [[nodiscard]] const Error& dead() const noexcept { return dead_; }
  void die(const Error& error) noexcept {
    if (dead_.ok()) dead_ = error;
  }

  /// Counts a call; gives the fault that is due at it, or one whose error is `ok`.
  [[nodiscard]] SimulatedFault next(SimulatedCall call) noexcept {
    SimulatedFault due{call, 0, dead_, false, false};
    for (std::size_t i = faults_.size(); i-- > 0;) {
      if (faults_[i].call != call || (faults_[i].at > 1 && faults_[i].at--)) continue;
      if (due.error.ok()) due = faults_[i];
      faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const bool can_be_late = call == SimulatedCall::copy || call == SimulatedCall::launch;
    due.late = due.late && can_be_late;
    if (due.sticks && !due.late) die(due.error);
    return due;
  }

 private:
  std::vector<SimulatedFault> faults_;
  Error dead_;
};

}  // namespace holdfast
