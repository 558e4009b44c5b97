#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the library as one file: all plain headers in the order that their includes ask for.

amalgamate.py [OUTPUT]      standard output by default
"""
import re
import sys

from tree import INCLUDE, UMBRELLA, plain_headers, own_includes

INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"].*$', re.M)


def amalgamate(include=INCLUDE):
    done, system, bodies = set(), [], []

    def add(header):
        if header in done:
            return
        done.add(header)
        text = (include / "holdfast" / header).read_text()
        for inner in own_includes(text):
            add(inner)
        body = []
        conditional = 0  # an include under #if stays where it is
        for line in text.splitlines():
            stripped = line.strip()
            match = INCLUDE_LINE.match(line)
            if re.match(r"#\s*if", stripped):
                conditional += 1
            elif re.match(r"#\s*endif", stripped):
                conditional -= 1
            if stripped == "#pragma once" or stripped == "// SPDX-License-Identifier: Apache-2.0":
                continue
            if match and match[2].startswith("holdfast/"):
                continue
            if match and conditional == 0:
                if match[2] not in system:
                    system.append(match[2])
                continue
            body.append(line)
        bodies.append(f"// ---- holdfast/{header}\n" + "\n".join(body).strip("\n") + "\n")

    for header in plain_headers(include):
        if header != UMBRELLA:
            add(header)
    version = re.findall(r"#define HOLDFAST_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", "".join(bodies))
    return ("// SPDX-License-Identifier: Apache-2.0\n"
            f"// holdfast {'.'.join(version)} as one file; made by tests/headers/amalgamate.py, not to be edited.\n"
            "#pragma once\n\n" + "".join(f"#include <{s}>\n" for s in sorted(system)) + "\n" + "\n".join(bodies))


if __name__ == "__main__":
    text = amalgamate()
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as out:
            out.write(text)
    else:
        sys.stdout.write(text)
