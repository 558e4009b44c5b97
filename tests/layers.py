#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules that the headers' text must keep: who may include whom, what is banned, where macros stand.

layers.py [INCLUDE_FOLDER]     the tree (include/ of this checkout by default)
layers.py --self-test          every rule finds a violation planted for it, and none in a clean tree
"""
import pathlib
import re
import sys
import tempfile

import checks

BASE = {"core", "concepts"}  # levels 0 and 1
MAY_INCLUDE = {
    "core": {"core"},
    "concepts": {"core", "concepts"},
    "graph": BASE | {"graph"}, "event": BASE | {"event"}, "hold": BASE | {"hold"}, "trace": BASE | {"trace"},
    "budget": BASE | {"budget"}, "tune": BASE | {"tune"},
    "hlo": BASE | {"hlo", "graph"}, "passes": BASE | {"passes", "graph"}, "plan": BASE | {"plan", "graph"},
    "buffer": BASE | {"buffer", "event", "hold"},
    "backend": BASE | {"backend", "event", "trace", "budget"},
    "collective": BASE | {"collective", "event", "buffer"},
    "execute": BASE | {"execute", "graph", "plan", "event", "hold", "buffer"},
    "report": BASE | {"report", "graph", "plan", "trace", "budget"},
    "interop": BASE | {"interop", "graph", "event", "hold", "trace", "budget", "buffer", "backend", "collective", "execute", "report"},
}
PLAN_SIDE = {"core", "graph", "hlo", "passes", "plan"}
TOP = {"holdfast.hpp", "cuda.hpp", "nccl.hpp"}
LEVEL_0 = {"fwd.hpp"}

# Who may include what lies outside the library; the first pattern that fits decides.
OUTSIDE = [
    (re.compile(r"boost/intrusive"), re.compile(r"core/intrusive\.hpp$")),
    (re.compile(r"boost/lockfree"), re.compile(r"core/lockfree\.hpp$")),
    (re.compile(r"boost/"), re.compile(r"core/(intrusive|lockfree)\.hpp$")),
    (re.compile(r"(nccl|nccl_device)"), re.compile(r"(backend/nccl/|nccl\.hpp$)")),
    (re.compile(r"(cuda|cu[a-z_]+\.h$|driver_types\.h|nvToolsExt|nvtx3/|thrust/|cub/)"), re.compile(r"(backend/(cuda|nccl)/|cuda\.hpp$|nccl\.hpp$)")),
    (re.compile(r"(llvm|clang)(-c)?/"), re.compile(r"interop/llvm_memory\.hpp$")),
    (re.compile(r"(numa|numaif|hwloc)\.h"), re.compile(r"backend/host/numa\.hpp$")),
    (re.compile(r"mpi\.h"), re.compile(r"collective/mpi_channel\.hpp$")),
    (re.compile(r"[a-z0-9_]+$"), re.compile(r"")),  # the standard library
    (re.compile(r"(sys/|linux/|asm/|(unistd|fcntl|pthread|sched|errno|poll|signal|dlfcn|link|time|unwind)\.h$)"),
     re.compile(r"(?!(%s)/)" % "|".join(sorted(PLAN_SIDE)))),  # the operating system: run side only
    (re.compile(r""), re.compile(r"(?!)")),
]
BANNED_HEADERS = {"iostream", "istream", "ostream", "sstream", "iomanip", "fstream", "regex", "filesystem", "format", "expected", "source_location", "any",
                  "typeinfo", "typeindex", "codecvt", "locale"}
BANNED_WORDS = re.compile(r"\bstd::(function|move_only_function|any|regex|cout|cerr|shared_mutex)\b"
                          r"|\b(dynamic_cast|typeid|reinterpret_pointer_cast)\b")
THROWING = re.compile(r"\b(throw|catch)\b|\btry\s*\{")
MACROS = re.compile(r"HOLDFAST_(VERSION_\w+|ASSERT|UNREACHABLE|NO_UNIQUE_ADDRESS|THROW|HAS_EXCEPTIONS|COLD|SITE)$")
# Where a foreign contract throws: what may turn that into an error, and whose macros it may set to see that contract.
FOREIGN = {"backend/cuda/resource.hpp": {"LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"}}
LONG = 400
LICENCE = "// SPDX-License-Identifier: Apache-2.0"

RULES = [
    "a folder includes only folders below it", "no header includes itself through others", "umbrellas are included by nothing",
    "own headers are included as \"holdfast/...\"", "what lies outside is included only where it may be", "no banned standard header or word",
    "nothing throws or catches", "every header has #pragma once and the licence line", "macros stand in core/config.hpp and are of the eight families",
    "no #if outside core/config.hpp and backend/", "no folder names another folder's detail", "plain headers reach no vendor header",
    "plan side and tracked_buffer do not reach Boost.Lockfree", "files and folders have names of the design",
]


def strip(text):
    """The text without comments and without what stands in quotes; lines stay lines."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|(?:u8|u|U|L)?R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: ('""' if m[0].endswith('"') else " ") + "\n" * m[0].count("\n"), text)


