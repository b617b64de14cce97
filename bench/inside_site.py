"""The cost of publishing and spreading inside a site."""

import contextlib
import time

import harness
import lab as sites
from measuring import measurement

MIB = 1 << 20
PACE = 32 * MIB         # bytes a second of each emulated NIC: four of them leave two cores mostly idle
CHAIN_MIB = 512         # chunks of 1 MiB: 512 of them


@measurement("publish.hold", memory=True)
def publish_hold(bench):
    with harness.Lab() as lab:
        path = bench.weights(1024 * MIB)
        east, west = sites.east_west(lab, arena_mib=2 * sites.mib_of(path) + 512, keep=1)
        east.start()
        west.start()
        west.wait_link("east")
        west.kill()
        worker, run = sites.rank(lab, east, path)
        # A catalog that just started evicts nothing for one lease, so an arena of two versions
        # takes no third until then.
        harness.wait_for("east's catalog has recovered", lambda: not east.control("status")["recovering"])
        for number in range(1, bench.rounds + 3):
            done = sites.publish(worker, run, number)
            harness.wait_for("east holds it", lambda: east.holds(done["uid"]), timeout_s=120)
            if number <= 2:
                continue
            copied = sites.tool([bench.memory_copy, "--bytes", path.stat().st_size])
            yield {"publish.hold": (done["hold_ns"] / 1e9, copied["seconds"])}


FIRST_MIB = 1024
PREPARED_S = 5          # from the registration to the first call that needs the memory
STEADY_FROM = 3         # the first version that finds all memory made by earlier ones


def one_site(lab, path):
    """A site whose arena has room for the versions that two readers of a model hold at a time."""
    site = lab.site("east", arena_mib=3 * sites.mib_of(path) + 512)
    site.models["policy"] = dict(home="east", keep=1)
    site.extra = {"session": {"lease_ms": 10000}}
    site.start()
    return site


@measurement("publish.hold.first", memory=True)
def publish_hold_first(bench):
    with harness.Lab() as lab:
        path = bench.weights(FIRST_MIB * MIB)
        site, number = one_site(lab, path), 0
        for i in range(bench.rounds):
            worker, run = sites.rank(lab, site, path, f"rank{i}")
            worker.ok("prepare", model="policy", shard=0)
            time.sleep(PREPARED_S)
            holds = []
            for _ in range(STEADY_FROM):
                number += 1
                done = sites.publish(worker, run, number)
                harness.wait_for("east holds it", lambda: site.holds(done["uid"]), timeout_s=120)
                holds.append(done["hold_ns"] / 1e9)
            worker.kill()
            yield {"publish.hold.first": (holds[0], holds[-1])}


@measurement("stage.first", memory=True)
def stage_first(bench):
    with harness.Lab() as lab:
        path = bench.weights(FIRST_MIB * MIB)
        site = one_site(lab, path)
        rank, run = sites.rank(lab, site, path)
        tensors = harness.safetensors_table(path)
        number = 1
        uid = sites.publish(rank, run, number)["uid"]
        for i in range(bench.rounds):
            reader = harness.Worker(lab, f"reader{i}", site, threads=0)
            reader.send("register", tensors=tensors)
            harness.expect("register", reader.receive(timeout_s=300)["status"], "ok")
            reader.ok("subscribe", model="policy", group=f"group{i}", memory=0)
            time.sleep(PREPARED_S)
            seconds = []
            for _ in range(STEADY_FROM):
                harness.wait_for("east holds it", lambda: site.holds(uid), timeout_s=120)
                start = time.monotonic()
                reader.send("stage", uid=uid, timeout_ms=120000)
                harness.expect("stage", reader.receive(timeout_s=150)["status"], "ok")
                seconds.append(time.monotonic() - start)
                reader.ok("activate", uid=uid)
                reader.ok("release", uid=uid)
                number += 1
                uid = sites.publish(rank, run, number)["uid"]
            reader.kill()
            yield {"stage.first": (seconds[0], seconds[-1])}


def spread_s(site, uid, workers):
    """Seconds until these workers, each on a host with a NIC of its own, have staged the version; what they staged is released again,
    and its memory stands for the next time."""
    start = time.monotonic()
    for w in workers:
        w.worker.send("stage", uid=uid, timeout_ms=240000)
    for w in workers:
        reply = w.worker.receive(timeout_s=300)
        harness.expect(f"{w.worker.name} stages", reply["status"], "ok")
    seconds = time.monotonic() - start
    planned = [site.daemon.logged(f"plan worker={w.worker.name} ") for w in workers]
    harness.expect("hosts that read from the gateway last", sum("source=gw" in p[-1] for p in planned), 1)
    for w in workers:
        w.worker.ok("release", uid=uid)
    return seconds


