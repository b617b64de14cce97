#!/usr/bin/env python3
"""security.py ROOT: each line of the threats of SECURITY.md names a test, and every test that SECURITY.md names is there."""
import glob
import os
import re
import sys

KINDS = "attack|system|vm|fence|daemon|unit|intra|wan|gateway"


def known(root):
    """Words of the lists of tests, and of the tests' own programs."""
    words = set()
    for pattern in ("tests/**/CMakeLists.txt", "tests/attack/*.py", "tests/system/*.py", "tests/unit/**/*.c", "tests/vm/*", "tests/fence/*.py"):
        for file in glob.glob(os.path.join(root, pattern), recursive=True):
            with open(file, encoding="utf-8") as text:
                words |= set(re.findall(r"\w+", text.read()))
    return words | {os.path.basename(f)[:-3] for f in glob.glob(os.path.join(root, "tests/fence/*.py"))}


def main():
    root = sys.argv[1]
    with open(os.path.join(root, "SECURITY.md"), encoding="utf-8") as text:
        page = text.read()
    words = known(root)
    named = set(re.findall(rf"`(?:{KINDS})\.(\w+)`", page)) | set(re.findall(r"`([PF]\d+_\w+)`", page))
    named |= set(re.findall(r"[(,`]\s?`?([a-z]+(?:_[a-z]+){3,})`", page))
    wrong = [f"SECURITY.md: there is no test {name}" for name in sorted(named - words)]
    wrong += [f"SECURITY.md: there is no {path}" for path in sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", page))) if not os.path.exists(os.path.join(root, path))]
    threats = page.split("## Threats")[1].split("**What Tombolo does not cover**")[0]
    rows = [line for line in threats.splitlines() if line.startswith("| ") and not line.startswith(("| threat", "|---"))]
    wrong += [f"SECURITY.md: no test: {row}" for row in rows if not re.search(rf"`(?:(?:{KINDS})\.\w+|tests/[\w/]+\.py)`", row.split("|")[3])]
    if len(rows) < 20:
        wrong.append(f"SECURITY.md: {len(rows)} threats")
    print("\n".join(wrong) if wrong else f"{len(rows)} threats, {len(named)} tests")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
