#!/usr/bin/env python3
"""A backup is made while a gateway works, its peers accept the machine that it is restored on, and
nothing that was published after it is published again.

Covers: gateway/daemon/control/backup_commands.c gateway/store/store_backup.c
Covers: gateway/cli/backup/backup_command.c gateway/cli/backup/backup_lock.c
Covers: gateway/cli/backup/restore_command.c gateway/cli/backup/restore_place.c
"""

import json
import os
import shutil
import sqlite3
import stat

from harness import TOMBOLO, Failed, Trainer, Worker, expect, main, read_and_compare, scenario, up, wait_for


def secret(lab, name):
    path = lab.dir / name
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


def backed_up(lab, site, *options):
    path = lab.dir / f"{site.name}.backup"
    said = json.loads(site.cli("backup", path, "--json", "--overwrite", *options).stdout)
    expect("the mode of the backup", stat.S_IMODE(path.stat().st_mode), 0o600)
    return path, said


def lost(lab, site):
    """The machine is gone, with all that its gateway had: the arena, the store, keys and configuration."""
    site.kill()
    before = {path: path.read_bytes() for path in (site.dir / "tombolod.yaml", *site.trust.iterdir()) if path.is_file()}
    site.arena_path.unlink()
    shutil.rmtree(site.dir)
    shutil.rmtree(site.trust)
    return before


def restored(lab, site, path, *options):
    done = site.cli("restore", path, "--under", lab.dir, "--json", *options)
    return json.loads(done.stdout)


def refused(site, code, words, *args):
    done = site.cli(*args, check=False)
    expect(f"exit code of {args}", done.returncode, code)
    if words not in done.stderr:
        raise Failed(f"{args}: {words!r} is not in {done.stderr!r}")


def alone(lab, **extra):
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra.update(extra)
    east.start()
    return east


@scenario
def a_restored_machine_is_the_old_one_to_its_peers(lab):
    """P2 P3: the backup is made in the middle of publishing. After it come more versions of its run,
    and a newer run. The restored home goes on above all of them, with its old certificate."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    key = secret(lab, "backup.key")
    trainer = Trainer(lab, east, path, key="run-a")
    west.wait_holds(trainer.publish(1))
    trainer.ranks[0].send("publish", model="policy", run=trainer.runs[0]["run"], number=2, shard=0, shards=2)
    backup, said = backed_up(lab, east, "--keys", "--key-file", key)
    trainer.ranks[1].ok("publish", model="policy", run=trainer.runs[1]["run"], number=2, shard=1, shards=2)
    expect("rank 0 goes on", trainer.ranks[0].receive()["status"], "ok")
    expect("what it says", (said["encrypted"], said["keys"], said["site"]), (True, True, "east"))
    expect("names in it", [w for w in (b"policy", b"site: east", b"BEGIN") if w in backup.read_bytes()], [])
    for number in (3, 4):
        last = trainer.publish(number)
        west.wait_holds(last)
    for rank in trainer.ranks:
        rank.kill()
    newer = Trainer(lab, east, path, key="run-b")
    uid = newer.publish(7)
    west.wait_holds(uid)
    for rank in newer.ranks:
        rank.kill()
    before = lost(lab, east)
    files = restored(lab, east, backup, "--key-file", key, "--overwrite")["files"]  # west's CA is there: the disk is one
    expect("the files", {f["path"]: f["kind"] for f in files}[str(east.trust / "gw.key")], "key")
    for old, text in before.items():
        if old.name in ("tombolod.yaml", "ca.crt", "ca.key", "gw.crt", "gw.key"):
            expect(f"{old.name} is what it was", old.read_bytes() == text, True)
    expect("the key is ours alone", stat.S_IMODE((east.trust / "gw.key").stat().st_mode), 0o600)
    east.start()
    east.wait_link("west")
    wait_for("it asks", lambda: east.daemon.logged("home.asking", "a copy that was put back"))
    wait_for("and hears", lambda: east.daemon.logged("home.told", "peer=west", "run=2", "number=7"))
    Worker(lab, "late", east).refused("fenced", "run", model="policy", key="run-a")
    uid = Trainer(lab, east, path, key="run-c").publish(1)
    west.wait_holds(uid)
    expect("the run", west.version(uid)["run"], 3)
    read_and_compare(lab, west, uid, path)
    expect("runs below", (east.counters()["runs_below"], west.counters()["runs_below"]), (0, 0))


@scenario
def a_number_that_was_used_after_the_backup_is_refused(lab):
    """P2: the run is the same. The restored store knows number 1, and west has 3: until west has said
    so no publisher is let in, and then 2 and 3 are refused, and 4 is not."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path, key="run-a")
    west.wait_holds(trainer.publish(1))
    backup, said = backed_up(lab, east)
    expect("in clear, and without keys", (said["encrypted"], said["keys"]), (False, False))
    for number in (2, 3):
        west.wait_holds(trainer.publish(number))
    for rank in trainer.ranks:
        rank.kill()
    keys = east.trust / "gw.key", east.trust / "ca.key"
    kept = [k.read_bytes() for k in keys]
    lost(lab, east)
    west.kill()
    said = restored(lab, east, backup, "--overwrite", "--in-clear")
    expect("keys", (said["keys"], keys[0].exists()), (False, False))
    for path_of, text in zip(keys, kept):  # from where the operator has them
        path_of.write_bytes(text)
        path_of.chmod(0o600)
    east.start()
    rank = Worker(lab, "early", east)
    rank.send("run", model="policy", key="run-a")
    wait_for("it waits for west", lambda: [t["used"] for t in east.control("status")["tables"] if t["table"] == "run_waits"] == [1])
    expect("it is not answered before", rank.has_answered(), False)
    west.start()
    expect("then it is", rank.receive()["status"], "ok")
    rank.kill()
    trainer = Trainer(lab, east, path, key="run-a")
    expect("the same run", trainer.runs[0]["run_order"], 1)
    for number in (2, 3):
        reply = trainer.ranks[0].call("publish", model="policy", run=trainer.runs[0]["run"], number=number, shard=0, shards=2)
        if reply["status"] == "ok":
            raise Failed(f"number {number} is used again")
    west.wait_holds(trainer.publish(4))


