"""One hop inside a site: a worker that stages what its neighbour holds, against the least that copies and digests as much."""

import itertools
import json
import pathlib
import re
import statistics
import time

import harness
import lab as sites
from measuring import Skip, measurement
from vm_lab import in_the_vm

MIB = 1 << 20
# Hops in a round, and floors behind them: each takes a tenth of a second, and memory that other
# machines use is as fast as they let it. Not by turns: what a floor leaves is 2 GiB that the
# machine may hand back to its host meanwhile, which the hop behind it would pay for.
TURNS = 5
WARM = 3
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")  # a gateway's name for its host
# One after the other, round by round, in one boot. ib_read_bw's MB are MiB.
VERBS_IN_THE_VM = """for round in $(seq {rounds}); do
  ib_read_bw -d rxe0 -F -s 65536 -n {reads} -p 18516 >/tmp/server 2>&1 &
  for i in 1 2 3 4 5 6 7 8 9 10; do
    sleep 1
    if ib_read_bw -d rxe0 -F -s 65536 -n {reads} -p 18516 "$TB_VM_ADDRESS" >/tmp/bw 2>&1; then break; fi
  done
  cat /tmp/bw; wait
  {tool} --bytes $(({reads} * 65536))
done"""


class Neighbours:
    """Two workers of one site; the second reads from the first, by shm when they share a host, else by tcp, in clear or inside TLS."""

    def __init__(self, lab, bench, mib, hosts, name="east", tls=False):
        path = self.path = bench.weights(mib * MIB)
        self.bytes = path.stat().st_size
        self.east = lab.site(name, arena_mib=2 * sites.mib_of(path) + 512)
        self.east.models["policy"] = {"home": name, "keep": 1}
        self.east.extra = {"session": {"lease_ms": 10000}, "fabric": dict(trusted="false" if tls else "true", **sites.WHOLE_INSIDE)}
        self.east.start()
        harness.wait_for("east's catalog has recovered", lambda: not self.east.control("status")["recovering"])
        self.rank, self.run = sites.rank(lab, self.east, path, f"rank-{name}")
        self.pair = [harness.Rollout(lab, self.east, f"{worker}-{name}", path, host=host) for worker, host in zip(("first", "second"), hosts)]
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
        sites.read_whole([second], uid, self.path)
        harness.expect("the second's source", self.east.daemon.logged(f"plan worker={second.worker.name} ")[-1].split("source=")[1].split()[0], first.worker.name)
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
        for _ in range(4):  # pages of two versions, each read twice: the kernel then has them on its active list, where it leaves them
            both.hop_s()
        for _ in range(bench.rounds):
            ours = [both.bytes / both.hop_s() / 1e9 for _ in range(TURNS)]
            floor = [sites.tool([bench.hop_floor, "--way", way, "--bytes", both.bytes])["gb_per_s"] for _ in range(TURNS)]
            yield {key: (statistics.median(ours), statistics.median(floor))}


@measurement("shm.hop", memory=True)
def shm_hop(bench):
    yield from hop(bench, "shm.hop", ("one", "one"), "memory")


@measurement("lent.hop", "lent.hop.socket", memory=True)
def lent_hop(bench):
    """By turns in one run, between two processes: as a gateway in its sandbox reads a rank, and as any other reader does."""
    for _ in range(bench.rounds):
        done = sites.tool([bench.own_hop, "--bytes", (256 if bench.quick else 1024) * MIB, "--rounds", TURNS])
        yield {"lent.hop": (done["lent"], done["readv"]), "lent.hop.socket": (done["lent"], done["socket"])}


