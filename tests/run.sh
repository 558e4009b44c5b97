#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and tests everything; the last line is `N passed, N failed, N skipped`, the exit status non-zero on a failure.
# On a fresh Debian 12, as root, it installs what is missing; elsewhere it names the packages. Works from any folder.
#
#   HOLDFAST_BUILD=DIR     where to build (build/ of the checkout); DIR-asan and DIR-tsan lie beside it
#   HOLDFAST_SANITIZE=0    leaves the sanitizer builds out; few: hostile inputs, contracts and faults under ASan and UBSan,
#                          stress, contracts and faults under TSan
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. tests/packages.sh
build=${HOLDFAST_BUILD:-build}
broken=0  # steps that failed outside the tests themselves

say() { printf '== %s (%s s)\n' "$*" "$(($(date +%s) - started))"; }
started=$(date +%s)

# Runs a step quietly; shows its end only if it failed.
step() {
  say "$1"; shift
  log=$(mktemp)
  "$@" >"$log" 2>&1
  status=$?
  if [ $status -ne 0 ]; then
    grep -E 'error|ERROR|FAILED' "$log" | head -40
    tail -n 40 "$log"
    broken=$((broken + 1))
    echo "FAILED  $*"
  fi
  rm -f "$log"
  return $status
}

# Makes or renews a build folder: renewing finds source files that are new.
configure() {
  folder=$1; shift
  if [ -e "$folder/build.ninja" ]; then meson setup --reconfigure "$folder" "$@"; else meson setup "$folder" "$@"; fi
}

# Runs tests that are built; their log is added up at the end.
logs=''
tests() {
  name=$1; folder=$2; shift 2
  say "tests: $name"
  rm -f "$folder/meson-logs/testlog-$name.json"
  meson test -C "$folder" --no-rebuild --logbase "testlog-$name" "$@" 2>&1 | grep -E '^ *[0-9]+/[0-9]+ |TIMEOUT' | cut -c1-100
  if [ -s "$folder/meson-logs/testlog-$name.json" ]; then
    logs="$logs $folder/meson-logs/testlog-$name.json"
  else
    broken=$((broken + 1))
    echo "FAILED  no test of $name ran"
  fi
}

say 'packages'
install_packages
# The peer that tests compare with is fetched in CI only; without it those tests are skipped.
if [ -n "${CI:-}" ] && ! python3 -c 'import jaxlib' 2>/dev/null; then
  timeout 300 python3 -m pip install --quiet --disable-pip-version-check jaxlib==0.10.2 >/dev/null 2>&1 ||
    timeout 300 python3 -m pip install --quiet --disable-pip-version-check --break-system-packages jaxlib==0.10.2 >/dev/null 2>&1 ||
    echo 'no jaxlib: tests that compare with it are skipped'
fi

step "configure $build" configure "$build" -Dwerror=true
step 'build' ninja -C "$build" -k 0
tests all "$build"

if [ "${HOLDFAST_SANITIZE:-1}" != 0 ]; then
  # A sample of the data is enough under a sanitizer; its own work is what costs.
  HOLDFAST_QUICK=1
  UBSAN_OPTIONS=print_stacktrace=1
  export HOLDFAST_QUICK UBSAN_OPTIONS
  asan_builds=test_binaries asan_suites='--suite unit --suite contract --suite fault --suite model'
  tsan_builds=threaded_binaries tsan_suites='--suite threaded'
  if [ "${HOLDFAST_SANITIZE:-1}" = few ]; then
    asan_builds='tests/test_contract tests/test_fault' asan_suites='--suite fuzz --suite contract --suite fault'
    for f in tests/fuzz/*.cpp; do asan_builds="$asan_builds tests/replay_$(basename "$f" .cpp)"; done
    tsan_builds='tests/test_stress tests/test_contract tests/test_fault' tsan_suites='--suite stress --suite contract --suite fault'
  fi
  lean='-Dwerror=false -Dbuildtype=plain -Doptimization=1 -Dbenchmarks=disabled -Dexamples=disabled'
  # shellcheck disable=SC2086
  step 'configure for ASan and UBSan' configure "$build-asan" $lean -Db_sanitize=address,undefined \
      "-Dcpp_args=-g1 -fno-omit-frame-pointer -fno-sanitize-recover=all" &&
    step 'build for ASan and UBSan' ninja -C "$build-asan" -k 0 $asan_builds
  # shellcheck disable=SC2086
  tests asan "$build-asan" -t 4 $asan_suites
  # shellcheck disable=SC2086
  step 'configure for TSan' configure "$build-tsan" $lean -Db_sanitize=thread "-Dcpp_args=-g1" &&
    step 'build for TSan' ninja -C "$build-tsan" -k 0 $tsan_builds
  # shellcheck disable=SC2086
  tests tsan "$build-tsan" -t 4 $tsan_suites
fi

say 'done'
# shellcheck disable=SC2086
python3 tests/tally.py "failed=$broken" $logs
