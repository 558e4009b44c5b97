#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `holdfast` as its users see it: exit statuses, places of errors, JSON keys, CSV columns, verified runs."""
import csv
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
PROGRAM = os.environ.get("HOLDFAST_PROGRAM")
MLP = ROOT / "examples/data/mlp_train.hlo"
TINY = """HloModule tiny
ENTRY e {
  a = f32[64] parameter(0)
  b = f32[64] custom-call(a), custom_call_target="C"
  c = f32[64] custom-call(a, b), custom_call_target="C"
  ROOT d = f32[64] custom-call(b, c), custom_call_target="C", metadata={op_name="jit(f)/\\"d\\""}
}
"""
BRANCHES = """HloModule branches, is_scheduled=true
one { p = f32[512] parameter(0)  q = f32[512] custom-call(p), custom_call_target="C"  ROOT r = f32[512] custom-call(q), custom_call_target="C" }
two { ROOT p = f32[512] parameter(0) }
ENTRY e {
  i = s32[] parameter(0)
  p = f32[512] parameter(1)
  c = f32[512] conditional(i, p, p), branch_computations={one, two}
  ROOT d = f32[512] custom-call(c), custom_call_target="C"
}
"""
TRANSFERS = """HloModule transfers
ENTRY e {
  h = f32[64,64]{1,0:S(5)} parameter(0)
  x = f32[64] parameter(1)
  u = f32[1,64] reshape(x)
  i = s32[] constant(3)
  up = f32[64,64] copy(h)
  s = f32[1,64] dynamic-slice(h, i, i), dynamic_slice_sizes={1,64}
  a = f32[64,64] custom-call(up, s), custom_call_target="C"
  ROOT d = f32[64,64]{1,0:S(5)} dynamic-update-slice(h, u, i, i), control-predecessors={a}
}
"""
PLAN_KEYS = """module instructions computations scheduler argument_bytes output_bytes alias_bytes temp_bytes generated_code_bytes
host_argument_bytes host_output_bytes host_alias_bytes host_temp_bytes peak_bytes live_peak_bytes lower_bound_bytes
any_order_lower_bound_bytes as_given_peak_bytes heap_bytes proven_optimal floor_bytes recomputed offloaded added_seconds parse_seconds schedule_seconds plan_seconds buffers_at_peak""".split()
RUN_KEYS = PLAN_KEYS + "backend measured_peak_bytes values_checked verified".split()
SCHEDULERS = "as-given list dfs bfs post-order best search".split()
CSV = "id,lower,upper,size,alignment\na,0,4,100,64\nb,2,6,200,64\nc,5,9,100,1\n"
TRACES = "trace,group,size,start,end,xla_offset\n0,1,64,0,2,0\n0,2,64,1,3,64\n0,1,64,4,6,0\n1,1,8,0,9,0\n"


