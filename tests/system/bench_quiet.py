"""A bench that says nothing and measures nothing, for tests of bench/run. Importing it finds
bench/."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("bench", "tests/system", "sim")]
os.environ.setdefault("TB_BUILD_DIR", "/nowhere")

SHAPE = {"ratio", "a", "b", "unit", "min", "max", "goal", "why_skipped", "void"}


class Quiet:
    rounds = 3
    quick = False
    machine = None
    void = 0

    def rounds_asked(self):
        return 3

    def say(self, text):
        pass


def check(what, true):
    if not true:
        sys.exit(f"FAILED: {what}")


def run_all(*tests):
    for test in tests:
        test()
        print(f"{test.__name__}: ok")
