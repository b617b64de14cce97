#!/usr/bin/env python3
"""paths.py ROOT: a file of ours that a README, a page of docs or a comment names is there. A name may be a whole path
(`base/digest.c`), its end (`store/store.h`, `store.h`), or several: `*`, `{a,b}` and `[ch]` stand for what a shell takes them for.
Headers of others count as there where something of ours includes them."""
import fnmatch
import os
import re
import subprocess
import sys

NAME = re.compile(r"(?<![\w/.<$\"'@%-])((?:[\w*{},-]+/)*[\w*{},-]+\.(?:c|h|cc|cu|cuh|py|\[ch\]))(?![\w/*({'\"-]|\.\w)")
INCLUDED = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.M)
COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
COMMENTED = (".c", ".h", ".cc", ".cu", ".cuh")
# A diary says what was called so then, and the history what it was called before.
NOT_READ = ("docs/lab-notes/", "CHANGELOG.md")


def spread(name):
    """a{b,c}.[ch] as patterns of fnmatch."""
    braces = re.search(r"\{([^{}]*)\}", name)
    if not braces:
        return [name]
    return [found for part in braces.group(1).split(",") for found in spread(name[:braces.start()] + part + name[braces.end():])]


def prose_of(name, text):
    """(line number, what is said there): all of a page, the comments of a source."""
    if name.endswith(".md"):
        yield from enumerate(text.split("\n"), 1)
        return
    for comment in COMMENTS.finditer(text):
        first = text.count("\n", 0, comment.start()) + 1
        yield from enumerate(comment.group().split("\n"), first)


def ends_of(names):
    """Each path and each end of it that begins at a folder."""
    ends = set()
    for name in names:
        parts = name.split("/")
        ends |= {"/".join(parts[i:]) for i in range(len(parts))}
    return ends


def is_there(path, ends):
    return all(part in ends or ("*" in part or "[" in part) and fnmatch.filter(ends, part) for part in spread(path))


def main():
    root = sys.argv[1]
    tracked = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True).stdout.split()
    texts, there = {}, set(tracked)
    for name in tracked:
        if not name.endswith(COMMENTED + (".md",)) or not os.path.exists(os.path.join(root, name)):
            continue
        with open(os.path.join(root, name), encoding="utf-8") as text:
            texts[name] = text.read()
        there |= set(INCLUDED.findall(texts[name]))
    ends, wrong = ends_of(there), []
    for name, text in texts.items():
        if name.startswith(NOT_READ):
            continue
        for number, line in prose_of(name, text):
            for path in NAME.findall(line):
                if not is_there(path, ends):
                    wrong.append(f"{name}:{number}: {path} is not there")
    print("\n".join(wrong) if wrong else f"{len(texts)} files")
    return 1 if wrong or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
