#!/usr/bin/env python3
"""Fails when an object compiled for one instruction set has a symbol that the linker may share, or
when one that is not of AMX uses tiles.

A weak or unique symbol (an inline function, a template instance) may be taken from this object for
code that runs on a machine without the instruction set.
"""
import re
import subprocess
import sys


def shared_symbols(objects):
    listing = subprocess.run(["nm", "-C", "-A", *objects], check=True, capture_output=True, text=True).stdout
    # file:address type name; undefined symbols have no address. DW.ref.* is a pointer, not code.
    return [line for line in listing.splitlines()
            if line.split(":", 1)[1][17:18] in "WVu" and " DW.ref." not in line]


def uses_tiles(path):
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    return re.search(r"%tmm|\t(ld|st)tilecfg|\ttilerelease", code) is not None


def main():
    objects = sys.argv[1:]
    if not objects:
        sys.exit("isa_objects: no objects given")
    found = shared_symbols(objects)
    found += [f"{path}: tiles, or for AMX none" for path in objects if uses_tiles(path) != ("kernels_amx" in path)]
    print("\n".join(found) if found else f"isa_objects: {len(objects)} objects share no symbols")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
