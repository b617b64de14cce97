#!/usr/bin/env python3
"""rotation.py: the tests of a suite that wait for another commit, as the hash of this one says.

  rotation.py out SUITE COMMIT <NAMES   prints those of NAMES (a line each) that wait
  rotation.py slow SUITE RESULTS.xml    names system tests over 10 s in these results without a list
  rotation.py lists                     prints the lists: suites, parts, patterns

tests/rotation has the lists, a line each: SUITES PARTS NAME... with * for any letters. Each test of
a list has a place, by the hash of its name. A commit has one of the PARTS places of each list, by
its own hash, and runs the tests that have it. So every test is in one part, and the parts together
are the list. tests/run leaves out the tests that wait; with --long and --only none wait."""
import collections
import fnmatch
import hashlib
import os
import sys
import xml.etree.ElementTree as tree

LISTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "rotation")

SLOW_S = 10  # a test with real processes that takes longer has its turn

List = collections.namedtuple("List", "suites parts names")


def number_of(*words):
    return int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:8], "big")


def read(path=LISTS):
    """Lines that are indented go on with the list above them."""
    lines = []
    with open(path, encoding="utf-8") as text:
        for line in text:
            words = line.partition("#")[0].split()
            if words and line[0].isspace():
                lines[-1] += words
            elif words:
                lines.append(words)
    return [List(suites.split(","), int(parts), names) for suites, parts, *names in lines]


def members(lists, suite, names):
    """(list, its tests in the order of their places). A test is of the first list that names it."""
    left = sorted(set(names))
    for one in lists:
        if suite in one.suites:
            found = [n for n in left if any(fnmatch.fnmatchcase(n, name) for name in one.names)]
            left = [n for n in left if n not in found]
            yield one, sorted(found, key=number_of)


def part(one, found, place):
    """The tests of one part. Every test is in one of them."""
    return [n for i, n in enumerate(found) if i % one.parts == place]


def waiting(lists, suite, commit, names):
    """Those that another commit runs. A list of fewer tests than parts may wait as a whole."""
    out = []
    for i, (one, found) in enumerate(members(lists, suite, names)):
        runs = part(one, found, number_of(commit, suite, str(i)) % one.parts)
        out += [n for n in found if n not in runs]
    return sorted(out)


def slow(lists, suite, results):
    """{system test: seconds}, of ctest's results: those that are slow and run at each commit."""
    took = {case.get("name"): float(case.get("time") or 0) for case in tree.parse(results).iter("testcase")}
    over = {name: s for name, s in took.items() if s > SLOW_S and name.startswith("system.")}
    turns = {name for _, found in members(lists, suite, over) for name in found}
    return {name: s for name, s in sorted(over.items()) if name not in turns}


def main():
    lists = read()
    if sys.argv[1:2] == ["out"] and len(sys.argv) == 4:
        for name in waiting(lists, sys.argv[2], sys.argv[3], sys.stdin.read().split()):
            print(name)
        return 0
    if sys.argv[1:2] == ["slow"] and len(sys.argv) == 4:
        for name, seconds in slow(lists, *sys.argv[2:]).items():
            print(f"{sys.argv[2]}: {name} took {seconds:.0f} s; tests/rotation has no turn for it")
        return 0
    if sys.argv[1:] == ["lists"]:
        for one in lists:
            print(",".join(one.suites), one.parts, *one.names)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
