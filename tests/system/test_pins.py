#!/usr/bin/env python3
"""The acts of an operator on a version for one site: withdraw, pin, unpin, roll back (P2, P3, P10).

Covers: gateway/daemon/control/version_commands.c gateway/daemon/control/control.c
Covers: gateway/daemon/links/withdrawals.c gateway/catalog/versions.c gateway/store/store.c
Covers: gateway/daemon/links/site_lag.c gateway/daemon/control/lag_evidence.c
Covers: gateway/cli/operator/operator_commands.c gateway/cli/operator/pin_commands.c
Covers: gateway/cli/versions/subscribe_command.c
"""

import contextlib
import os
import pwd
import re
import sqlite3
import sys

from harness import PATIENCE_MS, TOMBOLO, Rollout, Trainer, expect, follow, main, scenario, up, wait_for
from lagging import causes, says


def operator():
    """This process's user, as a gateway names it."""
    try:
        return f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"
    except KeyError:
        return f"uid {os.getuid()}"


def audit(site, action):
    """(identity, object) of the rows of the audit record with that action."""
    with contextlib.closing(sqlite3.connect(site.dir / "store.sqlite")) as store:
        return store.execute("SELECT identity, object FROM record WHERE action=? ORDER BY id", [action]).fetchall()


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
    expect("shown", operator() in west.cli("versions", "policy").stdout, True)
    expect("audit", audit(west, "version.withdrawn"), [(operator(), "policy 1:2")])
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


def latest(worker, after=None):
    return worker.ok("wait", model="policy", kind="latest", **({"after": after} if after else {}))["uid"]


def refused(site, *command):
    """The command's words on its way out."""
    done = site.cli(*command, check=False)
    expect(" ".join(command), (done.returncode, done.stdout), (1, ""))
    return done.stderr


@scenario
def a_pin_holds_until_it_is_removed(lab):
    """P2 P3 P10: west is pinned to a version. Newer ones cross and are offered to nobody there, also after a
    restart of its gateway. East goes on. The pinned version is not evicted. Without the pin west catches up."""
    east, west, _ = lab.east_west(through_link=False, keep=1)
    up(east, west)
    paths = lab.weights(3)
    trainer = Trainer(lab, east, paths[0])
    one = trainer.publish(1)
    west.wait_holds(one)
    expect("pin", west.cli("pin", "policy", "1").stdout, "pinned: policy 1:1\n")
    west.cli("pin", "policy", "1:1")  # twice is once
    two = trainer.publish(2, paths[1])
    west.wait_holds(two)
    reader = Rollout(lab, west, "reader", paths[0])
    expect("offered", latest(reader.worker), one)
    reader.stage(one)
    reader.activate(one)
    reader.check(paths[0])
    reader.worker.refused("conflict", "stage", uid=two)
    reader.worker.refused("again", "wait", model="policy", kind="latest", after=one, timeout_ms=0)
    expect("at east", latest(Rollout(lab, east, "other", paths[0]).worker), two)
    expect("text", f"pinned to 1:1 by {operator()}" in west.cli("status").stdout, True)
    expect("rows", [(v["number"], v["pinned"], v["pinned_by"]) for v in west.versions()], [(1, True, operator()), (2, False, "")])
    west.restart()
    west.wait_link("east")
    three = trainer.publish(3, paths[2])
    west.wait_holds(three)
    asked = dict(model="policy", kind="latest", after=one, timeout_ms=0)
    wait_for("the reader is back", lambda: reader.worker.call("wait", **asked)["status"] != "gateway_away")
    reader.worker.refused("again", "wait", **asked)
    expect("held", west.holds(one), True)
    expect("by", west.version(one)["pinned_by"], operator())
    reader.worker.send("wait", model="policy", kind="latest", after=one, timeout_ms=PATIENCE_MS)
    expect("unpin", west.cli("unpin", "policy").stdout, "unpinned: policy 1:1\n")
    expect("offered", reader.worker.receive()["uid"], three)
    reader.stage(three)
    reader.activate(three)
    reader.check(paths[2])
    expect("again", west.cli("unpin", "policy").stdout, "policy: no version was pinned\n")
    wait_for("each is on record, also one that changed nothing",
             lambda: [who for what in ("pin", "unpin") for who, _ in audit(west, what)] == [operator()] * 4)


