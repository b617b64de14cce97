#!/usr/bin/env python3
"""budget.py ROOT: the minutes of tests/budget are 40 at most, and its lines are the stages of
tests/run."""
import os
import re
import sys

MOST = 40


def minutes(text):
    """{stage: minutes}"""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return {words[0]: float(words[1]) for words in lines if words}


def stages(text):
    """Those that a plain tests/run has, in order."""
    return ["setup", *re.search(r"else\s+stages=\(([a-z ]+)\)\s+fi\nfi", text).group(1).split()]


def main():
    with open(os.path.join(sys.argv[1], "tests/budget"), encoding="utf-8") as text:
        planned = minutes(text.read())
    with open(os.path.join(sys.argv[1], "tests/run"), encoding="utf-8") as text:
        there = stages(text.read())
    wrong = [f"tests/budget: {name}: tests/run has no such stage" for name in planned if name not in there]
    wrong += [f"tests/budget: no minutes for the stage {name}" for name in there if name not in planned]
    all_of_it = sum(planned.values())
    if all_of_it > MOST:
        wrong.append(f"tests/budget: {all_of_it:g} minutes in all, and {MOST} at most")
    print("\n".join(wrong) if wrong else f"{all_of_it:g} of {MOST} minutes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
