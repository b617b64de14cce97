"""The audit record of real gateways: who did what, and who was denied (P8, P10).

Covers: gateway/daemon/audit.c gateway/daemon/control/audit_commands.c
Covers: gateway/cli/operator/audit_command.c
Covers: gateway/store/store_audit.c gateway/daemon/persist.c
"""

import json
import os
import pwd
import sys

from harness import Rollout, SmallDisk, Trainer, expect, main, scenario, up, wait_for


def operator():
    """This process's user, as a gateway names it."""
    return f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


def record(site, *options):
    """Its rows, oldest first."""
    return [json.loads(line) for line in site.cli("audit", "--json", *options).stdout.splitlines()]


def acts(site, *fields):
    return [tuple(row[f] for f in fields) for row in record(site) if row["share"] == "acts"]


@scenario
def an_act_is_in_the_record(lab):
    """P10: versions, operators' acts, also those that were refused, and the start with the keys that changed."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    west.wait_holds(first)
    reader = Rollout(lab, west, "reader", path)
    reader.stage(first)
    reader.activate(first)
    who = operator()
    for command in (("pin", "policy", "1:1"), ("unpin", "policy"), ("limit", "west", "--rate", "200Mbit"), ("limit", "west"), ("withdraw", "policy", "1:1")):
        east.cli(*command)
    refused = east.cli("withdraw", "policy", "1:7", check=False)
    expect("exit code", refused.returncode, 1)
    rows = acts(east, "action", "identity", "object", "origin")
    expect("acts", [r for r in rows if r[0] != "start" and not r[0].startswith("certificates")],
           [("pin", who, "policy 1:1", "control"), ("unpin", who, "policy", "control"), ("limit", who, 'west rate="200Mbit"', "control"),
            ("withdraw", who, "policy 1:1", "control"), ("withdraw", who, "policy 1:7", "control")])
    expect("results", [r["result"] for r in record(east, "--action", "withdraw") if r["share"] == "acts"],
           ["ok", 'model "policy" has no version 1:7 here'])
    versions = [(r["action"], r["identity"], r["object"]) for r in record(east) if r["share"] == "versions"]
    uid = f"unix:{os.getuid()}"
    for row in (("run.open", uid, "policy 1"), ("publish", uid, "policy 1:1"), ("leave", "tombolo://west/gw", "policy 1:1")):
        expect(f"{row} is in the record", row in versions, True)
    wait_for("the activation is in west's", lambda: [r for r in record(west, "--action", "activate") if r["object"] == "policy 1:1"])
    expect("west publishes nothing", [r for r in record(west) if r["action"] == "publish"], [])
    east.extra.setdefault("link", {})["heartbeat_ms"] = 1234
    east.restart()
    starts = [r for r in record(east) if r["action"] in ("start", "drain")]
    expect("starts", [(r["action"], r["object"], r["result"]) for r in starts[-1:]], [("start", "link.heartbeat_ms", "1 keys changed")])
    expect("the first changed nothing", starts[0]["result"], "0 keys changed")


@scenario
def a_full_disk_is_told_and_acts_go_on(lab):
    """P7 P10: an operator may limit a gateway whose disk is full; its row waits. Rows that find no place are counted and told."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.peers["west"] = None
    lab.pki_dir("west")
    disk = SmallDisk(lab, east)
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    east.wait_holds(trainer.publish(1))
    disk.fill()
    for i in range(300):
        east.control("limit", peer="west", day_bytes=1 << 30 | i)
    wait_for("what is lost is told", lambda: east.daemon.logged("audit.lost", "the_store_cannot_be_written"))
    status = east.control("status")
    lost = status["audit"]["lost"]
    expect("lost", (lost > 0, status["counters"]["audit_lost"] == lost, status["audit"]["ok"]), (True, True, False))
    expect("a question is refused", east.cli("audit", check=False).returncode, 7)
    disk.make_room()
    wait_for("the store recovers", lambda: east.control("status")["store_ok"] and east.control("status")["audit"]["waiting"] == 0)
    wait_for("each act is there or lost, and told",
             lambda: len(record(east, "--action", "limit")) + east.control("status")["audit"]["lost"] == 300)


if __name__ == "__main__":
    sys.exit(main())
