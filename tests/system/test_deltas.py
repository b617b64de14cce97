#!/usr/bin/env python3
"""Consecutive versions between sites and along a chain: a step goes as what changed, bit for
bit, whatever happens to its base.

Covers: wan/send/encoded_chunks.c wan/send/encoded_chunks_chain.c wan/send/codec_choice.c
Covers: wan/link/traffic/link_push.c intra/client/publish/encode_jobs.c
Covers: gateway/daemon/copies/shelves.c gateway/daemon/copies/copy_shelf.c
"""

import pathlib
import sys

from harness import CRAWL, PATIENCE_MS, Cores, Failed, Rollout, Skipped, Trainer, expect, made, main, read_and_compare, scenario, up, wait_for


def share(site, uid):
    """Of the version's bytes, what came to the site over its links."""
    v = site.version(uid)
    return v["wire_bytes"] / v["bytes"]


HOST = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # a gateway's
PATCH = 2  # enum tb_update
STEPS = {"codec": "sparse"}  # `auto` may send whole what a busy machine is slow to compare


@scenario
def a_relay_forwards_a_delta_as_it_came(lab):
    """P1: three sites in a row, all with the base: what was encoded at home is decoded at both
    others, and made once."""
    east, west, _ = lab.east_west(through_link=False)
    north = lab.behind(west)
    east.extra["link"] = west.extra["link"] = STEPS
    up(east, west, north)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    for number, path in enumerate(paths, start=1):
        uid = trainer.publish(number, path)
        north.wait_holds(uid)
    for site in (west, north):
        if share(site, uid) > 0.1:
            raise Failed(f"{site.name} took {share(site, uid):.3f} of a version whose changes are a delta")
    encoded = west.control("status")["encoded"]
    if encoded["used"] < 0.9 * encoded["count"]:
        raise Failed(f"the relay encoded again: {encoded}")
    read_and_compare(lab, north, uid, paths[1], "reader")


@scenario
def a_relay_forwards_a_delta_while_it_receives_it(lab):
    """P1 P6: three sites in a row, all with the base. The one between has a part of a step and
    gets no more for now: the third comes to hold that part, encoded as it came."""
    east, west, link = lab.east_west()
    north = lab.behind(west)
    east.extra["link"] = west.extra["link"] = STEPS
    up(east, west, north)
    paths = made(lab, "40M", 2, "--lr", "6e-6")  # more of a step than the link has under way when it stalls
    trainer = Trainer(lab, east, paths[0])
    north.wait_holds(trainer.publish(1, paths[0]))
    link.bytes_per_s = CRAWL
    uid = trainer.publish(2, paths[1])
    size = west.wait_held_some(uid)["bytes"]
    wait_for("west has some chunks as they came", lambda: west.control("status")["encoded"]["from_links"] >= 3)
    wait_for("west can prove them to north", lambda: not west.version(uid)["awaits_signature"])
    link.stalled = True

    def forwarded():
        """How much of it both have, and west's encoded. West is asked last: what came there
        since, north will have."""
        there, encoded = (north.version(uid) or {"held_bytes": 0})["held_bytes"], west.control("status")["encoded"]
        return encoded["used"] >= encoded["from_links"] and there > 0 and there == west.version(uid)["held_bytes"] and (there, encoded)
    part, encoded = wait_for("north has what west has of it, as it came", forwarded)
    if part == size:
        raise Failed("the step was whole before the link stalled")
    print(f"with {part / size:.2f} of it at west and at north: {encoded}", flush=True)
    link.stalled, link.bytes_per_s = False, 0
    north.wait_holds(uid)
    expect("chunks that west encoded itself", west.control("status")["encoded"]["made_here"], 0)
    for site in (west, north):
        if share(site, uid) > 0.3:
            raise Failed(f"{site.name} took {share(site, uid):.3f} of a version whose changes are a delta")
    read_and_compare(lab, north, uid, paths[1], "reader")


@scenario
def a_gateway_that_was_killed_has_its_base(lab):
    """P3: killed between two versions, it verifies the chunks of its base as it uses them, and
    takes a step."""
    east, west, _ = lab.east_west(through_link=False)
    west.extra["arena"] = {"reverify": "false"}
    east.extra["link"] = STEPS
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    west.wait_holds(trainer.publish(1, paths[0]))
    west.restart()
    uid = trainer.publish(2, paths[1])
    west.wait_holds(uid)
    if share(west, uid) > 0.1:
        raise Failed(f"west took {share(west, uid):.3f} of a step")
    read_and_compare(lab, west, uid, paths[1], "reader")


