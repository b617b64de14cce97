"""One hop inside a site: a worker that stages what its neighbour holds, against the least that copies and digests as much."""

import itertools
import time

import harness
import lab as sites
from measuring import measurement

MIB = 1 << 20


class Neighbours:
    """Two workers of one site; the second reads from the first, by shm when they share a host, else by tcp in clear."""

    def __init__(self, lab, bench, mib, hosts):
        path = bench.weights(mib * MIB)
        self.bytes = path.stat().st_size
        self.east = lab.site("east", arena_mib=2 * mib + 512)
        self.east.models["policy"] = {"home": "east", "keep": 1}
        self.east.extra = {"session": {"lease_ms": 10000}, "fabric": {"trusted": "true"}}
        self.east.start()
        harness.wait_for("east's catalog has recovered", lambda: not self.east.control("status")["recovering"])
        self.rank, self.run = sites.rank(lab, self.east, path)
        self.pair = [harness.Rollout(lab, self.east, name, path, host=host) for name, host in zip(("first", "second"), hosts)]
        self.numbers = itertools.count(1)
        self.before = None

    def hop_s(self):
        """Seconds of the second's tb_stage, once the first has all."""
        uid = sites.publish(self.rank, self.run, next(self.numbers))["uid"]
        harness.wait_for("east holds it", lambda: self.east.holds(uid), timeout_s=120)
        first, second = self.pair
        first.stage(uid, timeout_ms=120000)
        start = time.monotonic()
        second.stage(uid, timeout_ms=120000)
        seconds = time.monotonic() - start
        harness.expect("the second's source", self.east.daemon.logged("plan worker=second ")[-1].split("source=")[1].split()[0], "first")
        for worker in self.pair:
            worker.activate(uid)
            if self.before is not None:
                worker.worker.ok("release", uid=self.before)
        self.before = uid
        return seconds


def hop(bench, key, hosts, way):
    size = 256 if bench.quick else 1024
    with harness.Lab() as lab:
        both = Neighbours(lab, bench, size, hosts)
        for _ in range(2):
            both.hop_s()  # the pages of two versions stand from then on
        for _ in range(bench.rounds):
            ours = both.bytes / both.hop_s() / 1e9
            yield {key: (ours, sites.tool([bench.hop_floor, "--way", way, "--bytes", both.bytes])["gb_per_s"])}


@measurement("shm.hop")
def shm_hop(bench):
    yield from hop(bench, "shm.hop", ("one", "one"), "memory")


@measurement("tcp.hop")
def tcp_hop(bench):
    yield from hop(bench, "tcp.hop", ("one", "other"), "socket")