@contextlib.contextmanager
def version_at_home(bench, mib):
    """(lab, site, path, uid): a version that the site's gateway holds and whose publisher is gone."""
    with harness.Lab() as lab:
        path = bench.weights(mib * MIB)
        east = lab.site("east", arena_mib=2 * sites.mib_of(path) + 512)
        east.models["policy"] = dict(home="east", keep=1)
        east.extra = {"session": {"lease_ms": 10000}}
        east.start()
        publisher, run = sites.rank(lab, east, path)
        uid = sites.publish(publisher, run, 1)["uid"]
        harness.wait_for("east holds it", lambda: east.holds(uid), timeout_s=120)
        publisher.kill()
        yield lab, east, path, uid


MANY = 100_000
MANY_MIB = 512
ALIGNED = 64            # what tests/system/worker.c puts tensors on: of such sizes they stand without a gap, as in an engine's flat buffer


class Follower:
    """A model of one rank whose bytes fall into `count` tensors, and a worker that follows it."""

    def __init__(self, lab, site, path, model, count, in_place=False):
        data = harness.safetensors_table(path)[0]["offset"]
        size = MANY_MIB * MIB // MANY // ALIGNED * ALIGNED * (MANY // count)
        self.in_place = in_place
        rows = [{"name": f"layer.{i:06}.weight", "dtype": "BF16", "shape": [size // 2], "offset": data + i * size, "bytes": size} for i in range(count)]
        self.model, self.number = model, 0
        self.rank = harness.Worker(lab, f"rank-{model}", site, threads=0)
        self.reader = harness.Worker(lab, f"reader-{model}", site, threads=0)
        for worker, more in ((self.rank, {"file": str(path)}), (self.reader, {})):
            worker.send("register", tensors=rows, **more)
            harness.expect("register", worker.receive(timeout_s=300)["status"], "ok")
        self.run = self.rank.ok("run", model=model, key="bench")["run"]
        self.reader.ok("subscribe", model=model, group=model, memory=0)

    def follow_s(self):
        """Seconds until the next version is in the reader's buffers."""
        self.number += 1
        start = time.monotonic()
        self.rank.ok("publish", model=self.model, run=self.run, number=self.number, shard=0, shards=1, in_place=int(self.in_place), timeout_ms=120000)
        uid = self.reader.ok("wait", model=self.model, kind="exact", number=self.number, timeout_ms=120000)["uid"]
        self.reader.send("stage", uid=uid, timeout_ms=120000)
        harness.expect("stage", self.reader.receive(timeout_s=150)["status"], "ok")
        self.reader.ok("activate", uid=uid)
        seconds = time.monotonic() - start
        self.reader.ok("release", uid=uid)
        if self.in_place: # its memory is the rank's again, as it is before a trainer's next step
            self.rank.send("unpublish", uid=uid, drain_ms=10000)
            harness.expect("unpublish", self.rank.receive(timeout_s=60)["status"], "ok")
        return seconds


def many_tensors(bench, in_place):
    """Pairs of seconds: a version in many tensors, and in one."""
    with harness.Lab() as lab:
        path = bench.versions((MANY_MIB + 16) * MIB, 1)[0]  # cut into tensors as this key says, so no other file will do
        site = lab.site("east", arena_mib=6 * MANY_MIB)
        for model in ("many", "one"):
            site.models[model] = dict(home="east", keep=1)
        site.extra = {"session": {"lease_ms": 10000}}
        site.start()
        many, one = Follower(lab, site, path, "many", MANY, in_place), Follower(lab, site, path, "one", 1, in_place)
        for i in range(bench.rounds + 2): # shadows and staging are made in the first two
            pair = many.follow_s(), one.follow_s()
            if i >= 2:
                yield pair


@measurement("tensors.many", quick=False)
def many_tensors_in_shadow(bench):
    for pair in many_tensors(bench, in_place=False):
        yield {"tensors.many": pair}


@measurement("tensors.many.in_place", quick=False)
def many_tensors_in_place(bench):
    for pair in many_tensors(bench, in_place=True):
        yield {"tensors.many.in_place": pair}


@measurement("chain.n4", "chain.n8", "fabric.pace", quick=False)
def chain(bench):
    """The last host of each chain against a host alone, whose rate is held against its NIC's: round by round."""
    with version_at_home(bench, CHAIN_MIB) as (lab, east, path, uid):
        bytes_of_it = east.version(uid)["bytes"]
        workers = [harness.Rollout(lab, east, f"host{n}", path, host=f"host{n}", pace=PACE) for n in range(8)]
        spread_s(east, uid, workers)  # eight hosts' memory is new to one machine, which may give it out slower than their NICs fill it
        for _ in range(bench.rounds):
            one, four, eight = (spread_s(east, uid, workers[:hosts]) for hosts in (1, 4, 8))
            yield {"chain.n4": (four, one), "chain.n8": (eight, one), "fabric.pace": (bytes_of_it / one / MIB, PACE / MIB)}