@scenario
def a_base_that_goes_is_missed_by_its_chunks_alone(lab):
    """P1 P10: the base is withdrawn, and so evicted at both ends, in the middle of a step: the
    rest comes whole."""
    east, west, link = lab.east_west()
    east.extra["link"] = STEPS
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    first = trainer.publish(1, paths[0])
    west.wait_holds(first)
    link.bytes_per_s = 32 << 10  # of each stream: the step takes seconds
    uid = trainer.publish(2, paths[1])
    wait_for("the step has begun", lambda: 0 < ((west.version(uid) or {}).get("held_bytes") or 0) < west.version(uid)["bytes"])
    east.cli("withdraw", "policy", "1:1")
    wait_for("the base is gone at west", lambda: (west.version(first) or {}).get("held_bytes", 0) == 0)
    link.bytes_per_s = 0
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, paths[1], "reader")


@scenario
def a_peer_of_the_release_before_gets_whole_versions(lab):
    """P9: a gateway that speaks protocol 1 takes and gives versions as that release did."""
    east, west, _ = lab.east_west(through_link=False)
    west.arguments = ["--protocol-max", "1"]
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    for number, path in enumerate(paths, start=1):
        uid = trainer.publish(number, path)
        west.wait_holds(uid)
    expect("protocol", east.control("status")["links"][0]["protocol"], 1)
    if share(west, uid) < 0.5:
        raise Failed(f"west took {share(west, uid):.3f} of a version in protocol 1")
    read_and_compare(lab, west, uid, paths[1], "reader")
    west.kill()
    west.arguments = []
    west.start()
    wait_for("both speak the newer one", lambda: east.control("status")["links"][0]["protocol"] == 3)


@scenario
def auto_sends_deltas(lab):
    """P1 P7: left to itself, over a path that is slower than a core, a first version crosses in
    three quarters of its bytes and each step in a twentieth. (Of real weights 0.67 and 0.008 to
    0.016 were seen.)"""
    east, west, link = lab.east_west()
    link.bytes_per_s = 2 << 20  # of each of four streams
    up(east, west)
    paths = lab.weights(4)
    trainer = Trainer(lab, east, paths[0])
    for number, path in enumerate(paths, start=1):
        before = link.total_bytes()
        uid = trainer.publish(number, path)
        west.wait_holds(uid)
        crossed = (link.total_bytes() - before) / west.version(uid)["bytes"]
        if crossed > (0.75 if number == 1 else 0.05) or share(west, uid) > crossed:
            raise Failed(f"version {number}: {crossed:.4f} of its bytes crossed the link, {share(west, uid):.4f} by west's count")
    read_and_compare(lab, west, uid, paths[-1], "reader")


