"""The fleet's model, event by event with the shipped catalog, planner, hops and crossings (no measurement of this machine, the
same in every round), and what joining costs a catalog.

The closed recurrence of the planner's tree leaves out how late a hop looks and how TCP begins: no time may be below its own."""

import json
import subprocess

import harness
from measuring import measurement

TIMEOUT_S = 900  # 20,000 workers and 16,384 chunks take minutes of one core
LEAST = 0.99     # of the recurrence: chunks that cross beside each other end together there


def said(*argv):
    done = subprocess.run([*map(str, argv), "--json"], check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    return json.loads(done.stdout)


def recurrence(bench, **options):
    return said(bench.fleet, *(word for name, value in options.items() for word in (f"--{name}", value)))["planned"]


def last_s(bench, name, fleet, at_least_s):
    """When the last worker of a fleet, as text, holds the version."""
    file = bench.folder / f"{name}.yaml"
    file.write_text(fleet, encoding="utf-8")
    last = said(bench.fleet, file)["workers_s"]
    if last["never"] > 0 or last["last"] < LEAST * at_least_s:
        raise harness.Failed(f"{name}: {last} cannot be: the closed recurrence, a lower bound, has {at_least_s:.4g} s")
    bench.say(f"  {name}: {last['last']:.4g} s; the closed recurrence {at_least_s:.4g} s")
    return last["last"]


@measurement("fleet.floor")
def fleet_floor(bench):
    chunks = 2048 if bench.quick else 16384
    lower = recurrence(bench, sites=20, hosts=125, workers=8, bytes=240e9, chunks=chunks)
    sites = "".join(f"  s{i:02}: {{hosts: 125, workers: 8, nic: 100Gbit}}\n" for i in range(20))
    links = "".join(f"  - {{between: [s00, s{i:02}], rate: 10Gbit, delay: 40ms}}\n" for i in range(1, 20))
    last = last_s(bench, "floor", f"version: {{bytes: 240GB, chunks: {chunks}}}\nhome: s00\nsites:\n{sites}links:\n{links}", lower["workers_s"]["last"])
    for _ in range(bench.rounds):
        yield {"fleet.floor": (last, lower["floor_s"])}


@measurement("fleet.chain.n1000")
def fleet_chain(bench):
    def of(hosts):
        lower = recurrence(bench, sites=1, hosts=hosts, workers=1, bytes=128 << 30, chunks=8192, link=100e9, nic=100e9)
        return last_s(bench, f"chain of {hosts}", "version: {bytes: 128GiB, chunks: 8192}\nhome: east\nsites:\n  east: {}\n"
                      f"  west: {{hosts: {hosts}, workers: 1, nic: 100Gbit, fan_out: 1}}\n"
                      "links:\n  - {between: [east, west], rate: 100Gbit, delay: 40ms}\n", lower["workers_s"]["last"])
    pair = of(1000), of(1)
    for _ in range(bench.rounds):
        yield {"fleet.chain.n1000": pair}


@measurement("fleet.joins")
def fleet_joins(bench):
    for _ in range(bench.rounds):
        r = said(bench.joins, "--workers", 10000)
        yield {"fleet.joins": (r["cpu_s"], r["lease_s"])}
