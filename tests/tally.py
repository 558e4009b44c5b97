#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what meson's test logs (testlog*.json) say: doctest's cases, the checks of scripts, whole programs.

tally.py [NAME=N...] LOG...     NAME is passed, failed or skipped: counts from outside the logs
tally.py --self-test
Shows the end of each failed test and what was skipped, and last `N passed, N failed, N skipped`.
"""
import collections
import json
import re
import sys

DOCTEST = re.compile(r"^\[doctest\] test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed(?:\s*\|\s*(\d+) skipped)?", re.M)
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
SKIPPED_CASE = re.compile(r"^\[holdfast\] skipped: (.*?) \| (.*)$", re.M)  # support/shared.hpp
SKIPPED_CHECK = re.compile(r"^skipped (.*)$", re.M)  # checks.py
TAIL = 4000


def count(entry):
    """(passed, failed, skipped, what was skipped) of one test program."""
    out = re.sub(r"\x1b\[[0-9;]*m", "", entry.get("stdout") or "")
    cases = dict(SKIPPED_CASE.findall(out))
    skips = [f"{case}: {why}" for case, why in cases.items()] + SKIPPED_CHECK.findall(out)
    if entry["result"] == "SKIP":
        return 0, 0, 1, skips or [entry["name"]]
    tallies = DOCTEST.findall(out) + PLAIN.findall(out)
    passed, failed, skipped = (sum(int(t[i] or 0) for t in tallies) for i in range(3))
    # A doctest case that skips itself has passed in doctest's eyes.
    moved = min(len(cases), passed)
    passed, skipped = passed - moved, skipped + moved
    if entry["result"] not in ("OK", "EXPECTEDFAIL"):
        failed = max(failed, 1)
    elif not tallies:
        passed = 1
    return passed, failed, skipped, skips


def main(arguments):
    total = collections.Counter()
    for a in arguments:
        if re.fullmatch(r"(passed|failed|skipped)=\d+", a):
            name, n = a.split("=")
            total[name] += int(n)
            continue
        with open(a) as log:
            for entry in map(json.loads, log):
                passed, failed, skipped, skips = count(entry)
                total.update(passed=passed, failed=failed, skipped=skipped)
                for what in skips:
                    print(f"skipped {entry['name']}: {what}")
                if failed:
                    print(f"FAILED  {entry['name']} in {a} ({entry['result']}, {failed} failed)")
                    for stream in ("stdout", "stderr"):
                        print("  | " + (entry.get(stream) or "").strip()[-TAIL:].replace("\n", "\n  | "))
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return int(total["failed"] > 0 or total["passed"] == 0)


def self_test():
    import checks

    def gives(name, result, stdout, *want):
        have = count({"name": "t", "result": result, "stdout": stdout})[:3]
        checks.check(f"tally: {name}", have == want, f"{have}, not {want}")

    doctest = "[doctest] test cases:  9 |  7 passed | 2 failed | 1 skipped\n"
    gives("doctest's cases are added up", "FAIL", doctest + doctest, 14, 4, 2)
    gives("cases that a filter left out are not skipped", "OK", "[doctest] test cases: 53 | 53 passed | 0 failed |\n", 53, 0, 0)
    gives("a colour does not hide a tally", "FAIL", "\x1b[0;36m[doctest] \x1b[0mtest cases:  9 | \x1b[32m 7 passed\x1b[0m | \x1b[31m2 failed\x1b[0m | 1 skipped\n", 7, 2, 1)
    gives("a case that skips itself counts once, as skipped", "OK",
          "[holdfast] skipped: a: b | no x\n[holdfast] skipped: a: b | no y\n[doctest] test cases: 2 | 2 passed | 0 failed | 0 skipped\n", 1, 0, 1)
    gives("a script's closing line is added up", "OK", "ok a\nskipped b: no c\n3 passed, 0 failed, 1 skipped\n", 3, 0, 1)
    gives("a program without a tally is one test", "OK", "fine\n", 1, 0, 0)
    gives("a crash before the tally is a failure", "FAIL", "", 0, 1, 0)
    gives("a crash after a good tally is a failure", "FAIL", "3 passed, 0 failed\n", 3, 1, 0)
    gives("a program out of time is a failure", "TIMEOUT", "", 0, 1, 0)
    gives("a program that exits 77 is skipped", "SKIP", "", 0, 0, 1)
    checks.finish()


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else sys.exit(main(sys.argv[1:]))
