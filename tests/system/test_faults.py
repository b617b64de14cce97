"""Faults are normal: cut links, killed processes, publishers that die, restart, or break their
word (P1 to P6, P10). With TB_TEST_RDMA=1 what goes between hosts goes by verbs (rdma.py).

Covers: wan/link/path/link_dial.c wan/link/streams/link_streams.c gateway/daemon/store_restore.c
Covers: gateway/daemon/copies/copy_sweep.c gateway/daemon/links/withdrawals.c
Covers: gateway/catalog/crossing_abandonment.c
"""

import signal
import sys

from harness import (PATIENCE_MS, Failed, Rollout, Trainer, Worker, expect, flip_in_file, follow, made, main, read_and_compare, safetensors_table, scenario, up,
                     wait_for)
from rdma import over_the_network, paced


def slow(link, uid_of, west, fraction=0.2):
    """Publishes over a slowed link, which crawls behind the first third; returns the uid once
    west holds some of it and not all."""
    link.bytes_per_s = 2 << 20
    link.crawl_at = link.back_bytes + (8 << 20)
    uid = uid_of()
    v = west.wait_held_some(uid, fraction)
    if v["held_bytes"] >= v["bytes"]:
        raise Failed("the link was not slow enough to be cut in mid-version")
    return uid


@scenario
def streams_cut_in_mid_version_resume(lab):
    """P5: every stream is cut several times in mid-version; it finishes, and what crossed in all
    is the version plus at most one parcel a stream and cut, and the control traffic."""
    east, west, link = lab.east_west()
    east.extra["link"] = {"codec": "raw"}  # bytes are counted
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = slow(link, lambda: trainer.publish(1), west, 0.1)
    bytes_all = west.version(uid)["bytes"]
    cuts, link.crawl_at = 3, 0
    for i in range(cuts):
        west.wait_held_some(uid, 0.15 + 0.2 * i)
        link.cut()
        west.wait_link("east")
    link.bytes_per_s = 0
    west.wait_holds(uid)
    reader = Rollout(lab, west, "reader", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    # 4 streams, parcels of at most 1 MiB of wire bytes or one chunk, and what TCP and the relay
    # still had in flight.
    bound = bytes_all + cuts * 4 * (2 << 20) + (4 << 20)
    if link.back_bytes > bound:
        raise Failed(f"{link.back_bytes} bytes crossed for a version of {bytes_all}: something held was sent again")
    wire = west.version(uid)["wire_bytes"]
    if not bytes_all <= wire <= link.back_bytes:
        raise Failed(f"wire_bytes says {wire}: the version has {bytes_all}, and {link.back_bytes} came over the link")


@scenario
def one_stream_cut_moves_its_parcels(lab):
    """P6: one stream is lost; the others carry on and the version is whole. Home sees the
    progress meanwhile."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = slow(link, lambda: trainer.publish(1), west, 0.1)

    def partly():
        return any(s["site"] == "west" and s["held_bytes"] > 0 and not s["whole"] for s in east.version(uid)["sites"])
    wait_for("east sees what west holds so far", partly)
    link.cut(which=len(link.connections()) - 1)
    link.bytes_per_s = 0
    west.wait_holds(uid)


@scenario
def a_source_dies_and_another_goes_on(lab):
    """P5 P6: north takes a version from west, which is killed in mid-version: east gives the
    rest, and not what north holds."""
    east, west, _ = lab.east_west(through_link=False)
    west.listen = True
    north = lab.site("north")
    north.models["policy"] = dict(home="east")
    to_west, to_east = lab.link(west), lab.link(east)
    north.peers.update(west=f"127.0.0.1:{to_west.port}", east=f"127.0.0.1:{to_east.port}")
    north.subscribe.append(("policy", ["west", "east"]))
    north.listen = False
    west.peers["north"] = east.peers["north"] = None
    for site in (east, west):
        site.start()
    east.wait_link("west")
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    to_west.bytes_per_s, to_west.crawl_at = 2 << 20, 8 << 20
    to_east.refusing = True  # until north has begun with west
    north.start()
    v = north.wait_held_some(uid, 0.3)
    if v["held_bytes"] >= v["bytes"]:
        raise Failed("the link was not slow enough")
    to_east.refusing = False
    north.wait_link("east")
    west.kill()
    north.wait_holds(uid)
    if to_east.back_bytes > 0.9 * v["bytes"]:
        raise Failed(f"{to_east.back_bytes} bytes came from east although north held {v['held_bytes']} of {v['bytes']}")
    read_and_compare(lab, north, uid, path, "reader")


@scenario
def west_gateway_killed_in_mid_version(lab):
    """P3 P5: the chunks that west said it holds survive its kill; the restarted gateway goes on with it."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = slow(link, lambda: trainer.publish(1), west, 0.3)
    life = west.control("status")["life"]
    held = west.version(uid)["held_bytes"]
    west.kill()
    link.bytes_per_s = 64 << 10
    west.start()
    expect("life", west.control("status")["life"], life)
    if west.version(uid)["held_bytes"] < held:
        raise Failed("a held chunk did not survive the kill")
    link.bytes_per_s = 0
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path, "reader")


