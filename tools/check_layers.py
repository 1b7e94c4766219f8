#!/usr/bin/env python3
"""Holds the source tree to the layers of ARCHITECTURE.md.

Reads the block fenced as ```layers there (one line a folder: what it may include), scans every
#include under src/, and fails on an arrow that is not in the table, on a header that a folder is
forbidden, on a header in a sub-folder of a folder that keeps those to itself, and on a CUDA header
outside src/backend/cuda.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA = re.compile(r"^(cuda|cublas|cudnn|nccl|cooperative_groups|cub/|thrust/)")


def read_table(text):
    """-> ({folder: set of folders or single headers}, {folder: set of banned system headers},
    folders whose sub-folders nobody else may include)"""
    blocks = re.findall(r"^```layers\n(.*?)^```", text, re.S | re.M)
    if len(blocks) != 1:
        sys.exit(f"check_layers: ARCHITECTURE.md has {len(blocks)} blocks fenced as ```layers, not 1")
    allowed, banned, closed = {}, {}, set()
    for line in filter(None, (raw.split("#")[0].strip() for raw in blocks[0].splitlines())):
        if match := re.fullmatch(r"ban (.+) in (.+)", line):
            for folder in match[2].split():
                banned.setdefault(folder, set()).update(match[1].split())
        elif match := re.fullmatch(r"closed below (.+)", line):
            closed.update(match[1].split())
        else:
            folder, _, deps = line.partition(":")
            allowed[folder.strip()] = set(deps.split())
    return allowed, banned, closed


def violations(path, text, allowed, banned, closed):
    """Yields one line for every #include in `text` (the file src/<path>) that breaks the table."""
    folder = path.parts[0]
    if folder not in allowed:
        yield f"src/{path}: folder '{folder}' is not in the table of ARCHITECTURE.md"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, header = match.groups()
        where = f"src/{path}:{number}"
        if CUDA.match(header) and path.parts[:2] != ("backend", "cuda"):
            yield f"{where}: CUDA header {header} outside src/backend/cuda"
        if kind == "<":
            if header in banned.get(folder, ()):
                yield f"{where}: <{header}> is banned in {folder}/"
            continue
        target = header.split("/")[0]
        if "/" not in header or target not in allowed:
            yield f'{where}: "{header}" is not a path from src/'
        elif target != folder and target not in allowed[folder] and header not in allowed[folder]:
            yield f"{where}: {folder}/ may not include {header}"
        elif target != folder and target in closed and header.count("/") > 1:
            yield f"{where}: {header} is {target}/'s own"


def self_test():
    table = "```layers\nbase:\nkv: base\nsched: base kv\nserver: base sched/types.h\nmodel: base kv\nban chrono in kv sched\n"
    table += "closed below kv\n```\n"
    rules = read_table(table)
    cases = [
        ("kv/a.h", '#include "base/ids.h"', 0),
        ("kv/a.h", '#include "kv/b.h"', 0),
        ("kv/a.h", '#include "sched/types.h"', 1),
        ("base/a.h", '  #  include "kv/a.h"', 1),
        ("server/a.h", '#include "sched/types.h"', 0),
        ("server/a.h", '#include "sched/scheduler.h"', 1),
        ("sched/a.h", "#include <chrono>", 1),
        ("server/a.h", "#include <chrono>", 0),
        ("sched/a.h", '#include "types.h"', 1),
        ("base/a.h", "#include <cuda_runtime.h>", 1),
        ("new/a.h", "", 1),
        ("model/a.h", '#include "kv/blocks.h"', 0),
        ("model/a.h", '#include "kv/cpu/blocks.h"', 1),
        ("kv/a.h", '#include "kv/cpu/blocks.h"', 0),
        ("kv/cuda/a.h", '#include "kv/cpu/blocks.h"', 0),
    ]
    for path, text, expected in cases:
        found = list(violations(Path(path), text, *rules))
        if len(found) != expected:
            sys.exit(f"check_layers: self-test: {path}: {text!r} gave {found}, expected {expected}")
    print(f"check_layers: self-test: {len(cases)} cases right")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    rules = read_table((ROOT / "ARCHITECTURE.md").read_text())
    files = [p for p in sorted((ROOT / "src").rglob("*")) if p.suffix in (".h", ".cpp", ".inl", ".cu", ".cuh", ".def")]
    found = [v for p in files for v in violations(p.relative_to(ROOT / "src"), p.read_text(), *rules)]
    print("\n".join(found) if found else f"check_layers: {len(files)} files keep the layers")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
