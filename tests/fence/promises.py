#!/usr/bin/env python3
"""promises.py ROOT: each promise P1 to P10 is named by a test, or stands in tests/fence/pending
with the reason.

A line of pending is: the promise, a space, why no test names it, or what part of it no test
shows yet."""
import os
import re
import sys

PROMISES = [f"P{n}" for n in range(1, 11)]
TESTS = (".c", ".h", ".py", ".sh", ".bats")


def named(root):
    """promise -> files of tests that name it"""
    found = {promise: [] for promise in PROMISES}
    for folder, folders, files in os.walk(os.path.join(root, "tests")):
        folders[:] = [name for name in folders if name not in ("fence", "corpus")]
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not name.endswith(TESTS) and not os.access(path, os.X_OK):
                continue
            with open(path, encoding="utf-8", errors="replace") as text:
                words = set(re.findall(r"\bP\d+\b", text.read()))
            for promise in words & set(PROMISES):
                found[promise].append(os.path.relpath(path, root))
    return found


def pending(root):
    reasons, wrong = {}, []
    with open(os.path.join(root, "tests/fence/pending"), encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            if line.startswith("#") or not line.strip():
                continue
            promise, _, reason = line.strip().partition(" ")
            if promise not in PROMISES or len(reason.split()) < 3:
                wrong.append(f"tests/fence/pending:{number}: want `P3 why no test names it yet`")
            reasons[promise] = reason
    return reasons, wrong


def main():
    root = sys.argv[1]
    found = named(root)
    reasons, wrong = pending(root)
    for promise in PROMISES:
        if not found[promise] and promise not in reasons:
            wrong.append(f"{promise}: no test names it and tests/fence/pending has no reason")
    for promise in PROMISES:
        print(f"{promise}: {len(found[promise])} files" + (f"; pending: {reasons[promise]}" if promise in reasons else ""))
    if wrong:
        print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
