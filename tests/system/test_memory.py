"""Versions in memory: how they get into the buffers of a rollout, and how a trainer gets its own
back.

With TB_TEST_RDMA=1, in the VM lab, what goes over the network goes by verbs and not by tcp; the
device's own counters say so.

Covers: intra/client/follow/buffer_switch.c intra/client/follow/patch.c
Covers: intra/client/publish/publication_watch.c intra/client/memory/registration_suspend.c
Covers: intra/client/memory/seal_protection.c gateway/catalog/unpublish.c
Covers: gateway/catalog/rules/unpublish_rules.c gateway/catalog/groups.c
"""

import os
import pathlib
import signal
import sys
import time

from harness import PATIENCE_MS, Failed, Rollout, SlowReader, Trainer, Worker, expect, main, read_and_compare, safetensors_table, scenario, wait_for
from rdma import NETWORK, over_the_network, paced

COPY, SWITCH, PATCH = 0, 1, 2
HOST = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip() # a gateway's


PACE = paced(24 << 20)
SLOWER = float(os.environ.get("TB_PATIENCE_S", "60")) / 60


def home(lab, root=None, **kwargs):
    site = lab.site("east", **kwargs)
    site.models["policy"] = dict(home="east")
    site.root.update(root or {})
    site.start()
    return site


def weights_bytes(path):
    return sum(r["bytes"] for r in safetensors_table(path))


class Updating:
    """A rollout that follows in one of the three ways; its checks look at the buffers that the
    switch named."""

    def __init__(self, lab, site, name, path, update, host=None):
        self.rows = safetensors_table(path)
        self.update = update
        self.bytes = sum(r["bytes"] for r in self.rows)
        self.worker = Worker(lab, name, site, host=host or f"host-{name}")
        self.worker.ok("register", tensors=self.rows)
        more = {}
        if update == SWITCH:
            self.worker.ok("register", tensors=self.rows, memory=1)
            more = {"second": 1}
        self.worker.ok("subscribe", model="policy", group=name, memory=0, update=update, **more)

    def follow(self, uid, path, before=None):
        self.worker.ok("stage", uid=uid, timeout_ms=PATIENCE_MS)
        if before:
            before()
        got = self.worker.ok("activate", uid=uid)
        reply = self.worker.ok("compare", tensors=self.rows, file=str(path), memory=got["buffer"])
        expect(f"{self.worker.name}: bytes that differ (first: {reply.get('first')})", reply["differ"], 0)
        return got


def site_says(site, name, number, got, way):
    """The time of a rollout's switch, as its site shows it, is what its library said."""
    def rows():
        session = next(s for s in site.control("status")["sessions"] if s["name"] == name)
        return [u for u in session["updates"] if u["number"] == number]
    told = wait_for(f"the site hears how {name} got version {number}", rows)[0]
    expect(f"{name}'s stall", abs(told["stall_ms"] - got["stall_ns"] / 1e6) < 0.001, True)
    said = {"way": way, "staged_bytes": got["staged"], "copied_bytes": got["copied"], "patched_bytes": got["patched"],
            "fetched_chunks": got["fetched"]}
    expect(f"what {name} took", {k: told[k] for k in said}, said)
    members = next(c for c in site.control("chains")["chains"] if c["number"] == number)["members"]
    expect(f"{name} in its chain", next(m for m in members if m["name"] == name)["update"], {"stall_ms": told["stall_ms"], **said})
    line = next(text for text in site.cli("status").stdout.splitlines() if text.startswith("update ") and text.split()[1] == name)
    expect(f"\"{line}\"", line.split()[2:5] + ["stall" in line, "staged" in line], ["policy", f"1:{number}", way, True, True])
    keys, *lines = (text.split("\t") for text in site.cli("chains", "-o", "tsv").stdout.splitlines())
    rows = [dict(zip(keys, line)) for line in lines]
    row = next(r for r in rows if r["member"].strip() == name and r["version"] == f"1:{number}")
    expect(f"{row}", ("active" in row["marks"], row["way"], int(row["staged_bytes"])), (True, way, got["staged"]))