def published_gb_per_s(lab, sandbox, path):
    """A function of nothing: GB/s of the next version. Rank and gateway are on one host, as the gateway's own name for it says."""
    site = lab.site("inside" if sandbox else "outside", arena_mib=2 * sites.mib_of(path) + 512)
    site.models["policy"] = {"home": site.name, "keep": 1}
    site.extra = {"session": {"lease_ms": 10000}, "log": {"level": "debug"}}
    site.root["sandbox"] = "true" if sandbox else "false"
    site.start()
    harness.wait_for("the catalog has recovered", lambda: not site.control("status")["recovering"])
    worker, run = sites.rank(lab, site, path, f"rank-{site.name}", host=BOOT_ID.read_text(encoding="ascii").strip())
    way = "same host, by lent memory" if sandbox else "same host, by process_vm_readv"
    numbers = itertools.count(1)

    def one():
        number = next(numbers)
        start = time.monotonic()
        uid = worker.ok("publish", model="policy", run=run, number=number, in_place=1, timeout_ms=120000)["uid"]
        seconds = sites.logged_at(site.daemon, "copy.whole", f"number={number} ") - start
        harness.expect("the way", f'why="{way}"' in site.daemon.logged("landing.hop_open ")[-1], True)
        worker.ok("unpublish", uid=uid)
        return path.stat().st_size / seconds / 1e9
    return one


@measurement("lent.publish", memory=True)
def lent_publish(bench):
    """By turns, each from a gateway and a rank of its own."""
    with harness.Lab() as lab:
        path = bench.weights((256 if bench.quick else 512) * MIB)
        inside, outside = (published_gb_per_s(lab, sandbox, path) for sandbox in (True, False))
        for _ in range(WARM):  # the first versions make memory that later ones find
            inside()
            outside()
        for _ in range(bench.rounds):
            both = [(inside(), outside()) for _ in range(TURNS)]
            yield {"lent.publish": tuple(statistics.median(side) for side in zip(*both))}


@measurement("tcp.hop", memory=True)
def tcp_hop(bench):
    yield from hop(bench, "tcp.hop", ("one", "other"), "socket")


@measurement("tls.hop", memory=True)
def tls_hop(bench):
    """By turns, each between two workers of a site of its own."""
    with harness.Lab() as lab:
        inside, clear = (Neighbours(lab, bench, 256 if bench.quick else 512, ("one", "other"), name, tls) for name, tls in (("inside", True), ("clear", False)))
        for _ in range(4):
            inside.hop_s()
            clear.hop_s()
        for _ in range(bench.rounds):
            both = [tuple(side.bytes / side.hop_s() / 1e9 for side in (inside, clear)) for _ in range(TURNS)]
            yield {"tls.hop": tuple(statistics.median(rates) for rates in zip(*both))}


@measurement("verbs.hop", quick=False)
def verbs_hop(bench):
    """Over rdma_rxe in an emulated processor: only the ratio means anything."""
    if not bench.verbs_hop.exists():
        raise Skip("tombolo-verbs-hop is not built")
    script = VERBS_IN_THE_VM.format(rounds=bench.rounds, reads=1000, tool=bench.verbs_hop)
    answer = in_the_vm(400, "bash", "-c", script)
    said = answer["stdout"].splitlines()
    theirs = [float(line.split()[3]) for line in said if re.match(r"^\s*65536\s+\d+", line)]
    ours = [json.loads(line)["mib_per_s"] for line in said if line.startswith('{"bytes"')]
    if not ours or len(ours) != len(theirs):
        raise Skip(f"the VM gave {len(ours)} rates of ours and {len(theirs)} of ib_read_bw: {answer['stdout'][-150:]}")
    for pair in zip(ours, theirs):
        yield {"verbs.hop": pair}


@measurement("floor.digest", memory=True)
def digest_cores(bench):
    """XXH3-128 of what came over a NIC of 400 Gbit/s; hop_floor's memory way without its copy."""
    for _ in range(bench.rounds):
        rate = sites.tool([bench.hop_floor, "--way", "digest", "--digest", "xxh3", "--bytes", 1024 * MIB])["gb_per_s"]
        yield {"floor.digest": (50 / rate, 1)}
