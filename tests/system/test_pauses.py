#!/usr/bin/env python3
"""`tombolo pause` and `resume`: nothing of a model, or of a peer, crosses; both ends say so, over
restarts too, and what stood goes on by chunk.

Covers: gateway/daemon/links/pauses.c gateway/daemon/control/pause_acts.c gateway/cli/operator/pause_command.c
"""

import contextlib
import json
import re
import sqlite3
import sys

from bundles import DRY, acts, refused
from harness import Trainer, expect, main, scenario, up, wait_for
from lagging import causes, row, says

SAID = r"\w+ said so \d+\.\d s ago(, by way of \w+)?"
STREAMS = 4
BY = r"( by .+ \(?uid \d+\)?)"


def slowly(lab, **east_link):
    """East's version is on its way to west at 20 Mbit/s, and some of it is there."""
    east, west, _ = lab.east_west()
    for site in (east, west):
        site.models["other"] = dict(home="east")
        site.extra["link"] = {"codec": "raw", "streams": STREAMS}
    west.subscribe.append(("other", ["east"]))
    east.extra["link"].update(east_link)
    up(east, west)
    east.cli("limit", "west", "--rate", "20Mbit")
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid = trainer.publish(1)
    west.wait_held_some(uid)
    return east, west, uid


def stands(lab, east, west, uid):
    """Another model begins later, crosses whole over the same link at full speed, and this one does
    not."""
    other = Trainer(lab, east, lab.weights(1)[0], names=("o0", "o1"), model="other")
    west.wait_holds(other.publish(1), "other")
    version = west.version(uid)
    if not 0 < version["held_bytes"] < version["bytes"]:
        raise AssertionError(f"{version['held_bytes']} bytes are held")


def still(west, uid):
    """The bytes that are held, once they did not grow between two words of the home."""
    held = west.version(uid)["held_bytes"]
    at = row(west, "west")["heard_s"]
    wait_for("another word of the home", lambda: row(west, "west")["heard_s"] < at or row(west, "west")["heard_s"] > at + 1)
    return west.version(uid)["held_bytes"] == held and held


@scenario
@causes("paused")
def a_model_is_paused_in_mid_crossing(lab):
    """P5 P10: home pauses it. Both say so, and who did; a restart of home keeps it; then the rest
    crosses, and no chunk twice."""
    east, west, uid = slowly(lab)
    said = json.loads(east.cli("pause", "model", "policy", "--reason", "a look", "--json").stdout)
    expect("what it said", (said["model"], said["paused"], said["changed"]), ("policy", True, True))
    east.cli("limit", "west", "--rate", "none")
    says(east, "paused", rf"model policy is paused here{BY}", versions=1, known=True)
    says(west, "paused", "east says that it is paused there", versions=1, known=True)
    stands(lab, east, west, uid)
    expect("what status has", [(p["model"], p["who"]) for p in east.control("status")["pauses"]], [("policy", said["who"])])
    expect("a monitoring system", west.cli("lag", "policy", "--check").returncode, 0)
    east.restart()
    east.wait_link("west")
    says(west, "paused", "east says that it is paused there", versions=1)
    held = west.version(uid)["held_bytes"]
    size = west.version(uid)["bytes"]
    expect("resumed", east.cli("resume", "model", "policy", "--reason", "seen").stdout, "model policy: resumed\n")
    west.wait_holds(uid)
    link = east.link("west")  # since the restart
    in_hand = STREAMS * link["sent_raw_bytes"] // link["chunks_sent"]  # of each stream a chunk, which may go again
    if link["sent_raw_bytes"] > size - held + in_hand:
        raise AssertionError(f"{east.link('west')['sent_raw_bytes']} bytes crossed of {size - held} that were lacking")
    wait_for("no site is paused", lambda: row(east, "west")["reason"] == row(west, "west")["reason"] == "no-subscriber")
    expect("the record", [row for row in acts(east) if row[0] != "limit"], [("pause", 'policy reason="a look"'), ("resume", 'policy reason="seen"')])
    expect("events", [e["event"] for e in map(json.loads, east.cli("events", "--event", "pause", "--json").stdout.splitlines())],
           ["pause.restored", "pause.ended"])


