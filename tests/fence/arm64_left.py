#!/usr/bin/env python3
"""arm64_left.py ROOT BUILD [--run]: which unit tests QEMU does not run (tests/arm64_left), and why.

Each line there names a unit test that is there, or a pattern of such tests, and says in a few words
why; of two lines that name a test the last one counts. --run prints the others, as a regular
expression for ctest: tests/arm64 runs those."""
import fnmatch
import os
import re
import subprocess
import sys

LINE = re.compile(r"(\S+) +(\S.*)")
RUNS = "runs"  # in place of a reason: this one of a pattern is run


def unit_tests(build):
    done = subprocess.run(["ctest", "--test-dir", build, "-N", "-L", "^unit$"], stdout=subprocess.PIPE, text=True, check=True)
    words = [line.split() for line in done.stdout.splitlines()]
    return {w[-1] for w in words if w[:1] == ["Test"] and w[1].startswith("#")}


def read(text):
    """[(number, pattern, reason)]; a line that is none has no reason."""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].rstrip()
        if line:
            found = LINE.fullmatch(line)
            out.append((number, *found.groups()) if found else (number, line, ""))
    return out


def complaints(rows, names):
    seen = set()
    for number, pattern, reason in rows:
        if not fnmatch.filter(names, pattern):
            yield f"tests/arm64_left:{number}: {pattern} names no unit test of this build"
        if reason != RUNS and len(reason.split()) < 3:
            yield f"tests/arm64_left:{number}: {pattern}: why does QEMU not run it?"
        if pattern in seen:
            yield f"tests/arm64_left:{number}: {pattern} stands above already"
        seen.add(pattern)


def left(rows, names):
    out = set()
    for _, pattern, reason in rows:
        found = set(fnmatch.filter(names, pattern))
        out = out - found if reason == RUNS else out | found
    return out


def main():
    with open(os.path.join(sys.argv[1], "tests/arm64_left"), encoding="utf-8") as text:
        rows = read(text.read())
    names = unit_tests(sys.argv[2])
    run = sorted(names - left(rows, names))
    if sys.argv[3:] == ["--run"]:
        if not run:
            sys.exit("no unit test is run by QEMU")
        print("^(" + "|".join(map(re.escape, run)) + ")$")
        return 0
    wrong = list(complaints(rows, names))
    print("\n".join(wrong) if wrong else f"QEMU runs {len(run)} of {len(names)} unit tests")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
