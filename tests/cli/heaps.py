#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`holdfast plan` on every compiled module of data/hlo and on XLA's own placement problems: each heap is its lower bound."""
import collections
import csv
import json
import lzma
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
PROGRAM = os.environ.get("HOLDFAST_PROGRAM")
# Modules whose bound no plan meets, and why: name to (heap at most, proof).
ABOVE = {"spmd_pipeline": (21758272, "its blocks of 128 KiB and more need 21757952 alone: tests/plan/offsets_exact.cpp")}


def plan(data, *args):
    """The figures of a text on standard input, or None."""
    done = subprocess.run([PROGRAM, "plan", "-", "--json", "-", *map(str, args)], input=data, capture_output=True, timeout=120)
    return json.loads(done.stdout) if done.returncode == 0 else None


def read(path):
    return lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()


def problems(scratch):
    """Rows of one group share an offset, nothing alive together overlaps, the heap is the lower bound."""
    for file in sorted((SHARED / "data/hlo").glob("*/dsa.csv")):
        out = scratch / "offsets.csv"
        j = plan(file.read_bytes(), "--csv", out)
        rows = list(csv.DictReader(open(out))) if j else []
        places = collections.defaultdict(set)
        for r in rows:
            places[r["trace"], r["group"]].add(int(r["offset"]))
        checks.check(f"problems: {file.parent.name} keeps groups together at the lower bound",
                     j and len(rows) == j["instructions"] and all(len(p) == 1 for p in places.values())
                     and apart(rows) and j["heap_bytes"] == j["lower_bound_bytes"], j and str(j))


def apart(rows):
    """No two rows of a trace that overlap in time share a byte."""
    alive = collections.defaultdict(list)
    for start, end, low, high, trace in sorted((int(r["start"]), int(r["end"]), int(r["offset"]), int(r["offset"]) + int(r["size"]), r["trace"]) for r in rows):
        alive[trace] = [a for a in alive[trace] if a[0] > start]
        if any(low < a[2] and a[1] < high for a in alive[trace]):
            return False
        alive[trace].append((end, low, high))
    return True


def modules():
    for file in sorted((SHARED / "data/hlo").glob("*/after.hlo*")):
        name = file.parent.name
        j = plan(read(file))
        most, proof = ABOVE.get(name, (None, ""))
        checks.check(f"modules: the heap of {name}/{file.name} is {'known: ' + proof if most else 'its lower bound'}",
                     j and (j["lower_bound_bytes"] < j["heap_bytes"] <= most if most else j["heap_bytes"] == j["lower_bound_bytes"]),
                     j and f'{j["heap_bytes"]} {j["lower_bound_bytes"]}')


if PROGRAM is None:
    sys.exit("HOLDFAST_PROGRAM names no program")
if not (SHARED / "data/hlo/index.json").exists():
    checks.skip("heaps: every compiled module", f"no {SHARED / 'data/hlo'}")
else:
    with checks.scratch() as name:
        problems(pathlib.Path(name))
    modules()
checks.finish()
