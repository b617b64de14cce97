"""The main job, end to end, over real TLS and real processes: what a trainer publishes at one
site is held, whole and verified, by every worker of another (P1, P2).

Covers: gateway/daemon/copies/home_landing.c gateway/daemon/sessions/session_publish.c
Covers: gateway/daemon/sessions/session_follow.c gateway/daemon/sessions/session_plan.c
Covers: gateway/daemon/links/crossings.c base/huge_pages.c gateway/daemon/control/chain_status.c
"""

import os
import re
import signal
import sys

from harness import (PATIENCE_MS, Failed, HugeMount, Rollout, Trainer, Worker, expect, follow, four_rollouts, main,
                     read_and_compare, safetensors_table, scenario, up, wait_for)


@scenario
def nine_versions_bit_exact_at_four_workers(lab):
    """P1 P2: nine consecutive versions, each compared byte for byte at four workers of the other
    site. Under ThreadSanitizer three: those behind go the ways of the third."""
    east, west, _ = lab.east_west(through_link=False)
    east.extra["link"] = {"codec": "sparse"}  # `auto` may send whole what a busy machine is slow to compare
    up(east, west)
    paths = lab.weights(int(os.environ.get("TB_TEST_VERSIONS", "9")))
    trainer = Trainer(lab, east, paths[0])
    rollouts = four_rollouts(lab, west, paths[0])
    crossed, landed = [], []
    for number, path in enumerate(paths):
        uid = trainer.publish(number, path)
        west.wait_holds(uid)
        east.wait_holds(uid)
        v = east.version(uid)
        landed.append(v["wire_bytes"] / v["bytes"])
        v = west.version(uid)
        crossed.append(v["wire_bytes"] / v["bytes"])
        for r in rollouts:
            got = r.worker.ok("wait", model="policy", kind="minimum", number=number)
            expect("uid", got["uid"], uid)
        follow(rollouts, uid, path)
        if number:
            for r in rollouts:
                r.worker.ok("release", uid=previous)
        previous = uid
    trainer.ranks[0].ok("wait_site", uid=uid, site="west", state=1)
    # The bytes that came over the wire, as each site's own gateway counts them. At home the first
    # version once, from its ranks, which are on other hosts; of each later one what changed, where
    # the ranks had compared it in time. At the other site the first once at most, then what
    # changed.
    if not 1 <= landed[0] <= 1.03 or not all(0 < share <= 1.03 for share in landed[1:]):
        raise Failed(f"east counts {', '.join(f'{share:.3f}' for share in landed)} of each version on the wire")
    if not 0.5 < crossed[0] <= 1.03 or not all(share < 0.1 for share in crossed[1:]):
        raise Failed(f"west counts {', '.join(f'{share:.3f}' for share in crossed)} of each version on the wire")
    # No door met a token that it did not know yet: PLAN waits for the owner's answer to GRANT.
    for log in lab.dir.rglob("*.log"):
        if "door.refused" in log.read_text(errors="replace"):
            raise Failed(f"{log.name}: a reader came before its grant")


def on_its_way(lab, **fabric):
    """West while a version arrives there: a part of it is there, and the rest crawls until the
    link's bytes_per_s is 0. So a worker that stages it there reads for as long as the test wants.
    (west, link, uid, path)"""
    east, west, link = lab.east_west()
    east.extra["link"] = {"codec": "raw"}  # all of its bytes cross
    west.extra["fabric"] = fabric
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    link.bytes_per_s, link.crawl_at = 2 << 20, link.back_bytes + (4 << 20)
    uid = trainer.publish(1)
    west.wait_held_some(uid)
    return west, link, uid, path


