"""A damaged chunk is repaired while the gateway runs (P1, P6): a reader reports it, its holder
digests its own copy, and fetches it again or stops serving it.

Covers: gateway/daemon/copies/repair.c gateway/daemon/sessions/session_repair.c
Covers: intra/client/publish/chunk_recheck.c base/damage_reports.c
"""

import pathlib
import sys

from harness import Rollout, Trainer, expect, flip_in_file, main, read_and_compare, safetensors_table, scenario, up, wait_for


def damaged(site, path):
    """Inverts a byte of the version in the site's arena, under a gateway that serves it."""
    expect("tensor found in the arena", flip_in_file(site.arena_path, path, safetensors_table(path)[-1]), True)


def expect_one_repair(site):
    """The log names the damage and its repair once each, and the counters agree."""
    wait_for(f"{site.name} says that it is repaired", lambda: site.daemon.logged("copy.repaired", "place=arena", "chunks=1"))
    expect(f"lines of the damage at {site.name}", len(site.daemon.logged("arena.chunk_damaged")), 1)
    expect(f"lines of the repair at {site.name}", len(site.daemon.logged("copy.repaired")), 1)
    expect("verify_bad, chunks_repaired", [site.counters()[c] for c in ("verify_bad", "chunks_repaired")], [1, 1])


@scenario
def a_follower_repairs_its_arena_from_home(lab):
    """P1 P6: a byte of west's arena changes while west serves it. A worker reports the chunk,
    west fetches it from home again, and the worker activates the right bytes."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    damaged(west, path)
    read_and_compare(lab, west, uid, path, "reader")
    expect_one_repair(west)
    expect("home was not touched", east.counters()["verify_bad"], 0)


@scenario
def home_repairs_its_arena_from_a_follower(lab):
    """P1 P3 P6: a byte of home's arena changes behind the trainer's end. The only good copy is
    west's, and home takes it from there."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    for rank in trainer.ranks:
        rank.kill()
    damaged(east, path)
    read_and_compare(lab, east, uid, path, "reader")
    expect_one_repair(east)
    expect("east calls it lost", east.counters()["versions_lost"], 0)


def flip_in_staging(worker, path):
    """Inverts a byte of the version where the worker stages it; False when it is not there. Its
    memory file is sealed, its memory is not."""
    row = safetensors_table(path)[-1]
    data = path.read_bytes()[row["offset"]:row["offset"] + row["bytes"]]
    process = pathlib.Path(f"/proc/{worker.popen.pid}")
    for line in (process / "maps").read_text().splitlines():
        if "tombolo-staging" not in line:
            continue
        first, end = (int(at, 16) for at in line.split()[0].split("-"))
        with open(process / "mem", "r+b", buffering=0) as memory:
            memory.seek(first)
            at = memory.read(end - first).find(data)
            if at < 0:
                continue
            memory.seek(first + at + row["bytes"] // 2)
            memory.write(bytes([data[row["bytes"] // 2] ^ 0xFF]))
        return True
    return False


@scenario
def a_worker_repairs_what_it_stages(lab):
    """P1 P6: a byte of w0's staging changes while w0 serves its host. w1 reports the chunk; w0
    digests it, and fetches it again from the gateway. Both activate the right bytes, and so does
    who comes later."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    pair = [Rollout(lab, west, f"w{i}", path, host="one-host") for i in range(2)]
    pair[0].stage(uid)
    expect("tensor found in the staging", flip_in_staging(pair[0].worker, path), True)
    pair[1].stage(uid)
    wait_for("w0 has looked", lambda: west.daemon.logged("holder.looked", "worker=w0", "action=fetch_again"))
    for r in pair:
        r.stage(uid)
        r.activate(uid)
        r.check(path)
    expect("lines of the damage at w0", len(pair[0].worker.logged("chunk.damaged", "place=staging")), 1)
    expect("chunks_rotted", west.counters()["chunks_rotted"], 1)
    wait_for("what w0 fetched again is counted", lambda: west.counters()["chunks_repaired"] == 1)
    expect("lines of it", len(west.daemon.logged("holder.repaired", "worker=w0", "chunks=1")), 1)
    expect("west's arena was not touched", west.counters()["verify_bad"], 0)


if __name__ == "__main__":
    sys.exit(main())
