#!/usr/bin/env python3
"""check_wan: the fleet's model beside real gateways and workers over the emulated WAN, on cases small enough to run both."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
WITHIN = 0.15
TCP = "tcp: {rmem: 4096 131072 67108864, wmem: 4096 131072 67108864}\n"
EPILOG = f"""Each case: east publishes a version; west and north cross it and spread it among hosts whose NICs are paced. Compared are the times
until a site's gateway holds it and until the median and the last of its workers do, model over measured; good is within {100 * WITHIN:.0f} %.
Time begins when the publisher's call returns. Needs root (namespaces) and the programs of a build (TB_BUILD_DIR).
Example: TB_BUILD_DIR=build/release sim/fleet/check_wan.py --rounds 3
Exit codes: 0 all within, 1 some not, 75 the emulator fell behind so the run is void, 77 no lab on this machine."""

# Mbit/s and ms one way of each link, bytes a second of a NIC, hosts of each site. Slow enough that
# two cores are never what limits them.
CASES = {
    "link": {"links": {"west": (50, 20), "north": (30, 40)}, "nic": 20e6, "hosts": {"west": 4, "north": 2}},
    "nic": {"links": {"west": (80, 20), "north": (60, 5)}, "nic": 5e6, "hosts": {"west": 4, "north": 3}},
}


def build_folder():
    if "TB_BUILD_DIR" in os.environ:
        return pathlib.Path(os.environ["TB_BUILD_DIR"]).resolve()
    return next((ROOT / "build" / n for n in ("release", "dev") if (ROOT / "build" / n / "tests/system/tombolo-test-worker").exists()), ROOT / "build/release")


os.environ["TB_BUILD_DIR"] = str(build_folder())
sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "sim/wan")]
import harness  # noqa: E402
import wanlab  # noqa: E402


def wan_file(case, folder):
    path = pathlib.Path(folder) / "wan.yaml"
    lines = [f"  - {{between: [east, {site}], rate: {rate}Mbit, delay: {delay}ms, queue: 4MiB}}" for site, (rate, delay) in case["links"].items()]
    path.write_text(f"sites: [east, {', '.join(case['links'])}]\n{TCP}paths:\n" + "\n".join(lines) + "\n")
    return path


def fleet_file(case, size, chunks, folder):
    path = pathlib.Path(folder) / "fleet.yaml"
    nic = f"{case['nic'] * 8 / 1e6}Mbit"
    sites = [f"  {site}: {{hosts: {hosts}, nic: {nic}, fan_out: 1, rtt: 200us, hop: 1ms, plan: 10ms}}" for site, hosts in case["hosts"].items()]
    links = [f"  - {{between: [east, {site}], rate: {rate}Mbit, delay: {delay}ms}}" for site, (rate, delay) in case["links"].items()]
    path.write_text(f"version: {{bytes: {size}, chunks: {chunks}}}\nhome: east\nsites:\n  east:\n" + "\n".join(sites) + "\nlinks:\n" + "\n".join(links) + "\n")
    return path


def modelled(case, size, chunks, folder):
    program = build_folder() / "sim/fleet/tombolo-fleet"
    told = json.loads(subprocess.check_output([program, str(fleet_file(case, size, chunks, folder)), "--json"], text=True))
    return {s["name"]: {"gateway": s["gateway_s"], "median": s["workers_s"]["median"], "last": s["workers_s"]["last"]}
            for s in told["sites"] if s["name"] != "east"}


class Real:
    """The sites of a case as real processes."""

    def __init__(self, case, wan, lab, size):
        self.case, self.wan, self.lab = case, wan, lab
        lab.dir.chmod(0o755)
        subprocess.run([harness.MAKE_WEIGHTS, "--out", lab.dir / "weights", "--bytes", str(size), "--versions", "1", "--seed", "3"], check=True,
                       stdout=subprocess.DEVNULL)
        self.path = next((lab.dir / "weights").glob("*.safetensors"))
        self.size = sum(t["bytes"] for t in harness.safetensors_table(self.path))
        self.sites = {}
        lab.address = wan.address("east")
        for name in ("east", *case["links"]):
            self.add_site(name, 3 * size // MIB + 64)
        for site in self.sites.values():
            site.start()
        for name in case["links"]:
            self.sites[name].wait_link("east")

    def add_site(self, name, arena_mib):
        self.lab.free_port = lambda: 20000 + len(self.sites) * 2
        site = self.sites[name] = self.lab.site(name, arena_mib=arena_mib)
        site.prefix = site.worker_prefix = [*self.wan.enter(name, []), "setpriv", "--pdeathsig", "KILL"]
        site.models["policy"] = {"home": "east"}
        site.extra = {"link": {"streams": 8, "heartbeat_ms": 1000, "down_ms": 5000, "codec": "raw"}, "session": {"lease_ms": 10000},
                      "fabric": {"trusted": "true"}}
        if name == "east":  # landing at home is not in the model, so no NIC holds it up
            return
        site.extra["fabric"]["pace_bytes_per_s"] = int(self.case["nic"])
        site.listen = False
        site.peers["east"] = f"{self.wan.address('east')}:{self.sites['east'].port}"
        site.subscribe.append(("policy", ["east"]))
        self.sites["east"].peers[name] = None

    def follow(self, name):
        return [harness.Rollout(self.lab, self.sites[name], f"{name}-{i}", self.path, host=f"host{i}", pace=int(self.case["nic"]))
                for i in range(self.case["hosts"][name])]

    def measure(self):
        rollouts = {name: self.follow(name) for name in self.case["links"]}
        rank = harness.Worker(self.lab, "rank", self.sites["east"], threads=0)
        rank.ok("register", tensors=harness.safetensors_table(self.path), file=str(self.path))
        run = rank.ok("run", model="policy", key="check")["run"]
        for group in rollouts.values():
            for r in group:
                r.worker.send("wait", model="policy", kind="next", timeout_ms=60000)
        uid = rank.ok("publish", model="policy", run=run, number=1, shard=0, shards=1, timeout_ms=60000)["uid"]
        begun = time.monotonic()
        times = {name: {"workers": []} for name in rollouts}
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            ends = [pool.submit(self.stage, r, uid, begun, times[name]["workers"]) for name, group in rollouts.items() for r in group]
            ends += [pool.submit(self.land, name, uid, begun, times[name]) for name in rollouts]
            for end in ends:
                end.result()
        chunks = {name: self.sites[name].version(uid).get("chunks") for name in rollouts}
        return {name: {"gateway": t["gateway"], "median": statistics.median_low(t["workers"]), "last": max(t["workers"])} for name, t in times.items()}, chunks

    def stage(self, rollout, uid, begun, into):
        harness.expect("wait", rollout.worker.receive(timeout_s=90)["status"], "ok")
        rollout.worker.send("stage", uid=uid, timeout_ms=120000)
        harness.expect("stage", rollout.worker.receive(timeout_s=130)["status"], "ok")
        into.append(time.monotonic() - begun)

    def land(self, name, uid, begun, into):
        harness.wait_for(f"{name} holds it", lambda: self.sites[name].holds(uid), timeout_s=120)
        into["gateway"] = time.monotonic() - begun


def chunks_of(size):
    """As base/layout/chunk_cut.c cuts one tensor of so many bytes; several tensors give a few more."""
    target = MIB
    while target * 2 <= size / 4096 and target < 16 * MIB:
        target *= 2
    return -(-size // target)


def one_round(case, size):
    with tempfile.TemporaryDirectory() as folder:
        with wanlab.lab(wan_file(case, folder)) as wan, harness.Lab() as lab:
            real = Real(case, wan, lab, size)
            measured, chunks = real.measure()
            bytes_of = real.size
        if wan.void:
            print(f"void: the emulator fell behind: {wan.why}", file=sys.stderr)
            return None
        known = next((c for c in chunks.values() if c), None) or chunks_of(bytes_of)
        return modelled(case, bytes_of, known, folder), measured


def compare(name, rounds):
    """Lines of one case; the largest deviation."""
    worst = 0
    rows = []
    for site in rounds[0][0]:
        for what in ("gateway", "median", "last"):
            model = statistics.median(r[0][site][what] for r in rounds)
            real = statistics.median(r[1][site][what] for r in rounds)
            spread = [r[1][site][what] for r in rounds]
            worst = max(worst, abs(model / real - 1))
            rows.append({"case": name, "site": site, "what": what, "model_s": model, "measured_s": real, "min_s": min(spread), "max_s": max(spread),
                         "ratio": model / real})
    return rows, worst


def main():
    parser = argparse.ArgumentParser(prog="sim/fleet/check_wan.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="of each case; the medians are compared (default 1)")
    parser.add_argument("--mib", type=int, default=32, help="of the version (default 32)")
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="only this one")
    parser.add_argument("--json", action="store_true", help="one object")
    args = parser.parse_args()
    reason = wanlab.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 77
    os.setpriority(os.PRIO_PROCESS, 0, -10)  # what is compared is links and NICs, not whatever else this machine does
    told, worst = [], 0
    for name in args.case or CASES:
        rounds = [one_round(CASES[name], args.mib * MIB) for _ in range(args.rounds)]
        if None in rounds:
            return wanlab.VOID
        rows, off = compare(name, rounds)
        told += rows
        worst = max(worst, off)
    if args.json:
        print(json.dumps({"rows": told, "worst": worst, "within": WITHIN}))
    else:
        print(f"{'case':6} {'site':8} {'held by':10} {'model s':>9} {'measured s':>11} {'ratio':>7}")
        for r in told:
            print(f"{r['case']:6} {r['site']:8} {r['what']:10} {r['model_s']:9.3f} {r['measured_s']:11.3f} {r['ratio']:7.3f}")
        print(f"the largest deviation is {100 * worst:.1f} % (good: {100 * WITHIN:.0f} %)")
    return 0 if worst <= WITHIN else 1


if __name__ == "__main__":
    sys.exit(main())
