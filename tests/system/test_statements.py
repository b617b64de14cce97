#!/usr/bin/env python3
"""A home signs its runs, its versions and its withdrawals, and other sites show and pass on its
signatures (P1, P2, P9).

Covers: gateway/daemon/links/statements.c gateway/daemon/links/home_statements.c
Covers: gateway/daemon/links/statement_table.c wan/link/traffic/link_signed.c
"""

import sqlite3
import sys
import time

from harness import Failed, Rollout, Trainer, expect, main, made, scenario, up, wait_for
from lagging import causes, says

HOME = "tombolo://east/gw"


def signed(site, uid):
    """The signer of the version, as that site shows it; "" where nobody did."""
    version = site.version(uid)
    expect("a date goes with a name", version["signed_at_ms"] > 0, version["signed_by"] != "")
    return version["signed_by"]


def waits_signed(site, uid):
    wait_for(f"{site.name} has home's signature", lambda: signed(site, uid) == HOME)


def forget(site):
    """The store of a killed gateway as the release before wrote it."""
    with sqlite3.connect(site.dir / "store.sqlite") as store:
        store.execute("DROP TABLE signed")


@scenario
def a_relay_passes_homes_signature_on(lab):
    """P1 P2: every site shows that home signed the version, and when: the same at all of them. It is
    so after a restart of each, and home is away when north comes back."""
    east, west, _ = lab.east_west(through_link=False)
    north = lab.behind(west)
    up(east, west, north)
    before = time.time() * 1000
    uid = Trainer(lab, east, made(lab, "1M", 1)[0]).publish(1)
    north.wait_holds(uid)
    for site in (east, west, north):
        expect(f"{site.name} shows", signed(site, uid), HOME)
    dates = {site.version(uid)["signed_at_ms"] for site in (east, west, north)}
    expect("one date", len(dates), 1)
    expect("of now", before - 1000 <= dates.pop() <= time.time() * 1000 + 1000, True)
    east.kill()
    for site in (west, north):
        site.restart()
        expect(f"{site.name} shows", signed(site, uid), HOME)
    north.kill()
    north.arena_path.unlink()
    for path in north.dir.glob("store.sqlite*"):
        path.unlink()
    north.start()
    north.wait_holds(uid)
    expect("from the relay alone", signed(north, uid), HOME)


@scenario
def an_upgraded_home_signs_what_it_holds(lab):
    """P9: the stores are as the release before left them. Nothing is lost: the sites go on holding
    the version, home signs it, and a new follower believes it."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    trainer = Trainer(lab, east, made(lab, "1M", 1)[0])
    uid, bad = trainer.publish(1), trainer.publish(2)
    west.wait_holds(bad)
    east.control("withdraw", model="policy", version="1:2")
    wait_for("west hears", lambda: west.daemon.logged("version.state", f"uid={bad} state=withdrawn"))
    for site in (east, west):
        site.kill()
        forget(site)
    west.start()
    expect("it is held, and nobody signed it", (west.version(uid)["held_bytes"] > 0, signed(west, uid)), (True, ""))
    east.start()
    for site in (east, west):
        waits_signed(site, uid)
    north = lab.behind(west)
    west.restart()
    north.start()
    north.wait_holds(uid)
    expect("north shows", signed(north, uid), HOME)


@scenario
def readers_at_home_hear_of_what_is_signed(lab):
    """P1: a reader at home is told of each version once home has signed it. So one that demands the signature
    stages it at once."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=2)
    up(east)
    path = made(lab, "22M", 1)[0]
    trainer = Trainer(lab, east, path)
    reader = Rollout(lab, east, "reader", path, home_ca=lab.pki_dir("east") / "ca.crt")
    for number in range(1, 5):
        reader.worker.send("wait", model="policy", kind="exact", number=number, timeout_ms=60000)
        uid = trainer.publish(number)
        expect("told", reader.worker.receive()["uid"], uid)
        expect("who signed it", signed(east, uid), HOME)
        reader.stage(uid)
        reader.activate(uid)
        reader.worker.ok("release", uid=uid)


@scenario
@causes("unsigned")
def a_version_of_an_unsigned_peer_waits(lab):
    """P2 P9 P10: a link of the release before brings no signature. The version waits, no reader is told
    of it, and `lag` says why. When the operator allows it, it crosses."""
    east, west, _ = lab.east_west(through_link=False)
    west.arguments = ["--protocol-max", "2"]
    west.peer_keys["east"] = {"unsigned": "false"}
    up(east, west)
    path = made(lab, "1M", 1)[0]
    uid = Trainer(lab, east, path).publish(1)
    wait_for("east knows its size", lambda: east.version(uid)["bytes"] > 0)
    says(west, "unsigned", "east announced 1:1", versions=1, bytes=east.version(uid)["bytes"])
    expect("west has none of it", west.version(uid), None)
    wait_for("it is logged", lambda: west.daemon.logged("version.unsigned", "peer=east", "run=1 number=1"))
    west.peer_keys["east"] = {"unsigned": "true"}
    west.restart()
    west.wait_holds(uid)
    expect("nobody signed it here", signed(west, uid), "")
    reader = Rollout(lab, west, "reader", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)


@scenario
def a_home_that_lost_its_store_believes_its_own_key(lab):
    """P2: a follower brings home's own signatures back. A run that no key of home signed is not taken."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = made(lab, "1M", 1)[0]
    uid = Trainer(lab, east, path, key="one").publish(4)
    west.wait_holds(uid)
    east.kill()
    for path_of in east.dir.glob("store.sqlite*"):
        path_of.unlink()
    east.arena_path.unlink()
    east.start()
    trainer = Trainer(lab, east, path, key="two")
    wait_for("west told the run", lambda: east.daemon.logged("home.told", "peer=west run=1 number=4"))
    if east.daemon.logged("run.told_refused"):
        raise Failed("home did not believe its own signature")
    expect("the next run is above", trainer.runs[0]["run_order"] > 1, True)


if __name__ == "__main__":
    sys.exit(main())