@scenario
def deltas_come_unasked(lab):
    """P1 P10: a site that is up to date says so, and the next step begins before it is asked
    for: most of eight. A gateway that is late with its word because others have the machine asks
    after all, and then there is no verdict."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = STEPS
    up(east, west)
    paths = lab.weights(9)
    trainer = Trainer(lab, east, paths[0])
    cores = Cores()
    for number, path in enumerate(paths, start=1):
        uid = trainer.publish(number, path)
        west.wait_holds(uid)
        if west.link("east")["pushes_declined"] > 0:  # and so the model rests
            why = f"of {number - 1} steps one was declined: {west.daemon.logged('push.declined') or west.link('east')}"
            raise Skipped(f"{why}; {cores.taken()}") if cores.taken() else Failed(why)
        wait_for("west expects the next", lambda: east.link("west")["expected"] == 1)
    pushed, begun = west.link("east")["pushed"], len(east.daemon.logged("crossing.begun", "pushed=1"))
    print(f"{pushed} of {len(paths) - 1} steps came unasked", flush=True)
    if 2 * pushed <= len(paths) - 1 or begun < pushed:
        raise Failed(f"{pushed} of {len(paths) - 1} steps came unasked, and {begun} were sent so: {east.daemon.logged('crossing.begun')}")
    if share(west, uid) > 0.1:
        raise Failed(f"west took {share(west, uid):.3f} of a step")
    read_and_compare(lab, west, uid, path, "reader")


@scenario
def ranks_encode_their_deltas(lab):
    """P1: a chunk that ranks encoded on the version they kept crosses as it came from them, and is
    encoded by nobody else. Beside much other work a rank may be late with a step, which the
    gateway then encodes; one in eight is enough here."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = STEPS
    up(east, west)
    paths = lab.weights(9)
    trainer = Trainer(lab, east, paths[0], host=HOST)
    uid = trainer.publish(1, paths[0])
    west.wait_holds(uid)
    for number, path in enumerate(paths[1:], start=2):
        before = east.control("status")["encoded"]
        sealed = [trainer.publish_shard(i, number, path) for i in range(2)]
        uid, chunks = sealed[0]["uid"], sum(s["chunks"] for s in sealed)
        west.wait_holds(uid)
        now = east.control("status")["encoded"]
        ranks, here, used = (now[key] - before[key] for key in ("from_ranks", "made_here", "used"))
        if ranks >= 0.9 * chunks and here == 0 and used >= 0.9 * chunks and share(west, uid) < 0.1:
            break
    else:
        raise Failed(f"of the last step's {chunks} chunks ranks encoded {ranks}, of which {used} were used, and the gateway {here}")
    if now["bytes"] > now["budget_bytes"] or now["bad"] != 0:
        raise Failed(f"east's encoded: {now}")
    read_and_compare(lab, west, uid, path, "reader")


@scenario
def a_delta_of_a_rank_on_another_host_lands_as_a_delta(lab):
    """P1: over a network home takes what its ranks encoded and decodes it beside the version
    before; nobody else needs them. As above, one step in eight has to show it."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=2)
    up(east)
    paths = lab.weights(9)
    trainer = Trainer(lab, east, paths[0], host="far")
    for number, path in enumerate(paths, start=1):
        uid = trainer.publish(number, path)
        east.wait_holds(uid)
        if number > 1 and share(east, uid) < 0.2:
            break
    else:
        raise Failed(f"east took {share(east, uid):.3f} of a step from its ranks")
    read_and_compare(lab, east, uid, path, "reader")


@scenario
def ranks_that_die_while_they_encode_cost_nothing(lab):
    """P6: home has the step whole, so its gateway encodes what they had not, and it crosses bit
    for bit."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = STEPS
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    west.wait_holds(trainer.publish(1, paths[0]))
    uid = trainer.publish(2, paths[1])
    east.wait_holds(uid)
    for rank in trainer.ranks:
        rank.kill()
    west.wait_holds(uid)
    if share(west, uid) > 0.1:
        raise Failed(f"west took {share(west, uid):.3f} of the step")
    read_and_compare(lab, west, uid, paths[1], "reader")


def read(rollout, uid):
    """The costs of a worker for a version: its row of tb_status."""
    rows = rollout.worker.ok("status", what="session")["json"]["staged"]
    return next(row for row in rows if row["uid"] == uid)


