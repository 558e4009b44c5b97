# SPDX-License-Identifier: Apache-2.0
"""What the script tests share: named checks with one line each, run side by side, and a closing tally."""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import threading

counts = {"ok": 0, "FAILED": 0, "skipped": 0}
guard = threading.Lock()


def note(outcome, name, why=""):
    with guard:
        counts[outcome] += 1
        print(f"{outcome:7} {name}" + (": " + why.strip()[:1500] if why else ""), flush=True)


def ok(name):
    note("ok", name)


def fail(name, why=""):
    note("FAILED", name, why)


def skip(name, why):
    note("skipped", name, why)


def check(name, holds, why=""):
    ok(name) if holds else fail(name, why)


def command(name, argv, **options):
    """One check: the command exits 0. Returns whether it did."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **options)
    check(name, done.returncode == 0, done.stdout + done.stderr)
    return done.returncode == 0


def side_by_side(jobs):
    """Runs (function, arguments...) tuples on all cores."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for future in [pool.submit(*job) for job in jobs]:
            future.result()


def scratch():
    return tempfile.TemporaryDirectory(prefix="holdfast-")


def finish():
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    sys.exit(int(counts["FAILED"] > 0))