@scenario
def workers_form_a_chain(lab):
    """P1 P6: four workers on four emulated hosts: at most one reads from the gateway, each other
    from a worker; and of a version that comes no further each has all that the gateway has."""
    west, link, uid, path = on_its_way(lab, nic_bytes_per_s="1MiB")
    rollouts = [Rollout(lab, west, f"w{i}", path, host=f"host{i}") for i in range(4)]
    for r in rollouts:
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)

    def upstreams():
        workers = (west.version(uid) or {}).get("workers", [])
        return {w["name"]: w["upstream"] for w in workers if w["upstream"]} if len(workers) == 4 else {}

    def chained():
        u = upstreams()
        return len(u) == 4 and list(u.values()).count("gw") == 1 and u
    wait_for("a chain", chained)
    wait_for("its chunks can be proven to workers", lambda: not west.version(uid)["awaits_signature"])
    link.stalled = True

    def cut_through():
        members = west.control("chains", model="policy")["chains"][0]["members"]
        return len(members) == 5 and not members[0]["whole"] and {m["held_chunks"] for m in members} == {members[0]["held_chunks"]}
    wait_for("each holds what the gateway holds of it", cut_through)
    members = west.control("chains", model="policy")["chains"][0]["members"]
    expect("NICs", {(m["nic_from"], m["nic_bytes_per_s"], m["fan_out"]) for m in members}, {("config", 1 << 20, 1)})
    link.stalled, link.bytes_per_s = False, 0
    for r in rollouts:
        expect("stage", r.worker.receive()["status"], "ok")
        r.activate(uid)
        r.check(path)


@scenario
def the_chain_is_shown_as_it_is(lab):
    """P10: while a version spreads, `tombolo chains` has each worker under the one it reads
    from, with transport, reason and rate; `tombolo status` has them as hops."""
    west, link, uid, path = on_its_way(lab)
    rollouts = {"w0": Rollout(lab, west, "w0", path, host="a", spot=1)}
    rollouts["near"] = Rollout(lab, west, "near", path, host="a")
    rollouts["w1"] = Rollout(lab, west, "w1", path, host="b")

    def chain(member):
        """Of the chain's members by name: each row, with its source's name; None until `member`
        reads."""
        rows = [m for c in west.control("chains", model="policy")["chains"] for m in c["members"]]
        named = {r["name"]: dict(r, source=None if r["source"] is None else rows[r["source"]]["name"]) for r in rows}
        return named if named.get(member, {}).get("bytes_per_s") else None

    for name, r in rollouts.items():
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
        said = wait_for(f"{name} reads", lambda name=name: chain(name))
    expect("who reads from whom", {n: said[n]["source"] for n in rollouts}, {"w0": "gw", "near": "w0", "w1": "w0"})
    expect("transports", [(said[n]["transport"], said[n]["transport_why"]) for n in ("near", "w0")],
           [("shm", "same host, mapped"), ("tcp", "the reader has no rdma")])
    # Loopback's NIC is nobody's: what it carries is not known, and each feeds one other host.
    expect("NICs", {(said[n]["nic_from"], said[n]["nic_bytes_per_s"], said[n]["fan_out"]) for n in ("gw", "w0", "w1")}, {("unknown", 0, 1)})
    expect("spot and readers", [(said[n]["spot"], said[n]["readers"]) for n in ("w0", "w1")], [(True, 2), (False, 0)])
    table = [line.split("\t") for line in west.cli("chains", "-o", "tsv").stdout.splitlines()]
    members = [row[table[0].index("member")] for row in table if len(row) == len(table[0])]
    depths = {name.strip(): len(name) - len(name.lstrip()) for name in members}
    expect("how far each stands to the right", [depths[n] for n in ("gw", "w0", "near", "w1")], [0, 2, 4, 4])
    hops = {line.split()[1]: line for line in west.cli("status").stdout.splitlines() if line.startswith("hop ")}
    expect("who is a hop's reader", set(hops), set(rollouts))
    for name, words in (("near", r"from w0 +policy 1:1  shm \(same host, mapped\)  .*/s"), ("w1", r"from w0 +policy 1:1  tcp \(the reader has no rdma\)  .*/s")):
        expect(f"{words} in {hops[name]}", re.search(words, hops[name]) is not None, True)
    link.bytes_per_s = 0
    for r in rollouts.values():
        expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
    wait_for("who has all of it reads from nobody", lambda: all(m["whole"] and m["source"] is None for m in west.control("chains")["chains"][0]["members"]))


@scenario
def a_host_reads_once(lab):
    """P1: A byte reaches a host once: two workers on one host, and one of them reads by shm from
    the other."""
    west, link, uid, path = on_its_way(lab)
    pair = [Rollout(lab, west, f"w{i}", path, host="one-host") for i in range(2)]
    for r in pair:
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)

    def from_the_other():
        workers = {w["name"]: w for w in west.version(uid)["workers"]}
        readers = [w for w in workers.values() if w["upstream"] in workers and w["held_bytes"]]
        return readers[0]["transport"] if readers else None
    expect("transport of the host's second reader", wait_for("a reader of its neighbour", from_the_other), "shm")
    link.bytes_per_s = 0
    for r in pair:
        expect("stage", r.worker.receive()["status"], "ok")
        r.activate(uid)
        r.check(path)


