#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows the program at work: run.sh [FILE] installs what is missing (apt, as root), builds `holdfast`, then plans FILE's memory and
# runs the plan on real memory. FILE is HLO text, a proto or an interval CSV; by default the training step in examples/data.
#
#   HOLDFAST_BUILD=DIR     where to build (build/ of the checkout)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
file=${1:-$root/examples/data/mlp_train.hlo}
case $file in -|/*) ;; *) file=$PWD/$file ;; esac
cd "$root"
. tests/packages.sh
build=${HOLDFAST_BUILD:-build}

install_packages needed
again=; [ -e "$build/build.ninja" ] && again=--reconfigure  # finds sources that are new
log=$(mktemp)
meson setup $again "$build" >"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "cannot configure $build" >&2; exit 1; }
ninja -C "$build" examples/holdfast >"$log" 2>&1 || { tail -n 40 "$log" >&2; echo 'cannot build the program' >&2; exit 1; }
rm -f "$log"

copy=''
if [ "$file" = - ]; then  # standard input is read twice
  copy=$(mktemp)
  trap 'rm -f "$copy"' EXIT
  cat >"$copy"
  file=$copy
fi
echo "\$ holdfast plan $file"
"$build/examples/holdfast" plan "$file"
echo "\$ holdfast run $file"
"$build/examples/holdfast" run "$file"
