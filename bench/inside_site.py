"""What publishing and spreading cost inside a site."""

import contextlib
import time

import harness
import lab as sites
from measuring import measurement

MIB = 1 << 20
PACE = 32 * MIB         # bytes a second of each emulated NIC: four of them leave two cores mostly idle
CHAIN_MIB = 512         # chunks of 1 MiB: 512 of them


@measurement("publish.hold")
def publish_hold(bench):
    size = 1024 * MIB
    with harness.Lab() as lab:
        path = bench.weights(size)
        east, west = sites.east_west(lab, arena_mib=2 * size // MIB + 512, keep=1)
        east.start()
        west.start()
        west.wait_link("east")
        west.kill()
        worker, run = sites.rank(lab, east, path)
        # A catalog that just started evicts nothing for one lease, so an arena of two versions takes no third until then.
        harness.wait_for("east's catalog has recovered", lambda: not east.control("status")["recovering"])
        for number in range(1, bench.rounds + 3):
            done = sites.publish(worker, run, number)
            harness.wait_for("east holds it", lambda: east.holds(done["uid"]), timeout_s=120)
            if number <= 2:
                continue
            copied = sites.tool([bench.memory_copy, "--bytes", size])
            yield {"publish.hold": (done["hold_ns"] / 1e9, copied["seconds"])}


def spread_s(lab, site, path, uid, names):
    """Seconds until workers on as many hosts, each with a NIC of its own, have staged the version."""
    workers = [harness.Rollout(lab, site, name, path, host=name, pace=PACE) for name in names]
    start = time.monotonic()
    for w in workers:
        w.worker.send("stage", uid=uid, timeout_ms=240000)
    for w in workers:
        reply = w.worker.receive(timeout_s=300)
        harness.expect(f"{w.worker.name} stages", reply["status"], "ok")
    seconds = time.monotonic() - start
    planned = [site.daemon.logged(f"plan worker={name} ") for name in names]
    harness.expect("hosts that read from the gateway last", sum("source=gw" in p[-1] for p in planned), 1)
    for w in workers:
        w.worker.ok("close")
        w.worker.kill()
    return seconds


@contextlib.contextmanager
def version_at_home(bench, mib):
    """(lab, site, path, uid): a version that the site's gateway holds and whose publisher is gone."""
    with harness.Lab() as lab:
        path = bench.weights(mib * MIB)
        east = lab.site("east", arena_mib=2 * mib + 512)
        east.models["policy"] = dict(home="east", keep=1)
        east.extra = {"session": {"lease_ms": 10000}}
        east.start()
        publisher, run = sites.rank(lab, east, path)
        uid = sites.publish(publisher, run, 1)["uid"]
        harness.wait_for("east holds it", lambda: east.holds(uid), timeout_s=120)
        publisher.kill()
        yield lab, east, path, uid


@measurement("chain.n4", "chain.n8", "fabric.pace", quick=False)
def chain(bench):
    """The last host of each chain against a host alone, whose rate is held against its NIC's: round by round."""
    with version_at_home(bench, CHAIN_MIB) as (lab, east, path, uid):
        bytes_of_it = east.version(uid)["bytes"]
        for i in range(bench.rounds):
            one = spread_s(lab, east, path, uid, [f"host{i}-alone"])
            four, eight = (spread_s(lab, east, path, uid, [f"host{i}-{hosts}-{n}" for n in range(hosts)]) for hosts in (4, 8))
            yield {"chain.n4": (four, one), "chain.n8": (eight, one), "fabric.pace": (bytes_of_it / one / MIB, PACE / MIB)}