@scenario
def east_gateway_killed_in_mid_version(lab):
    """P3 P6: the home gateway is killed while west is half way; ranks announce again, and west
    becomes whole."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = slow(link, lambda: trainer.publish(1), west, 0.2)
    east.restart()
    link.bytes_per_s = 0
    west.wait_link("east")
    west.wait_holds(uid)
    for rank in trainer.ranks:  # the sessions come back by themselves
        rank.ok("wait_site", uid=uid, site="west", state=0, timeout_ms=PATIENCE_MS)
    second = trainer.publish(2)
    west.wait_holds(second)


@scenario
def catalog_restarted_with_readers_in_flight(lab):
    """P3 P2: west's gateway restarts while workers stage; they keep what they hold, announce
    again and finish."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    rollouts = [Rollout(lab, west, f"w{i}", path, host=f"host{i}", pace=8 << 20) for i in range(2)]
    for r in rollouts:
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
    wait_for("some bytes at a worker", lambda: any(w["held_bytes"] > 0 for w in west.version(uid)["workers"]))
    west.restart()
    for r in rollouts:
        expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
        r.activate(uid)
        r.check(path)


@scenario
def worker_killed_in_mid_chain(lab):
    """P6: a worker in the middle of a chain is killed; its reader goes on elsewhere with what it
    holds."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    rollouts = [Rollout(lab, west, f"w{i}", path, host=f"host{i}", pace=paced(4 << 20)) for i in range(4)]
    size = west.version(uid)["bytes"]

    def middle():
        workers = (west.version(uid) or {}).get("workers", [])
        for w in workers:
            if w["upstream"].startswith("w") and 0 < w["held_bytes"] < size:
                return w
        return None
    with over_the_network(3 * size):
        for r in rollouts:
            r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
        victim_name = wait_for("a worker that reads from a worker", middle)["upstream"]
        victim = next(r for r in rollouts if r.worker.name == victim_name)
        victim.worker.kill()
        for r in rollouts:
            if r is victim:
                continue
            expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
            r.activate(uid)
            r.check(path)


@scenario
def trainer_dies_in_mid_crossing_but_it_is_kept(lab):
    """P6: the home gateway holds it: the crossing finishes without the trainer."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = slow(link, lambda: trainer.publish(1), west, 0.1)
    east.wait_holds(uid)
    for rank in trainer.ranks:
        rank.kill()
    link.bytes_per_s = 0
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path, "reader")


