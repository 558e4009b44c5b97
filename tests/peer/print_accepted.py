#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What our printer writes, XLA's parser reads: every text of the corpus in two styles, with the right number of
instructions, and 100 generated modules. HOLDFAST_QUICK=1 leaves out texts over 3 MB."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import hlo_peer

xla = hlo_peer.xla_parser()
known = hlo_peer.corpus()
tool = hlo_peer.Tool()
quick = os.environ.get("HOLDFAST_QUICK", "0") not in ("", "0")
failed = []
read = 0


def accepted(name, text, count=None):
    global read
    read += 1
    try:
        module = xla(text.decode())
    except Exception as e:
        failed.append(f"{name}: {str(e)[:300]}")
        return
    found = sum(len(c.instructions()) for c in module.computations())
    if count is not None and found != count:
        failed.append(f"{name}: {found} instructions, {count} in the index")


for name, count in known:
    data = hlo_peer.text_of(name)
    if quick and len(data) > 3_000_000:
        continue
    accepted(name, tool("print", data), count)
    if len(data) < 3_000_000:
        accepted(name + " (bare)", tool("print", data, "bare"), count)
for seed in range(100):
    accepted(f"generated {seed}", tool("generate", str(seed)))
print(*failed, sep="\n")
print(f"{read} printed texts, {len(failed)} that XLA refuses or counts otherwise")
sys.exit(bool(failed) or read == 0)
