#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints our heaps beside the better of XLA's two schedulers, for the modules that XLA gave one for, as a table.

Usage: bench/plan/heap_table.py PROGRAM [EFFORT]   (no test: minutes; PROGRAM is build/examples/holdfast)
Columns: XLA's best heap in bytes; `best` and `search` over it; the bound for any order over it (- where it says nothing).
"""
import json, lzma, math, os, pathlib, subprocess, sys

DATA = pathlib.Path(os.environ.get('HOLDFAST_SHARED', pathlib.Path(__file__).resolve().parents[3] / 'shared')) / 'data/hlo'


def plan(program, text, *options):
    out = subprocess.run([program, 'plan', '-', '--json', '-', *options], input=text, capture_output=True, check=True)
    return json.loads(out.stdout)


def main(program, effort='10'):
    ratios = {'best': [], 'search': []}
    print('| module | XLA best | best | search | bound |\n| --- | ---: | ---: | ---: | ---: |')
    for module in json.loads((DATA / 'index.json').read_text())['modules']:
        xla = (module.get('heap_bytes_by_scheduler') or {}).get('best')
        if not xla:
            continue
        path = DATA / module['files']['after']['file']
        text = lzma.open(path).read() if path.suffix == '.xz' else path.read_bytes()
        best = plan(program, text, '--scheduler', 'best')
        search = plan(program, text, '--scheduler', 'search', '--effort', effort)
        for name, result in (('best', best), ('search', search)):
            ratios[name].append(result['heap_bytes'] / xla)
        bound = search['any_order_lower_bound_bytes'] / xla
        shown = '=' if search['proven_optimal'] else f'{bound:.3f}' if bound > 0.001 else '-'
        print(f"| {module['name']} | {xla} | {ratios['best'][-1]:.3f} | {ratios['search'][-1]:.3f} | {shown} |", flush=True)
    mean = {k: math.exp(sum(map(math.log, v)) / len(v)) for k, v in ratios.items()}
    print(f"| geometric mean of {len(ratios['best'])} | | {mean['best']:.3f} | {mean['search']:.3f} | |")


if __name__ == '__main__':
    main(*sys.argv[1:])
