#!/usr/bin/env python3
"""functions.py ROOT: a function over 70 lines has a comment above it, and none has an #if inside; in
the product, three `if (status == TB_OK)` do not stand one below the other (CONTRIBUTING.md), but for
as many as tests/fence/chains_left has of a file; in Python, no name of a class or of a file is defined twice, as the second hides the
first.

Reads sources as clang-format leaves them: a function's body starts with { in the first column
and ends with }."""
import ast
import os
import re
import sys

LINES_MAX = 70
TOPS = ("base", "wan", "intra", "gateway", "sim", "bench", "include", "tests", "python", "deploy")
PRODUCT = ("base", "wan", "intra", "gateway")
CHAIN, CHAIN_MAX, LEFT = re.compile(r"^(\s+)if \(status == TB_OK\b"), 3, "tests/fence/chains_left"
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else)\b")


def sources(root):
    for top in TOPS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                yield os.path.join(folder, name)


def is_python(path):
    if path.endswith(".py"):
        return True
    with open(path, "rb") as text:
        return "." not in os.path.basename(path) and re.match(rb"#!.*\bpython3\b", text.readline(80)) is not None


def hidden(path, text):
    """Functions and classes that another of their name hides."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            seen = {}
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and not inner.decorator_list:
                    if inner.name in seen:
                        yield f"{path}:{seen[inner.name]}: {inner.name} is defined again in line {inner.lineno}, which hides this one"
                    seen[inner.name] = inner.lineno


def commented(lines, opening):
    """Whether the line above the signature that ends before lines[opening] ends a comment."""
    at = opening - 1
    while at >= 0 and lines[at].strip() and not lines[at].rstrip().endswith((";", "}", "*/")):
        at -= 1
    return at >= 0 and lines[at].rstrip().endswith("*/")


def check(path, lines):
    opening = None
    for number, line in enumerate(lines):
        if line.startswith("{"):
            opening = number
        elif line.startswith("}") and opening is not None:
            count = number - opening + 1
            if count > LINES_MAX and not commented(lines, opening):
                yield f"{path}:{opening + 1}: {count} lines; split it, or say above it why it reads better whole"
            opening = None
        elif opening is not None and CONDITION.match(line):
            yield f"{path}:{number + 1}: {line.strip()} inside a function: an absent backend is an absent file"


def chains(lines):
    """Lines in which the last of at least so many conditions begins; deeper lines belong to one."""
    found, row, indent = [], 0, ""
    for number, line in enumerate(lines, 1):
        condition = CHAIN.match(line)
        if condition and (row == 0 or condition.group(1) == indent):
            row, indent = row + 1, condition.group(1)
            if row == CHAIN_MAX:
                found.append(number)
        elif not (row > 0 and line.startswith(indent + " ")) and line.strip():
            row = 0
    return found


def wrong_chains(root, path, lines):
    name = os.path.relpath(path, root)
    found, allowed = chains(lines), chains_left(root).get(name, 0)
    if len(found) > allowed:
        yield f"{name}: `if (status == TB_OK)` {CHAIN_MAX} times in a row, lines {found}: leave by `if (status != TB_OK) return status;`"
    elif len(found) < allowed:
        yield f"{LEFT}: {name}: {len(found)} are left"


def chains_left(root):
    with open(os.path.join(root, LEFT), encoding="utf-8") as text:
        return {name: int(count) for name, count in (line.split() for line in text)}


def main():
    root = sys.argv[1]
    wrong, count = [], 0
    for path in sources(root):
        if path.endswith((".c", ".h")):
            look = lambda name, text: check(name, text.split("\n"))
        elif is_python(path):
            look = hidden
        else:
            continue
        with open(path, encoding="utf-8") as text:
            body, name = text.read(), os.path.relpath(path, root)
        wrong += look(name, body)
        if path.endswith(".c") and name.split("/")[0] in PRODUCT:
            wrong += wrong_chains(root, path, body.split("\n"))
        count += 1
    print("\n".join(wrong) if wrong else f"{count} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
