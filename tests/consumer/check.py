#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the library in as a user would: copied, as one file, as a meson subproject, installed (pkg-config, CMake)."""
import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "headers")]
import amalgamate
import checks
import tree

MESON = os.environ.get("MESON", "meson").split()
STRICT = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
MAIN = HERE / "main.cpp"
UMBRELLA = '-DCONSUMER_INCLUDE="holdfast/holdfast.hpp"'
ONE_HEADER = '-DCONSUMER_INCLUDE="holdfast/buffer/tracked_buffer.hpp"'  # enough where the question is whether a header is found
LISTS = {"tests": "disabled", "benchmarks": "disabled", "examples": "disabled"}


def runs(name, argv, program, **options):
    """One check: the commands build a program that exits 0."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **options)
    if done.returncode == 0:
        done = subprocess.run([str(program)], capture_output=True, text=True)
    checks.check(name, done.returncode == 0, done.stdout + done.stderr)


def copied(folder):
    shutil.copytree(tree.INCLUDE / "holdfast", folder / "include/holdfast")
    runs("consumer: include/ copied, nothing else", ["g++", *STRICT, f"-I{folder}/include", UMBRELLA, MAIN, "-o", folder / "run"], folder / "run")


def single(folder):
    (folder / "holdfast.hpp").write_text(amalgamate.amalgamate())
    runs("consumer: one file", ["g++", *STRICT, f"-I{folder}", '-DCONSUMER_INCLUDE="holdfast.hpp"', MAIN, "-o", folder / "run"], folder / "run")


def readme(folder):
    programs = re.findall(r"^```cpp\n(.*?)^```$", (tree.ROOT / "README.md").read_text(), re.M | re.S)
    checks.check("consumer: README.md shows a program of about 20 lines", any("int main" in p and p.count("\n") <= 30 for p in programs), str(len(programs)))
    for number, text in enumerate(p for p in programs if "int main" in p):
        source = folder / f"{number}.cpp"
        source.write_text(text)
        runs(f"consumer: README.md's program {number} builds and runs", ["g++", *STRICT, f"-I{tree.INCLUDE}", source, "-pthread", "-o", folder / "run"], folder / "run")


def subproject(folder):
    shutil.copytree(tree.ROOT, folder / "subprojects/holdfast",
                    ignore=lambda d, names: {n for n in names if n == ".git" or n.startswith("build") or n == "__pycache__"})
    shutil.copy(MAIN, folder)
    (folder / "meson.build").write_text(
        "project('user', 'cpp', default_options: ['cpp_std=c++20', 'warning_level=3', 'werror=true'])\n"
        "executable('user', 'main.cpp', dependencies: dependency('holdfast', fallback: 'holdfast'), install: true,\n"
        "  cpp_args: '" + ONE_HEADER + "')\n")
    env = dict(os.environ, DESTDIR=str(folder / "stage"))
    if not checks.command("consumer: a subproject configures", [*MESON, "setup", folder / "build", folder], env=env):
        return
    runs("consumer: a subproject builds and runs", [*MESON, "compile", "-C", folder / "build"], folder / "build/user")
    targets = json.loads(subprocess.run([*MESON, "introspect", "--targets", str(folder / "build")], capture_output=True, text=True).stdout)
    checks.check("consumer: a subproject builds no test, bench or example of ours", [t["name"] for t in targets] == ["user"], str([t["name"] for t in targets]))
    subprocess.run([*MESON, "install", "-C", str(folder / "build"), "--no-rebuild"], capture_output=True, env=env)
    files = [p.name for p in (folder / "stage").rglob("*") if p.is_file()]
    checks.check("consumer: a subproject installs nothing of ours", files == ["user"], str(files))


def installed(folder):
    prefix = folder / "prefix"
    options = [f"-D{k}={v}" for k, v in LISTS.items()]
    if not checks.command("consumer: it configures to install", [*MESON, "setup", folder / "build", tree.ROOT, f"--prefix={prefix}", *options]):
        return
    if not checks.command("consumer: it installs", [*MESON, "install", "-C", folder / "build"]):
        return
    env = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "share/pkgconfig"))
    ours = [p.relative_to(prefix / "include/holdfast").as_posix() for p in (prefix / "include/holdfast").rglob("*.hpp")]
    checks.check("consumer: every header is installed", sorted(ours) == tree.all_headers(), str(set(ours) ^ set(tree.all_headers())))
    flags = subprocess.run(["pkg-config", "--cflags", "holdfast"], capture_output=True, text=True, env=env).stdout.split()
    runs("consumer: installed, found by pkg-config", ["g++", *STRICT, *flags, ONE_HEADER, MAIN, "-o", folder / "run"], folder / "run")
    version = subprocess.run(["pkg-config", "--modversion", "holdfast"], capture_output=True, text=True, env=env).stdout.strip()
    made = folder / "build/.packaging"
    recipe = ast.parse((made / "conanfile.py").read_text())
    conan = next(n.value.value for n in ast.walk(recipe) if isinstance(n, ast.Assign) and n.targets[0].id == "version")
    vcpkg = json.loads((made / "vcpkg.json").read_text())["version"]
    checks.check("consumer: pkg-config, Conan and vcpkg name one version", version == conan == vcpkg, f"{version} {conan} {vcpkg}")
    if not shutil.which("cmake"):
        return checks.skip("consumer: installed, found by CMake", "no cmake")
    shutil.copy(MAIN, folder)
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nproject(user CXX)\nfind_package(holdfast {version} REQUIRED)\nadd_executable(user main.cpp)\n"
        "target_link_libraries(user PRIVATE holdfast::holdfast)\n"
        "target_compile_definitions(user PRIVATE CONSUMER_INCLUDE=\"holdfast/buffer/tracked_buffer.hpp\")\n")
    if checks.command("consumer: CMake finds the package", ["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "cmake", f"-DCMAKE_PREFIX_PATH={prefix}"]):
        runs("consumer: installed, built by CMake", ["cmake", "--build", folder / "cmake"], folder / "cmake/user")


def cuda(folder):
    """A .cu: kernels on our streams, our pool as a memory resource. Without a GPU it is compiled, linked and started."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        return checks.skip("consumer: a .cu", "no nvcc")
    runs("consumer: a .cu", [nvcc, "-std=c++20", f"-I{tree.INCLUDE}", HERE / "user.cu", "-o", folder / "run"], folder / "run")


if __name__ == "__main__":
    with checks.scratch() as name:
        ways = [copied, single, readme, subproject, installed, cuda]
        for way in ways:
            (pathlib.Path(name) / way.__name__).mkdir()
        checks.side_by_side([(way, pathlib.Path(name) / way.__name__) for way in ways])
    checks.finish()
