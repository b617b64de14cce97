"""What the fleet's model says (no measurement of this machine, the same in every round), and what joining costs a catalog."""

import json
import subprocess

from measuring import measurement


def model(bench, **options):
    argv = [str(bench.fleet), "--json"]
    for name, value in options.items():
        argv += [f"--{name}", str(value)]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return json.loads(done.stdout)["planned"]


@measurement("fleet.floor")
def fleet_floor(bench):
    for _ in range(bench.rounds):
        r = model(bench, sites=20, hosts=125, workers=8, bytes=240e9, chunks=16384)
        yield {"fleet.floor": (r["workers_s"]["last"], r["floor_s"])}


@measurement("fleet.chain.n1000")
def fleet_chain(bench):
    for _ in range(bench.rounds):
        common = {"sites": 1, "workers": 1, "chunks": 8192, "link": 100e9, "nic": 100e9}
        many, one = model(bench, hosts=1000, **common), model(bench, hosts=1, **common)
        yield {"fleet.chain.n1000": (many["workers_s"]["last"], one["workers_s"]["last"])}


@measurement("fleet.joins")
def fleet_joins(bench):
    for _ in range(bench.rounds):
        done = subprocess.run([str(bench.joins), "--workers", "10000", "--json"], check=True, stdout=subprocess.PIPE,
                              text=True, timeout=300)
        r = json.loads(done.stdout)
        yield {"fleet.joins": (r["cpu_s"], r["lease_s"])}
