# SPDX-License-Identifier: Apache-2.0
# Sourced by tests/run.sh and examples/run.sh: what a Debian 12 needs to build and test all of holdfast.

needed='g++ meson ninja-build pkg-config python3 libboost1.81-dev libcli11-dev nlohmann-json3-dev xz-utils'
wanted='doctest-dev libbenchmark-dev clang-19 libclang-rt-19-dev llvm-19-dev libnuma-dev gdb linux-perf valgrind cmake'

# Installs what is missing, with apt as root; otherwise names it. With `needed` as argument, only what the program needs.
install_packages() {
  missing=''
  if command -v dpkg-query >/dev/null 2>&1; then
    packages=$needed
    [ "${1:-}" = needed ] || packages="$needed $wanted"
    for p in $packages; do
      [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
    done
  else
    for c in g++ meson ninja python3 pkg-config; do command -v $c >/dev/null 2>&1 || missing="$missing $c"; done
  fi
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$missing"
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt-get update -qq >/dev/null 2>&1
    # One at a time after a failure: what can be had is better than nothing.
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
      for p in $missing; do
        apt-get install -y -qq --no-install-recommends "$p" >/dev/null 2>&1 || echo "cannot install $p"
      done
  else
    echo "missing packages:$missing"
  fi
}
