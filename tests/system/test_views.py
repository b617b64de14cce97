#!/usr/bin/env python3
"""The words of `lag`, `versions` and tb_wait_site about another site: they say what is known of it, and
do not guess (P10).

Covers: gateway/catalog/views.c gateway/daemon/links/site_records.c
Covers: gateway/daemon/control/version_status.c gateway/daemon/control/lag_status.c
"""

import sys

from lagging import says
from harness import CRAWL, PATIENCE_MS, Failed, Rollout, Trainer, expect, main, scenario, up, wait_for

HOLDS, ACTIVATED = 0, 1


def of_site(site, uid, name):
    """The word of `versions` at `site` on that version at the site `name`; None: nothing."""
    rows = [s for s in (site.version(uid) or {}).get("sites", []) if s["site"] == name]
    return rows[0] if rows else None


def settled(lab, site, uid, name):
    row = of_site(site, uid, name)
    return row and row["whole"] and row["activated"]


@scenario
def a_follower_that_lost_its_arena_holds_nothing(lab):
    """P3 P10: west's machine reboots: its store is there, its arena is not. East sees the new
    life and forgets what west held: neither `versions` nor a wait for west says that it has the
    version, until it has it again."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    reader = Rollout(lab, west, "reader", path)
    reader.stage(uid)
    reader.activate(uid)
    wait_for("east knows that west activated it", lambda: settled(lab, east, uid, "west"))
    asking = trainer.ranks[0]
    asking.ok("wait_site", uid=uid, site="west", state=ACTIVATED, timeout_ms=PATIENCE_MS)
    reader.worker.kill()
    west.kill()
    west.arena_path.unlink()
    link.bytes_per_s = CRAWL
    west.start()
    west.wait_link("east")
    wait_for("west takes it again", lambda: west.daemon.logged("crossing.begun", "number=1 "))
    if settled(lab, east, uid, "west"):
        raise AssertionError(f"east says of west what was so in its life before: {of_site(east, uid, 'west')}")
    asking.refused("timeout", "wait_site", uid=uid, site="west", state=HOLDS, timeout_ms=100)
    asking.refused("timeout", "wait_site", uid=uid, site="west", state=ACTIVATED, timeout_ms=100)
    once = asking.refused("again", "wait_site", uid=uid, site="west", state=HOLDS, timeout_ms=0)["error"]
    expect(f"the sentence of one that asks once ({once})", "west did not get there yet" in once, True)
    expect("lives that changed", east.counters()["lives_changed"], 1)
    link.bytes_per_s = 0
    west.wait_holds(uid)
    asking.ok("wait_site", uid=uid, site="west", state=HOLDS, timeout_ms=PATIENCE_MS)


def lag_rows(site):
    return {r["site"]: r for r in site.control("lag", model="policy")["lag"]}


@scenario
def sites_in_a_row_are_all_listed(lab):
    """P10: east, west, north and south stand in a row, each the other's relay. East lists all,
    with the relay through which it knows them; a wait at east for south ends; and when west
    goes, nothing behind it is known any more."""
    east, west, _ = lab.east_west(through_link=False)
    north = lab.behind(west)
    south = lab.behind(west, "south")
    south.peers, south.subscribe = {"north": f"{lab.address}:{north.port}"}, [("policy", ["north"])]
    south.peer_keys["north"] = {"speaks_for": ["east", "west"]}
    north.peer_keys["west"] = {"speaks_for": ["east"]}
    west.peer_keys["north"] = {"speaks_for": ["south"]}
    del west.peers["south"]
    north.listen = True
    north.peers["south"] = None
    for s in (east, west, north, south):
        s.models["policy"] = dict(home="east", read=[f"tombolo://{n}/*" for n in ("east", "west", "north", "south")])
    up(east, west, north, south)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid = trainer.publish(1)
    trainer.ranks[0].ok("wait_site", uid=uid, site="south", state=HOLDS, timeout_ms=PATIENCE_MS)
    south.wait_holds(uid)
    rows = wait_for("east lists them", lambda: set(lag_rows(east)) == {"east", "west", "north", "south"} and lag_rows(east))
    expect("through whom", {name: r["via"] for name, r in rows.items()}, {"east": "east", "west": "west", "north": "west", "south": "west"})
    wait_for("all are current", lambda: all(r["known"] and r["versions"] == 0 for r in lag_rows(east).values()))
    row = of_site(east, uid, "south")
    expect("south's copy", (row["whole"], row["known"], row["via"]), (True, True, "west"))
    west.kill()
    wait_for("nothing is known behind west", lambda: [n for n, r in lag_rows(east).items() if r["known"]] == ["east"])
    row = of_site(east, uid, "south")
    expect("south's copy", (row["whole"], row["known"], row["held_bytes"]), (None, False, None))
    trainer.ranks[0].refused("timeout", "wait_site", uid=uid, site="south", state=HOLDS, timeout_ms=100)
    west.start()
    trainer.ranks[0].ok("wait_site", uid=uid, site="south", state=HOLDS, timeout_ms=PATIENCE_MS)


@scenario
def a_site_that_does_not_want_the_model_is_not_behind(lab):
    """P10: west may read the model, and takes it from nobody. East says so of it, and not that west had it, or
    that it is under way there. No alert comes of that."""
    east, west, _ = lab.east_west(through_link=False)
    west.subscribe = []
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    for number in (1, 2):
        east.wait_holds(trainer.publish(number))
        says(east, "no-subscriber", "", known=True, head=f"1:{number}", latest=None, versions={1, 2}, eta_s=None)
    done = east.cli("lag", "--check", "--warn", 0, "--crit", 0, check=False)
    expect(f"exit code ({done.stdout})", done.returncode, 0)
    expect("west has none of it", west.versions(), [])


@scenario
def versions_that_nobody_holds_are_not_listed(lab):
    """P10: `versions` at either end lists what somebody holds, and not each number that was ever
    published."""
    east, west, _ = lab.east_west()
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    for number in range(1, 8):
        uid = trainer.publish(number)
        west.wait_holds(uid)
    for site in (east, west):
        wait_for("old rows go", lambda: len(site.versions()) <= 4)
        wait_for("each row has a holder", lambda: all(
            v["held_bytes"] or any(s["held_bytes"] for s in v["sites"]) for v in site.versions()))


if __name__ == "__main__":
    sys.exit(main())
