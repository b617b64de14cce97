#!/usr/bin/env python3
"""house.py ROOT: files do not call each other in circles, but for those that tests/fence/circles
lists; what one file alone needs is static; and no two structs have one name.

With --table it prints how the house looks in numbers, beside other trees where their paths are given:
    tests/fence/house.py --table . raft=/src/raft/src:assert quicly=/src/quicly/lib:assert
A tree is NAME=PATH[:WORDS]; WORDS is a regular expression of what the tree calls an assert (default: assert)."""
import collections
import os
import re
import statistics
import sys

import c_text

EVERYWHERE = ("base", "wan", "intra", "gateway", "include", "sim", "bench", "tests", "python")
PRODUCT = ("base", "wan", "intra", "gateway", "include")
LIST, SEAMS = "tests/fence/circles", "tests/fence/test_seams"
CIRCLE_MAX = 3
OURS = r"TB_ASSERT(?:_UNLOCKED|_LOCKED|_DEV)?"
WIDTH = 100
WORD = re.compile(r"[A-Za-z_]\w*")
PROTOTYPE = re.compile(r"(?m)^(?!static\b|typedef\b|return\b)[A-Za-z_][\w\s*]*?\b\w+\s*\((?:[^(){};]|\([^()]*\))*\)\s*(?:[A-Z_]+(?:\([^)]*\))?\s*)?;")


def codes_of(root, folders):
    return {name: c_text.code_of(c_text.read(root, name)) for name in c_text.product_files(root, folders)}


def listed(root):
    """{files: why}. A line is the files of one object, and why they are not one file."""
    found = {}
    with open(os.path.join(root, LIST), encoding="utf-8") as text:
        for line in text:
            files, _, why = line.partition("#")
            if files.strip():
                found[tuple(sorted(files.split()))] = why.strip()
    return found


def wrong_circles(root):
    allowed = listed(root)
    there = [tuple(c) for c in c_text.circles({n: c for n, c in codes_of(root, PRODUCT).items() if n.endswith(".c")})]
    for circle in there:
        if circle not in allowed:
            yield f"{len(circle)} files call each other in a circle: {' '.join(circle)}: let one of them post what changed"
    for circle, why in allowed.items():
        if circle not in there:
            yield f"{LIST}: {' '.join(circle)}: there is no such circle any more: take the line out"
        elif len(circle) > CIRCLE_MAX and not why.startswith("to do:"):
            yield f"{LIST}: {len(circle)} files are no one object ({CIRCLE_MAX} at most)"
        elif not why:
            yield f"{LIST}: {' '.join(circle)}: no reason stands behind it"


def listed_seams(root):
    """{function: what it is for}"""
    return dict(line.rstrip("\n").split(" # ", 1) for line in c_text.read(root, SEAMS).split("\n") if " # " in line and not line.startswith("#"))


def calls(code, name):
    """An indented line names it: inside of a function, not as a declaration."""
    return re.search(rf"(?m)^[ \t].*\b{name}\b", code) is not None


def wrong_exports(root):
    """Functions that other files can see, and that no other file needs: a header that declares one
    does not, one that calls it in a function of its own does. Those that tests alone need are
    seams, which tests/fence/test_seams lists with what each is for, unless their file needs them."""
    codes = codes_of(root, EVERYWHERE)
    words = {name: collections.Counter(WORD.findall(code)) for name, code in codes.items()}
    users = collections.defaultdict(list)
    for name, counted in words.items():
        for word in counted:
            users[word].append(name)
    # Names that macros make. "tb_" is the beginning of all.
    pasted = tuple({prefix for code in codes.values() for prefix in re.findall(r"\b(\w+)##", code)} - {"tb_"})
    seams, seen = listed_seams(root), set()
    for name, code in sorted(codes.items()):
        if not name.endswith(".c") or not name.startswith(PRODUCT):
            continue
        for function in c_text.functions(code):
            if function.static or function.name == "main" or function.name.startswith(pasted):
                continue
            others = [u for u in users[function.name] if u != name and (u.startswith("include/") or not u.endswith(".h") or calls(codes[u], function.name))]
            if not others:
                yield f"{name}:{function.first}: {function.name}: only this file needs it: make it static, or delete it"
            elif words[name][function.name] == 1 and all(u.startswith("tests/") for u in others):
                seen.add(function.name)
                if function.name not in seams:
                    yield f"{name}:{function.first}: {function.name}: only tests call it: delete it, or list it in {SEAMS}"
    for seam in sorted(seams.keys() - seen):
        yield f"{SEAMS}: {seam}: no function that only tests call has this name: take the line out"


