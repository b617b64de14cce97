#!/usr/bin/env python3
"""A site that missed a withdrawal hears of it later, through a relay as well (P2, P3).

Covers: gateway/daemon/links/withdrawals.c gateway/daemon/links/link_reports.c
Covers: gateway/daemon/catalog_todos.c
"""

import sys

from harness import Trainer, expect, made, main, scenario, up, wait_for

# More than a link tells again by itself to a peer that comes up (TB_LINKS_WITHDRAWN_MAX).
LATER = 260


def row(lab):
    """East, west and north in a row. North keeps three versions, and the relay west keeps one."""
    east, west, link = lab.east_west(keep=1)
    north = lab.behind(west)
    north.models["policy"]["keep"] = 3
    near = lab.link(west)
    north.peers["west"] = f"127.0.0.1:{near.port}"
    up(east, west, north)
    return east, west, north, link, near


def cut(link, site, peer):
    link.refusing = True
    link.cut()
    site.wait_link(peer, "dialling")


def withdraw(site, number):
    expect("withdrawn", site.control("withdraw", model="policy", version=f"1:{number}")["ok"], True)


def withdraw_many(site, trainer, first):
    """Versions that are withdrawn as soon as they are published."""
    for number in range(first, first + LATER):
        trainer.publish(number)
        withdraw(site, number)


def hears(site, bad):
    # The row itself gives way to those of later withdrawals: the log has it for ever.
    wait_for(f"{site.name} knows", lambda: site.daemon.logged("version.state", f"uid={bad} state=withdrawn"))
    wait_for("its bytes are gone", lambda: (site.version(bad) or {"held_bytes": 0})["held_bytes"] == 0)


@scenario
def a_relay_passes_an_old_withdrawal_on(lab):
    """P2 P3: north is cut off while a version and hundreds of others are withdrawn at home. The relay hears
    of them, and restarts. It tells north about the version that north still holds."""
    east, west, north, _, near = row(lab)
    trainer = Trainer(lab, east, made(lab, "1M", 1)[0])
    bad = trainer.publish(1)
    north.wait_holds(bad)
    cut(near, north, "west")
    withdraw(east, 1)
    withdraw_many(east, trainer, 2)
    last = trainer.publish(LATER + 2)
    west.wait_holds(last)
    west.restart()
    near.refusing = False
    hears(north, bad)


@scenario
def a_relay_asks_home_about_what_is_held_behind_it(lab):
    """P2 P3: the relay holds only the newest version, and north an older one too. While the relay is cut off
    from home, home withdraws the older version and hundreds of others. North hears of it when the
    relay's link is up again, and so does it if it comes to the relay only then."""
    east, west, north, link, _ = row(lab)
    trainer = Trainer(lab, east, made(lab, "1M", 1)[0])
    bad = trainer.publish(1)
    north.wait_holds(bad)
    good = trainer.publish(2)
    north.wait_holds(good)
    wait_for("the relay lets the older one go", lambda: (west.version(bad) or {"held_bytes": 0})["held_bytes"] == 0)
    expect("north has it", north.version(bad)["held_bytes"] > 0, True)
    cut(link, west, "east")
    withdraw(east, 1)
    withdraw_many(east, trainer, 3)
    link.refusing = False
    hears(north, bad)


@scenario
def a_relay_that_knows_no_version_any_more_passes_a_withdrawal_on(lab):
    """P2 P3: the relay loses its store and its arena, and so knows nothing of a version that north holds. Home
    withdrew that version and hundreds of others meanwhile. North hears of it when it comes back to the relay."""
    east, west, north, link, near = row(lab)
    trainer = Trainer(lab, east, made(lab, "1M", 1)[0])
    bad = trainer.publish(1)
    north.wait_holds(bad)
    cut(near, north, "west")
    cut(link, west, "east")
    withdraw(east, 1)
    withdraw_many(east, trainer, 2)
    west.kill()
    west.arena_path.unlink()
    for path in west.dir.glob("store.sqlite*"):
        path.unlink()
    west.start()
    link.refusing = False
    west.wait_link("east")
    near.refusing = False
    hears(north, bad)


if __name__ == "__main__":
    sys.exit(main())