@scenario
def a_delta_goes_along_a_chain(lab):
    """P1: a worker that holds the version before reads what changed, from one that does not and
    reads all of it; both have the same bytes."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east", keep=3)
    up(east)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    v1 = trainer.publish(1, paths[0])
    east.wait_holds(v1)
    old = Rollout(lab, east, "old", paths[0], host="a")
    near = Rollout(lab, east, "near", paths[0], host="a")
    for r in (old, near):
        r.stage(v1)
        r.activate(v1)
    new = Rollout(lab, east, "new", paths[0], host="b", pace=6 << 20)
    v2 = trainer.publish(2, paths[1])
    east.wait_holds(v2)
    wait_for("its encoded chunks are made", lambda: east.control("status")["fabric"]["encoded_raw_bytes"] >= 0.9 * east.version(v2)["bytes"])
    new.worker.send("stage", uid=v2, timeout_ms=PATIENCE_MS)
    wait_for("the new one reads", lambda: read_chunks(east, "new", number=2) > 0)
    for r in (old, near):
        r.stage(v2, timeout_ms=PATIENCE_MS)
    expect("who the old one read from", east.daemon.logged("plan worker=old ")[-1].split("source=")[1].split()[0], "new")
    took, size = read(old, v2), east.version(v2)["bytes"]
    if took["encoded_chunks"] < 0.9 * took["total_chunks"] or took["read_bytes"] > 0.1 * size:
        raise Failed(f"a worker with the base took {took} of {size} bytes")
    if read_chunks(east, "new", number=2) >= took["total_chunks"]:
        raise Skipped("the worker without the base was as soon: this machine is too busy to tell")
    expect("the new one stages", new.worker.receive()["status"], "ok")
    whole = read(new, v2)
    expect("chunks that the one without the base decoded", whole["encoded_chunks"], 0)
    if not size <= whole["read_bytes"] <= 1.1 * size:
        raise Failed(f"a worker without the base took {whole} of {size} bytes")
    for r in (old, near, new):
        r.activate(v2)
        r.check(paths[1])
    said = east.control("status")["fabric"]
    if not 0 < said["encoded_bytes"] < 0.1 * said["encoded_raw_bytes"]:
        raise Failed(f"the gateway says {said}")


def readers_at(lab, site, path, uid):
    """Two workers on hosts of their own that have the version active: one copies what comes next
    into its buffers, the other patches them."""
    readers = [Rollout(lab, site, "copies", path, host="far"), Rollout(lab, site, "patches", path, host="farther", update=PATCH)]
    for r in readers:
        r.stage(uid)
        r.activate(uid)
    return readers


@scenario
def a_delta_goes_from_a_link_to_workers_as_it_came(lab):
    """P1: a remote gateway does not encode again what crossed encoded, and its workers decode
    that; one patches its buffers with it."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = STEPS
    west.models["policy"] = dict(home="east", keep=3)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    v1 = trainer.publish(1, paths[0])
    west.wait_holds(v1)
    readers = readers_at(lab, west, paths[0], v1)
    before = west.control("status")["fabric"]
    v2 = trainer.publish(2, paths[1])
    west.wait_holds(v2)
    for r in readers:
        r.stage(v2, timeout_ms=PATIENCE_MS)
        took, size = read(r, v2), west.version(v2)["bytes"]
        if took["encoded_chunks"] < 0.9 * took["total_chunks"] or took["read_bytes"] > 0.1 * size:
            raise Failed(f"{r.worker.name} took {took} of {size} bytes")
        r.activate(v2)
        r.check(paths[1])
    said = west.control("status")["fabric"]
    made, forwarded = (said[key] - before[key] for key in ("encoded_chunks", "forwarded_chunks"))
    if forwarded < 0.9 * made:
        raise Failed(f"the gateway encoded {made} chunks, of which it forwarded {forwarded}")


@scenario
def a_site_that_was_away_gets_chained_deltas(lab):
    """P1 P5: west stands on a version that home gave back while west could not be reached.
    Home's ranks encoded what came since, and that is kept: joined it brings west to the newest
    one, and west's workers with it, one of which patches its buffers."""
    east, west, link = lab.east_west()
    east.extra["link"] = west.extra["link"] = STEPS
    up(east, west)
    paths = lab.weights(7)
    trainer = Trainer(lab, east, paths[0])
    first = trainer.publish(1, paths[0])
    west.wait_holds(first)
    readers = readers_at(lab, west, paths[0], first)
    link.stalled = True
    wait_for("home gives west up", lambda: east.link("west")["state"] != "up")
    for number, path in enumerate(paths[1:-1], start=2):
        uid = trainer.publish(number, path)
        east.wait_holds(uid)
    wait_for("home has the last two alone", lambda: sorted(v["number"] for v in east.versions() if v["held_bytes"] > 0) == [5, 6])
    link.stalled = False
    west.wait_holds(uid)
    last = trainer.publish(7, paths[-1])
    west.wait_holds(last)
    chunks = sum(v["sent"]["chunks"]["chained"] for v in east.versions() if v["sent"] is not None)
    if share(west, uid) > 0.3 or chunks == 0:
        raise Failed(f"of version 6 west took {share(west, uid):.3f}, {chunks} chunks by steps: {east.control('status')['encoded']}")
    for r in readers:
        r.stage(last, timeout_ms=PATIENCE_MS)
        r.activate(last)
        r.check(paths[-1])


def read_chunks(site, name, number):
    rows = [m for c in site.control("chains")["chains"] if c["number"] == number for m in c["members"]]
    return max([m["held_chunks"] for m in rows if m["name"] == name], default=0)


if __name__ == "__main__":
    sys.exit(main())