@scenario
def trainer_dies_before_anyone_holds_it(lab):
    """P10: nobody else holds it: the version is lost, says so, and waiters wake with that status."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path, pace=1 << 20, host="far-host", names=("slow0", "slow1"))
    for rank in trainer.ranks:
        rank.send("status", what="session")
        rank.receive()
    uid = trainer.publish(1)
    waiter = Worker(lab, "waiter", west)
    waiter.send("wait", model="policy", kind="exact", number=1, timeout_ms=PATIENCE_MS)
    v = east.wait_held_some(uid)
    if v["held_bytes"] >= v["bytes"]:
        raise Failed("the gateway was whole before the trainer could die")
    for rank in trainer.ranks:
        rank.kill()
    wait_for("east says lost", lambda: (east.version(uid) or {}).get("state") == "lost")
    expect("waiter", waiter.receive()["status"], "version_lost")
    # The line comes with the row that is durable, a moment after the state.
    wait_for("a line says that the version is lost", lambda: east.daemon.logged("version.state", "state=lost"))


@scenario
def trainer_restarts_from_an_older_step(lab):
    """P2: a new run goes on from an older step; its versions are newer than all of the run before."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    paths = lab.weights(3)
    first = Trainer(lab, east, paths[0], key="run-a")
    first.publish(10)
    uid_old = first.publish(11, paths[1])
    west.wait_holds(uid_old)
    reader = Rollout(lab, west, "reader", paths[0])
    reader.stage(uid_old)
    reader.activate(uid_old)
    for rank in first.ranks:
        rank.kill()
    second = Trainer(lab, east, paths[0], names=("rank2", "rank3"), key="run-b")
    expect("resumed from", second.runs[0]["resumed_number"], 11)
    uid = second.publish(10, paths[2])
    got = reader.worker.ok("wait", model="policy", kind="latest", after=uid_old)
    expect("newest", got["uid"], uid)
    expect("run", got["run_order"], 2)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(paths[2])
    reader.worker.refused("bad_state", "activate", uid=uid_old)  # never backwards


@scenario
def two_trainers_at_once_one_is_fenced(lab):
    """P2: a newer run shuts the older one out, also in the middle of a version."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    old = Trainer(lab, east, path, key="run-a")
    old.publish(1)
    old.publish_shard(0, 2)
    new = Trainer(lab, east, path, names=("rank2", "rank3"), key="run-b")
    old.ranks[1].refused("fenced", "publish", model="policy", run=old.runs[1]["run"], number=2, shard=1, shards=2)
    uid = new.publish(1)
    west.wait_holds(uid)


@scenario
def writing_to_sealed_bytes_breaks_the_version(lab):
    """P1 P10: a rank writes to bytes it sealed in place; the version is broken and the log names
    the rank."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    rank = Worker(lab, "liar", east, host="liar-host", pace=4 << 20)
    rows = safetensors_table(path)
    total = rank.ok("register", tensors=rows, file=str(path))["bytes"]
    run = rank.ok("run", model="policy", key="k")["run"]
    uid = rank.ok("publish", model="policy", run=run, number=1, in_place=1)["uid"]
    places = list(range(0, total, 65536))[::-1]  # from the end: what is read last is surely written to before
    for at in places:
        rank.send("scribble", at=at)
    for at in places:
        rank.receive()
    wait_for("broken", lambda: (east.version(uid) or {}).get("state") == "broken")
    wait_for("a line names the rank", lambda: east.daemon.logged("state=broken", "rank=liar"))
    wait_for("its memory is free again", lambda: east.control("status")["arena"]["regions"] == 0)


@scenario
def a_missing_shard_stays_invisible(lab):
    """P2: one of two shards is sealed: nobody sees the version; when its rank dies it ends."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish_shard(0, 1)["uid"]
    reader = Worker(lab, "reader", east)
    reader.refused("again", "wait", model="policy", kind="latest", timeout_ms=0)
    expect("at west", west.version(uid), None)
    trainer.ranks[0].kill()
    wait_for("it ended", lambda: (east.version(uid) or {"state": "lost"})["state"] == "lost")
    reader.refused("again", "wait", model="policy", kind="latest", timeout_ms=0)


@scenario
def group_member_dies_before_activate(lab):
    """P2: all on one version or none: one of two members dies before go; the other is told, and
    cannot switch alone."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    first = trainer.publish(1)
    west.wait_holds(first)
    pair = [Rollout(lab, west, f"m{i}", paths[0], group="engine", index=i, count=2) for i in range(2)]
    follow(pair, first, paths[0])
    second = trainer.publish(2, paths[1])
    west.wait_holds(second)
    pair[0].stage(second)
    pair[0].worker.refused("again", "activate", uid=second, timeout_ms=0)
    pair[1].worker.kill()
    reply = pair[0].worker.call("activate", uid=second, timeout_ms=PATIENCE_MS)
    expect("activate without the other", reply["status"], "group_broken")
    pair[0].check(paths[0])  # still the version before
    again = Rollout(lab, west, "m1-again", paths[0], group="engine", index=1, count=2)
    follow([pair[0], again], second, paths[1])


