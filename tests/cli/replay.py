#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`holdfast replay` as its users see it: exit statuses, the failing event's place, JSON keys, figures, every kind of log."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
PROGRAM = os.environ.get("HOLDFAST_PROGRAM")
LOG = "op,id,size\na,1,100\na,2,5000\nf,1,100\na,3,64\nf,2,5000\n"
RMM = """Thread,Time,Action,Pointer,Size,Stream
7,12:00:00:000001,allocate,0x7f0000000000,1048576,0x0
7,12:00:00:000002,allocate failure,(nil),99999999999999,0x0
8,12:00:00:000003,free,0x7f0000000000,1048576,0x1
"""
OWN = """event,time,thread,step,op,pointer,size,tag,number
4,10,0x1,0,lost,0x0,4,"",0x0
5,11,0x1,0,allocate,0x7f10,256,"a, ""quoted"" name",0x2
6,12,0x1,1,deallocate,0x9999,64,"",0x0
7,13,0x1,1,hold,0x0,1,"usage",0x0
8,14,0x2,1,failure,0x0,4096,"out_of_memory",0x0
9,15,0x2,1,deallocate,0x7f10,256,"",0x0
"""
BACKENDS = "host-pool", "bfc", "system"
KEYS = """log events lost_events recorded_failures allocations allocated_bytes peak_live_bytes peak_live_blocks left_bytes left_blocks left backend
peak_reserved_bytes blocks_checked verified failed samples parse_seconds replay_seconds""".split()
SAMPLE_KEYS = "event live_bytes reserved_bytes free_bytes largest_free_bytes fragmentation".split()


