#!/usr/bin/env python3
"""tree.py ROOT: the top level is the one that the project fixed, file names are unique outside
tests, each module has a README of at most 50 lines, and a folder of the product has about 25 source
files at most."""
import os
import subprocess
import sys

TOP = {
    "CMakeLists.txt", "gateway", "intra", "wan", "include", "deploy", "tests", "sim", "bench", "README.md",
    "base", "python", "docs", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CMakePresets.json",
    "build",  # what a build leaves behind
}
MODULES = ("base", "base/net", "wan", "intra", "gateway", "gateway/catalog", "gateway/arena", "gateway/disk", "gateway/store",
           "gateway/config", "gateway/daemon",
           "gateway/web", "gateway/cli", "sim", "bench", "deploy", "tests", "tests/system", "python")
README_LINES_MAX = 50  # lines are 100 columns wide
SOURCES_MAX = 28
REPEATED = {"CMakeLists.txt", "README.md", "main.c", "run"}


def check_top(root):
    for name in sorted(os.listdir(root)):
        if name not in TOP and not name.startswith("."):
            yield f"{name}: not one of the names that the top level may have"


def check_names(root):
    seen = {}
    for top in ("base", "wan", "intra", "gateway", "sim", "include"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name in seen and name not in REPEATED:
                    yield f"{path}: {seen[name]} has the same name"
                seen.setdefault(name, path)


def check_folders(root):
    for top in ("base", "wan", "intra", "gateway"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            count = sum(name.endswith((".c", ".cu")) for name in files)
            name = os.path.relpath(folder, root)
            if count > SOURCES_MAX:
                yield f"{name}: {count} source files, and {SOURCES_MAX} are a lot: give a room a folder of its own"


def check_sources(root):
    """A file that a program made of a source is no source. Without git there is nothing to ask."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=False)
    for path in done.stdout.split("\0"):
        if "__pycache__" in path or path.endswith((".pyc", ".o", ".so", ".a")):
            yield f"{path}: is made, not written"


def check_readmes(root):
    for module in MODULES:
        folder = os.path.join(root, module)
        if not os.path.isdir(folder) or os.listdir(folder) == ["CMakeLists.txt"]:
            continue
        path = os.path.join(folder, "README.md")
        if not os.path.exists(path):
            yield f"{module}: no README.md (what it promises, its files in reading order, what it may not know)"
            continue
        with open(path, encoding="utf-8") as text:
            count = sum(1 for _ in text)
        if count > README_LINES_MAX:
            yield f"{module}/README.md: {count} lines; at most {README_LINES_MAX}"


def main():
    root = sys.argv[1]
    wrong = [*check_top(root), *check_names(root), *check_folders(root), *check_sources(root), *check_readmes(root)]
    print("\n".join(wrong) if wrong else "the tree is as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
