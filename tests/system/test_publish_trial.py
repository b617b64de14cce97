#!/usr/bin/env python3
"""`tombolo publish --dry-run`: what files come to, what of them differs from the newest version that
is held, and how long they would take; nothing is published.

Covers: gateway/cli/versions/publish_trial.c gateway/daemon/control/digests_status.c
"""

import json
import sys

from bundles import refused
from harness import expect, main, safetensors, scenario, up, wait_for

MIB = 1 << 20
TENSORS = 4


def files(path, last=0):
    """Four tensors of 2 MiB each; the last one begins with this byte."""
    tensors = {f"t{i}": ("U8", [2 * MIB], bytes([i + 1]) * 2 * MIB) for i in range(TENSORS)}
    if last:
        tensors[f"t{TENSORS - 1}"] = ("U8", [2 * MIB], bytes([last]) + bytes([TENSORS]) * (2 * MIB - 1))
    path.mkdir()
    safetensors(path / "model.safetensors", tensors)
    (path / "notes.txt").write_text("as they were\n")
    return path


def tried(site, *args):
    return json.loads(site.cli("publish", "policy", *args, "--dry-run", "--json").stdout)


@scenario
def a_publish_is_tried(lab):
    """P10: without a version, with one that differs in one chunk, and with one that is cut otherwise."""
    east, west, _ = lab.east_west()
    up(east, west)
    first, second = files(lab.dir / "first"), files(lab.dir / "second", last=99)
    said = tried(east, first, "--version", 1)
    bytes_of = sum(f.stat().st_size for f in first.iterdir())
    expect("nothing to compare with", (said["base"], said["not_compared"], said["changed_bytes"], said["tensors"], said["files"]),
           (None, "no version is held here", None, TENSORS, 2))
    if not 8 * MIB < said["bytes"] <= bytes_of:
        raise AssertionError(f"{said['bytes']} bytes of files with {bytes_of}")
    expect("sites", [(s["site"], s["via"], s["wire_bytes"] > 0) for s in said["sites"]], [("west", "west", True)])
    expect("nothing is published", east.versions(), [])
    east.cli("publish", "policy", first, "--version", 1)
    wait_for("west has it", lambda: any(v["held_bytes"] == v["bytes"] > 0 for v in west.versions()))
    wait_for("east knows", lambda: [r["latest"] for r in east.control("lag")["lag"]] == ["1:1", "1:1"])
    same = tried(east, first, "--version", 2)
    expect("the same files", (same["base"], same["changed_bytes"], same["changed_share"]), ("1:1", 0, 0.0))
    changed = tried(east, second, "--version", 2)
    chunk = 2 * MIB
    expect("one chunk of a tensor differs", (changed["base"], 0 < changed["changed_bytes"] <= chunk), ("1:1", True))
    if abs(changed["changed_share"] - changed["changed_bytes"] / changed["bytes"]) > 1e-9:
        raise AssertionError(changed)
    expect("west needs less than all of it", changed["sites"][0]["wire_bytes"] < changed["bytes"] / 2, True)
    east.cli("limit", "west", "--rate", "8Mbit")
    at_rate = tried(east, second, "--version", 2)["sites"][0]
    expect("at an operator's rate", (at_rate["bytes_per_s"] <= 1000000, at_rate["seconds"] > 0), (True, True))
    text = east.cli("publish", "policy", second, "--version", 2, "--dry-run").stdout
    for words in ("dry run, nothing published: policy 2", "differ from 1:1", "west: about"):
        expect(f"{words} in {text}", words in text, True)
    other = lab.dir / "other"
    other.mkdir()
    safetensors(other / "model.safetensors", {"w": ("U8", [64], bytes(64))})
    expect("other tensors", tried(east, other, "--version", 2)["not_compared"], "the version that is held has other tensors or files")
    expect("nothing was published", [v["number"] for v in east.versions()], [1])
    return_codes(lab, east, west, first)


def return_codes(lab, east, west, first):
    """The reasons for which a publish would be refused."""
    refused(east, 1, "version 0 is not above 1, the newest of run 1", "publish", "policy", first, "--version", 0, "--dry-run")
    refused(west, 1, "the home of policy is east, and this gateway is of west", "publish", "policy", first, "--version", 2, "--dry-run")
    refused(east, 1, "No such file", "publish", "policy", lab.dir / "nothing", "--version", 2, "--dry-run")
    refused(east, 1, 'no model "polcy"', "publish", "polcy", first, "--version", 2, "--dry-run")


if __name__ == "__main__":
    sys.exit(main())
