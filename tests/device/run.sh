#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the CUDA backend on a machine with a GPU: correctness first, then speed beside the driver's own calls. Below 8 minutes.
#   tests/device/run.sh [BUILD]     77: there is no device
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build-device}
[ -d "$build" ] || meson setup "$build" -Dcuda=enabled -Dbuildtype=release
ninja -C "$build" tests/test_device bench/bench_device
"$build/tests/test_device"
"$build/bench/bench_device" --benchmark_min_time=0.2
