#!/usr/bin/env python3
"""`tombolo subscribe` shows how far a version is on its way to this site, and how long still (P10).

Covers: gateway/cli/versions/subscribe_command.c gateway/cli/output.c
"""

import json
import sys

from harness import Trainer, expect, main, scenario, up


@scenario
def a_version_on_its_way_is_shown(lab):
    """P10: under --json a line a second with percent and the time that is left, then the result."""
    east, west, _ = lab.east_west()
    for site in (east, west):
        site.extra["link"] = {"codec": "raw"}
    up(east, west)
    east.cli("limit", "west", "--rate", "40Mbit")
    trainer = Trainer(lab, east, lab.weights(1)[0])
    trainer.publish(1)
    lines = [json.loads(line) for line in west.cli("subscribe", "policy", "--into", lab.dir / "into", "--json").stdout.splitlines()]
    expect("the last line is the result", (lines[-1]["number"], "progress" in lines[-1]), (1, False))
    progress = [line["progress"] for line in lines[:-1]]
    crossing = [p for p in progress if p["what"] == "crossing to this site"]
    if len(crossing) < 2:
        raise AssertionError(f"{progress}")
    expect("it grows", [p["percent"] for p in crossing], sorted(p["percent"] for p in crossing))
    for p in crossing:
        if not 0 <= p["percent"] <= 100 or abs(p["percent"] - 100 * p["done_bytes"] / p["bytes"]) > 1e-6:
            raise AssertionError(p)
    expect("a time that is left", any((p["eta_s"] or 0) > 0 for p in crossing), True)


if __name__ == "__main__":
    sys.exit(main())
