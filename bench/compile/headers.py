#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds and preprocessed lines to compile each public header alone; one over 0.5 s (a second argument) owes its reader a reason.

headers.py [COMPILER [LIMIT]]      g++ 0.5
"""
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests/headers"))
import tree


def least_seconds(argv, text, repeat=3):
    least = 1e9
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(argv, input=text, text=True, check=True, capture_output=True)
        least = min(least, time.perf_counter() - start)
    return least


compiler = sys.argv[1] if len(sys.argv) > 1 else "g++"
limit = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
base = [compiler, "-std=c++20", f"-I{tree.INCLUDE}", "-x", "c++", "-"]
rows = []
for header in [tree.UMBRELLA, *tree.plain_headers()]:
    text = f'#include "holdfast/{header}"\n'
    lines = subprocess.run([*base, "-E", "-P"], input=text, text=True, check=True, capture_output=True).stdout.count("\n")
    rows.append((least_seconds([*base, "-fsyntax-only"], text), lines, header))
for seconds, lines, header in sorted(rows, reverse=True):
    print(f"{seconds:6.2f} s {lines:7d} lines  {header}" + ("  *" if seconds > limit else ""))
print(f"{sum(s > limit for s, _, _ in rows)} of {len(rows)} over {limit} s")
