// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/backend/simulated/machine.hpp"
#include "holdfast/backend/simulated/race_detector.hpp"

namespace holdfast {

/// The machine that finds missing synchronisation, and its parts.
using RaceCheckedMachine = BasicSimulatedMachine<RaceDetector>;
using RaceCheckedDevice = BasicSimulatedDevice<RaceDetector>;
using RaceCheckedStream = BasicSimulatedStream<RaceDetector>;
using RaceCheckedEvent = BasicSimulatedEvent<RaceDetector>;

}  // namespace holdfast