@scenario
def a_store_under_disk_key_is_under_it_in_the_backup(lab):
    """P8: a backup in clear tells nothing of the store, and the store comes back under its key."""
    key = secret(lab, "disk.key")
    east = alone(lab, disk={"key": key})
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    wait_for("it is kept", lambda: east.version(uid)["state"] == "kept")
    backup, _ = backed_up(lab, east)
    text = backup.read_bytes()
    expect("names in it", [w for w in (b"rank0", b"run-a", b"SQLite format") if w in text], [])
    backup, _ = backed_up(lab, east, "--keys", "--key-file", secret(lab, "backup.key"))
    for rank in trainer.ranks:
        rank.kill()
    before = key.read_bytes()
    lost(lab, east)
    key.unlink()
    restored(lab, east, backup, "--key-file", lab.dir / "backup.key")
    expect("disk.key is back", key.read_bytes() == before, True)
    east.start()
    Trainer(lab, east, path, key="run-b").publish(1)


@scenario
def a_backup_of_a_large_store_holds_up_no_publisher(lab):
    """P6: the record of some MiB is copied a piece at a time, and what is published between the
    pieces is in the copy or not, whole."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["audit"] = {"bytes": "256MiB"}
    east.start()
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    trainer.publish(1)
    for rank in trainer.ranks:
        rank.kill()
    east.kill()
    with sqlite3.connect(east.dir / "store.sqlite") as db:
        db.executemany("INSERT INTO record(wall_ms, share, action, identity, object, origin, result, count, bytes) "
                       "VALUES(strftime('%s','now')*1000, 1, 'fill', ?, ?, 'test', 'ok', 1, 1000)",
                       ((f"row {i}", "o" * 900) for i in range(9000)))
    east.start()
    trainer = Trainer(lab, east, path, key="run-b")
    numbers = iter(range(1, 1000))
    backups = [lab.process(f"backup-{i}", [*east_cli(east), "backup", lab.dir / f"b{i}", "--json"]) for i in range(2)]
    while any(b.alive() for b in backups):
        trainer.publish(next(numbers))
    codes = sorted(b.popen.wait() for b in backups)
    if codes not in ([0, 0], [0, 1]):  # one after the other, or one found that another is being made
        raise Failed(f"the backups ended with {codes}")
    whole = [lab.dir / f"b{i}" for i in range(2) if (lab.dir / f"b{i}").exists()]
    expect("no part of one is left", list(lab.dir.glob("b?.partial")), [])
    for rank in trainer.ranks:
        rank.kill()
    east.kill()
    for backup in whole:
        east.cli("restore", backup, "--under", lab.dir, "--overwrite", "--in-clear")
        with sqlite3.connect(east.dir / "store.sqlite") as db:
            expect("integrity", db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            expect("the record", db.execute("SELECT COUNT(*) FROM record WHERE action='fill'").fetchone(), (9000,))
    east.start()


def east_cli(site):
    return ["env", f"TOMBOLO_CONTROL={site.control_socket}", TOMBOLO]


@scenario
def a_restore_refuses_with_a_reason(lab):
    """P8 P10: a backup is a stranger's file. Each refusal says why, has its exit code, and changes
    nothing."""
    east = alone(lab)
    key, other = secret(lab, "backup.key"), secret(lab, "other.key")
    backup, _ = backed_up(lab, east, "--keys", "--key-file", key)
    clear = lab.dir / "clear.backup"
    east.cli("backup", clear)
    refused(east, 1, "is there already", "backup", clear)
    refused(east, 1, "never in clear", "backup", lab.dir / "no", "--keys")
    under = ("--under", lab.dir)
    refused(east, 1, "--overwrite", "restore", backup, *under, "--key-file", key)
    refused(east, 7, "a gateway runs with it", "restore", backup, *under, "--key-file", key, "--overwrite")
    refused(east, 5, "another key", "restore", backup, *under, "--key-file", other)
    refused(east, 1, "--key-file", "restore", backup, *under)
    refused(east, 1, "stands in clear", "restore", clear, *under, "--key-file", key)
    refused(east, 1, "say --in-clear", "restore", clear, *under, "--dry-run")
    refused(east, 1, "it is encrypted", "restore", backup, *under, "--key-file", key, "--in-clear")
    in_clear = ("--in-clear", *under)
    refused(east, 1, "not below a folder", "restore", clear, "--in-clear")
    refused(east, 1, "not below a folder", "restore", clear, "--in-clear", "--under", east.trust)
    refused(east, 1, "absolute path", "restore", clear, "--under", "east")
    refused(east, 1, "no backup", "restore", east.dir / "tombolod.yaml", *under)
    east.kill()
    cut = lab.dir / "cut.backup"
    cut.write_bytes(backup.read_bytes()[:-1])
    refused(east, 1, "no whole backup", "restore", cut, *under, "--key-file", key, "--overwrite", "--dry-run")
    cut.chmod(0o666)
    refused(east, 5, "others may use it", "restore", cut, *under, "--key-file", key)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (*east.dir.rglob("store*"), *east.trust.iterdir())}
    text = bytearray(clear.read_bytes())
    place = text.index(b"/tombolod.yaml")
    text[place:place + 4] = b"/../"
    bent = lab.dir / "bent.backup"
    bent.write_bytes(text)
    bent.chmod(0o600)
    refused(east, 1, "no whole backup", "restore", bent, *in_clear, "--overwrite")
    changed = bytearray(clear.read_bytes())
    changed[changed.index(b"site: east") + 6] ^= 1
    bent.write_bytes(changed)
    refused(east, 1, "no whole backup", "restore", bent, *in_clear, "--overwrite")
    east.dir.chmod(0o777)
    refused(east, 5, "others may write", "restore", clear, *in_clear, "--overwrite")
    east.dir.chmod(0o755)
    expect("nothing changed", {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}, before)
    expect("nothing is left", list(lab.dir.rglob(".*.restore")), [])
    east.start()  # a dry run is for a machine whose gateway runs, too
    listed = json.loads(east.cli("restore", clear, *in_clear, "--dry-run", "--json").stdout)
    expect("a dry run", (listed["dry_run"], {f["replaced"] for f in listed["files"]}), (True, {True}))
    expect("it changed nothing", (list(lab.dir.rglob("*.before-restore")), list(lab.dir.rglob(".*.restore"))), ([], []))


@scenario
def a_private_key_is_never_in_clear(lab):
    """P8: a certificate and its key in one file. Without --keys the command refuses it. With --keys it
    is a key, although tls.cert names it too, and comes back for its user alone. A ca.key is an authority's."""
    east = alone(lab)
    key = secret(lab, "backup.key")
    pem = east.trust / "gw.crt"
    pem.write_bytes(pem.read_bytes() + (east.trust / "gw.key").read_bytes())
    refused(east, 1, "private key", "backup", lab.dir / "no")
    refused(east, 1, "private key", "backup", lab.dir / "no", "--keys", "--key-file", key)
    expect("nothing is left", list(lab.dir.glob("no*")), [])
    file = east.dir / "tombolod.yaml"
    file.write_text(file.read_text().replace("gw.key", "gw.crt"))
    refused(east, 1, "private key", "backup", lab.dir / "no")
    backup, _ = backed_up(lab, east, "--keys", "--key-file", key)
    east.kill()
    files = restored(lab, east, backup, "--key-file", key, "--overwrite")["files"]
    kinds = {f["path"]: f["kind"] for f in files}
    expect("the kinds", (kinds[str(pem)], kinds[str(east.trust / "ca.key")]), ("key", "authority"))
    expect("its mode", stat.S_IMODE(pem.stat().st_mode), 0o600)