def run(*args, data=""):
    """Exit status, standard output, standard error."""
    done = subprocess.run([PROGRAM, "replay", *map(str, args)], input=data.encode() if isinstance(data, str) else data, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def figures(*args, data=""):
    status, out, err = run(*args, "--json", "-", data=data)
    return status, json.loads(out) if out else None, err


def usage():
    for name, args in {"no file": [], "a backend that there is not": ["-", "--backend", "device"], "a check that there is not": ["-", "--check", "some"],
                       "a limit that is no size": ["-", "--limit", "16apples"], "an alignment of 3": ["-", "--alignment", "3"]}.items():
        status, out, err = run(*args, data=LOG)
        checks.check(f"replay usage: {name} is exit 1, said on standard error", status == 1 and err and not out, f"{status} {out} {err}")
    checks.check("replay usage: --help is exit 0", run("--help")[0] == 0)


def good():
    for backend in BACKENDS:
        for check in ("full", "page"):
            status, j, err = figures("-", "--backend", backend, "--check", check, data=LOG)
            checks.check(f"replay: a small log on {backend}, {check}, has its figures", status == 0 and not err and list(j) == KEYS and j["backend"] == backend and
                         j["verified"] is True and j["blocks_checked"] == 3 and j["events"] == 5 and j["allocated_bytes"] == 5164 and
                         j["peak_live_bytes"] == 5100 and j["peak_live_blocks"] == 2 and j["failed"] is None, f"{status} {err} {j}")
            checks.check(f"replay: what {backend} never got back is listed with its line", j["left_bytes"] == 64 and j["left_blocks"] == 1 and
                         j["left"] == [{"event": 4, "line": 5, "bytes": 64}], str(j["left"]))
            shown = backend != "system"
            checks.check(f"replay: {backend} shows what it reserves as far as it can", (j["peak_reserved_bytes"] is not None) == shown and
                         (len(j["samples"]) == 5) == shown and all(list(s) == SAMPLE_KEYS for s in j["samples"]), str(j))
    status, out, err = run("-", data=LOG)
    checks.check("replay: the summary ends with what was checked", status == 0 and out.splitlines()[-1] == "3 blocks checked" and "never released" in out and not err, out)
    status, j, _ = figures("-", "--check", "none", data=LOG)
    checks.check("replay: without a check nothing is called verified", status == 0 and j["verified"] is False and j["blocks_checked"] == 0, str(j))
    status, j, err = figures("-", data=RMM)
    checks.check("replay: RMM's log is read", status == 0 and j["peak_live_bytes"] == 1048576 and j["recorded_failures"] == 1 and j["left_bytes"] == 0, f"{err} {j}")
    status, j, err = figures("-", data=OWN)
    checks.check("replay: our own log is read, with lost events", status == 0 and j["lost_events"] == 5 and j["recorded_failures"] == 1 and
                 j["allocations"] == 1 and j["left_bytes"] == 0 and j["events"] == 4, f"{err} {j}")
    checks.check("replay: a log without events is carried out", figures("-", data="op,id,size\n")[0] == 0)
    checks.check("replay: an alignment is passed on", figures("-", "--alignment", "2097152", data=LOG)[0] == 0)


def bad(folder):
    def wrong(name, text, place, what, event=False):
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for file, data in ((path, ""), ("-", text)):
            for backend in BACKENDS:
                status, out, err = run(file, "--backend", backend, data=data)
                checks.check(f"replay errors: {name} is exit 2 at {place}", status == 2 and err.startswith(f"{file}{place}") and what in err and
                             err.count("\n") == 1 and not out and ("event" in err) == event, f"{status} {out} {err}")

    wrong("empty.csv", "", ":1:1: ", "no header")
    wrong("lifetimes.csv", "id,lower,upper,size\na,0,4,100\n", ":1:1: ", "no header")
    wrong("number.csv", LOG.replace("5000\nf", "5x00\nf"), ":3:5: ", "whole number")
    wrong("word.csv", LOG.replace("f,1", "free it,1"), ":4:1: ", "neither")
    wrong("bytes.csv", b"op,id,size\n\x00\x01\x02\n", ":2:1: ", "neither")
    wrong("quote.csv", 'op,id,size\na,"1,2\n', ":2:3: ", "quote")
    wrong("twice.csv", LOG + "f,2,5000\na,9,1\n", ":7:1: ", "event 6: a block is released twice", True)
    wrong("foreign.csv", LOG.replace("f,1", "f,7"), ":4:1: ", "event 3: a block is released that was never allocated", True)
    wrong("size.csv", LOG.replace("f,1,100", "f,1,99"), ":4:1: ", "event 3: a block is released with another size", True)
    wrong("live.csv", LOG.replace("a,3", "a,2"), ":5:1: ", "event 4: a block is allocated that is live", True)
    status, _, err = run(folder / "absent.csv")
    checks.check("replay errors: a file that is not there is exit 2 with its name", status == 2 and "absent.csv: " in err, err)
    status, j, _ = figures("-", data=LOG + "f,2,5000\n")
    checks.check("replay errors: the failing event stands in the JSON, with the figures until then", status == 2 and
                 j["failed"] == {"event": 6, "line": 7, "what": "a block is released twice"} and j["peak_live_bytes"] == 5100 and j["verified"] is False, str(j))
    for backend in BACKENDS:
        status, j, err = figures("-", "--backend", backend, "--limit", "4KiB", data=LOG)
        checks.check(f"replay errors: a limit of {backend} that is passed is exit 3 at the event", status == 3 and err.startswith("-:") and "event " in err and
                     j["failed"]["event"] in (1, 2), f"{status} {err} {j}")
    status, out, err = run("-", data="op,id,size\na,1,4000000000000000\n")
    checks.check("replay errors: a log larger than the machine is exit 3, naming need and machine", status == 3 and "needs 4000000000000000" in err and not out, err)
    status, _, err = run("-", "--check", "none", data="op,id,size\na,1,9000000000000000000\na,2,9000000000000000000\n")
    checks.check("replay errors: a request that no machine has is exit 3 at its event", status == 3 and ":2:1: event 1: " in err, err)


def corpus():
    traces = SHARED / "data/traces"
    if not traces.exists():
        return checks.skip("replay: the corpus' traces", f"no {traces}")
    for name in ("xla_train_12", "xla_trinf_16", "xla_conv_24"):
        for backend in BACKENDS:
            status, j, err = figures(traces / f"{name}.events.csv", "--backend", backend)
            checks.check(f"replay: {name} on {backend} is verified", status == 0 and j["verified"] and j["left_bytes"] == 0, f"{status} {err}")
    status, _, err = run(SHARED / "cases/26-leak-trace/events.csv")
    checks.check("replay: case 26 stops at its double free", status == 2 and ":10:1: event 9: a block is released twice" in err, err)


if PROGRAM is None:
    sys.exit("HOLDFAST_PROGRAM names no program")
with checks.scratch() as name:
    usage()
    good()
    bad(pathlib.Path(name))
    corpus()
checks.finish()
