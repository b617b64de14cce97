"""A gateway whose store cannot be written, is full, slow, stuck or damaged: nothing that it said is
lost, and it says what is wrong (P3, P7, P10).

Covers: gateway/daemon/persist.c gateway/store/store.c gateway/store/store_writer.c
"""

import select
import socket
import sqlite3
import sys

from harness import (PATIENCE_MS, Failed, Rollout, SlowDisk, SmallDisk, Trainer, expect, main,
                     scenario, up, wait_for)


@scenario
def the_store_cannot_be_written(lab):
    """P10: the store is locked by another process: publishing is refused, what is held is
    served, and it recovers."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    lock = sqlite3.connect(east.dir / "store.sqlite", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    reply = trainer.ranks[0].call("publish", model="policy", run=trainer.runs[0]["run"], number=2, shard=0, shards=2)
    expect("publish", reply["status"], "site_store")
    reader = Rollout(lab, east, "reader", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    lock.execute("ROLLBACK")
    wait_for("the store recovers", lambda: east.control("status")["store_ok"])
    west.wait_holds(trainer.publish(3))


def publish_refused(trainer, number):
    reply = trainer.ranks[0].call("publish", model="policy", run=trainer.runs[0]["run"], number=number, shard=0, shards=2)
    expect("publish", reply["status"], "site_store")


def store_is_sound(disk):
    with sqlite3.connect(disk.seen / "store.sqlite") as db:
        expect("integrity", db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])


@scenario
def the_store_is_full(lab):
    """P10 P3: the state folder's filesystem is full: publishing is refused with the reason, what
    is held is served; with room again the same version is published, and a kill shows that
    nothing was lost or half written."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    disk = SmallDisk(lab, east)
    east.start()
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    east.wait_holds(first)
    disk.fill()
    publish_refused(trainer, 2)
    if east.counters()["store_failed"] == 0 or len(east.daemon.logged("store.failed", "free some space")) != 1:
        raise Failed("a full store is not counted and told in one line")
    reader = Rollout(lab, east, "reader", path)
    reader.stage(first)
    reader.activate(first)
    reader.check(path)
    east.control("withdraw", model="policy", version="1")  # what cannot be written yet is written later
    disk.make_room()
    wait_for("the store recovers", lambda: east.control("status")["store_ok"])
    second = trainer.publish(2)
    east.wait_holds(second)
    wait_for("it is kept", lambda: east.version(second)["state"] == "kept")
    east.kill()
    store_is_sound(disk)
    east.start()
    expect("states after the kill", [east.version(u)["state"] for u in (first, second)], ["withdrawn", "kept"])
    expect("held", east.holds(second), True)


@scenario
def the_store_is_read_only(lab):
    """P10 P3: the state folder was remounted read-only while the gateway was away: it says so
    and ends with 1; writable again, it serves what it held and takes the next version."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    disk = SmallDisk(lab, east)
    east.start()
    expect("recovering at the very first start", east.control("status")["recovering"], False)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    east.wait_holds(first)
    east.kill()
    disk.remount("ro")
    east.start(wait=False)
    expect("exit code", east.daemon.ended(), 1)
    if not east.daemon.logged("start.failed", "store.sqlite", "writable"):
        raise Failed("no line names the store and what to do")
    disk.remount("rw")
    east.start()
    expect("recovering after a restart", east.control("status")["recovering"], True)
    expect("held", east.holds(first), True)
    for rank in trainer.ranks:  # the sessions come back by themselves
        rank.ok("wait_site", uid=first, site="east", state=0, timeout_ms=PATIENCE_MS)
    east.wait_holds(trainer.publish(2))
    east.kill()
    store_is_sound(disk)


def answers(worker):
    return bool(select.select([worker.popen.stdout.fileno()], [], [], 0)[0])


def held_publish(trainer, number):
    """The last shard of a version is sealed while the disk is held: rank 1 waits for its answer."""
    trainer.publish_shard(0, number)
    rank = trainer.ranks[1]
    return rank, dict(model="policy", run=trainer.runs[1]["run"], number=number, shard=1, shards=2)


@scenario
def the_disk_takes_its_time(lab):
    """P6 P3: while a sync of the store is held, status answers, the link stays up and a worker
    goes through a version; the version whose ready is on its way to the disk is told to nobody.
    Then everything follows, also after SIGTERM."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["store"] = {"slow_ms": 600000}
    west.models["policy"]["keep"] = 1
    disk = SlowDisk(east)
    east.start(env=disk.env)
    west.start()
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    west.wait_holds(first)
    reader = Rollout(lab, east, "reader", path)
    rank, shard = held_publish(trainer, 2)
    wait_for("all is on disk", lambda: east.control("status")["store_waiting"] == 0)
    disk.hold()
    rank.send("publish", **shard)
    wait_for("the sync is held", lambda: east.control("status")["store_waiting"] > 0)
    begun = east.control("status")["uptime_s"]
    reader.stage(first)
    reader.activate(first)
    reader.check(path)
    wait_for("three heartbeats", lambda: east.control("status")["uptime_s"] > begun + 1)
    east.wait_link("west")  # it hears its peer: a busy machine may have had it fall silent
    second = next(v for v in east.control("versions")["versions"] if v["number"] == 2)
    expect("saved", second["saved"], False)
    expect("store_ok", east.control("status")["store_ok"], True)
    if answers(rank) or any(v["number"] == 2 for v in west.control("versions")["versions"]):
        raise Failed("version 2 was told before it was durable")
    if east.daemon.logged("version.state", "number=2", "state=ready"):
        raise Failed("version 2 was logged as ready before it was durable")
    disk.let_go()
    expect("publish", rank.receive()["status"], "ok")
    west.wait_holds(second["uid"])
    disk.hold()
    withdrawal = socket.socket(socket.AF_UNIX)
    withdrawal.connect(str(east.control_socket))
    withdrawal.sendall(b'{"schema": 1, "cmd": "withdraw", "model": "policy", "version": "2"}\n')
    wait_for("the withdrawal waits for the disk", lambda: east.version(second["uid"])["state"] == "withdrawn")
    if west.version(second["uid"])["state"] == "withdrawn" or select.select([withdrawal], [], [], 0)[0]:
        raise Failed("a withdrawal was told before it was durable")
    east.daemon.popen.terminate()
    wait_for("it drains", lambda: east.daemon.logged("drain.begin"))
    disk.let_go()
    expect("exit code", east.daemon.ended(), 0)
    if not east.daemon.logged("drain.end", "rows_unwritten=0"):
        raise Failed("the drain did not wait for the disk")
    east.start(env=disk.env)
    expect("after the drain", east.version(second["uid"])["state"], "withdrawn")
    wait_for("west hears of it", lambda: west.version(second["uid"])["state"] == "withdrawn")