def run(*args, data=""):
    """Exit status, standard output, standard error."""
    done = subprocess.run([PROGRAM, *map(str, args)], input=data.encode() if isinstance(data, str) else data, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def figures(*args, data=""):
    status, out, err = run(*args, "--json", "-", data=data)
    return status, json.loads(out) if out else None, err


def usage():
    for name, args in {"nothing": [], "no file": ["plan"], "an unknown command": ["plot", MLP], "an unknown option": ["plan", MLP, "--colour"],
                       "a scheduler that there is not": ["plan", MLP, "--scheduler", "random"], "a limit that is no size": ["plan", MLP, "--limit", "16apples"],
                       "a negative limit": ["plan", MLP, "--limit", "-3"], "an alignment of 3": ["plan", MLP, "--alignment", "3"],
                       "two files": ["plan", MLP, MLP], "no rounds": ["run", MLP, "--trips", "0"], "a check that there is not": ["run", MLP, "--check", "some"]}.items():
        status, out, err = run(*args)
        checks.check(f"usage: {name} is exit 1, said on standard error", status == 1 and err and not out, f"{status} {out} {err}")
    for args in (["--help"], ["plan", "--help"], ["run", "--help"], ["--version"]):
        checks.check(f"usage: {' '.join(args)} is exit 0", run(*args)[0] == 0)


def places(folder):
    def wrong(name, text, want):
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for file, data in ((path, ""), ("-", text)):
            for command in ("plan", "run"):
                status, out, err = run(command, file, data=data)
                checks.check(f"errors: {command} {'FILE' if file != '-' else '-'} says {want} of {name}",
                             status == 2 and err.startswith(f"{file}{want}") and err.count("\n") == 1 and not out, f"{status} {out} {err}")

    wrong("operand.hlo", TINY.replace("(a, b)", "(a, z)"), ":5:30: ")
    wrong("cut.hlo", TINY[: TINY.index("metadata")], ":6:")
    wrong("empty.hlo", "", ":1:1: ")
    wrong("late.hlo", TINY.replace("f32[64] custom-call(b, c)", "f32[64] get-tuple-element(b), index=0"), ":6:")
    wrong("cut.pb", b"\x0a\x85\x01\x0a\x04tiny\x00\x01", ":+")
    wrong("number.csv", CSV.replace("200", "2x0"), ":3:7: ")
    wrong("backwards.csv", CSV.replace("2,6", "6,2"), ":3:1: ")
    status, _, err = run("plan", folder / "absent.hlo")
    checks.check("errors: a file that is not there is exit 2 with its name", status == 2 and "absent.hlo: " in err, err)
    status, _, err = run("plan", folder)
    checks.check("errors: a folder is exit 2", status == 2 and err, err)


def keys():
    status, j, err = figures("plan", "-", data=TINY)
    checks.check("json: plan has the documented keys in their order, and only them", status == 0 and list(j) == PLAN_KEYS, str(j and list(j)))
    checks.check("json: nothing but JSON on standard output, nothing on standard error", err == "", err)
    checks.check("json: sizes are whole numbers, and those of a small program are right",
                 all(isinstance(v, int) for k, v in j.items() if k.endswith("_bytes")) and j["argument_bytes"] == 256 and j["output_bytes"] == 256 and
                 j["instructions"] == 4 and j["computations"] == 1 and j["module"] == "tiny", str(j))
    status, unscheduled, _ = figures("plan", "-", data=TINY)
    checks.check("json: a program without an order is scheduled by best and has no peak of its own order",
                 unscheduled["scheduler"] == "best" and unscheduled["as_given_peak_bytes"] == 0, str(unscheduled))
    top = j["buffers_at_peak"]
    checks.check("json: those who hold the peak add up to it", sum(b["bytes"] for b in top) == j["live_peak_bytes"] and
                 all(list(b) == ["name", "opcode", "shape", "bytes", "op_name"] for b in top), str(top))
    checks.check("json: the op_name stands there without its quotes' escapes", any(b["op_name"] == 'jit(f)/"d"' and b["opcode"] == "custom-call" and
                 b["shape"].startswith("f32[64]") for b in top), str(top))
    status, j, _ = figures("run", "-", data=TINY)
    checks.check("json: run adds its four keys", status == 0 and list(j) == RUN_KEYS and j["backend"] == "host", str(j and list(j)))
    status, j, _ = figures("plan", "-", data=CSV)
    checks.check("json: a table of lifetimes has the same keys, heap and peak alike",
                 status == 0 and list(j) == PLAN_KEYS and j["heap_bytes"] == j["peak_bytes"] and j["any_order_lower_bound_bytes"] == 0, str(j))


def schedulers():
    scheduled = TINY.replace("HloModule tiny", "HloModule tiny, is_scheduled=true")
    for scheduler in SCHEDULERS:
        for name, text in (("with an order", scheduled), ("without", TINY), ("of a training step", MLP.read_text())):
            status, j, err = figures("run", "-", "--scheduler", scheduler, "--effort", "0.2", data=text)
            checks.check(f"schedulers: {scheduler} of a program {name} runs as planned",
                         status == 0 and j["verified"] and j["scheduler"] == scheduler and j["measured_peak_bytes"] == j["heap_bytes"] and
                         (j["as_given_peak_bytes"] > 0) == (name != "without"), f"{status} {err} {j}")
    given = figures("plan", "-", data=scheduled)[1]
    checks.check("schedulers: a program with an order keeps it by default", given["scheduler"] == "as-given" and
                 given["as_given_peak_bytes"] == given["peak_bytes"], str(given))


def limits():
    peak = figures("plan", MLP)[1]["peak_bytes"]
    checks.check("limits: a plan that just fits is exit 0", run("plan", MLP, "--limit", peak)[0] == 0)
    fixed = sum(sign * figures("plan", MLP)[1][key] for sign, key in ((1, "argument_bytes"), (1, "output_bytes"), (-1, "alias_bytes")))
    for command in ("plan", "run"):
        status, j, err = figures(command, MLP, "--limit", peak - 1)
        checks.check(f"limits: {command} of one byte less finds another order", status == 0 and j["peak_bytes"] < peak and
                     j["as_given_peak_bytes"] == peak, f"{status} {j} {err}")
        status, out, err = run(command, MLP, "--limit", fixed - 1)
        checks.check(f"limits: {command} of less than what callers hold is exit 3, with the floor and who holds the peak",
                     status == 3 and "none has less than" in err and "f32[64,256]" in err and not out, f"{status} {out} {err}")
    status, j, err = figures("run", MLP, "--limit", int(0.96 * peak), "--scheduler", "as-given")
    checks.check("limits: a program that was changed to fit runs as planned", status == 0 and j["verified"] and
                 j["peak_bytes"] <= 0.96 * peak and j["recomputed"] + j["offloaded"] > 0 and j["added_seconds"] > 0, f"{status} {j} {err}")
    for text, status in (("16GiB", 0), ("1.5 MiB", 0), ("1kb", 3), ("0", 3), ("1KiB", 3), ("1TB", 0)):
        checks.check(f"limits: --limit {text} is understood", run("plan", MLP, "--limit", text)[0] == status)
    status, _, err = run("plan", "-", "--limit", "327", data=CSV)
    checks.check("limits: they hold for tables of lifetimes", status == 3 and "328" in err, err)
    huge = TINY.replace("f32[64]", "f32[1000000000000]")
    status, j, err = figures("run", "-", data=huge)
    checks.check("limits: a plan larger than the machine is exit 3, naming need and machine",
                 status == 3 and "needs" in err and "available" in err and j["verified"] is False, f"{status} {err}")
    checks.check("limits: it can be planned all the same", run("plan", "-", data=huge)[0] == 0)


def runs():
    for options in ([], ["--check", "page"], ["--check", "full"], ["--streams", "2"], ["--streams", "5", "--check", "page"], ["--trips", "5"], ["--alignment", "1"],
                    ["--alignment", "4096"], ["--pointer-size", "4"], ["--backend", "host"]):
        for name, text in (("a training step", MLP.read_text()), ("branches", BRANCHES), ("tiny", TINY)):
            status, j, err = figures("run", "-", *options, data=text)
            checks.check(f"run: {name} {' '.join(options)} is verified, and reaches the plan's heap",
                         status == 0 and j["verified"] is True and j["values_checked"] > 0 and j["measured_peak_bytes"] == j["heap_bytes"] and not err,
                         f"{status} {err} {j}")
    status, out, err = run("run", MLP)
    checks.check("run: the summary ends with planned and measured peak", status == 0 and "measured" in out.splitlines()[-1] and not err, out)
    for name, text in (("intervals", CSV), ("traces", TRACES)):
        status, j, err = figures("run", "-", data=text)
        checks.check(f"run: {name} are carried out", status == 0 and j["verified"] and j["measured_peak_bytes"] == j["heap_bytes"], f"{status} {err}")


def devices():
    try:
        ctypes.CDLL("libcuda.so.1")
        driver = True
    except OSError:
        driver = False
    for name, text in (("a training step", MLP.read_text()), ("branches", BRANCHES)):
        status, out, err = run("run", "-", "--backend", "cuda", "--json", "-", data=text)
        if driver and status == 0:
            j = json.loads(out)
            checks.check(f"devices: {name} on CUDA is verified", j["verified"] is True and j["measured_peak_bytes"] == j["heap_bytes"], f"{err} {j}")
        else:
            checks.check(f"devices: {name} where CUDA has no device or driver is exit 3 and says so", status == 3 and not out and
                         err.startswith("-: ") and ("CUDA" in err or "cuInit" in err) and not (driver and "there is no CUDA driver" in err), f"{status} {out} {err}")
    status, out, err = run("run", "-", "--backend", "cuda", data=CSV)
    checks.check("devices: a table of intervals on CUDA is exit 1", status == 1 and "on the host only" in err and not out, f"{status} {err}")
    needed = subprocess.run(["readelf", "--dynamic", PROGRAM], capture_output=True, text=True) if shutil.which("readelf") else None
    if needed is None:
        return checks.skip("devices: the program needs no library of CUDA's to start", "no readelf")
    checks.check("devices: the program needs no library of CUDA's to start", "NEEDED" in needed.stdout and "libcu" not in needed.stdout, needed.stdout)


def passes():
    for scheduler in SCHEDULERS:
        for streams in (1, 3):
            status, j, err = figures("run", "-", "--scheduler", scheduler, "--streams", streams, "--effort", "0.2", data=TRANSFERS)
            checks.check(f"passes: transfers begin and end, {scheduler}, streams {streams}: verified", status == 0 and j["verified"] and
                         j["instructions"] == 8 + 3 + 4 + 5 and j["computations"] == 3, f"{status} {err} {j}")
    given = figures("plan", "-", data=TRANSFERS.replace("HloModule transfers", "HloModule transfers, is_scheduled=true"))[1]
    checks.check("passes: a program with an order stays as it is", given["instructions"] == 8 and given["computations"] == 1, str(given))
    status, out, err = run("plan", "-", data=TRANSFERS.replace("{1,0:S(5)} parameter", "{1,0} parameter"))
    checks.check("passes: an update of host memory whose base is elsewhere is exit 2, with its place", status == 2 and not out and
                 err.startswith("-:10:8: ") and "base" in err, f"{status} {err}")
    annotated = TINY.replace('target="C"', 'target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="pinned_host"}', 1)
    j, plain = figures("plan", "-", data=annotated)[1], figures("plan", "-", data=TINY)[1]
    checks.check("passes: an annotation alone moves nothing", j["heap_bytes"] == plain["heap_bytes"] and j["peak_bytes"] == plain["peak_bytes"], str(j))


def tables(folder):
    def rows(text):
        return list(csv.DictReader(text.splitlines()))

    def clash(rows, begin, end, arena):
        spans = [(int(r["offset"]), int(r["offset"]) + int(r["size"]), int(r[begin]), int(r[end]), r.get(arena)) for r in rows]
        return any(a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3] and a[4] == b[4] for i, a in enumerate(spans) for b in spans[:i])

    status, out, err = run("plan", "-", "--csv", "-", data=CSV)
    planned = rows(out)
    checks.check("csv: the columns come back with an offset behind", status == 0 and out.splitlines()[0] == "id,lower,upper,size,alignment,offset" and
                 [r["id"] for r in planned] == ["a", "b", "c"], out)
    checks.check("csv: offsets are aligned and nothing alive together overlaps", not clash(planned, "lower", "upper", None) and
                 all(int(r["offset"]) % int(r["alignment"]) == 0 for r in planned), out)
    again = run("plan", "-", "--csv", "-", data=out.replace(",0\n", ",77\n"))[1]
    checks.check("csv: a column of offsets is filled", again.splitlines()[0].count("offset") == 1 and not clash(rows(again), "lower", "upper", None), again)
    status, out, err = run("plan", "-", "--csv", "-", data=TRACES)
    planned = rows(out)
    checks.check("csv: rows of one group share an offset, traces are arenas of their own", planned[0]["offset"] == planned[2]["offset"] and
                 not clash(planned, "start", "end", "trace") and planned[3]["offset"] == "0", out)
    checks.check("csv: an alignment that is asked for replaces the file's", all(int(r["offset"]) % 512 == 0 for r in
                 rows(run("plan", "-", "--csv", "-", "--alignment", "512", data=CSV)[1])))
    status, out, err = run("plan", MLP, "--csv", folder / "mlp.csv", "--json", folder / "mlp.json")
    text = (folder / "mlp.csv").read_text()
    heap = json.loads((folder / "mlp.json").read_text())["heap_bytes"]
    checks.check("csv: the offsets of a program can be read back, with the same height", figures("plan", "-", "--alignment", 64, data=text)[1]["heap_bytes"] <= heap and
                 max((int(r["offset"]) + int(r["size"]) for r in rows(text)), default=0) == heap, text)
    status, out, err = run("plan", MLP, "--csv", folder / "no/such/folder.csv")
    checks.check("csv: a file that cannot be written is exit 1 and says so", status == 1 and "folder.csv" in err, f"{status} {err}")