@scenario
def a_late_worker_gets_the_newest(lab):
    """P6: a worker that comes long after the crossing stages the head at once."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    trainer.publish(1)
    uid = trainer.publish(2, paths[1])
    west.wait_holds(uid)
    late = Rollout(lab, west, "late", paths[0])
    expect("latest", late.worker.ok("wait", model="policy", kind="latest")["uid"], uid)
    late.stage(uid)
    late.activate(uid)
    late.check(paths[1])


@scenario
def released_memory_takes_the_next_version(lab):
    """P1: a version is staged into the pages of a released one, byte for byte; they go with the
    subscription."""
    east = lab.site("east")
    east.models["policy"] = {"home": "east"}
    up(east)
    paths = lab.weights(4)
    trainer = Trainer(lab, east, paths[0])
    reader = Rollout(lab, east, "reader", paths[0])

    def staging():
        maps = (line.split() for line in open(f"/proc/{reader.worker.popen.pid}/maps", encoding="ascii"))
        return {m[4] for m in maps if m[5:6] == ["/memfd:tombolo-staging"]}
    before, stood = None, set()
    for number, path in enumerate(paths, start=1):
        uid = trainer.publish(number, path)
        reader.stage(uid)
        reader.activate(uid)
        reader.check(path)
        if number > 2:
            expect("memory of versions", staging(), stood)
        stood = staging()
        if before is not None:
            reader.worker.ok("release", uid=before)
        before = uid
    expect("versions in memory", len(stood), 2)
    reader.worker.ok("unsubscribe")
    expect("memory after unsubscribe", staging(), set())


@scenario
def readers_at_home_read_too(lab):
    """P1: Rollouts at the trainer's own site follow as others do."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(5)
    reader = Rollout(lab, east, "home", path)
    expect("uid", reader.worker.ok("wait", model="policy", kind="exact", number=5)["uid"], uid)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)


