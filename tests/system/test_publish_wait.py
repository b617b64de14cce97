"""`tombolo publish --wait`: it ends when the sites that were named have the version, and says how
far they are (P6, P10).

Covers: gateway/cli/versions/publish_wait.c
"""

import json
import os
import sys

from bundles import hugging_face, not_in_time, refused
from harness import PATIENCE, Rollout, expect, main, safetensors, scenario, up, wait_for


def lines_of(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def little(lab, number):
    path = lab.dir / f"m{number}.safetensors"
    safetensors(path, {"w": ("U8", [1 << 20], os.urandom(1 << 20))})
    return path


@scenario
def publish_waits_for_the_sites_that_it_was_told(lab):
    """P6 P10: Held, then active; under --json each step is a line. A name that is no site is refused
    before anything is published, and a site that does not come costs its time alone."""
    east, west, link = lab.east_west()
    up(east, west)
    source = hugging_face(lab.dir / "source", 1)
    for words, says in (("west:whole", "--wait takes SITE"), ("west,west", "--wait takes SITE"), ("", "--wait takes a text"),
                        ("west,", "--wait takes SITE"), ("a/b", "--wait takes SITE")):
        refused(east, 2, says, "publish", "policy", source, "--version", 1, "--wait", words)
    refused(east, 1, 'there is no site "wset"; the gateway knows east, west', "publish", "policy", source, "--version", 1, "--wait", "west,wset:active")
    expect("nothing was published", east.versions(), [])
    said = east.cli("publish", "policy", source, "--version", 1, "--wait", "west,east:held", "--timeout", PATIENCE).stdout.splitlines()
    expect("lines", [line.split(" after ")[0] for line in said[1:]], ["west holds it", "east holds it"])
    expect("west has it", west.versions()[0]["held_bytes"] == west.versions()[0]["bytes"], True)
    weights = lab.weights(1)[0]
    kept, *steps = lines_of(east.cli("publish", "policy", weights, "--version", 2, "--wait", "west", "--json", "--timeout", PATIENCE))
    expect("kept", (kept["ok"], kept["number"], "waiting" in kept), (True, 2, False))
    last = steps[-1]
    expect("the last step", [(s["site"], s["for"], s["done"], s["held_bytes"] == last["bytes"]) for s in last["waiting"]], [("west", "held", True, True)])
    *_, last = lines_of(east.cli("publish", "policy", weights, "--version", 2, "--wait", "east", "--json", "--timeout", PATIENCE))
    expect("the own site", [(s["site"], s["done"], s["held_bytes"] == last["bytes"] > 0) for s in last["waiting"]], [("east", True, True)])
    reader = Rollout(lab, west, "reader", weights)
    reader.stage(west.versions()[-1]["uid"])
    reader.activate(west.versions()[-1]["uid"])
    *_, last = lines_of(east.cli("publish", "policy", weights, "--version", 2, "--wait", "west:active", "--json", "--timeout", PATIENCE))
    expect("active", [(s["for"], s["done"]) for s in last["waiting"]], [("active", True)])
    link.refusing = True
    link.cut()
    wait_for("the link is down", lambda: east.link("west")["state"] != "up")
    not_in_time(east, "the version is kept; waiting until west holds it: not within --timeout", "publish", "policy", little(lab, 3),
                "--version", 3, "--wait", "west")
    not_in_time(east, 'the gateway has not heard of the site "far" yet', "publish", "policy", little(lab, 4), "--version", 4, "--wait", "far")


if __name__ == "__main__":
    sys.exit(main())
