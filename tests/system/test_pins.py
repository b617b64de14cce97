#!/usr/bin/env python3
"""What an operator decides about a version for one site: withdraw, pin, unpin, roll back (P2, P3, P10).

Covers: gateway/daemon/control/version_commands.c gateway/daemon/control/control.c
Covers: gateway/daemon/links/withdrawn.c gateway/catalog/versions.c gateway/store/store.c
Covers: gateway/cli/operator_commands.c
"""

import contextlib
import os
import pwd
import sqlite3
import sys

from harness import Rollout, Trainer, expect, main, scenario, up, wait_for


def operator():
    """This process's user, as a gateway names it."""
    try:
        return f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"
    except KeyError:
        return f"uid {os.getuid()}"


def audit(site, what):
    """(who, number) of the audit lines of that kind."""
    with contextlib.closing(sqlite3.connect(site.dir / "store.sqlite")) as store:
        return store.execute("SELECT who, number FROM audit WHERE what=? ORDER BY id", [what]).fetchall()


def gone(site, uid):
    wait_for(f"{site.name} has dropped it", lambda: (site.version(uid) or {"held_bytes": 0})["held_bytes"] == 0)


def goes_to(reader, uid, path, after):
    """The reader's next `latest` is that version, and it computes from it."""
    expect("offered", reader.worker.ok("wait", model="policy", kind="latest", after=after)["uid"], uid)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)


@scenario
def a_version_is_withdrawn_at_one_site(lab):
    """P2 P3 P10: west's operator withdraws a version. West drops it, its readers go back, and after a restart it
    is still not taken. East keeps it. Home withdraws it later, and west agrees."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    good = trainer.publish(1)
    bad = trainer.publish(2, paths[1])
    west.wait_holds(good)
    west.wait_holds(bad)
    reader = Rollout(lab, west, "reader", paths[0])
    reader.stage(bad)
    reader.activate(bad)
    reader.worker.ok("release", uid=bad)
    expect("said", west.cli("withdraw", "policy", "1:2").stdout, "withdrawn here: policy 1:2 (was kept)\n")
    gone(west, bad)
    goes_to(reader, good, paths[0], after=bad)
    row = west.version(bad)
    expect("row", (row["state"], row["withdrawn_here"], row["withdrawn_by"]), ("withdrawn", True, operator()))
    expect("shown", f"withdrawn here by {operator()}" in west.cli("versions", "policy").stdout, True)
    expect("audit", audit(west, "version.withdrawn"), [(operator(), 2)])
    wait_for("east hears that the copy is gone", lambda: not [s for s in east.version(bad)["sites"] if s["site"] == "west"])
    expect("at east", (east.version(bad)["state"], east.holds(bad)), ("kept", True))
    west.restart()
    west.wait_link("east")
    last = trainer.publish(3, paths[0])
    west.wait_holds(last)
    row = west.version(bad)
    expect("row", (row["held_bytes"], row["withdrawn_here"], row["withdrawn_by"]), (0, True, operator()))
    expect("at east", (east.version(bad)["state"], east.holds(bad)), ("kept", True))
    expect("home", east.cli("withdraw", "policy", "1:2").stdout, "withdrawn everywhere: policy 1:2 (was kept)\n")
    wait_for("west agrees", lambda: not (west.version(bad) or {"withdrawn_here": False})["withdrawn_here"])


if __name__ == "__main__":
    sys.exit(main())