@scenario
def a_passphrase_opens_a_backup(lab):
    """P8: a wrong one does not; a gateway that is away is said to be."""
    east = alone(lab)
    phrase, wrong = lab.dir / "phrase", lab.dir / "wrong"
    for path, text in ((phrase, "four words of mine\n"), (wrong, "four words of his\n")):
        path.write_text(text)
        path.chmod(0o600)
    backup, said = backed_up(lab, east, "--keys", "--passphrase-file", phrase)
    expect("encrypted", said["encrypted"], True)
    expect("a backup that is tried", east.control("backup", dry_run=True)["status"], "bad_argument")
    rows = [(row["object"], row["result"]) for row in east.control("audit")["audit"] if row["action"] == "backup"]
    expect("rows of backups", rows, [("east", "ok")])
    east.kill()
    refused(east, 3, "no gateway answers", "backup", lab.dir / "no")
    refused(east, 5, "another key or passphrase", "restore", backup, "--under", lab.dir, "--passphrase-file", wrong)
    said = restored(lab, east, backup, "--passphrase-file", phrase, "--overwrite")
    expect("what was there is kept", (east.dir / "store.sqlite.before-restore").exists(), True)
    expect("with keys", said["keys"], True)
    east.start()


if __name__ == "__main__":
    raise SystemExit(main())
