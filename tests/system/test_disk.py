#!/usr/bin/env python3
"""Versions on disks: what a site has in files does not cross again, and nothing in a file is
believed.

Covers: gateway/daemon/copies/adoption.c gateway/daemon/copies/adopt_read.c
Covers: gateway/daemon/copies/anchors.c gateway/daemon/copies/shard_files.c
Covers: gateway/cli/operator/adopt_command.c
Covers: gateway/daemon/copies/anchor_refill.c
"""

import json
import os
import subprocess
import sys
import threading

from harness import (PATIENCE_S, TOMBOLO, Failed, SmallDisk, Trainer, expect, main, read_and_compare, safetensors_table, scenario,
                     up, wait_for)

STEPS = {"codec": "sparse"}  # `auto` may send whole what a busy machine is slow to compare


def share(site, uid):
    """Of the version's bytes, what came to the site over its links."""
    v = site.version(uid)
    return v["wire_bytes"] / v["bytes"]


def small(site, uid, most=0.1):
    if share(site, uid) > most:
        raise Failed(f"{site.name} took {share(site, uid):.3f} of {site.version(uid)['number']}")


def folder(lab, name, *files):
    made = lab.dir / name
    made.mkdir()
    for f in files:
        os.link(f, made / f.name) if f.stat().st_dev == made.stat().st_dev else (made / f.name).write_bytes(f.read_bytes())
    return made


