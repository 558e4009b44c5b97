#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles tests/peer/sender.cpp against stdexec and runs it; exits 77 where the compiler finds no <stdexec/execution.hpp>."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
import checks

compiler = (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "").split()
if not compiler:
    print("skipped: no C++ compiler")
    sys.exit(77)
probe = subprocess.run([*compiler, "-std=c++20", "-x", "c++", "-E", "-"], input="#include <stdexec/execution.hpp>\n", capture_output=True, text=True)
if probe.returncode != 0:
    print("skipped: stdexec is not installed")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    program = os.path.join(folder, "sender")
    built = checks.command("sender: an event compiles as a sender of stdexec", [*compiler, "-std=c++20", "-O1", "-pthread",
                           f"-I{TESTS.parent / 'include'}", TESTS / "peer/sender.cpp", "-o", program], timeout=600)
    if built:
        checks.command("sender: value and error arrive, from ready and from pending events", [program], timeout=60)
checks.finish()
