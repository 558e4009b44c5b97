#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel of `holdfast run --backend cuda` without a GPU: its text is assembled for every generation that the assembler
knows, and carried out here, instruction by instruction, against the pattern as core/byte_pattern.hpp defines it."""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "examples/holdfast/pattern_ptx.hpp").read_text()
PTX = re.search(r'R"ptx\((.*?)\)ptx"', TEXT, re.S)[1]
MASK = (1 << 64) - 1
STEP = int(re.search(r"step = (0x\w+)u", (ROOT / "include/holdfast/core/byte_pattern.hpp").read_text())[1], 16)
FIRST = 0x123456789ABCDEF1
SIZES = [1, 7, 8, 9, 63, 64, 4088, 4095, 4096, 4097, 4104, 8191, 12291]


def assemble():
    ptxas = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if not ptxas:
        return checks.skip("pattern kernel: assembled", "no ptxas")
    known = subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout
    with checks.scratch() as folder:
        path = pathlib.Path(folder, "pattern.ptx")
        path.write_text(PTX)
        for arch in ("sm_75", "sm_90"):
            if f"'{arch}'" not in known:
                checks.skip(f"pattern kernel: assembled for {arch}", "this ptxas does not know it")
            else:
                checks.command(f"pattern kernel: assembled for {arch}", [ptxas, "--warning-as-error", f"-arch={arch}", path, "-o", path.with_suffix(".cubin")])


def parse():
    """Instructions as (guard, name, operands), and where labels stand."""
    body = re.sub(r"//.*", "", PTX[PTX.index("{") + 1:PTX.rindex("}")])
    code, labels = [], {}
    for part in re.split(r"[;\n]", re.sub(r"(\w+):", r"\n\1:\n", body)):
        part = part.strip()
        if part.endswith(":"):
            labels[part[:-1]] = len(code)
        elif part and not part.startswith("."):
            guard, name, rest = re.fullmatch(r"(?:@(%\w+)\s+)?([\w.]+)\s*(.*)", part).groups()
            code.append((guard, name, [o.strip() for o in rest.split(",")] if rest else []))
    return code, labels


CODE, LABELS = parse()


def thread(parameters, special, memory, base, wrong):
    """Carries one thread out; `memory` lies at `base`, the word that `wrong` holds at address 16."""
    r = {"%" + k: v for k, v in special.items()}
    at = 0

    def value(o):
        return r[o] if o.startswith("%") else int(o, 0) & MASK

    def place(o):
        return value(o.strip("[]"))

    while True:
        guard, name, o = CODE[at]
        at += 1
        if guard and not r[guard]:
            continue
        op = name.split(".")
        if name == "ret":
            return
        if op[0] == "bra":
            at = LABELS[o[0]]
        elif name == "ld.param.u64":
            r[o[0]] = parameters[o[1].strip("[]")]
        elif name in ("cvta.to.global.u64", "mov.u32", "cvt.u64.u32"):
            r[o[0]] = value(o[1])
        elif name == "cvt.u32.u64":
            r[o[0]] = value(o[1]) & 0xFFFFFFFF
        elif name in ("mul.wide.u32", "mul.lo.u64"):
            r[o[0]] = value(o[1]) * value(o[2]) & MASK
        elif name == "add.u64":
            r[o[0]] = value(o[1]) + value(o[2]) & MASK
        elif name == "min.u64":
            r[o[0]] = min(value(o[1]), value(o[2]))
        elif name == "shl.b64":
            r[o[0]] = value(o[1]) << value(o[2]) & MASK if value(o[2]) < 64 else 0
        elif name == "shr.u64":
            r[o[0]] = value(o[1]) >> min(value(o[2]), 64)
        elif name == "and.b64":
            r[o[0]] = value(o[1]) & value(o[2])
        elif name == "or.b64":
            r[o[0]] = value(o[1]) | value(o[2])
        elif op[0] == "setp":
            a, b = value(o[1]), value(o[2])
            r[o[0]] = {"ge": a >= b, "eq": a == b, "ne": a != b}[op[1]]
        elif name == "st.global.u8":
            offset = place(o[0]) - base
            if not 0 <= offset < len(memory):
                raise IndexError(f"a write at {offset} of {len(memory)}")
            memory[offset] = value(o[1]) & 255
        elif name == "ld.global.u8":
            offset = place(o[1]) - base
            if not 0 <= offset < len(memory):
                raise IndexError(f"a read at {offset} of {len(memory)}")
            r[o[0]] = memory[offset]
        elif name == "red.global.min.u64":
            assert place(o[0]) == 16
            wrong[0] = min(wrong[0], value(o[1]))
        else:
            raise NotImplementedError(name)


def launch(memory, page, tests, blocks=2, threads=16):
    """As PatternArguments of examples/holdfast/device_patterns.hpp; gives what the kernel found."""
    base, size, words = 1 << 40, len(memory), len(memory) // 8
    paged = (words + 511) // 512 * 16 if page and words else 0
    p = {"p_at": base, "p_units": paged + size % 8 if paged else size, "p_last": words - 1 if paged else 0, "p_paged": paged,
         "p_shift": words * 8 - paged & MASK if paged else 0, "p_first": FIRST, "p_wrong": 16 if tests else 0}
    wrong = [MASK]
    for block in range(blocks):
        for t in range(threads):
            thread(p, {"ctaid.x": block, "ntid.x": threads, "nctaid.x": blocks, "tid.x": t}, memory, base, wrong)
    return wrong[0]


def pattern(size):
    return bytes((FIRST + b // 8 * STEP & MASK) >> b % 8 * 8 & 255 for b in range(size))


def looked_at(size, page):
    """The bytes that are written and tested."""
    words = size // 8
    if not page or not words:
        return set(range(size))
    chosen = {w for w in range(words) if w % 512 in (0, 511) or w == words - 1}
    return {w * 8 + k for w in chosen for k in range(8)} | set(range(words * 8, size))


def semantics():
    for page in (False, True):
        for size in SIZES if page else SIZES[:8]:
            want, these = pattern(size), looked_at(size, page)
            memory = bytearray(size)
            launch(memory, page, False)
            written = all(memory[b] == (want[b] if b in these else 0) for b in range(size))
            clean = launch(bytearray(memory), page, True) == MASK
            found = True
            for at in sorted({0, size // 2, size - 1}):
                memory[at] ^= 1
                found = found and launch(memory, page, True) == (at if at in these else MASK)
                memory[at] ^= 1
            checks.check(f"pattern kernel: {size} bytes, {'ends of pages' if page else 'all'}: written, found whole, a wrong byte found",
                         written and clean and found, f"written {written}, whole {clean}, found {found}")


assemble()
semantics()
checks.finish()
