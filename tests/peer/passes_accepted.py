#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What our passes make of a module, XLA's parser reads: the modules of cases 17 and 18 with what becomes of the
transfers as XLA sees it, those of the corpus that have annotations or host memory, and 200 generated ones."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import hlo_peer

xla = hlo_peer.xla_parser()
known = hlo_peer.corpus()
tool = hlo_peer.Tool()
failed = []
read = 0


def opcodes(name, data):
    """How often XLA sees each opcode in what our passes make of a text; of XLA's proto of it the same."""
    global read
    read += 1
    try:
        counts = []
        for out in (tool("passes", data), tool("passes", xla(data.decode()).as_serialized_hlo_module_proto(), "proto")):
            counts.append({})
            for c in xla(out.decode()).computations():
                for i in c.instructions():
                    counts[-1][i.opcode.name] = counts[-1].get(i.opcode.name, 0) + 1
        if counts[0] != counts[1]:
            failed.append(f"{name}: {counts[0]} of the text, {counts[1]} of the proto")
        return counts[0]
    except Exception as e:
        failed.append(f"{name}: {str(e)[:300]}")
        return {}


def case(name):
    return (hlo_peer.SHARED / "cases" / name).read_bytes()


found = opcodes("cases/18", case("18-transfer-asyncifier/transfers.hlo"))
wanted = {"kCopyStart": 2, "kCopyDone": 2, "kAsyncStart": 2, "kAsyncDone": 2, "kCopy": 4}
if any(found.get(k) != n for k, n in wanted.items()):
    failed.append(f"cases/18: XLA sees {found}")
opcodes("cases/17", case("17-memory-space-propagation/in.hlo"))
for name, _ in known:
    data = hlo_peer.text_of(name)
    if b"annotate_device_placement" in data or b"S(5)" in data:
        opcodes(name, data)
for seed in range(200):
    opcodes(f"generated {seed}", tool("generate", str(seed)))
print(*failed[:20], sep="\n")
print(f"{read} modules behind the passes, {len(failed)} that XLA refuses or sees otherwise")
sys.exit(bool(failed) or read < 203)