def detail_names(code):
    """The names that a text declares in its `namespace detail { }` blocks."""
    names = set()
    for start in re.finditer(r"\bnamespace\s+detail\s*\{", code):
        depth, at = 1, start.end()
        while depth and at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        block = code[start.end():at]
        names |= set(re.findall(r"\b(?:struct|class|union|concept|enum class|using)\s+(\w+)", block))
        names |= set(re.findall(r"\b(\w+)\s*[({=]", block))
    return names


class Tree:
    def __init__(self, include):
        base = include / "holdfast"
        self.text = {p.relative_to(base).as_posix(): p.read_text() for p in sorted(base.rglob("*")) if p.is_file()}
        self.code = {h: strip(t) for h, t in self.text.items()}
        self.own = {h: re.findall(r'^\s*#\s*include\s*"holdfast/([^"]+)"', t, re.M) for h, t in self.text.items()}
        self.outside = {h: re.findall(r"^\s*#\s*include\s*<([^>]+)>", t, re.M) for h, t in self.text.items()}

    def folder(self, header):
        return header.split("/")[0] if "/" in header else ""

    def closure(self, header):
        seen, todo = set(), [header]
        while todo:
            h = todo.pop()
            if h not in seen:
                seen.add(h)
                todo += self.own.get(h, [])
        return seen

    def violations(self):
        """(rule's number in RULES, header, what is wrong), for all rules."""
        details = {}
        for h, code in self.code.items():
            for name in detail_names(code):
                details.setdefault(name, set()).add(self.folder(h))
        for h, text in self.text.items():
            folder, code = self.folder(h), self.code[h]
            if h in TOP:
                allowed = set(MAY_INCLUDE)
            elif h in LEVEL_0:
                allowed = {"core"}
            else:
                allowed = MAY_INCLUDE.get(folder, set())
                if folder not in MAY_INCLUDE:
                    yield 13, h, f"no folder {folder or '(root)'} in the design"
            if not re.fullmatch(r"([a-z0-9_]+/)*[a-z0-9_]+\.hpp", h):
                yield 13, h, "not snake_case.hpp"
            for inner in self.own[h]:
                if inner in TOP:
                    if h not in TOP:
                        yield 2, h, f"includes {inner}"
                elif inner not in LEVEL_0 and self.folder(inner) not in allowed:
                    yield 0, h, f"includes {inner}"
                if "/detail/" in inner and self.folder(inner) != folder:
                    yield 10, h, f"includes {inner}"
                if h in self.closure(inner):
                    yield 1, h, f"includes {inner}, which includes it again"
            for quoted in re.findall(r'^\s*#\s*include\s*("[^"]+"|<holdfast/[^>]+>)', text, re.M):
                if not quoted.startswith('"holdfast/'):
                    yield 3, h, f"includes {quoted}"
            for out in self.outside[h]:
                where = next(w for o, w in OUTSIDE if o.match(out))
                if not out.startswith("holdfast/") and not where.match(h):
                    yield 4, h, f"includes <{out}>"
                if out in BANNED_HEADERS:
                    yield 5, h, f"includes <{out}>"
            for word in BANNED_WORDS.finditer(code):
                yield 5, h, word[0]
            if h != "core/config.hpp":
                for word in THROWING.finditer(code):
                    if h not in FOREIGN or word[0] == "throw":
                        yield 6, h, word[0]
                for macro in re.findall(r"^\s*#\s*(?:define|undef)\s+(\w+)", code, re.M):
                    if macro not in FOREIGN.get(h, ()):
                        yield 8, h, macro
                if folder != "backend":
                    for line in re.findall(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*", code, re.M):
                        yield 9, h, line.strip()
            else:
                for macro in re.findall(r"^\s*#\s*define\s+(\w+)", code, re.M):
                    if not MACROS.match(macro):
                        yield 8, h, macro
            if "#pragma once" not in code:
                yield 7, h, "no #pragma once"
            if LICENCE not in text.split("#pragma once")[0].splitlines():
                yield 7, h, "no licence line above #pragma once"
            for name in set(re.findall(r"\bdetail::(\w+)", code)):
                if name in details and folder not in details[name]:
                    yield 10, h, f"detail::{name} of {sorted(details[name])}"
            reached = self.closure(h)
            if h == "holdfast.hpp":
                for r in sorted(reached):
                    for out in self.outside.get(r, []):
                        if re.match(r"(cuda|cu[a-z_]+\.h$|nccl|llvm|numa|hwloc|mpi\.h)", out):
                            yield 11, h, f"reaches <{out}> through {r}"
            if (folder in PLAN_SIDE or h == "buffer/tracked_buffer.hpp") and h != "core/lockfree.hpp" and "core/lockfree.hpp" in reached:
                yield 12, h, "reaches core/lockfree.hpp"


def report(include):
    tree = Tree(include)
    found = {}
    for rule, header, what in tree.violations():
        found.setdefault(rule, []).append(f"{header}: {what}")
    for number, rule in enumerate(RULES):
        checks.check("layers: " + rule, number not in found, "\n  " + "\n  ".join(sorted(set(found.get(number, [])))))
    for h, text in tree.text.items():
        if text.count("\n") > LONG:
            print(f"warning: {h} has {text.count(chr(10))} lines; is there one idea in it?")


# A violation for each rule: rule, file, lines below the licence and #pragma once.
SEEDS = [
    (0, "core/seed.hpp", '#include "holdfast/graph/clean.hpp"'),
    (0, "graph/seed.hpp", '#include "holdfast/event/clean.hpp"'),
    (0, "buffer/seed.hpp", '#include "holdfast/backend/clean.hpp"'),
    (0, "interop/seed.hpp", '#include "holdfast/plan/clean.hpp"'),
    (0, "fwd.hpp", '#include "holdfast/hold/clean.hpp"'),
    (1, "plan/seed.hpp", '#include "holdfast/plan/seed.hpp"'),
    (2, "execute/seed.hpp", '#include "holdfast/holdfast.hpp"'),
    (3, "plan/seed.hpp", '#include "clean.hpp"'),
    (3, "plan/seed.hpp", "#include <holdfast/plan/clean.hpp>"),
    (4, "backend/seed.hpp", "#include <cuda_runtime.h>"),
    (4, "backend/seed.hpp", "#include <nccl.h>"),
    (4, "hold/seed.hpp", "#include <boost/intrusive/list.hpp>"),
    (4, "event/seed.hpp", "#include <boost/lockfree/queue.hpp>"),
    (4, "interop/seed.hpp", "#include <llvm/ADT/StringRef.h>"),
    (4, "plan/seed.hpp", "#include <sys/mman.h>"),
    (4, "hlo/seed.hpp", "#include <protozero/pbf_reader.hpp>"),
    (5, "trace/seed.hpp", "#include <iostream>"),
    (5, "trace/seed.hpp", "#include <filesystem>"),
    (5, "event/seed.hpp", "#include <functional>\nvoid f(std::function<void()>);"),
    (6, "hold/seed.hpp", "inline void f() { throw 1; }"),
    (6, "hold/seed.hpp", "inline void f() { try { } catch (...) { } }"),
    (6, "backend/cuda/resource.hpp", "inline void f() { throw 1; }"),
    (7, "hold/seed.hpp", None),
    (8, "hold/seed.hpp", "#define HOLDFAST_FAST 1"),
    (8, "backend/cuda/resource.hpp", "#define HOLDFAST_FAST 1"),
    (8, "core/config.hpp", "#define HOLDFAST_FAST 1"),
    (9, "hold/seed.hpp", "#ifdef __linux__\n#endif"),
    (10, "backend/seed.hpp", "using hidden = detail::EventOnly;"),
    (10, "backend/seed.hpp", '#include "holdfast/event/detail/clean.hpp"'),
    (11, "holdfast.hpp", '#include "holdfast/backend/cuda/clean.hpp"'),
    (12, "plan/seed.hpp", '#include "holdfast/core/lockfree.hpp"'),
    (13, "misc/seed.hpp", "int x;"),
    (13, "plan/Seed.hpp", "int x;"),
]


def planted(folder, name, body):
    """A clean tree with one file more; the rules that it breaks."""
    base = pathlib.Path(folder, "holdfast")
    head = LICENCE + "\n#pragma once\n"
    clean = {f"{f}/clean.hpp": head for f in MAY_INCLUDE} | {
        "holdfast.hpp": head, "core/config.hpp": head + "#define HOLDFAST_ASSERT(c) throw c\n", "event/detail/clean.hpp": head,
        "core/lockfree.hpp": head + "#include <boost/lockfree/queue.hpp>\n", "core/intrusive.hpp": head + "#include <boost/intrusive/list.hpp>\n",
        "backend/cuda/clean.hpp": head + "#include <cuda.h>\n#if CUDA_VERSION > 1\n#endif\n",
        "event/clean.hpp": head + "namespace detail { struct EventOnly {}; }\nusing used = detail::EventOnly;  // never a throw, std::function or catch\n",
        "report/clean.hpp": head + '#include "holdfast/plan/clean.hpp"\nconstexpr auto text = "throw catch #if";\nconstexpr int n = 1\'000;\n'}
    if name is not None:
        clean[name] = (head + body + "\n") if body is not None else "int no_guard;\n"
    for path, text in clean.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
    return {rule for rule, _, _ in Tree(pathlib.Path(folder)).violations()}


def self_test():
    for rule, name, body in [(None, None, None), *SEEDS]:
        with tempfile.TemporaryDirectory() as folder:
            found = planted(folder, name, body)
        if rule is None:
            checks.check("layers: a clean tree has no violation", not found, str([RULES[r] for r in found]))
        else:
            checks.check(f"layers: `{RULES[rule]}` finds {name} with {(body or 'nothing on top')!r}", rule in found, f"found {found}")
    missed = set(range(len(RULES))) - {rule for rule, _, _ in SEEDS}
    checks.check("layers: every rule has a planted violation", not missed, str(missed))


if __name__ == "__main__":
    if "--self-test" in sys.argv[1:]:
        self_test()
    else:
        report(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "include")
    checks.finish()