@scenario
def a_follower_pauses_its_peer(lab):
    """P5 P10: west's operator does; home says so by west's word. Then of the model alone."""
    east, west, uid = slowly(lab)
    west.cli("pause", "peer", "east")
    wait_for("east hears of it, behind the end of its crossing", lambda: east.link("west")["paused_there"])
    east.cli("limit", "west", "--rate", "none")
    says(west, "paused", rf"peer east is paused here{BY}", versions=1)
    says(east, "paused", SAID, versions=1)
    expect("what status has", (west.link("east")["paused_here"], east.link("west")["paused_here"]), (True, False))
    west.cli("pause", "model", "policy")
    expect("two", len(west.control("status")["pauses"]), 2)
    for words in ("paused   peer east by ", "paused   model policy by "):
        expect(f"{words} in status", words in west.cli("status").stdout, True)
    for site in (west, east):
        expect(f"peers at {site.name}", "paused" in site.cli("peers").stdout, True)
    west.cli("resume", "peer", "east")
    says(west, "paused", rf"model policy is paused here{BY}", versions=1)
    stands(lab, east, west, uid)
    west.cli("resume", "model", "policy")
    west.wait_holds(uid)
    twice = west.link("east")["chunks_duplicate"]
    if twice > 2 * STREAMS:  # those that a stream had in hand as a crossing ended: one each, and it ended twice
        raise AssertionError(f"{twice} chunks came twice")


@scenario
def an_older_peer_is_paused_too(lab):
    """P9: a peer of the release before has no such word. Nothing crosses to it all the same, and home
    says why."""
    east, west, uid = slowly(lab, protocol_max=2)
    east.cli("pause", "peer", "west")
    east.cli("limit", "west", "--rate", "none")
    says(east, "paused", rf"peer west is paused here{BY}")
    wait_for("what was in hand is there", lambda: still(west, uid))
    if not west.version(uid)["held_bytes"] < west.version(uid)["bytes"]:
        raise AssertionError("all of it crossed")
    east.cli("resume", "peer", "west")
    west.wait_holds(uid)


@scenario
def a_pause_that_is_not_on_disk_is_not_ok(lab):
    """P10: a write that fails leaves the pause in force, and each request for it is refused until the row
    is on disk. The same of its end."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    store = lab.arena_dir / "east.sqlite"
    east.extra["store"] = {"path": str(store)}
    east.start()
    for cmd, left in (("pause", ["policy"]), ("resume", [])):
        with contextlib.closing(sqlite3.connect(store, timeout=60, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")  # nobody else writes
            for _ in range(2):
                said = east.control(cmd, model="policy")
                expect(f"{cmd} while nothing is written", (said["ok"], said.get("status")), (False, "site_store"))
            expect("in force", [p["model"] for p in east.control("status")["pauses"]], left)
            db.execute("ROLLBACK")
        wait_for(f"{cmd} is on disk", lambda cmd=cmd: east.control(cmd, model="policy")["ok"])
        east.restart()
        expect(f"after {cmd} and a restart", [p["model"] for p in east.control("status")["pauses"]], left)


@scenario
def pauses_are_tried_and_refused(lab):
    """P10: a dry run changes nothing; what is no model or peer is refused by name; twice is as once."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.peers["west"] = None
    east.start()
    expect("tried", east.cli("pause", "model", "policy", "--dry-run").stdout, f"{DRY}model policy: paused\n")
    expect("nothing is paused", east.control("status")["pauses"], [])
    expect("resumed", east.cli("resume", "model", "policy").stdout, "model policy: was not paused\n")
    refused(east, 1, 'no model "polcy" is configured here', "pause", "model", "polcy")
    refused(east, 1, 'there is no peer "north"; this gateway\'s are west', "pause", "peer", "north", "--dry-run")
    refused(east, 2, 'a model or a peer, not "site"', "pause", "site", "west")
    east.cli("pause", "peer", "west")
    twice = east.cli("pause", "peer", "west").stdout
    if not re.fullmatch(r"peer west: paused before, by .+\n", twice):
        raise AssertionError(twice)
    expect("tried", east.cli("resume", "peer", "west", "--dry-run").stdout, f"{DRY}peer west: resumed\n")
    expect("it is paused", [p["peer"] for p in east.control("status")["pauses"]], ["west"])
    expect("rows", acts(east), [("resume", "policy"), ("pause", "polcy"), ("pause", "west"), ("pause", "west")])


if __name__ == "__main__":
    sys.exit(main())
