#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training modules within 0.8 and 0.6 of the peak of their given order: a table of how far `holdfast plan --limit` gets and
what it costs, and XLA's parser on every module that was changed for it. At least half have to fit at 0.8. HOLDFAST_QUICK=1
leaves out texts over 3 MB."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import hlo_peer

xla = hlo_peer.xla_parser()
program = os.environ.get("HOLDFAST_PROGRAM") or hlo_peer.skip("no program")
quick = os.environ.get("HOLDFAST_QUICK", "0") not in ("", "0")
names = [n for n, _ in hlo_peer.corpus() if n.endswith("/after") and any(w in n for w in ("train", "adam", "sgd"))]
tool = hlo_peer.Tool()
failed = []
fits = tried = 0


def plan(data, *more):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "plan.json")
        done = subprocess.run([program, "plan", "-", "--json", file, *more], input=data, capture_output=True)
        return done.returncode, json.loads(pathlib.Path(file).read_text()), done.stderr.decode().splitlines()


print(f"{'module':28} {'given MB':>10} {'part':>4} {'limit MB':>10} {'peak MB':>10} {'floor MB':>10}  {'':8} again away"
      f" {'added ms':>9} {'seconds':>7}")
for name in names:
    data = hlo_peer.text_of(name)
    if quick and len(data) > 3_000_000:
        continue
    given = plan(data)[1]["as_given_peak_bytes"]
    for part in (0.8, 0.6):
        limit = int(part * given)
        start = time.monotonic()
        status, j, words = plan(data, "--limit", str(limit))
        seconds = time.monotonic() - start
        result = "fits" if status == 0 else "floor" if j["floor_bytes"] > limit else "least"
        print(f"{name.split('/')[0]:28} {given / 1e6:10.1f} {part:4} {limit / 1e6:10.1f} {j['peak_bytes'] / 1e6:10.1f}"
              f" {j['floor_bytes'] / 1e6:10.1f}  {result:8} {j['recomputed']:5} {j['offloaded']:4} {1e3 * j['added_seconds']:9.3f}"
              f" {seconds:7.2f}", flush=True)
        figure = {"fits": None, "floor": j["floor_bytes"], "least": j["peak_bytes"]}[result]
        if status not in (0, 3) or (status == 0) != (j["peak_bytes"] <= limit) or (figure and str(figure) not in words[0]):
            failed.append(f"{name} at {part}: status {status}, peak {j['peak_bytes']}, {words[:1]}")
        if part == 0.8:
            tried += 1
            fits += status == 0
    try:
        xla(tool("limit", data, str(limit)).decode())
    except Exception as e:
        failed.append(f"{name}, changed: {str(e)[:300]}")
if 2 * fits < tried:
    failed.append(f"only {fits} of {tried} fit at 0.8")
print(*failed, sep="\n")
print(f"{fits} of {tried} modules fit at 0.8; {len(failed)} wrong")
sys.exit(bool(failed) or tried == 0)