@scenario
def three_ways_to_update_a_rollout(lab):
    """P1 P2: copied, in the other of two buffers, or patched: the same bytes; a patch stages a
    small part of them, and what is written to its buffers meanwhile comes whole. Its site knows
    it as no copy, and as no source."""
    site = home(lab)
    paths = lab.weights(4)
    trainer = Trainer(lab, site, paths[0])
    ways = {name: Updating(lab, site, name, paths[0], update) for name, update in (("copy", COPY), ("switch", SWITCH), ("patch", PATCH))}
    for number, path in enumerate(paths, 1):
        uid = trainer.publish(number, path)
        site.wait_holds(uid)
        got = {}
        for name, rollout in ways.items():
            stray = name == "patch" and number == 4
            got[name] = rollout.follow(uid, path, before=(lambda: rollout.worker.ok("scribble", at=4 << 20)) if stray else None)
            size = rollout.bytes
            site_says(site, name, number, got[name], "copy" if name == "patch" and number == 1 else name)
            wire = staged(rollout.worker, uid)
            if not stray and wire["read_bytes"] > size * 1.05:
                raise Failed(f"{name} read {wire['read_bytes']} bytes of {size}")
            print(f"version {number}, {name}: stall {got[name]['stall_ns'] / 1e6:.1f} ms, {got[name]['staged']} bytes staged of "
                  f"{rollout.bytes}, {got[name]['copied']} copied, {got[name]['fetched']} chunks fetched", flush=True)
        expect("switch copies nothing in the stall", got["switch"]["copied"], 0)
        expect("buffer", got["switch"]["buffer"], (number + 1) % 2)
        if number == 1:
            continue
        if got["patch"]["staged"] > got["copy"]["staged"] // 5:
            raise Failed(f"{got['patch']['staged']} bytes staged of a step")
        expect("chunks fetched", got["patch"]["fetched"] > 0, number == 4)
    status = ways["patch"].worker.ok("status", what="session")["json"]
    expect("staged as a patch", {s["number"]: s["patch"] for s in status["staged"]}, {1: False, 2: True, 3: True, 4: True})
    for name, rollout in ways.items():
        said = rollout.worker.ok("status", what="session")["json"]["subscriptions"]
        expect(f"what {name} says of its last update", [(s["asked"], s["update"]["way"], s["update"]["staged_bytes"]) for s in said],
               [(name, name, got[name]["staged"])])
    expect("readers of a patch", [s["readers"] for s in status["staged"] if s["patch"]], [0, 0, 0])


@scenario
def a_patching_worker_reads_deltas_by_any_transport(lab):
    """P1: also on its gateway's host, where others take whole chunks: what is kept encoded comes
    encoded, once the site has seen it patch."""
    site = home(lab)
    paths = lab.weights(5)
    trainer = Trainer(lab, site, paths[0], host=HOST)
    patches, copies = (Updating(lab, site, name, paths[0], update, host=HOST) for name, update in (("patches", PATCH), ("copies", COPY)))
    for number, path in enumerate(paths, 1):
        uid = trainer.publish(number, path)
        site.wait_holds(uid)
        for worker, whole in ((patches, number < 3), (copies, True)):
            site_says(site, worker.worker.name, number, worker.follow(uid, path),
                      "patch" if worker is patches and number > 1 else "copy")
            read = staged(worker.worker, uid)
            print(f"version {number}, {worker.worker.name}: {read['read_bytes']} bytes read of {worker.bytes}", flush=True)
            if (read["read_bytes"] < worker.bytes / 5) == whole:
                raise Failed(f"{worker.worker.name} read {read['read_bytes']} bytes of {worker.bytes} of version {number}")


@scenario
def eight_ranks_of_an_engine_switch_together(lab):
    """P2: slow ones are waited for; one that dies before the switch ends it for all, and none
    has the new version; with another in its place all eight have it."""
    site = home(lab)
    paths = lab.weights(2)
    trainer = Trainer(lab, site, paths[0])

    def rank(i, name, pace=0):
        return Rollout(lab, site, name, paths[0], group="engine", index=i, count=8, host=f"h{i}", pace=pace)
    ranks = [rank(i, f"r{i}", pace=PACE if i in (2, 5) else 0) for i in range(8)]
    first = trainer.publish(1)
    late = (ranks[2], ranks[5])
    for r in ranks:
        if r not in late:
            r.worker.send("stage", uid=first, timeout_ms=PATIENCE_MS)
    for r in ranks:
        if r not in late:
            expect("staged", r.worker.receive()["status"], "ok")
    for r in ranks:
        if r not in late:
            r.worker.refused("again", "activate", uid=first, timeout_ms=0)
    for r in late:
        r.stage(first, timeout_ms=PATIENCE_MS)
    for r in ranks:
        r.activate(first)
        r.check(paths[0])
    second = trainer.publish(2, paths[1])
    for i, r in enumerate(ranks[:7]): # the eighth never asks for it
        r.stage(second)
    ranks[3].worker.kill()
    for i in (0, 1, 2, 4, 5, 6):
        ranks[i].worker.refused("group_broken", "activate", uid=second)
        ranks[i].check(paths[0])
    ranks[7].check(paths[0])
    ranks[3] = rank(3, "r3b")
    for r in ranks:
        r.worker.send("stage", uid=second, timeout_ms=PATIENCE_MS)
    for r in ranks:
        expect("staged", r.worker.receive()["status"], "ok")
    for r in ranks:
        r.activate(second)
        r.check(paths[1])