def effort():
    # No plan of this one is known to meet its bound: every search ends by its effort.
    file = SHARED / "data/dsa/minimalloc/D.1048576.csv"
    if not file.exists():
        return
    plans = [figures("plan", file, "--effort", seconds)[1] for seconds in (0, 0.1, 1, 3)]
    if any(j["plan_seconds"] > 0.9 + 1.8 * seconds for j, seconds in zip(plans, (0, 0.1, 1, 3))):
        return  # so slow a machine that time ends it
    heights = [j["heap_bytes"] for j in plans]
    checks.check("effort: more of it never gives a higher plan, and three seconds a lower one than the default", heights == sorted(heights, reverse=True) and
                 heights[3] < heights[2], str(heights))
    status, out, err = run("plan", file, "--effort", "0.1", "--csv", "-")
    checks.check("effort: is counted, so that the same command gives the same plan", status == 0 and out == run("plan", file, "--effort", "0.1", "--csv", "-")[1], err)


def kinds(folder):
    disguised = folder / "is.csv"
    disguised.write_text(TINY)
    checks.check("kinds: text is known by its content, not its name", run("plan", disguised)[0] == 0)
    disguised.write_text("\r\n" + CSV)
    checks.check("kinds: so is a table", figures("plan", disguised)[1]["instructions"] == 3)
    proto = SHARED / "cases/16-hlo-proto-reader/good.pb"
    if not proto.exists():
        return checks.skip("kinds: protos and the corpus' broken inputs", f"no {proto}")
    disguised.write_bytes(proto.read_bytes())
    both = [figures("plan", file)[1] for file in (disguised, proto.with_suffix(".hlo"))]
    for j in both:
        for key in list(j):
            if key.endswith("_seconds"):
                del j[key]
    checks.check("kinds: case 16, a proto plans as its text does", both[0] == both[1], str(both))
    for case in ("15-hlo-reader-malformed", "16-hlo-proto-reader", "23-io-alias-config"):
        for file in sorted((SHARED / "cases" / case).iterdir()):
            good = file.name.startswith(("good", "crossing", "loop_between")) or "_ok" in file.name
            status, out, err = run("plan", file)
            want = (0, 2) if file.name.startswith("big_id") else (0,) if good else (2,)
            checks.check(f"kinds: case {case[:2]} {file.name}", status in want and (status == 0 or err.startswith(f"{file}:")), f"{status} {err}")


if PROGRAM is None:
    sys.exit("HOLDFAST_PROGRAM names no program")
with checks.scratch() as name:
    scratch = pathlib.Path(name)
    usage()
    places(scratch)
    keys()
    schedulers()
    limits()
    runs()
    devices()
    passes()
    tables(scratch)
    effort()
    kinds(scratch)
checks.finish()
