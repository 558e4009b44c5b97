#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the five largest texts of the corpus with XLA's parser and with ours, in turn: MB/s of both, asked is 8 times."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import hlo_peer

ASKED = 8
NAMES = ["large_odes_300k/before", "large_lstm_unrolled/after", "large_gpt48_train/after", "unet_diffusion_train/after", "gpt2_train_adam/after"]

xla = hlo_peer.xla_parser()
known = dict(hlo_peer.corpus())
tool = hlo_peer.Tool()
ratios = []
for name in NAMES:
    data = hlo_peer.text_of(name)
    text = data.decode()
    theirs = ours = 1e9
    for round in range(9):  # three, and more while another program's load may be the reason for a low ratio
        if round >= 3 and theirs / ours >= ASKED:
            break
        start = time.perf_counter()
        xla(text)
        theirs = min(theirs, time.perf_counter() - start)
        count, seconds = tool("time", data, "5").split()
        ours = min(ours, float(seconds))
        assert int(count) == known[name], f"{name}: {int(count)} instructions, XLA counts {known[name]}"
    ratios.append(theirs / ours)
    print(f"{name}: {len(data) / 1e6 / ours:.0f} MB/s, XLA {len(data) / 1e6 / theirs:.1f}: {ratios[-1]:.1f} times", flush=True)
mean = 1.0
for r in ratios:
    mean *= r ** (1 / len(ratios))
print(f"parse speed over XLA's: geometric mean {mean:.1f}, least {min(ratios):.1f} (asked {ASKED})")
sys.exit(min(ratios) < ASKED)