@scenario
def a_layout_may_change(lab):
    """P1: the next version has other tensors; both arrive byte for byte."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    rows = safetensors_table(path)
    rank = Worker(lab, "rank", east)
    run = rank.ok("run", model="policy", key="k")["run"]
    for number, part in enumerate((rows[:len(rows) // 2], rows[3:]), start=1):
        rank.ok("register", memory=number, tensors=part, file=str(path))
        uid = rank.ok("publish", model="policy", run=run, number=number, memory=number, blob='{"step": %d}' % number)["uid"]
        west.wait_holds(uid)
        reader = Worker(lab, f"reader{number}", west)
        reader.ok("subscribe", model="policy", group=f"g{number}")
        reader.ok("stage", uid=uid)
        got = reader.ok("compare_staged", uid=uid, tensors=part, file=str(path))
        expect("tensors", got["items"], len(part))
        expect("differ", got["differ"], 0)
        reader.ok("close")


@scenario
def in_place_and_zstd_are_bit_exact(lab):
    """P1: nothing copied at the publisher, and the encoded form, both arrive as they were sealed."""
    east, west, _ = lab.east_west(through_link=False)
    west.extra["link"] = east.extra["link"] = {"codec": "zstd"}
    up(east, west)
    path = lab.weights(1)[0]
    rows = safetensors_table(path)
    rank = Worker(lab, "rank", east)
    run = rank.ok("run", model="policy", key="k")["run"]
    cases = ((1, dict(in_place=1), 0), (2, dict(in_place=1), 1), (3, dict(codec="zstd"), 0))
    for number, how, shared in cases:
        rank.ok("register", memory=number, tensors=rows, file=str(path), shared=shared)
        uid = rank.ok("publish", model="policy", run=run, number=number, memory=number, **how)["uid"]
        west.wait_holds(uid)
        reader = Rollout(lab, west, f"reader{number}", path)
        reader.stage(uid)
        reader.activate(uid)
        reader.check(path)
        if "in_place" in how:
            rank.ok("unpublish", uid=uid)
            rank.ok("unregister", memory=number)
        reader.worker.ok("close")


@scenario
def a_relay_passes_each_chunk_on(lab):
    """P1 P6: north has it from west, which has it from east; north's first chunk comes before
    west is whole."""
    east, west, link = lab.east_west()
    north = lab.behind(west)
    link.bytes_per_s = 1 << 19  # of each stream: seconds in which a busy machine sees both
    up(east, west, north)
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)

    def cut_through():
        v, w = north.version(uid), west.version(uid)
        return v and w and v["held_bytes"] > 0 and w["held_bytes"] < w["bytes"]
    wait_for("north holds chunks while west is not whole", cut_through)
    link.bytes_per_s = 0
    north.wait_holds(uid)
    read_and_compare(lab, north, uid, path, "reader")


@scenario
def reports_reach_home_after_a_cut(lab):
    """P6: a site behind another holds and activates while the link to home is down; home hears
    of it when it is up."""
    east, west, link = lab.east_west()
    north = lab.behind(west)
    up(east, west, north)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    readers = [Rollout(lab, site, f"reader-{site.name}", path) for site in (west, north)]
    trainer.ranks[1].send("wait_site", uid=trainer.publish(1), site="north", state=0)
    expect("north holds", trainer.ranks[1].receive()["status"], "ok")
    link.bytes_per_s = 4 << 20  # the next is at west and not at north when the link goes
    north.daemon.stop()
    uid = trainer.publish(2)
    west.wait_holds(uid)
    link.refusing = True
    link.cut()
    west.wait_link("east", "dialling")
    north.daemon.signal(signal.SIGCONT)
    north.wait_holds(uid)
    for r in readers:
        r.stage(uid)
        r.activate(uid)
    wait_for("west hears of north", lambda: any(s["site"] == "north" and s["activated"]
                                                for s in west.version(uid)["sites"]))
    link.bytes_per_s = 0
    link.refusing = False
    for site in ("west", "north"):
        for state in (0, 1):
            trainer.ranks[0].ok("wait_site", uid=uid, site=site, state=state, timeout_ms=PATIENCE_MS)


@scenario
def hold_does_not_wait_for_the_link(lab):
    """P6: Nothing a trainer waits for depends on a link: with the link cut, publishing goes on
    and the versions are kept."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    link.refusing = True
    link.cut()
    west.wait_link("east", "dialling")
    for number in range(1, 4):
        uid = trainer.publish(number)
        east.wait_holds(uid)
    link.refusing = False
    west.wait_holds(uid)
    if west.version(uid) is None:
        raise Failed("the newest version did not cross after the cut")


def through_huge_pages(lab, name, kind):
    site = lab.site(name, arena_mib=96)
    site.models["policy"] = dict(home=name)
    mount = HugeMount(lab, site, kind, 128 << 20)
    try:
        site.start()
        path = lab.weights(1)[0]
        trainer = Trainer(lab, site, path)
        uid = trainer.publish(1)
        wait_for("the arena is mapped", lambda: site.daemon.logged("arena.mapped"))
        arena = site.control("status")["arena"]
        if arena["huge_bytes"] < (96 << 20 if kind == "hugetlbfs" else 2 << 20):
            raise Failed(f"{arena['huge_bytes']} bytes are in huge pages")
        site.wait_holds(uid)
        site.kill()
        site.start()
        expect("held after the kill", site.holds(uid), True)
        reader = Rollout(lab, site, f"reader-{name}", path)
        reader.stage(uid)
        reader.activate(uid)
        reader.check(path)
        site.kill()
        site.arena_mib = 512
        site.start(wait=False)
        expect("exit code of one over the pool", site.daemon.ended(), 1)
        if not site.daemon.logged("start.failed", "make arena.bytes smaller"):
            raise Failed("no line has the numbers of an arena over the pool")
    finally:
        mount.close()


@scenario
def an_arena_on_hugetlbfs(lab):
    """P3 P7: pages of 2 MiB, allocated whole at start: a version is landed, survives a kill, is
    read; one over the pool is refused."""
    through_huge_pages(lab, "east", "hugetlbfs")


@scenario
def an_arena_on_tmpfs_with_huge_pages(lab):
    """P3: the same where tmpfs is mounted with huge=within_size; how much came in huge pages is
    told."""
    through_huge_pages(lab, "east", "tmpfs")


if __name__ == "__main__":
    sys.exit(main())