@scenario
def a_pin_names_what_is_held(lab):
    """P10: a version that may not be pinned is refused, with those that could be."""
    east, west, _ = lab.east_west(through_link=False, keep=2)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    one = trainer.publish(1)
    two = trainer.publish(2, paths[1])
    west.wait_holds(one)
    west.wait_holds(two)
    reader = Rollout(lab, west, "reader", paths[0])
    reader.stage(two)
    reader.activate(two)
    expect("unknown", "version 7 is not whole here; whole here: 1:2, 1:1" in refused(west, "pin", "policy", "7"), True)
    expect("backwards", "`tombolo rollback` takes them back" in refused(west, "pin", "policy", "1:1"), True)
    expect("forwards", "`tombolo pin` keeps them there" in refused(west, "rollback", "policy", "1:2"), True)
    expect("model", 'no model "other" is configured here' in refused(west, "unpin", "other"), True)
    expect("nothing is pinned", [v["pinned"] for v in west.versions()], [False, False])


@scenario
def a_group_is_rolled_back(lab):
    """P2: a group of two workers at west uses a version. An operator takes them back to the one before, and both
    switch together. A follow of `tombolo subscribe` sets its link back. The gateway restarts in between. Without the
    pin they get the newest again."""
    east, west, _ = lab.east_west(through_link=False, keep=2)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    good = trainer.publish(1)
    west.wait_holds(good)
    folder = lab.dir / "follow"
    lab.process("follow", [str(TOMBOLO), "subscribe", "policy", "--into", str(folder), "--follow", "--gateway", f"unix:{west.session_socket}"])

    def linked():
        return os.readlink(folder / "latest").split("-")[-1].lstrip("0") if (folder / "latest").is_symlink() else None
    wait_for("the link names 1", lambda: linked() == "1")
    bad = trainer.publish(2, paths[1])
    west.wait_holds(bad)
    wait_for("the link names 2", lambda: linked() == "2")
    group = [Rollout(lab, west, f"w{i}", paths[0], group="engine", index=i, count=2) for i in range(2)]
    follow(group, bad, paths[1])
    for reader in group:
        reader.worker.send("wait", model="policy", kind="latest", after=bad, timeout_ms=PATIENCE_MS)
    expect("rollback", west.cli("rollback", "policy", "1:1").stdout, "pinned: policy 1:1\n")
    for reader in group:
        expect("offered", reader.worker.receive()["uid"], good)
    west.restart()
    follow(group, good, paths[0])
    wait_for("the link names 1", lambda: linked() == "1")
    west.cli("unpin", "policy")
    for reader in group:
        expect("offered", latest(reader.worker, after=good), bad)
    follow(group, bad, paths[1])
    wait_for("the link names 2", lambda: linked() == "2")


@scenario
@causes("pinned")
def lag_of_a_pinned_site(lab):
    """P10: west's operator pins a version. Both ends of the link say that west is behind on purpose, although it
    holds the head, and give no time. It is the same of a head that is withdrawn at west alone."""
    east, west, _ = lab.east_west(through_link=False, keep=2)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    west.wait_holds(trainer.publish(1))
    # Held to the last byte is not whole yet: the catalog hears of that in a turn of its own.
    wait_for("west pins it", lambda: west.cli("pin", "policy", "1", check=False).returncode == 0)
    two = trainer.publish(2, paths[1])
    west.wait_holds(two)
    by = re.escape(operator())
    fields = {"head": "1:2", "latest": "1:2", "versions": 0, "bytes": 0, "eta_s": None, "known": True}
    says(west, "pinned", f"pinned to 1:1 by {by}", **fields)
    says(east, "pinned", r"west said so \d+\.\d s ago", **fields)
    says(east, "up-to-date", "", of="east")
    west.cli("unpin", "policy")
    says(west, "no-subscriber", "")
    says(east, "no-subscriber", "")
    west.cli("withdraw", "policy", "1:2")
    says(west, "pinned", f"withdrawn here: 1:2 by {by}", head="1:2", latest="1:1", versions=1, eta_s=None)
    says(east, "pinned", r"west said so \d+\.\d s ago", head="1:2", latest="1:1", versions=1, eta_s=None)
    west.wait_holds(trainer.publish(3, paths[0]))
    says(west, "no-subscriber", "")


if __name__ == "__main__":
    sys.exit(main())