@scenario
def a_rotten_chunk_is_refused_and_mended(lab):
    """P1 P10: bytes of east's arena change after they were held; west refuses the chunk, and
    gets it right in the end."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    rows = safetensors_table(path)
    trainer = Trainer(lab, east, path)
    link.bytes_per_s = 1 << 20
    uid = trainer.publish(1)
    east.wait_holds(uid)
    flipped = flip_in_file(east.arena_path, path, rows[-1])
    link.bytes_per_s = 0
    wait_for("west refused a chunk", lambda: west.counters()["chunks_bad"] > 0 or west.holds(uid))
    west.wait_holds(uid)
    reader = Rollout(lab, west, "reader", path)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    expect("tensor found in the arena", flipped, True)
    for site in (east, west):  # one refusal is one line
        expect(f"lines of chunks_bad at {site.name}", len(site.daemon.logged("chunk=", "times=")),
               site.counters()["chunks_bad"])


@scenario
def a_chunk_rotten_while_its_gateway_was_away_is_found(lab):
    """P1 P3: a byte of west's arena changes while west is down: it verifies again what it held,
    and fetches that chunk anew."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    west.kill()
    expect("tensor found in the arena", flip_in_file(west.arena_path, path, safetensors_table(path)[-1]), True)
    west.start()
    wait_for("west finds it", lambda: west.counters()["verify_bad"] > 0)
    expect("a line says so", len(west.daemon.logged("arena.verify_failed")) > 0, True)
    west.wait_holds(uid)
    read_and_compare(lab, west, uid, path, "reader")


@scenario
def a_chunk_that_rots_at_home_comes_back_from_another_site(lab):
    """P1 P3 P6: home was down and its trainer is gone; a chunk of its arena has rotted. West has
    it, and gives it back."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    uid = trainer.publish(1)
    west.wait_holds(uid)
    for rank in trainer.ranks:
        rank.kill()
    east.kill()
    expect("tensor found in the arena", flip_in_file(east.arena_path, path, safetensors_table(path)[-1]), True)
    east.start()
    wait_for("east finds it", lambda: east.counters()["verify_bad"] > 0)
    east.wait_holds(uid)
    expect("east calls it lost", east.counters()["versions_lost"], 0)
    read_and_compare(lab, east, uid, path, "reader")


@scenario
def a_stopped_worker_holds_up_nobody(lab):
    """P6: a worker that is stopped (SIGSTOP) in mid-chain does not hold up its reader for ever."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    rollouts = [Rollout(lab, west, f"w{i}", path, host=f"host{i}", pace=paced(6 << 20)) for i in range(3)]
    with over_the_network(2 * west.version(uid)["bytes"]):
        for r in rollouts:
            r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
        wait_for("w0 holds some", lambda: any(w["name"] == "w0" and w["held_bytes"] for w in west.version(uid)["workers"]))
        names = [r.worker.name for r in rollouts]
        stopped = next((w["upstream"] for w in west.version(uid)["workers"] if w["upstream"] in names), "w0")
        rollouts.sort(key=lambda r: r.worker.name != stopped)
        rollouts[0].worker.stop()
        for r in rollouts[1:]:
            expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
            r.activate(uid)
            r.check(path)
    rollouts[0].worker.signal(signal.SIGCONT)


@scenario
def a_source_that_answers_no_grant_is_given_up(lab):
    """P6 P10: a reader's nearest source is stopped before it is asked to grant: after a second
    there is another plan, and a line. The next reader is not sent there: the source has said
    nothing since."""
    east, west, _ = lab.east_west(through_link=False)
    west.extra["session"] = {"lease_ms": 10000}  # the stopped worker's lease is not what gives the plan up
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    near = Rollout(lab, west, "near", path, host="one-host")
    near.worker.ok("wait", model="policy", kind="minimum", number=1)
    near.stage(uid)
    readers = [Rollout(lab, west, name, path, host="one-host") for name in ("late", "later")]
    near.worker.stop()
    for r in readers:
        r.stage(uid, timeout_ms=PATIENCE_MS)
        r.activate(uid)
        r.check(path)
    near.worker.signal(signal.SIGCONT)
    if not west.daemon.logged("plan.not_granted", "worker=late ", "status=stream_idle"):
        raise Failed("west gave up no plan for want of a grant")
    if west.daemon.logged("plan.not_granted", "worker=later "):
        raise Failed("west asked a worker that does not answer for one more reader")


