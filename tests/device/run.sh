#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that wants a GPU, in under 8 minutes: the tests of tests/device, `holdfast run --backend cuda`, the
# example's engine, then the figures of bench/device as one table. Exits 77 where there is no GPU.
#   run.sh            builds in a temporary folder
#   run.sh BUILD      uses and completes a meson build folder; programs that are there already need no compiler
# To build it needs a C++20 compiler, meson, ninja, CUDA's headers, Boost's headers, doctest and Google Benchmark (Debian:
# g++ meson ninja-build libboost-dev doctest-dev libbenchmark-dev). To run it needs the driver as a container has it with the
# capability `compute` (libcuda.so.1, libnvidia-ptxjitcompiler.so.1), gzip, and libbenchmark where that was linked.
# The machine-learning traces are looked for in $HOLDFAST_SHARED, shared/ here and ../shared.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
if ! ls /dev/nvidia[0-9]* /dev/dxg >/dev/null 2>&1; then
  echo "skipped: no GPU on this machine"
  exit 77
fi
end=$(($(date +%s) + 470))
# within SECONDS COMMAND...: runs it for so long at most, and not beyond the end of all.
within() {
  most=$1
  shift
  left=$((end - $(date +%s)))
  [ "$left" -gt 0 ] || { echo "no time left for: $*" >&2; return 124; }
  [ "$left" -ge "$most" ] || most=$left
  timeout "$most" "$@"
}
build=${1:-}
if [ -z "$build" ]; then
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
fi
if command -v meson >/dev/null && command -v ninja >/dev/null; then
  [ -e "$build/build.ninja" ] || within 60 meson setup "$build" "$root" --buildtype=release -Dcuda=enabled -Dtests=enabled -Dbenchmarks=enabled
  within 300 ninja -C "$build" tests/test_device bench/bench_device examples/holdfast
fi
for program in tests/test_device bench/bench_device examples/holdfast examples/10_cuda_engine; do
  [ -x "$build/$program" ] || { echo "no $build/$program, and no meson and ninja to build it; see the head of $0" >&2; exit 1; }
done
if [ -z "${HOLDFAST_SHARED:-}" ]; then
  for shared in "$root/shared" "$root/../shared"; do
    [ -d "$shared/data/traces" ] && HOLDFAST_SHARED=$shared && break
  done
fi
export HOLDFAST_SHARED="${HOLDFAST_SHARED:-}"

echo "== correctness"
status=0
within 120 "$build/tests/test_device" || status=$?
[ "$status" -ne 77 ] || exit 77
for check in full page; do
  if said=$(within 30 "$build/examples/holdfast" run "$root/examples/data/mlp_train.hlo" --backend cuda --check $check); then
    printf '%s\n' "$said" | tail -n 1
  else
    status=1
  fi
done
timeout 30 "$build/examples/10_cuda_engine" || status=1
echo "== events a second and peak reserved"
[ -d "$HOLDFAST_SHARED/data/traces" ] || { echo "no data/traces in HOLDFAST_SHARED, shared/ or ../shared: figures of the one small trace only" >&2; status=1; }
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
within 180 "$build/bench/bench_device" --benchmark_counters_tabular=true || status=1
exit "$status"
