#!/usr/bin/env python3
"""`tombolo lag`: each reason of its list is brought about, and what it is concluded from is so (P10). What crosses, a link that was cut and a day that is spent
are in test_documents.py and test_limits.py."""

import re
import signal
import subprocess
import sys
import time

from harness import CRAWL, SOURCE, TOMBOLO, Failed, SlowDisk, Trainer, Worker, expect, made, main, scenario, up, wait_for

WHY = {
    "none": "it has the head",
    "unheard": "no version of the model has been heard of here",
    "store_down": "the durable store cannot be written",
    "link_down": "no link that could bring it is up",
    "no_room": "the arena has no room for it",
    "unsealed": "the ranks have not handed all of it to the home gateway",
    "day_spent": "the day's bytes to it are used up (peers.SITE.day_bytes)",
    "manifests": "its manifests are on their way",
    "queued": "it has not begun: the site follows it no more closely, or another crosses first",
    "stalled": "it has begun, and nothing of it moved for 2 s",
    "crossing": "it is on its way",
}
RATE = r"\d+ bytes/s over \d+ streams, rtt \d+\.\d ms"
FROM = f"from east: {RATE}"
TO = rf"to west: {RATE}, limited by \w+( \(\w+\))?"
# Whole versions, and a link that stays up while nothing comes over it.
PATIENT = {"codec": "raw", "protocol_max": 1, "heartbeat_ms": 60000, "down_ms": 600000, "stream_idle_ms": 600000}


def row(site, of):
    (one,) = (r for r in site.control("lag", model="policy")["lag"] if r["site"] == of)
    return one


def says(site, reason, evidence, of="west", **fields):
    """Its row of that site, once the reason is this one and the evidence has this form. The fields are so, too."""
    def said():
        r = row(site, of)
        return r["reason"] == reason and re.fullmatch(evidence, r["evidence"]) and all(r[k] == v for k, v in fields.items()) and r
    try:
        r = wait_for(f"{site.name} says {reason} of {of}", said)
    except Failed as failed:
        raise Failed(f"{failed}; it says {row(site, of)}") from None
    expect("why", r["why"], WHY[reason])
    return r


def nobody_is_behind(*sites):
    for site in sites:
        says(site, "none", "", versions=0, bytes=0)


def published(site, trainer, number, **fields):
    """A version that is ready, and its size."""
    uid = trainer.publish(number, **fields)
    wait_for("it is ready", lambda: site.version(uid, trainer.model)["state"] in ("ready", "kept"))
    return uid, site.version(uid, trainer.model)["bytes"]


@scenario
def each_reason_of_lag_is_in_the_manuals(lab):
    """The list is closed, and the same where the program has it, in docs/control.md and in the help."""
    rows = re.findall(r'X\(TB_LAG_\w+, "(\w+)",[\s\\]*"([^"]+)"\)', (SOURCE / "gateway/daemon/lag.h").read_text())
    expect("what the program says", rows, list(WHY.items()))
    page = re.search(r"^\| `reason` .*$", (SOURCE / "docs/control.md").read_text(), re.M).group(0)
    expect("docs/control.md", [word for word in re.findall(r"`(\w+)`", page) if word in WHY], list(WHY))
    text = subprocess.run([TOMBOLO, "help", "lag"], capture_output=True, text=True, check=True).stdout
    listed = re.search(r"one reason\s+\(([^)]*)\)", text).group(1)
    expect("the help", re.findall(r"\w+", listed), list(WHY))


