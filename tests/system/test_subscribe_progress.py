#!/usr/bin/env python3
"""`tombolo subscribe` shows how far a version is on its way to this site, and how long still (P10).

Covers: gateway/cli/versions/subscribe_command.c gateway/cli/output.c
"""

import json
import os
import subprocess
import sys

from harness import Trainer, expect, main, scenario, up


def crossing_of(lines):
    return [line["progress"] for line in lines if line.get("progress", {}).get("what") == "crossing to this site"]


@scenario
def a_version_on_its_way_is_shown(lab):
    """P10: under --json a line a second with percent and the time that is left, then the result."""
    east, west, _ = lab.east_west()
    for site in (east, west):
        site.extra["link"] = {"codec": "raw"}
    up(east, west)
    east.cli("limit", "west", "--rate", "6Mbit")
    trainer = Trainer(lab, east, lab.weights(1)[0])
    trainer.publish(1)
    lines = []
    env = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{west.session_socket}", TOMBOLO_CONTROL=str(west.control_socket))
    command = [str(west.tombolo), "subscribe", "policy", "--into", str(lab.dir / "into"), "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as said:
        slow = True
        for line in said.stdout:
            lines.append(json.loads(line))
            if slow and len(crossing_of(lines)) >= 2 and any((p["eta_s"] or 0) > 0 for p in crossing_of(lines)):
                east.cli("limit", "west", "--rate", "none")  # all that this test waits for was seen
                slow = False
    expect("its end", said.returncode, 0)
    expect("the last line is the result", (lines[-1]["number"], "progress" in lines[-1]), (1, False))
    crossing = crossing_of(lines)
    if len(crossing) < 2:
        raise AssertionError(f"{lines}")
    expect("it grows", [p["percent"] for p in crossing], sorted(p["percent"] for p in crossing))
    for p in crossing:
        if not 0 <= p["percent"] <= 100 or abs(p["percent"] - 100 * p["done_bytes"] / p["bytes"]) > 1e-6:
            raise AssertionError(p)
    expect("a time that is left", any((p["eta_s"] or 0) > 0 for p in crossing), True)


if __name__ == "__main__":
    sys.exit(main())
