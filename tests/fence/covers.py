#!/usr/bin/env python3
"""covers.py ROOT: each product file has a test.

The first comment of a test file, in Python its docstring, names the product files that it checks:

    Covers: base/rate.c base/clock.c

It has as many such lines as it needs. tests/COVERS is the other way round, a line a product file:
`base/rate.c: tests/unit/base/rate.c`. Product files are the .c files of base, gateway, intra and
wan, and the .py files of python/tombolo.

Refused: a test file without such a line, a line that names no file, a product file that no line
names, and a tests/COVERS that is not made of these lines. Files that do not keep this yet are in
tests/fence/covers_left, which may only shrink. --update writes tests/COVERS, and takes out of
covers_left what has come."""
import os
import re
import sys

import c_text

COVERS, LEFT = "tests/COVERS", "tests/fence/covers_left"
PRODUCT = ("base", "gateway", "intra", "wan")
LINE = re.compile(r"^[ \t*#]*Covers:[ \t]*(.*?)[ \t]*(?:\*/)?$", re.M)
C_TEST = re.compile(r"\bcmocka_run_group_tests\w*\(|\bLLVMFuzzerTestOneInput\(|\bint main\(")
C_FOLDERS = tuple(f"tests/{name}/" for name in ("unit", "fault", "fuzz", "scenario", "gpu", "vm"))
HEAD = re.compile(r'\A(?:#![^\n]*\n)?\s*(/\*.*?\*/|"""(?:.*?)"""|(?:#[^\n]*\n)+)', re.S)
OTHERS = ("tests/system/worker.c",)  # programs that tests run, and that are none


def files_of(root):
    """All of tests that may have a line: {path: text}."""
    return {name: c_text.read(root, name) for name in c_text.files(root, ["tests"], (".c", ".py", ".sh"))
            if not name.startswith(("tests/fence/", "tests/fuzz/corpus/"))}


def is_test(name, text):
    if name in OTHERS:
        return False
    if name.endswith(".c"):
        return name.startswith(C_FOLDERS) and C_TEST.search(c_text.code_of(text)) is not None
    by_name = name.startswith(("tests/vm/", "tests/unit/")) or os.path.basename(name).startswith("test_")
    return name.endswith(".py") and by_name


def lines_of(text):
    """The files that the first comment names."""
    head = HEAD.match(text)
    words = [word for line in LINE.findall(head.group(1)) for word in line.split()] if head else []
    return [word.rstrip(".,;") for word in words if "/" in word]


def covers(texts):
    """{product file: test files}"""
    found = {}
    for name, text in sorted(texts.items()):
        for product in lines_of(text):
            found.setdefault(product, [])
            if name not in found[product]:
                found[product].append(name)
    return found


def product_files(root):
    return [n for n in c_text.product_files(root, PRODUCT) if n.endswith(".c")] + \
        c_text.files(root, ["python/tombolo"], (".py",))


def listed(found):
    return "".join(f"{product}: {' '.join(tests)}\n" for product, tests in sorted(found.items()))


def lacking(root, texts, found):
    """Files that have no line, or no test."""
    without_a_line = {n for n, text in texts.items() if is_test(n, text) and not lines_of(text)}
    return without_a_line | {n for n in product_files(root) if n not in found}


def complaints(root, texts, found, left, lacks):
    for product, tests in sorted(found.items()):
        if not os.path.isfile(os.path.join(root, product)):
            yield f"{tests[0]}: Covers: {product}: there is no such file"
    for name in sorted(lacks - left):
        why = "its first comment has no line Covers:" if name in texts else "no Covers: line names it"
        yield f"{name}: {why}"


def main():
    root, update = sys.argv[1], "--update" in sys.argv
    texts = files_of(root)
    found = covers(texts)
    lacks = lacking(root, texts, found)
    before = os.path.exists(os.path.join(root, LEFT))
    left = set(c_text.read(root, LEFT).split()) if before else lacks
    wrong = list(complaints(root, texts, found, left, lacks))
    if update and not wrong:
        still = "".join(f"{n}\n" for n in sorted(lacks & left))
        for name, text in ((COVERS, listed(found)), (LEFT, still)):
            with open(os.path.join(root, name), "w", encoding="utf-8") as out:
                out.write(text)
    elif not wrong:
        if not os.path.exists(os.path.join(root, COVERS)) or c_text.read(root, COVERS) != listed(found):
            wrong.append(f"{COVERS} is not what the Covers: lines say: tests/fence/covers.py . --update")
        wrong += [f"{LEFT}: {name} has it by now: covers.py . --update" for name in sorted(left - lacks)]
    tests = sum(bool(lines_of(text)) for text in texts.values())
    print("\n".join(wrong) if wrong else f"{len(found)} files covered by {tests} tests; {len(lacks)} left")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
