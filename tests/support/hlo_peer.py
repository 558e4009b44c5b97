# SPDX-License-Identifier: Apache-2.0
"""Shared by the peer scripts about HLO text: XLA's own parser through jaxlib, the corpus, and our tool."""
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("HOLDFAST_SHARED", TESTS.parent.parent / "shared"))


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def xla_parser():
    try:
        from jaxlib import _hlo
        return _hlo.hlo_module_from_text
    except ImportError:
        skip("jaxlib is not installed")


def corpus():
    """Pairs of a name such as gpt2_fwd/after and the number of instructions that XLA counts in it."""
    index = SHARED / "data/hlo/index.json"
    if not index.exists():
        skip(f"no {index}")
    modules = json.loads(index.read_text())["modules"]
    return [(f"{m['name']}/{kind}", m[kind]["instructions"]) for m in modules for kind in ("before", "after") if m.get(kind)]


def text_of(name):
    packed = SHARED / "data/hlo" / (name + ".hlo.xz")
    return lzma.open(packed).read() if packed.exists() else packed.with_suffix("").read_bytes()


class Tool:
    """Our side: tests/peer/hlo_text.cpp, as meson built it, or compiled on the spot."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.environ.get("HOLDFAST_HLO_TEXT")
        if self.path:
            return
        self.path = os.path.join(self.folder.name, "hlo_text")
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or skip("no C++ compiler")
        subprocess.run([*compiler.split(), "-std=c++20", "-O3", "-DNDEBUG", f"-I{TESTS.parent / 'include'}", f"-I{TESTS}",
                        str(TESTS / "peer/hlo_text.cpp"), "-o", self.path], check=True)

    def __call__(self, command, argument, *more):
        """Runs a command; an argument in bytes goes through a file."""
        if isinstance(argument, bytes):
            file = os.path.join(self.folder.name, "text.hlo")
            pathlib.Path(file).write_bytes(argument)
            argument = file
        return subprocess.run([self.path, command, argument, *more], check=True, stdout=subprocess.PIPE).stdout