def adopting(site, *args):
    """The command, under way."""
    env = dict(os.environ, TOMBOLO_CONTROL=str(site.control_socket))
    return subprocess.Popen([str(TOMBOLO), "adopt", "policy", *map(str, args), "--json"], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def phase(site, name):
    wait_for(f"adopting is {name}", lambda: site.control("adopt", model="policy").get("adopt", {}).get("phase") == name)


def two_versions(lab, **model):
    """East has published two versions; west, which begins, is not started."""
    east, west, link = lab.east_west(**model)
    east.extra["link"] = STEPS
    east.start()
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    uids = [trainer.publish(number, path) for number, path in enumerate(paths, start=1)]
    for uid in uids:
        east.wait_holds(uid)
    return east, west, link, paths, uids


@scenario
def a_new_site_with_an_old_copy_begins_with_a_delta(lab):
    """P1: the files are digested before a link is up, none of their version crosses, and the
    newest crosses as a step."""
    east, west, link, paths, uids = two_versions(lab)
    link.refusing = True
    west.start()
    command = adopting(west, folder(lab, "old", paths[0]))
    phase(west, "waiting")
    link.refusing = False
    out, err = command.communicate(timeout=2 * PATIENCE_S)
    expect(f"exit code ({out}{err})", command.returncode, 0)
    said = json.loads(out)
    expect("version", said["version"], "1:1")
    expect("claimed", (said["claimed_bytes"], said["whole"]), (said["bytes"], True))
    for uid in uids:
        west.wait_holds(uid)
    expect("bytes of the old version that crossed", west.version(uids[0])["wire_bytes"], 0)
    small(west, uids[1])
    read_and_compare(lab, west, uids[0], paths[0], "old")
    read_and_compare(lab, west, uids[1], paths[1], "new")
    if west.counters()["adopted_chunks"] < 20:
        raise Failed(f"adopted {west.counters()['adopted_chunks']} chunks")


@scenario
def half_a_copy_is_half_the_way(lab):
    """P1 P6: of files that are cut short and damaged what is right is taken, the rest crosses,
    and then a step; the crossing that was under way waits meanwhile and loses nothing."""
    east, west, link, paths, uids = two_versions(lab)
    old = folder(lab, "old")
    rows = safetensors_table(paths[0])
    data = bytearray(paths[0].read_bytes())
    data[rows[0]["offset"] + 7] ^= 16
    (old / "model.safetensors").write_bytes(data[:len(data) * 3 // 4])
    link.bytes_per_s = 512 << 10  # of each stream: the newest is not here before the files are
    west.start()
    wait_for("the newest has begun", lambda: ((west.version(uids[1]) or {}).get("held_bytes") or 0) > 0)
    command = adopting(west, old)
    phase(west, "completing")
    link.bytes_per_s = 0
    out, err = command.communicate(timeout=2 * PATIENCE_S)
    expect(f"exit code ({out}{err})", command.returncode, 0)
    said = json.loads(out)
    if not 0.5 < said["claimed_bytes"] / said["bytes"] < 0.8:
        raise Failed(f"claimed {said}")
    for uid in uids:
        west.wait_holds(uid)
    if not 0.1 < share(west, uids[0]) < 0.5:
        raise Failed(f"the rest of the old one took {share(west, uids[0]):.3f} of it")
    read_and_compare(lab, west, uids[1], paths[1], "new")
    read_and_compare(lab, west, uids[0], paths[0], "old")


@scenario
def wrong_files_are_adopted_by_nobody(lab):
    """P1 P10: files that are none, of another model, or change while they are read: said with an
    exit code, and what is served is what was published."""
    east, west, link, paths, uids = two_versions(lab)
    link.refusing = True
    west.start()
    bad = folder(lab, "bad")
    expect("no folder", west.cli("adopt", "policy", lab.dir / "nowhere", check=False).returncode, 1)
    expect("empty", west.cli("adopt", "policy", bad, check=False).returncode, 1)
    (bad / "x.safetensors").write_bytes(b"not a header" * 20)
    done = west.cli("adopt", "policy", bad, "--json", check=False)
    expect("no safetensors", (done.returncode, json.loads(done.stdout)["status"]), (1, "bad_file"))
    expect("no model", west.cli("adopt", "polcy", bad, check=False).returncode, 1)
    expect("usage", west.cli("adopt", "policy", check=False).returncode, 2)
    done = west.cli("adopt", "policy", folder(lab, "right", paths[0]), "--timeout", "1", check=False)
    expect("no link", done.returncode, 4)
    other = folder(lab, "other")
    data = bytearray(paths[0].read_bytes())
    for row in safetensors_table(paths[0]):
        for at in range(row["offset"], row["offset"] + row["bytes"], 4096):
            data[at] ^= 1
    target = other / "model.safetensors"
    target.write_bytes(data)
    command = adopting(west, other)
    phase(west, "waiting")
    link.refusing = False
    out, err = command.communicate(timeout=2 * PATIENCE_S)
    said = json.loads(out)
    expect(f"another model ({out}{err})", (command.returncode, said["claimed_bytes"]), (8, 0))
    stop = threading.Event()

    def flicker():
        right = paths[1].read_bytes()
        while not stop.is_set():
            with open(target, "r+b") as f:
                for at in range(0, len(right), 65536):
                    f.seek(at)
                    f.write(data[at:at + 65536] if at // 65536 % 3 else right[at:at + 65536])
            data[:] = right if data[-1] != right[-1] else data
    thread = threading.Thread(target=flicker, daemon=True)
    thread.start()
    try:
        west.cli("adopt", "policy", other, check=False)
        west.wait_holds(uids[1])
    finally:
        stop.set()
        thread.join()
    read_and_compare(lab, west, uids[1], paths[1], "new")


def reboot(site):
    """A machine that lost its memory, but no disk."""
    site.kill()
    site.arena_path.unlink()


def anchored(lab, site, **keys):
    site.extra["anchor"] = {"dir": lab.dir / f"anchor-{site.name}", **keys}
    return lab.dir / f"anchor-{site.name}"


def wait_anchor(site, count=1):
    wait_for(f"{count} anchors at {site.name}", lambda: site.counters()["anchors_written"] >= count)


@scenario
def an_anchor_outlives_a_reboot(lab):
    """P3: after a reboot of a site nothing of what its anchor holds crosses, of what is newer a
    step; also of a version that had left the arena, and at home, where no other site can be
    asked."""
    east, west, link = lab.east_west(keep=3)
    east.extra["link"] = STEPS
    west.models["policy"] = dict(home="east", keep=1)
    where = anchored(lab, west, every=100)
    anchored(lab, east)
    up(east, west)
    paths = lab.weights(3)
    trainer = Trainer(lab, east, paths[0])
    uids = [trainer.publish(1, paths[0])]
    west.wait_holds(uids[0])
    wait_anchor(west)
    uids.append(trainer.publish(2, paths[1]))
    west.wait_holds(uids[1])
    wait_for("the first left west", lambda: west.version(uids[0])["state"] == "retired")
    wait_anchor(east, 2)
    reboot(west)
    reboot(east)
    link.refusing = True
    west.start()
    east.start()
    expect("anchors of east", [p.name for p in sorted((lab.dir / "anchor-east").iterdir())], ["policy@1-2.anchor"])
    expect("anchors of west", [p.name for p in sorted(where.iterdir())], ["policy@1-1.anchor"])
    for site, uid, path in ((west, uids[0], paths[0]), (east, uids[1], paths[1])):
        site.wait_holds(uid)
        expect(f"bytes to {site.name}", site.version(uid)["wire_bytes"], 0)
        read_and_compare(lab, site, uid, path)
    expect("status", west.control("status")["anchor"]["models"], [{"model": "policy", "version": "1:1"}])


@scenario
def a_rotten_anchor_is_refused_chunk_by_chunk(lab):
    """P1 P10: a chunk that rots in an anchor comes over the link, and no more than that; a head that
    rots is refused as a whole."""
    east, west, link = lab.east_west()
    where = anchored(lab, west)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1, path)
    west.wait_holds(uid)
    wait_anchor(west)
    reboot(west)
    anchor = where / "policy@1-1.anchor"
    with open(anchor, "r+b") as f:
        f.seek(anchor.stat().st_size // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 64]))
    west.start()
    west.wait_holds(uid)
    if not west.daemon.logged("anchor.chunks_bad", "chunks=1"):
        raise Failed("the log does not say what was rotten")
    if not 0 < west.version(uid)["wire_bytes"] < 3 << 20:
        raise Failed(f"{west.version(uid)['wire_bytes']} bytes crossed for one chunk")
    read_and_compare(lab, west, uid, path, "chunk")
    wait_for("the anchor is written anew", lambda: west.counters()["anchors_written"] == 1)
    reboot(west)
    west.start()
    west.wait_holds(uid)
    expect("bytes that crossed for what was written anew", west.version(uid)["wire_bytes"], 0)
    reboot(west)
    with open(anchor, "r+b") as f:
        f.write(b"X")
    west.start()
    west.wait_holds(uid)
    expect("refused", len(west.daemon.logged("anchor.refused", "policy@1-1.anchor")) > 0, True)
    if share(west, uid) < 0.5:
        raise Failed("a head that rotted was believed")
    read_and_compare(lab, west, uid, path, "head")


@scenario
def a_kill_or_a_full_disk_leaves_the_older_anchor(lab):
    """P3 P10: killed in the middle of a newer one, and with no room for it: the older one is
    whole, and what is newer crosses as a step to it."""
    east, west, link = lab.east_west(keep=4)
    east.extra["link"] = STEPS
    disk = SmallDisk(lab, west, "40m")
    west.extra["anchor"] = {"dir": disk.dir / "anchor"}
    up(east, west)
    paths = lab.weights(3)
    trainer = Trainer(lab, east, paths[0])
    west.wait_holds(trainer.publish(1, paths[0]))
    wait_anchor(west)
    second = trainer.publish(2, paths[1])
    west.wait_holds(second)
    wait_for("there is no room for the newer", lambda: west.counters()["anchors_failed"] >= 1)
    if not west.daemon.logged("anchor.failed", "number=2"):
        raise Failed("the log does not say so")
    disk.remount("size=80m")
    west.extra["anchor"]["bytes_per_s"] = "1MiB"
    west.restart()
    third = trainer.publish(3, paths[2])
    west.wait_holds(third)
    seen = disk.seen / "anchor"
    wait_for("it is being written", lambda: list(seen.glob("*.part")))
    reboot(west)
    west.start()
    expect("what is there", [p.name for p in seen.iterdir() if "@1-1" in p.name], ["policy@1-1.anchor"])
    if not west.daemon.logged("anchor.refilled", "number=1", "bad_chunks=0"):
        raise Failed("the older one was not read")
    west.wait_holds(third)
    small(west, third)
    read_and_compare(lab, west, third, paths[2], "reader")


if __name__ == "__main__":
    sys.exit(main())
