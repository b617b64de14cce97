#!/usr/bin/env python3
"""rooms.py ROOT: a README names each source file of its folder, down to folders with a README of
their own.

A file is named by its name with or without ending, or by a pattern: `session_*.c`, `feed_*`. Both
files of a room, NAME.c and NAME.h, are one name."""
import fnmatch
import os
import re
import sys

TOPS = ("base", "wan", "intra", "gateway")
WORD = re.compile(r"[\w*]+")


def stems(top):
    """The names of the files below, and of those below folders without a README."""
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if "README.md" not in os.listdir(os.path.join(folder, name)))
        for name in files:
            if name.endswith((".c", ".h", ".cu")):
                yield name.rsplit(".", 1)[0]


def readmes(root):
    for top in TOPS:
        for folder, _, files in os.walk(os.path.join(root, top)):
            if "README.md" in files:
                yield folder


def unnamed(folder):
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as text:
        words = set(WORD.findall(text.read()))
    patterns = [word for word in words if "*" in word and len(word) > 3]
    return sorted(name for name in set(stems(folder))
                  if name not in words and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))


def main():
    folders = sorted(readmes(sys.argv[1]))
    wrong = [f"{os.path.relpath(folder, sys.argv[1])}/README.md does not name {name}"
             for folder in folders for name in unnamed(folder)]
    print("\n".join(wrong) if wrong else f"{len(folders)} folders")
    return 1 if wrong or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
