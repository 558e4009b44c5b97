#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the headers in every way a user may: check.py PART...

gcc      each header alone and twice, under the strictest warnings; all together without exceptions and RTTI
clang    all together for each clang++ found; in the opposite order without exceptions and RTTI
         (what a header alone lacks, g++ finds: both read the same standard library)
nvcc     all headers together in a .cu; without exceptions only as far as PTX (behind it is g++'s own compilation again)
link     all headers in two translation units linked together (ODR), in opposite orders; the single file, too
driver   a program on CUDA's headers links, as .cpp and as .cu, without the driver's library and starts where there is none
tree     the umbrella names every plain header; the versions agree; each first header of a folder opens with five lines
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import amalgamate
import checks
import tree

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Wundef", "-Werror"]
BARE = ["-fno-exceptions", "-fno-rtti"]
CUDA = next((p for p in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda")
             if p and pathlib.Path(p, "include/cuda.h").exists()), None)
BASE = ["-std=c++20", f"-I{tree.INCLUDE}"] + ([f"-isystem{CUDA}/include", f"-isystem{CUDA}/include/cccl"] if CUDA else [])
# nvcc remarks on every variable named `module` at the start of a line.
NOT_A_MODULE = "--diag-suppress=3189"
NEEDS = {"backend/nccl/": "nccl.h", "nccl.hpp": "nccl.h", "backend/cuda/resource.hpp": "cuda/memory_resource", "backend/cuda/": "cuda.h",
         "cuda.hpp": "cuda.h", "backend/host/numa.hpp": "numa.h",
         "interop/llvm_memory.hpp": "llvm/ADT/StringRef.h", "collective/mpi_channel.hpp": "mpi.h"}


def sources(headers, twice=False):
    return "".join(f'#include "holdfast/{h}"\n' for h in headers) * (2 if twice else 1)


def has(compiler, vendor):
    return subprocess.run([compiler, *BASE, "-x", "c++", "-fsyntax-only", "-"], input=f"#if !__has_include(<{vendor}>)\n#error\n#endif\n",
                          capture_output=True, text=True).returncode == 0


def usable(compiler):
    """The headers that this machine has the SDKs for; says which it leaves out."""
    absent = {v for v in set(NEEDS.values()) if not has(compiler, v)}
    out = []
    for h in tree.all_headers():
        need = next((v for k, v in NEEDS.items() if h.startswith(k)), None)
        if need in absent:
            checks.skip(f"headers: {h} under {compiler}", f"no {need}")
        else:
            out.append(h)
    return out


def compiles(name, compiler, flags, text):
    checks.command(name, [compiler, *BASE, *WARNINGS, *flags, "-x", "c++", "-fsyntax-only", "-"], input=text)


def gcc():
    headers = usable("g++")
    together = [(compiles, f"headers: all together, g++ {' '.join(BARE)}", "g++", BARE, sources(headers))]
    checks.side_by_side(together + [(compiles, f"headers: {h} alone, g++", "g++", [], sources([h], twice=True)) for h in headers])


def clang():
    found = [c for c in ("clang++-14", "clang++-19") if shutil.which(c)] or [c for c in ["clang++"] if shutil.which(c)]
    if not found:
        checks.skip("headers: under clang", "no clang++")
    jobs = []
    for compiler in found:
        headers = usable(compiler)
        jobs += [(compiles, f"headers: all together, {compiler} {' '.join(flags)}", compiler, flags, sources(order))
                 for flags, order in (([], headers), (BARE, headers[::-1]))]
    checks.side_by_side(jobs)


# A local that cannot be copied, made a result: nvcc's front end moves it only into a reference.
RETURNS_A_LOCAL = """holdfast::Result<holdfast::OwnedFile> opened(int file) {
  holdfast::OwnedFile made(holdfast::FileNumber{file});
  return made;
}
"""


def nvcc():
    compiler = shutil.which("nvcc") or (CUDA and shutil.which(f"{CUDA}/bin/nvcc"))
    if not compiler:
        return checks.skip("headers: as .cu", "no nvcc")
    headers = usable("g++")
    example = tree.INCLUDE.parent / "examples/01_plan_a_program.cpp"
    base = [compiler, *[b.replace("-isystem", "-isystem=") for b in BASE], "-Werror", "all-warnings", NOT_A_MODULE]
    with checks.scratch() as folder:
        jobs = [(checks.command, "headers: a plan in a static_assert as .cu",
                 [*base, "-x", "cu", "-c", example, "-o", pathlib.Path(folder, "example.o")])]
        for name, flags in (("as it is", ["-c"]), ("without exceptions", ["-ptx", "-Xcompiler", "-fno-exceptions,-fno-rtti"])):
            path = pathlib.Path(folder, name.replace(" ", "_") + ".cu")
            path.write_text(sources(headers) + RETURNS_A_LOCAL + "__global__ void kernel() {}\n")
            jobs.append((checks.command, f"headers: all together as .cu, {name}",
                         [*base, *flags, path, "-o", str(path) + ".o"]))
        checks.side_by_side(jobs)


def link():
    headers = tree.plain_headers()
    with checks.scratch() as name:
        folder = pathlib.Path(name)
        (folder / "a.cpp").write_text(sources(headers) + "int other();\nint main() { return other(); }\n")
        (folder / "b.cpp").write_text(sources(reversed(headers)) + "int other() { return 0; }\n")
        (folder / "single").mkdir()
        (folder / "single/holdfast.hpp").write_text(amalgamate.amalgamate())
        for f in "ab":
            text = (folder / f"{f}.cpp").read_text()
            (folder / f"single/{f}.cpp").write_text('#include "holdfast.hpp"\n' + "".join(t + "\n" for t in text.splitlines() if "#" not in t))
        links = [("all in two units, opposite orders", folder, BASE, []), ("the single file in two units", folder / "single", ["-std=c++20"], BARE)]
        checks.side_by_side([(checks.command, f"headers: {what}, linked", ["g++", *base, *WARNINGS, *flags, at / "a.cpp", at / "b.cpp", "-pthread", "-o", at / "run"])
                             for what, at, base, flags in links])


USES_DRIVER = """#include "holdfast/cuda.hpp"
int main() {
  const auto context = holdfast::CudaContext::make();
  return context.ok() || context.error().code == holdfast::Errc::unsupported ? 0 : 1;
}
"""


def driver():
    if not CUDA:
        return checks.skip("headers: a program on CUDA's headers", "no cuda.h")
    nvcc_ = shutil.which("nvcc") or shutil.which(f"{CUDA}/bin/nvcc")
    with checks.scratch() as name:
        folder = pathlib.Path(name)
        for kind, compiler in (("cpp", ["g++", *BASE, "-pthread"]), ("cu", [nvcc_, "-std=c++20", f"-I{tree.INCLUDE}"] if nvcc_ else None)):
            if compiler is None:
                checks.skip("headers: a program as .cu", "no nvcc")
                continue
            source, run = folder / f"uses_driver.{kind}", folder / f"run_{kind}"
            source.write_text(USES_DRIVER)
            checks.command(f"headers: a program as .{kind} links without the driver's library", [*compiler, source, "-o", run, "-ldl"])
            if not run.exists():
                continue
            undefined = subprocess.run(["nm", "--undefined-only", run], capture_output=True, text=True).stdout
            needed = subprocess.run(["readelf", "--dynamic", run], capture_output=True, text=True).stdout
            checks.check(f"headers: a program as .{kind} asks the linker for nothing of the driver's", "dlopen" in undefined and "NEEDED" in needed
                         and not re.search(r"\bcu[A-Z]\w+", undefined) and "libcuda" not in needed, undefined + needed)
            checks.command(f"headers: a program as .{kind} starts, with a driver or without", [run])


def five_lines(text):
    """The lines of comment before #pragma once that are not the licence's."""
    head = text.split("#pragma once")[0].splitlines()
    return [line for line in head if line.startswith("//") and "SPDX" not in line and line.strip() != "//"]


def check_tree():
    have, want = tree.own_includes((tree.INCLUDE / "holdfast" / tree.UMBRELLA).read_text()), tree.plain_headers()
    checks.check("headers: holdfast.hpp names every plain header once", sorted(have) == sorted(want),
                 f"differ in {sorted(set(have) ^ set(want))}; run `python3 tests/headers/tree.py --write`")
    config = (tree.INCLUDE / "holdfast/core/config.hpp").read_text()
    ours = ".".join(re.findall(r"#define HOLDFAST_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", config))
    meson = re.search(r"version: '([^']+)'", (tree.ROOT / "meson.build").read_text())[1]
    log = re.search(r"^## (\d+\.\d+\.\d+)", (tree.ROOT / "CHANGELOG.md").read_text(), re.M)
    checks.check("version: config.hpp and meson.build agree", ours == meson, f"{ours} and {meson}")
    checks.check("version: CHANGELOG.md has it on top", log is not None and log[1] == meson, f"{log and log[1]} and {meson}")
    folders = {pathlib.PurePosixPath(h).parent.as_posix() for h in tree.all_headers()} - {"."}
    for folder in sorted(folders):
        counts = [len(five_lines(p.read_text())) for p in (tree.INCLUDE / "holdfast" / folder).glob("*.hpp")]
        if "/" not in folder:
            checks.check(f"headers: a header of {folder}/ opens with the folder's five lines", any(n == 5 for n in counts), f"lines: {sorted(counts)}")


PARTS = {"gcc": gcc, "clang": clang, "nvcc": nvcc, "link": link, "driver": driver, "tree": check_tree}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
    checks.finish()
