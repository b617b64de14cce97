"""The attempts of the suite and their results. Each scenario says its part, and summary.py adds the parts up."""

import json
import pathlib
import re
import sys

from harness import BUILD, TOMBOLOD

FOLDER = BUILD / "tests/attack/tally"


def built():
    """Of which build a part is."""
    return TOMBOLOD.stat().st_mtime_ns


def note(what, scenario=None, **part):
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = scenario or (sys.argv[1] if len(sys.argv) > 1 else "none")
    part.update(scenario=name, what=what, built=built())
    (FOLDER / f"{name}.{re.sub('[^a-z0-9]+', '-', what.lower())[:60]}.json").write_text(json.dumps(part))


def tally(what, inputs, successes=0, crashes=0, memory=None, more=""):
    """Prints it, too. memory: bytes by which a gateway grew at most."""
    grew = "" if memory is None else f", {max(0, memory) >> 20} MiB more memory at most"
    print(f"{what}: {inputs} inputs, {crashes} crashes, {successes} successes{grew}{more}")
    note(what, inputs=inputs, successes=successes, crashes=crashes, memory=memory)


class Identities:
    """The attempts at each listener, and those that got in."""

    def __init__(self):
        self.rows = []

    def add(self, listener, what, got_in):
        self.rows.append((listener, what, bool(got_in)))

    def show(self):
        for listener in dict.fromkeys(row[0] for row in self.rows):
            tried = [row for row in self.rows if row[0] == listener]
            print(f"{listener}: {len(tried)} wrong ones, {sum(row[2] for row in tried)} accepted")
            note(f"identities {listener}", identities=tried)
        return [f"{listener}: {what}" for listener, what, got_in in self.rows if got_in]


def parts():
    """Those of this build."""
    found = [json.loads(path.read_text()) for path in sorted(pathlib.Path(FOLDER).glob("*.json"))]
    return [part for part in found if part["built"] == built()]