class InPlace:
    """A rank that publishes from its own memory, whose readers have `pace` bytes a second if
    they come over the network."""

    def __init__(self, lab, site, path, host=None, name="rank0", **open_with):
        self.rows = safetensors_table(path)
        self.worker = Worker(lab, name, site, host=host, **open_with)
        self.worker.ok("register", tensors=self.rows, file=str(path))
        self.run = self.worker.ok("run", model="policy", key="run-a")["run"]

    def publish(self, number):
        return self.worker.ok("publish", model="policy", run=self.run, number=number, in_place=1)["uid"]


def staged(worker, uid):
    return next(s for s in worker.ok("status", what="session")["json"]["staged"] if s["uid"] == uid)


def published(rank):
    return rank.worker.ok("status", what="session")["json"]["published"]


def seconds(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


@scenario
def a_write_to_protected_memory_is_found(lab):
    """P10: the writer to sealed memory is named, with the tensor, and lives; the version is
    broken. Given back, the memory is its owner's again."""
    site = home(lab)
    path = lab.weights(1)[0]
    rank = InPlace(lab, site, path, protect=1)
    first = rank.publish(1)
    site.wait_holds(first)
    rank.worker.ok("unpublish", uid=first)
    rank.worker.ok("overwrite", at=5 << 20) # it is the rank's
    rank.worker.ok("suspend")
    rank.worker.ok("overwrite", at=5 << 20)
    rank.worker.ok("resume")
    second = rank.publish(2)
    site.wait_holds(second)
    rank.worker.ok("overwrite", at=5 << 20)
    wait_for("the version is broken", lambda: (site.version(second) or {}).get("state") == "broken")
    wait_for("the gateway names the rank", lambda: site.daemon.logged("publish.written_to", "rank=rank0"))
    wait_for("the library names the tensor", lambda: rank.worker.logged("publish.written_to", "tensor="))
    rank.worker.ok("overwrite", at=6 << 20)
    third = rank.publish(3)
    site.wait_holds(third)


@scenario
def unpublish_ends_within_its_drain(lab):
    """P3 P6: a rank takes its memory back while it is read, by shm and by tcp: at once where the
    gateway has it, else the gateway takes it first, into room that was reserved; what cannot be
    taken in time stays, and nothing is lost."""
    site = home(lab, root={"drain_ms": PATIENCE_MS})
    path = lab.weights(1)[0]
    near = InPlace(lab, site, path, host=HOST)
    uid = near.publish(1)
    near.worker.ok("unpublish", uid=uid)
    expect("held, by shm", site.holds(uid), True)
    far = InPlace(lab, site, path, host="elsewhere", name="rank1", pace=PACE // 4)
    with over_the_network(weights_bytes(path)):
        uid = far.publish(2)
        far.worker.refused("timeout", "unpublish", uid=uid, drain_ms=100)
        expect("it did not wait until the gateway has it", site.holds(uid), False)
        far.worker.ok("unpublish", uid=uid)
    expect(f"held, by {NETWORK}", site.holds(uid), True)
    uid = far.publish(3)
    far.worker.kill() # in the middle of it: what nobody else has is lost, and the site goes on
    wait_for("the version is lost", lambda: (site.version(uid) or {}).get("state") == "lost")
    last = near.publish(4)
    site.wait_holds(last)
    read_and_compare(lab, site, last, path, "reader")


@scenario
def a_reader_that_dies_holds_up_no_unpublish(lab):
    """P3 P6: the gateway dies while it takes a version home; the rank keeps its memory until the
    gateway is back and has it."""
    site = home(lab)
    path = lab.weights(1)[0]
    far = InPlace(lab, site, path, host="elsewhere", pace=PACE)
    uid = far.publish(1)
    far.worker.send("unpublish", uid=uid, drain_ms=PATIENCE_MS)
    site.wait_held_some(uid, 0.1)
    site.kill()
    site.start()
    status = far.worker.receive()["status"]
    if status != "ok":
        expect("the reference stays", status in ("gateway_away", "timeout", "not_found"), True)
        site.wait_holds(uid)
        far.worker.call("unpublish", uid=uid, drain_ms=PATIENCE_MS)
    expect("held", site.holds(uid), True)


@scenario
def a_full_arena_refuses_and_loses_nothing(lab):
    """P3 P10: room is reserved when a shard is sealed; where there is none the rank is told so
    and keeps its memory."""
    path = lab.weights(1)[0]
    size = sum(r["bytes"] for r in safetensors_table(path))
    site = home(lab, arena_mib=size * 3 // 2 >> 20)
    rank = InPlace(lab, site, path)
    first = rank.publish(1)
    site.wait_holds(first)
    reply = rank.worker.call("publish", model="policy", run=rank.run, number=2, in_place=1)
    expect("status", reply["status"], "site_nomem")
    if not any(c.isdigit() for c in reply["error"]):
        raise Failed(f"no numbers in \"{reply['error']}\"")
    expect("the first is still held", site.holds(first), True)
    rank.worker.ok("unpublish", uid=first)
    read_and_compare(lab, site, first, path, "reader")


@scenario
def suspended_memory_is_read_by_nobody_until_it_is_the_same(lab):
    """P1 P4: an engine sleeps: its reference is hidden once the gateway has what it needs;
    awake, it comes back over the same bytes, and over others it does not."""
    site = home(lab)
    path = lab.weights(1)[0]
    rank = InPlace(lab, site, path, host="elsewhere", pace=PACE)
    with over_the_network(weights_bytes(path)):
        uid = rank.publish(1)
        rank.worker.ok("suspend")
    expect("held before it slept", site.holds(uid), True)
    expect("readers", published(rank)[0]["readers"], 0)
    rank.worker.ok("overwrite", at=9 << 20) # nobody looks
    rank.worker.ok("overwrite", at=9 << 20, by=255)
    rank.worker.ok("resume")
    expect("published", [p["state"] for p in published(rank)], ["ok"])
    rank.worker.ok("suspend")
    rank.worker.ok("overwrite", at=9 << 20)
    rank.worker.refused("conflict", "resume")
    expect("the version lives", site.version(uid)["state"], "kept")


@scenario
def memory_that_wakes_elsewhere_is_read_there(lab):
    """P1 P3: an engine slept and its tensors are in other memory now: registered anew, they are
    read there. A gateway that lost all it had gets the version back from them, and the next
    version comes out of them."""
    site = home(lab)
    paths = lab.weights(2)
    size = weights_bytes(paths[0])
    rank = InPlace(lab, site, paths[0], host="elsewhere")
    first = rank.publish(1)
    site.wait_holds(first)
    rank.worker.ok("suspend")
    site.kill()
    site.arena_path.unlink()
    site.start()
    with over_the_network(size):
        wait_for("the rank is back", lambda: rank.worker.call("resume", move=1)["status"] == "ok")
        site.wait_holds(first)
    reader = Rollout(lab, site, "reader", paths[0], host="reader")
    with over_the_network(size):
        reader.stage(first)
    reader.activate(first)
    reader.check(paths[0])
    rank.worker.ok("unpublish", uid=first)
    rank.worker.ok("fill", tensors=rank.rows, file=str(paths[1]))
    with over_the_network(size):
        second = rank.publish(2)
        site.wait_holds(second)
    reader.stage(second)
    reader.activate(second)
    reader.check(paths[1])


@scenario
def a_reader_that_stands_still_is_cut_off(lab):
    """P3 P5 P6: a reader that stopped in the middle, by shm and over the network, holds up a
    release for its drain and no longer; then it goes on elsewhere with what it holds."""
    drain_ms = 700
    site = home(lab, root={"drain_ms": drain_ms})
    path = lab.weights(1)[0]
    size = weights_bytes(path)
    uid = Trainer(lab, site, path).publish(1)
    site.wait_holds(uid)
    for host, transport in (("h1", "shm"), ("h2", NETWORK)):
        source, reader = (Rollout(lab, site, f"{name}-{transport}", path, host=h, pace=pace)
                          for name, h, pace in (("source", "h1", PACE // 16), ("reader", host, 0)))
        for rollout in (source, reader):
            rollout.worker.refused("again", "stage", uid=uid, timeout_ms=0)
            wait_for("it has some", lambda: staged(rollout.worker, uid)["held_chunks"] > 0)
        hop = staged(reader.worker, uid)["hop"]
        expect("transport", hop["transport"], transport)
        expect("readers of the source", staged(source.worker, uid)["readers"], 1)
        reader.worker.signal(signal.SIGSTOP)
        took = seconds(lambda: source.worker.ok("release", uid=uid))
        reader.worker.signal(signal.SIGCONT)
        if took > drain_ms / 1000 + 20 * SLOWER:  # a stopped process stands still for ever
            raise Failed(f"a release with a drain of {drain_ms} ms took {took:.1f} s")
        reader.stage(uid, timeout_ms=PATIENCE_MS)
        reader.activate(uid)
        reader.check(path)
        read = staged(reader.worker, uid)["read_bytes"]
        if read > size * 1.05 + (4 << 20):
            raise Failed(f"{read} bytes were read of {size}")
        for rollout in (source, reader):
            rollout.worker.ok("close")


@scenario
def a_reader_on_the_ranks_host_holds_up_no_unpublish(lab):
    """P1 P3 P6: a worker reads by shm in the memory of a rank of its host, and in the middle of
    that the rank takes it back. One that goes on does so at the gateway; one that stands still
    costs the drain and no longer, and one that dies nothing. The bytes that the rank writes there then are nobody's version."""
    drain_ms = 700
    site = home(lab)
    old, new = lab.weights(2)
    size = weights_bytes(old)
    rank = InPlace(lab, site, old, host="h1")

    def in_mid_read(number):
        name = f"reader{number}"
        slow = SlowReader(lab, name)
        uid = rank.publish(number)
        site.wait_holds(uid)
        reader = Rollout(lab, site, name, old, host="h1", env=slow.env)
        reader.worker.refused("again", "stage", uid=uid, timeout_ms=0)
        wait_for("it has some", lambda: staged(reader.worker, uid)["held_chunks"] > 0)
        expect("transport", staged(reader.worker, uid)["hop"]["transport"], "shm")
        expect("readers of the rank", [p["readers"] for p in published(rank) if p["number"] == number], [1])
        return uid, slow, reader

    def unpublish(uid, most_s):
        took = seconds(lambda: rank.worker.ok("unpublish", uid=uid, drain_ms=drain_ms))
        if took > most_s + 20 * SLOWER:
            raise Failed(f"unpublish with a drain of {drain_ms} ms took {took:.1f} s")
        rank.worker.ok("fill", tensors=rank.rows, file=str(new))

    def has_it_from_elsewhere(reader, uid):
        reader.stage(uid, timeout_ms=PATIENCE_MS)
        reader.activate(uid)
        reader.check(old)
        read = staged(reader.worker, uid)["read_bytes"]
        if read > size * 1.05 + (4 << 20):
            raise Failed(f"{read} bytes were read of {size}")
        rank.worker.ok("fill", tensors=rank.rows, file=str(old))

    def source_kind(number):
        members = next(c for c in site.control("chains")["chains"] if c["number"] == number)["members"]
        source = next(m for m in members if m["kind"] == "worker")["source"]
        return None if source is None else members[source]["kind"]

    uid, slow, reader = in_mid_read(1)
    expect("it reads from the", source_kind(1), "rank")
    rank.worker.send("unpublish", uid=uid, drain_ms=PATIENCE_MS)
    wait_for("it is sent elsewhere", lambda: source_kind(1) == "gateway")
    if rank.worker.has_answered():
        raise Failed("the rank has its memory back, and somebody reads there")
    slow.let_go()
    expect("unpublish", rank.worker.receive()["status"], "ok")
    rank.worker.ok("fill", tensors=rank.rows, file=str(new))
    has_it_from_elsewhere(reader, uid)

    uid, slow, reader = in_mid_read(2)
    reader.worker.stop()
    unpublish(uid, drain_ms / 1000)
    slow.let_go()
    reader.worker.signal(signal.SIGCONT)
    has_it_from_elsewhere(reader, uid)

    uid, slow, reader = in_mid_read(3)
    reader.worker.kill()
    unpublish(uid, 0)
    expect("held", site.holds(uid), True)


if __name__ == "__main__":
    sys.exit(main())
