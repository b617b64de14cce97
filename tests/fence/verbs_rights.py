#!/usr/bin/env python3
"""verbs_rights.py ROOT: no memory is ever registered for remote writing or remote atomics, and
one file alone registers memory.

Anything of the product or its tests that names such a right is refused, in code and in numbers'
names alike; a queue pair's rights are the kernel's to set, and without a registration's they
open nothing."""
import os
import re
import sys

TOPS = ("base", "wan", "intra", "gateway", "sim", "bench", "include", "tests", "python")
REGISTERS_ALONE = "intra/verbs/region.c"
# The second passes region.c's calls on to the library, the third looks whether the lab's device is
# there, the fourth stands in for a device's memory.
MAY_REGISTER = {REGISTERS_ALONE, "intra/verbs/verbs_library.c", "tests/vm/verbs_here.c", "tests/unit/intra/verbs.c"}
RIGHTS = re.compile(r"\bIB(?:V|_UVERBS)_ACCESS_(?:REMOTE_WRITE|REMOTE_ATOMIC|MW_BIND|FLUSH_\w+)\b|\brdma_reg_write\b")
REGISTERS = re.compile(r"\b(?:ibv_reg_(?!dmabuf_mr\b)\w+|ibv_reg_dmabuf_mr|ibv_rereg_mr|rdma_reg_\w+|ibv_bind_mw|ibv_alloc_mw)\b")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def code_of(text):
    """The text without its comments, lines kept."""
    return COMMENT.sub(lambda found: "\n" * found.group(0).count("\n"), text)


def wrong_of(path, text):
    for number, line in enumerate(code_of(text).split("\n"), 1):
        for found in RIGHTS.findall(line):
            yield f"{path}:{number}: {found}: nobody ever writes into memory of ours"
        if path not in MAY_REGISTER:
            for found in REGISTERS.findall(line):
                yield f"{path}:{number}: {found}: only {REGISTERS_ALONE} registers memory"


def sources(root):
    for top in TOPS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".c", ".h", ".cu", ".cuh", ".cc")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def main():
    root = sys.argv[1]
    # The fence sees what it is to see.
    bad = "x = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE; ibv_reg_mr(p, b, n, x); /* IBV_ACCESS_REMOTE_ATOMIC */"
    if len([*wrong_of("intra/verbs/nic.c", bad)]) != 2 or [*wrong_of(REGISTERS_ALONE, "IBV_ACCESS_REMOTE_READ")]:
        print("verbs_rights.py does not see what it is to see")
        return 1
    wrong, count = [], 0
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as text:
            wrong += wrong_of(path, text.read())
        count += 1
    if not os.path.exists(os.path.join(root, REGISTERS_ALONE)):
        wrong.append(f"{REGISTERS_ALONE} is not there: name the file that registers memory here")
    print("\n".join(wrong) if wrong else f"{count} files; {REGISTERS_ALONE} alone registers memory")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
