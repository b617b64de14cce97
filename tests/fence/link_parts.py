#!/usr/bin/env python3
"""link_parts.py ROOT: a link has three parts, and the files of each part touch the fields of
their own part alone.

wan/link/link.h has `struct tb_link`, which holds its path, its session and its traffic. Other parts
are asked by calls."""
import os
import re
import sys

PARTS = {"path": ("path",), "session": ("session",), "traffic": ("traffic", "streams")}  # and their folders
TOP = "wan/link"
FIELD = re.compile(r"(?:->|\]\.)(path|session|traffic)\.\w+")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def owner(folder):
    """The part whose files are in this folder; "" for the folder of links themselves."""
    name = os.path.basename(folder)
    return next((part for part, folders in PARTS.items() if name in folders), "")


def blank(found):
    return re.sub(r"[^\n]", " ", found.group(0))


def check(root):
    files = 0
    wrong = []
    for folder, _, names in os.walk(os.path.join(root, TOP)):
        for name in sorted(names):
            if not name.endswith((".c", ".h")):
                continue
            files += 1
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as text:
                code = COMMENT.sub(blank, text.read())
            for number, line in enumerate(code.split("\n"), 1):
                for found in FIELD.finditer(line):
                    if found.group(1) != owner(folder):
                        wrong.append(f"{os.path.relpath(path, root)}:{number}: a field of the {found.group(1)}: ask it by a call")
    return files, wrong


def main():
    files, wrong = check(sys.argv[1])
    print("\n".join(wrong) if wrong else f"{files} files")
    return 1 if wrong or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