@scenario
def lag_of_a_site_that_never_came_up(lab):
    """P10: west never reached east. It has heard of nothing, and says how its link does; at home it is behind by all that was published."""
    east, west, link = lab.east_west()
    link.refusing = True
    east.start()
    west.start()
    says(west, "unheard", r"east: .+", head=None, versions=0, bytes=0)
    says(east, "unheard", "", of="east", head=None, versions=0)
    says(east, "unheard", "west: not connected yet", head=None, versions=0)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid, size = published(east, trainer, 1)
    says(east, "link_down", "west: not connected yet", head="1:1", versions=1, bytes=size)
    r = says(west, "unheard", r"east: .+", head=None, versions=0)
    if f"\n  {WHY['unheard']}: east: " not in west.cli("lag", "policy").stdout:
        raise Failed(f"as text it lacks what the row has: {r}")
    link.refusing = False
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_of_a_site_without_room(lab):
    """P10: west's arena is full of what does not go. It says so each time it is asked, with what is needed and what there is, and no more once there is room."""
    east, west, _ = lab.east_west(through_link=False)
    west.arena_mib = 16
    for s in (east, west):
        s.models["other"] = dict(home="east")
    west.subscribe.append(("other", ["east"]))
    up(east, west)
    path = made(lab, "10M", 1)[0]
    other = Trainer(lab, east, path, names=("other0", "other1"), model="other").publish(1)
    west.wait_holds(other, model="other")
    uid, size = published(east, Trainer(lab, east, path), 1)
    r = says(west, "no_room", r"\d+ bytes needed, \d+ free in one piece", head="1:1", versions=1, bytes=size)
    expect("its numbers", [int(n) for n in re.findall(r"\d+", r["evidence"])], [size, west.control("status")["arena"]["largest_free"]])
    refused, said = west.counters()["arena_refused"], set()
    wait_for("it was asked for three times more", lambda: said.add(row(west, "west")["reason"]) or west.counters()["arena_refused"] >= refused + 3)
    expect("what was said meanwhile", said, {"no_room"})
    says(east, "queued", TO, versions=1, bytes=size)
    east.control("withdraw", model="other", version="1")
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_of_a_site_whose_store_is_down(lab):
    """P10: the disk of home's store does not answer, then west's. While it does not, that comes before what the link does."""
    east, west, link = lab.east_west()
    disks = {}
    for s in (east, west):
        s.extra["store"] = {"path": lab.arena_dir / f"{s.name}.sqlite", "slow_ms": 1000}  # where no other sync is slow
        disks[s] = SlowDisk(s)
        s.env = disks[s].env
    west.extra["link"] = east.extra["link"] = PATIENT
    link.refusing = True
    link.bytes_per_s = CRAWL
    east.start()
    west.start()
    uid, size = published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    says(east, "link_down", "west: .+", versions=1, bytes=size)
    late = Worker(lab, "late", east)
    disks[east].hold()
    late.send("run", model="policy", key="run-b")
    says(east, "store_down", rf"[1-9]\d* rows wait for {re.escape(str(east.extra['store']['path']))}", versions=1, bytes=size)
    expect("a new run", late.receive()["status"], "site_store")
    disks[east].let_go()
    says(east, "link_down", "west: .+", versions=1, bytes=size)
    disks[west].hold()
    link.refusing = False
    r = says(west, "store_down", rf"[1-9]\d* rows wait for {re.escape(str(west.extra['store']['path']))}", head="1:1", versions=1)
    if not 0 < r["bytes"] <= size:
        raise Failed(f"of {size} bytes it lacks {r['bytes']}")
    disks[west].let_go()
    wait_for("what it says then", lambda: row(west, "west")["reason"] in ("manifests", "crossing", "stalled"))
    link.bytes_per_s = 0
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_while_manifests_are_awaited(lab):
    """P10: west has heard of a version, and what it asks does not reach east."""
    east, west, link = lab.east_west()
    east.extra["link"] = west.extra["link"] = PATIENT
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    west.wait_holds(trainer.publish(1))
    nobody_is_behind(east, west)
    link.deaf = True
    uid, size = published(east, trainer, 2)
    says(west, "manifests", FROM, head="1:2", versions=1, bytes=size)
    says(east, "queued", TO, head="1:2", versions=1, bytes=size)
    link.deaf = False
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_while_another_version_crosses_first(lab):
    """P10: of a model that wants every version the second waits for the first."""
    east, west, _ = lab.east_west(through_link=False, policy="every")
    east.extra["link"] = west.extra["link"] = PATIENT
    east.peer_keys["west"] = {"rate": "1Mbit"}
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    _, size = published(east, trainer, 1)
    for s, words in ((west, FROM), (east, TO)):
        says(s, "crossing", words, head="1:1", versions=1)
    uid, size = published(east, trainer, 2)
    for s, words in ((west, FROM), (east, TO)):
        says(s, "queued", words, head="1:2", versions=2, bytes=size, eta_s=None)
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_of_what_stands(lab):
    """P10: a path brings no chunk for many seconds, but bytes: it is no stall. Then nothing comes at all, and it is one, at both ends."""
    east, west, link = lab.east_west()
    east.extra["link"] = west.extra["link"] = PATIENT
    up(east, west)
    link.bytes_per_s = CRAWL  # of a chunk of 1 MiB on each stream: 16 s
    uid, size = published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    wait_for("it begins", lambda: west.daemon.logged("crossing.begun", "number=1 "))
    begun = time.monotonic()

    def moves_without_a_chunk():
        reason = row(west, "west")["reason"]
        return time.monotonic() - begun > 4 and west.version(uid)["held_bytes"] == 0 and reason == "crossing"
    wait_for("west sees it move before it has a chunk", moves_without_a_chunk)
    link.stalled = True
    for s, words in ((west, "from east: 0 bytes/s"), (east, "to west: 0 bytes/s")):
        r = says(s, "stalled", f"{words} over .+", head="1:1", versions=1, eta_s=None)
        if not 0 < r["bytes"] <= size:
            raise Failed(f"of {size} bytes west lacks {r['bytes']}")
    link.stalled = False
    link.bytes_per_s = 0
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_of_a_home_that_lost_its_arena(lab):
    """P10: of two ranks that have a version in place one is back at a gateway that lost all it held; the other is stopped."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["session"] = {"lease_ms": 600000}  # till then it is not called lost
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid, _ = published(east, trainer, 1, in_place=1)
    east.wait_holds(uid)
    for rank in trainer.ranks:
        rank.stop()
    east.kill()
    east.arena_path.unlink()
    east.start()
    says(east, "unsealed", "none of its shards is here", of="east", head="1:1", versions=1)
    for rank, words in zip(trainer.ranks, ("1 of 2 shards are here", "")):
        rank.signal(signal.SIGCONT)
        says(east, "unsealed" if words else "none", words, of="east", head="1:1")
    expect("lost", east.counters()["versions_lost"], 0)


if __name__ == "__main__":
    sys.exit(main())
