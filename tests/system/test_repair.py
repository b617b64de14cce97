"""A damaged chunk is repaired while the gateway runs (P1, P6): a reader reports it, its holder digests its own copy, and fetches it again
or stops serving it."""

import sys

from harness import Trainer, expect, flip_in_file, main, read_and_compare, safetensors_table, scenario, up, wait_for


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
    """P1 P6: a byte of west's arena changes while west serves it. A worker reports the chunk, west fetches it from home again, and the
    worker activates the right bytes."""
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
    """P1 P3 P6: a byte of home's arena changes behind the trainer's end. The only good copy is west's, and home takes it from there."""
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


if __name__ == "__main__":
    sys.exit(main())
