#!/usr/bin/env python3
"""What `lag`, `versions` and tb_wait_site say of another site: they say what is known of it, and do not guess (P10)."""

import sys

from harness import CRAWL, PATIENCE_MS, Rollout, Trainer, expect, main, scenario, up, wait_for

HOLDS, ACTIVATED = 0, 1


def of_site(site, uid, name):
    """What `versions` at `site` says of that version at the site `name`; None: nothing."""
    rows = [s for s in (site.version(uid) or {}).get("sites", []) if s["site"] == name]
    return rows[0] if rows else None


def settled(lab, site, uid, name):
    row = of_site(site, uid, name)
    return row and row["whole"] and row["activated"]


@scenario
def a_follower_that_lost_its_arena_holds_nothing(lab):
    """P3 P10: west's machine reboots: its store is there, its arena is not. East sees the new life and forgets what west held: neither `versions` nor a wait
    for west says that it has the version, until it has it again."""
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
    expect("lives that changed", east.counters()["lives_changed"], 1)
    link.bytes_per_s = 0
    west.wait_holds(uid)
    asking.ok("wait_site", uid=uid, site="west", state=HOLDS, timeout_ms=PATIENCE_MS)


if __name__ == "__main__":
    sys.exit(main())