@scenario
def the_disk_does_not_answer(lab):
    """P6 P10: a sync that takes longer than store.slow_ms is a store that fails: told once,
    publishing refused, what is held served; when the disk answers, all is written in order."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["store"] = {"slow_ms": 2000, "path": lab.arena_dir / "store.sqlite"}  # where no other sync is slow
    disk = SlowDisk(east)
    east.start(env=disk.env)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    first = trainer.publish(1)
    east.wait_holds(first)
    wait_for("all is on disk", lambda: east.control("status")["store_waiting"] == 0)
    disk.hold()
    publish_refused(trainer, 2)
    publish_refused(trainer, 2)
    status = east.control("status")
    expect("store_ok", status["store_ok"], False)
    expect("told", len(east.daemon.logged("store.failed", "store.slow_ms")), 1)
    reader = Rollout(lab, east, "reader", path)
    reader.stage(first)
    reader.activate(first)
    reader.check(path)
    disk.let_go()
    wait_for("the store recovers", lambda: east.control("status")["store_ok"])
    second = trainer.publish(2)
    east.wait_holds(second)
    east.kill()
    east.start()
    expect("held", east.holds(second), True)


@scenario
def the_disk_hangs_at_the_end(lab):
    """P9 P3: the store's disk does not answer any more when SIGTERM comes: the gateway ends all
    the same, says what is not on the disk and whose disk it is, and with 1; what was held is
    there at the next start."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.root["drain_ms"] = 1000
    east.extra["store"] = {"path": lab.arena_dir / "store.sqlite"}
    disk = SlowDisk(east)
    east.start(env=disk.env)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    first = trainer.publish(1)
    east.wait_holds(first)
    rank, shard = held_publish(trainer, 2)
    wait_for("all is on disk", lambda: east.control("status")["store_waiting"] == 0)
    disk.hold()
    rank.send("publish", **shard)
    wait_for("the sync is held", lambda: east.control("status")["store_waiting"] > 0)
    east.daemon.popen.terminate()
    expect("exit code", east.daemon.ended(), 1)
    if not east.daemon.logged("store.unwritten") or not east.daemon.logged("stop.disk_hangs", "what=store"):
        raise Failed("the end did not say what it left")
    disk.let_go()
    east.start()
    expect("held", east.holds(first), True)


@scenario
def a_damaged_store(lab):
    """P10: a damaged store stops the start with a line that names the file."""
    east, _, _ = lab.east_west(through_link=False)
    (east.dir / "store.sqlite").write_bytes(b"this is not a database, whatever its name says" * 100)
    east.start(wait=False)
    expect("exit code", east.daemon.ended(), 1)
    if not east.daemon.logged("start.failed", "store.sqlite"):
        raise Failed("no line names the store")


if __name__ == "__main__":
    sys.exit(main())
