#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# HostPool beside the allocators of Debian's packages, each in a process of its own, taken in turns so that all meet the same
# machine: the least of ROUNDS (10) turns, in nanoseconds. With --json `{row: {allocator: ns}}`, else a table, peak resident over
# peak live bytes, and the replays with every page touched, where memory that was given back costs a fault when it is needed
# again; there HostPool stands also with an idle share as large as its peers'. ROWS=replay runs only the rows whose names begin
# so. Packages: libtbb-dev libboost-dev libjemalloc-dev libmimalloc-dev libgoogle-perftools-dev (each may be missing but TBB's
# and Boost's).
set -eu
cd "$(dirname "$0")/.."
shared=${HOLDFAST_SHARED:-$PWD/../shared}
trace=$shared/data/traces/mindspore_resnet50.events.csv
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# Functions begin cache lines: where one falls by chance is worth a nanosecond a pair.
${CXX:-g++} -std=c++20 -O2 -DNDEBUG -march=native -fno-builtin -falign-functions=64 -Iinclude bench/host_pool_peers.cpp -o "$out/peers" -ltbbmalloc -lpthread

# run NAME MODE: one turn of an allocator
run() {
  preload=
  case $1 in
    jemalloc) preload=libjemalloc.so.2 ;;
    mimalloc) preload=libmimalloc.so.2.0 ;;
    tcmalloc) preload=libtcmalloc_minimal.so.4 ;;
  esac
  LD_PRELOAD=$preload "$out/peers" "$1" "$2" "$trace" "${ROWS:-}" 2>"$out/error" | sed "s/^/$1\t/; s/ \([0-9.]*\)$/\t\1/"
  # The loader only warns of what it cannot preload.
  if [ -s "$out/error" ]; then
    echo "no $1: $(head -1 "$out/error")" >&2
    exit 1
  fi
}
names='HostPool|glibc|jemalloc|mimalloc|tcmalloc|TBB|pmr unsync|pmr unsync 64M|pmr sync|boost::pool'
for round in $(seq "${ROUNDS:-10}"); do
  IFS='|'
  for n in $names; do
    case " ${missing:-} " in *" $n "*) continue ;; esac
    (run "$n" time) >"$out/turn" || { missing="${missing:-} $n"; continue; }
    cat "$out/turn" >>"$out/time"
  done
done
if [ "${1:-}" != --json ]; then
  for n in 'HostPool 25%' $names; do
    case " ${missing:-} " in *" $n "*) continue ;; esac
    run "$n" peak >>"$out/peak"
    run "$n" touched >>"$out/touched"
  done
fi
unset IFS
python3 - "$out" "${1:-}" <<'PY'
import json, sys
def read(path):
    best = {}
    for line in open(path):
        name, row, value = line.rstrip("\n").split("\t")
        rows = best.setdefault(row, {})
        rows[name] = min(rows.get(name, 1e18), float(value))
    return best
time = read(sys.argv[1] + "/time")
if sys.argv[2] == "--json":
    print(json.dumps(time, indent=1))
    sys.exit()
def table(rows, title, best):
    names = list(dict.fromkeys(n for row in rows.values() for n in row))
    print(f"{title:<18}" + "".join(f"{n:>15}" for n in names) + f"{best:>12}")
    for row, cells in rows.items():
        ratio = cells["HostPool"] / min(v for n, v in cells.items() if not n.startswith("HostPool"))
        print(f"{row:<18}" + "".join(f"{cells[n]:>15.4g}" if n in cells else f"{'-':>15}" for n in names) + f"{ratio:>12.2f}")
table(time, "ns", "HostPool/best")
print()
table(read(sys.argv[1] + "/peak"), "peak resident/live", "/best")
print()
table(read(sys.argv[1] + "/touched"), "ns, touched", "/best")
PY
