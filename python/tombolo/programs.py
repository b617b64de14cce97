"""The programs `tombolo` and `tombolod` of a wheel."""

import os
import sys
from typing import NoReturn

from .library import NATIVE


def _run(name: str) -> NoReturn:
    program = os.path.join(NATIVE, name)
    if not os.path.exists(program):
        sys.exit(f"{name}: this package has no programs inside ({program} is missing): install the wheel, or build Tombolo")
    os.execv(program, [name, *sys.argv[1:]])


def tombolo() -> NoReturn:
    _run("tombolo")


def tombolod() -> NoReturn:
    _run("tombolod")
