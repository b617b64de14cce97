#!/usr/bin/env python3
"""`disk.key`: what a gateway has on a disk is encrypted, tells nothing, and comes back under its key
alone.

Covers: gateway/config/disk_files.c gateway/disk/disk_key.c gateway/disk/sealed_file.c
Covers: gateway/store/store_rekey.c gateway/store/store_vfs.c gateway/daemon/copies/anchor_refill.c
"""

import hashlib
import os
import signal
import subprocess
import sys

from harness import PATIENCE_S, TOMBOLO, Failed, Trainer, expect, main, read_and_compare, safetensors_table, scenario, wait_for

ENCRYPTED = b"TBSEAL01"


def key(lab, name):
    path = lab.dir / name
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


def alone(lab):
    """A home with anchors."""
    east = lab.site("east")
    east.models = {"policy": {"home": "east"}}
    east.extra["anchor"] = {"dir": east.dir / "anchor"}
    return east


def on_disk(site):
    """The files on its disk: the store, what SQLite has beside it, and the anchors."""
    return sorted([*site.dir.glob("store.sqlite*"), *(site.dir / "anchor").iterdir()])


def marks(site):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in on_disk(site)}


def told(site, path):
    """Names, and sixteen bytes of each tensor, that stand in its files in clear."""
    weights = path.read_bytes()
    words = {"policy": b"policy", "run-a": b"run-a", "rank0": b"rank0", "unix": b"unix:"}
    for row in safetensors_table(path):
        middle = row["offset"] + row["bytes"] // 2
        words[row["name"]] = weights[middle:middle + 16]
        words[f"the name {row['name']}"] = row["name"].encode()
    words = {name: word for name, word in words.items() if len(set(word)) > 3}
    files = {path.name: path.read_bytes() for path in on_disk(site)}
    return {(file, name) for file, bytes_ in files.items() for name, word in words.items() if word in bytes_}


def refuses(site, *words):
    site.start(wait=False)
    expect("exit code", site.daemon.popen.wait(timeout=PATIENCE_S), 1)
    if not site.daemon.logged("start.failed", *words):
        raise Failed(f"the start does not say {words}: {site.daemon.log_path.read_text()}")


def written(site, count):
    wait_for(f"{count} anchors", lambda: site.counters()["anchors_written"] >= count)


@scenario
def an_encrypted_disk_tells_nothing_and_comes_back(lab):
    """P3 P8 P10: no name and no weight stands in a file, also after a kill. Another key, or none, ends the start and changes
    nothing. With the key a reboot loses nothing."""
    east = alone(lab)
    right, wrong = key(lab, "right"), key(lab, "wrong")
    east.extra["disk"] = {"key": right}
    east.start()
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1, path)
    east.wait_holds(uid)
    written(east, 1)
    expect("what is told while it runs", told(east, path), set())
    (east.dir / "tombolod.yaml").write_text(east.config_text().replace(str(right), str(wrong)))
    east.daemon.popen.send_signal(signal.SIGHUP)
    wait_for("a restart is asked for", lambda: east.daemon.logged("reload.needs_restart", "keys=disk.key"))
    east.kill()
    expect("what is told after a kill", told(east, path), set())
    expect("the log of the store was there", (east.dir / "store.sqlite-wal").stat().st_size > 0, True)
    had = marks(east)
    for keys, words in (({"key": wrong}, ["another key", "store.sqlite", "nothing_was_changed"]),
                        ({}, ["there is no disk.key"]),
                        ({"key": wrong, "key_old": "plain"}, ["another key"]),
                        ({"key": lab.dir / "none"}, ["disk.key", "No such file"])):
        east.extra["disk"] = keys
        if not keys:
            del east.extra["disk"]
        refuses(east, *words)
        done = subprocess.run([str(TOMBOLO), "config", "check", str(east.dir / "tombolod.yaml")], capture_output=True, text=True)
        expect(f"config check ({done.stderr})", (done.returncode, words[0] in done.stderr + done.stdout), (1, True))
        expect("no file changed", marks(east), had)
    east.extra["disk"] = {"key": right}
    east.arena_path.unlink()
    east.start()
    east.wait_holds(uid)
    if not east.daemon.logged("anchor.refilled", "number=1", "bad_chunks=0"):
        raise Failed("the anchor was not read")
    read_and_compare(lab, east, uid, path)
    expect("the record has the publish", "publish" in east.cli("audit").stdout, True)


@scenario
def a_key_comes_changes_and_goes(lab):
    """P3 P8 P10: `disk.key_old` is what was before. The store is written anew at the start and the anchor soon after, from clear
    to a key, to another one, and back."""
    east = alone(lab)
    first, second = key(lab, "first"), lab.dir / "credentials/second"
    second.parent.mkdir()
    key(lab, "credentials/second")
    east.env["CREDENTIALS_DIRECTORY"] = str(second.parent)
    east.start()
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1, path)
    east.wait_holds(uid)
    written(east, 1)
    expect("in clear all of it is told", {file for file, _ in told(east, path)} >= {"policy@1-1.anchor"}, True)
    for keys, reboots in (({"key": first, "key_old": "plain"}, False), ({"key": "credential:second", "key_old": first}, True),
                          ({"key_old": "credential:second"}, False)):
        east.kill()
        if reboots:
            east.arena_path.unlink()
        east.extra["disk"] = keys
        east.start()
        east.wait_holds(uid)
        if not east.daemon.logged("disk.key.in_use", "old_files=2"):
            raise Failed("the log does not say how many files are old")
        written(east, 1)
        for file in ("store.sqlite", "anchor/policy@1-1.anchor"):
            expect(f"{file} is encrypted", (east.dir / file).read_bytes()[:8] == ENCRYPTED, "key" in keys)
        if "key" in keys:
            expect("what is told", told(east, path), set())
        expect("the record has the publish", "publish" in east.cli("audit").stdout, True)
    del east.extra["disk"]
    east.kill()
    east.arena_path.unlink()
    east.start()
    east.wait_holds(uid)
    read_and_compare(lab, east, uid, path)


if __name__ == "__main__":
    sys.exit(main())
