# SPDX-License-Identifier: Apache-2.0
"""What the header tree holds: which headers there are, which need a vendor's SDK, and what the umbrella must name."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "include"

UMBRELLA = "holdfast.hpp"
# Headers that need something beyond the standard library, POSIX and Boost's headers.
VENDOR = re.compile(r"^(cuda\.hpp|nccl\.hpp|backend/cuda/|backend/nccl/|backend/host/numa\.hpp|interop/llvm_memory\.hpp"
                    r"|collective/mpi_channel\.hpp)")
OWN_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]holdfast/([^>"]+)[>"]', re.M)


def all_headers(include=INCLUDE):
    """Every header, as a path below include/holdfast."""
    base = include / "holdfast"
    return sorted(p.relative_to(base).as_posix() for p in base.rglob("*.hpp"))


def plain_headers(include=INCLUDE):
    """Every public header that needs no vendor's SDK, but the umbrella itself."""
    return [h for h in all_headers(include) if h != UMBRELLA and not VENDOR.match(h) and "/detail/" not in h]


def own_includes(text):
    """The headers of ours that a text includes, as paths below include/holdfast."""
    return OWN_INCLUDE.findall(text)


def umbrella_text(include=INCLUDE):
    lines = "\n".join(f'#include "holdfast/{h}"' for h in plain_headers(include))
    return ("// SPDX-License-Identifier: Apache-2.0\n"
            "// All of the library that needs no vendor's SDK. Written by `python3 tests/headers/tree.py --write`;\n"
            "// a test compares. Inside the library nothing includes it.\n"
            "#pragma once\n\n" + lines + "\n")


def main():
    path = INCLUDE / "holdfast" / UMBRELLA
    if "--write" in sys.argv[1:]:
        path.write_text(umbrella_text())
        return 0
    have = own_includes(path.read_text()) if path.exists() else []
    want = plain_headers()
    for h in sorted(set(want) - set(have)):
        print(f"FAILED umbrella: holdfast.hpp lacks {h}; run `python3 tests/headers/tree.py --write`")
    for h in sorted(set(have) - set(want)):
        print(f"FAILED umbrella: holdfast.hpp names {h}, which is not a plain header")
    return int(set(have) != set(want))


if __name__ == "__main__":
    sys.exit(main())
