#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that wants a GPU, in under 8 minutes: the tests of tests/device, `holdfast run --backend cuda`, then the
# figures of bench/device as one table. Exits 77 where there is no GPU.
#   run.sh            builds in a temporary folder
#   run.sh BUILD      uses and completes a meson build folder; programs that are there already need no compiler
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
if ! ls /dev/nvidia[0-9]* /dev/dxg >/dev/null 2>&1; then
  echo "skipped: no GPU on this machine"
  exit 77
fi
build=${1:-}
if [ -z "$build" ]; then
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
fi
if command -v meson >/dev/null && command -v ninja >/dev/null; then
  [ -e "$build/build.ninja" ] || meson setup "$build" "$root" --buildtype=release -Dcuda=enabled
  ninja -C "$build" tests/test_device bench/bench_device examples/holdfast
fi
for program in tests/test_device bench/bench_device examples/holdfast; do
  [ -x "$build/$program" ] || { echo "no $build/$program, and no meson and ninja to build it" >&2; exit 1; }
done

echo "== correctness"
status=0
timeout 120 "$build/tests/test_device" || status=$?
[ "$status" -ne 77 ] || exit 77
for check in full page; do
  if said=$(timeout 30 "$build/examples/holdfast" run "$root/examples/data/mlp_train.hlo" --backend cuda --check $check); then
    printf '%s\n' "$said" | tail -n 1
  else
    status=1
  fi
done
echo "== events a second and peak reserved"
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
timeout 180 "$build/bench/bench_device" --benchmark_counters_tabular=true || status=1
exit "$status"