STRUCT = re.compile(r"(?m)^struct (tb_\w+) \{")
# Stand in for each other: the same structs for a core and for a GPU.
INSTEAD = {"intra/cuda/kernel_words_c.h", "intra/cuda/kernel_words_cuda.h"}


def wrong_structs(root):
    """A name means one struct."""
    found = collections.defaultdict(set)
    for name, code in codes_of(root, PRODUCT).items():
        for struct in STRUCT.findall(code):
            found[struct].add(name)
    for struct, names in sorted(found.items()):
        if len(names) > 1 and names != INSTEAD:
            yield f"struct {struct} is defined in {' and '.join(sorted(names))}: one noun, one struct"


def comment_lines(text):
    """Lines with nothing but a comment."""
    code = c_text.code_of(text).split("\n")
    return [line for line, rest in zip(text.split("\n"), code) if line.strip() and not rest.strip()]


def numbers(root, folders, words):
    """The table's column of one tree."""
    texts = {name: c_text.read(root, name) for name in c_text.product_files(root, folders)}
    codes = {name: c_text.code_of(text) for name, text in texts.items()}
    all_functions = [f for code in codes.values() for f in c_text.functions(code)]
    lines = [f.last - f.first + 1 for f in all_functions]
    asserts = sum(len(re.findall(rf"\b(?:{words})\s*\(", c_text.DIRECTIVE.sub("", code))) for code in codes.values())
    comments = [line for text in texts.values() for line in comment_lines(text)]
    circle_sizes = [len(c) for c in c_text.circles({n: c for n, c in codes.items() if n.endswith(".c")})]
    return {
        "files": len(codes),
        "functions": len(lines),
        "lines of a function, median and longest": f"{statistics.median(lines):g}, {max(lines)}",
        "asserts per function": f"{asserts / len(lines):.2f}",
        f"comment lines over {WIDTH} columns": f"{100 * sum(len(c.expandtabs(4)) > WIDTH for c in comments) / max(1, len(comments)):.1f} %",
        "prototypes in the largest header": max((len(PROTOTYPE.findall(c)) for n, c in codes.items() if n.endswith(".h")), default=0),
        "files in the largest call circles": ", ".join(map(str, circle_sizes[:5])) or "0",
    }


def table(trees):
    columns = {}
    for tree in trees:
        name, _, rest = tree.partition("=")
        path, _, words = rest.partition(":")
        columns[name] = numbers(path, ["."], words or "assert") if rest else numbers(tree, PRODUCT, OURS)
        columns[name if rest else "Tombolo"] = columns.pop(name)
    rows = list(next(iter(columns.values())))
    width = max(map(len, rows))
    print(" " * width, *(f"{name:>20}" for name in columns))
    for row in rows:
        print(f"{row:{width}}", *(f"{column[row]!s:>20}" for column in columns.values()))


def main():
    if sys.argv[1:2] == ["--table"] and len(sys.argv) > 2:
        table(sys.argv[2:])
        return 0
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    wrong = [*wrong_circles(sys.argv[1]), *wrong_exports(sys.argv[1]), *wrong_structs(sys.argv[1])]
    print("\n".join(wrong) if wrong else f"{len(listed(sys.argv[1]))} circles, all listed; what one file needs is static")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