@scenario
def a_first_of_a_chain_that_gets_nothing_holds_up_nobody(lab):
    """P6: the host that the others read from has so slow a NIC that for long not one chunk
    comes, though its session and its hop live. Before it has one, another reads in its place."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    west.wait_holds(uid)
    # Some bytes come in each second, or its hop fell silent; of a chunk they make one in 18 s.
    rollouts = [Rollout(lab, west, f"w{i}", path, host=f"host{i}", pace=56 << 10 if i == 0 else 0) for i in range(3)]

    def chain():
        return {w["name"]: (w["upstream"], w["held_bytes"]) for w in (west.version(uid) or {}).get("workers", []) if w["upstream"]}

    def passed():
        now = chain()
        if now.get("w0", ("", 0))[1] > 0:
            raise Failed("it got a chunk before another took its place")
        return any(now.get(name, ("w0",))[0] not in ("w0", "w1", "w2") for name in ("w1", "w2"))
    for r in rollouts:
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
        wait_for(f"{r.worker.name} has a source", lambda name=r.worker.name: name in chain())
    first = west.daemon.logged("plan worker=w1 ")[0]  # a busy machine may have moved it on by now
    expect("w1 was to read from", first.split("source=")[1].split()[0], "w0")
    wait_for("another reads in its place", passed)
    for r in rollouts[1:]:
        expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
        r.activate(uid)
        r.check(path)


@scenario
def withdrawn_everywhere_and_backwards(lab):
    """P2: an operator takes a bad version back: it leaves all sites, and a group goes back to
    the one before."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    good = trainer.publish(1)
    west.wait_holds(good)
    bad = trainer.publish(2, paths[1])
    west.wait_holds(bad)
    reader = Rollout(lab, west, "reader", paths[0])
    reader.stage(bad)
    reader.activate(bad)
    reader.worker.ok("release", uid=bad)
    east.cli("withdraw", "policy", "2")
    # The row itself gives way to those of later withdrawals: the log has it for ever.
    wait_for("west knows", lambda: west.daemon.logged("version.state", f"uid={bad} state=withdrawn"))
    wait_for("its bytes are gone", lambda: (west.version(bad) or {"held_bytes": 0})["held_bytes"] == 0)
    got = reader.worker.ok("wait", model="policy", kind="latest", after=bad)
    expect("back to", got["uid"], good)
    reader.stage(good)
    reader.activate(good)
    reader.check(paths[0])


@scenario
def withdrawn_while_the_link_is_down(lab):
    """P2: a version is withdrawn at home while a site cannot hear it: the site is told when the
    link is up again."""
    east, west, link = lab.east_west()
    up(east, west)
    bad = Trainer(lab, east, lab.weights(1)[0]).publish(1)
    west.wait_holds(bad)
    link.refusing = True
    link.cut()
    west.wait_link("east", "dialling")
    east.cli("withdraw", "policy", "1")
    link.refusing = False
    # The row itself gives way to those of later withdrawals: the log has it for ever.
    wait_for("west knows", lambda: west.daemon.logged("version.state", f"uid={bad} state=withdrawn"))
    wait_for("its bytes are gone", lambda: (west.version(bad) or {"held_bytes": 0})["held_bytes"] == 0)


@scenario
def withdrawn_long_ago_is_withdrawn_everywhere(lab):
    """P2: a site misses a withdrawal, hundreds of others and a restart of the home: it is told."""
    east, west, link = lab.east_west()
    up(east, west)
    trainer = Trainer(lab, east, made(lab, "1M", 1)[0])
    bad = trainer.publish(1)
    west.wait_holds(bad)
    link.refusing = True
    link.cut()
    west.wait_link("east", "dialling")
    for number in range(1, 302):
        if number > 1:
            trainer.publish(number)
        expect("withdrawn", east.control("withdraw", model="policy", version=f"1:{number}")["ok"], True)
    east.restart()
    link.refusing = False
    # The row itself gives way to those of later withdrawals: the log has it for ever.
    wait_for("west knows", lambda: west.daemon.logged("version.state", f"uid={bad} state=withdrawn"))
    wait_for("its bytes are gone", lambda: (west.version(bad) or {"held_bytes": 0})["held_bytes"] == 0)


if __name__ == "__main__":
    sys.exit(main())
