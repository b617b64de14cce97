"""The cost of a link: its goodput on loopback, and the memory of the gateways at its ends."""

import functools
import itertools

import harness
import lab as sites
from measuring import measurement

MIB = 1 << 20
BUDGET_MIB = 64 + sites.LINK_STREAMS


@functools.cache
def best_pumps(pump, size, streams, congestions, count=3):
    """The fastest ways of the pump at this size, as argument lists; each was run once."""
    ways = [["--streams", n, "--congestion", c, *batched] for n in streams for c in congestions for batched in ([], ["--batched"])]
    return sorted(ways, key=lambda way: sites.tool([pump, "--bytes", size, *way])["seconds"])[:count]


def pump_gb_per_s(bench, size):
    """The best in this minute, of the ways that were fastest when all were tried: streams, congestion controls, blocking and
    batched."""
    ways = best_pumps(bench.pump, size, (1, 2) if bench.quick else (1, 2, 4, 8), tuple(bench.congestions()))
    return max(sites.tool([bench.pump, "--bytes", size, *way])["gb_per_s"] for way in ways)


def crossings(lab, bench, size):
    """(east, west, cross) with two versions crossed already, so that both arenas' pages are mapped; cross() publishes
    the next, which is whole in east's arena before west hears of it, and returns (bytes, seconds) of its crossing."""
    path = bench.weights(size)
    east, west = sites.east_west(lab, arena_mib=2 * sites.mib_of(path) + 512, keep=1)
    east.start()
    west.start()
    west.wait_link("east")
    worker, run = sites.rank(lab, east, path)
    numbers = itertools.count(1)

    def cross():
        number = next(numbers)
        with sites.stopped(west.daemon):
            uid = sites.publish(worker, run, number)["uid"]
            harness.wait_for("east holds it", lambda: east.holds(uid), timeout_s=120)
            count = east.version(uid)["bytes"]
        return count, sites.crossing_s(west, number)
    for _ in range(2):
        cross()
    return east, west, cross


@measurement("link.loopback", memory=True)
def link_loopback(bench):
    with harness.Lab() as lab:
        _, _, cross = crossings(lab, bench, 1024 * MIB)
        for _ in range(bench.rounds):
            count, seconds = cross()
            yield {"link.loopback": (count / seconds / 1e9, pump_gb_per_s(bench, 1024 * MIB))}


@measurement("gateway.rss", "gateway.rss.home")
def gateway_rss(bench):
    with harness.Lab() as lab:
        east, west, cross = crossings(lab, bench, 1024 * MIB)
        for _ in range(bench.rounds):
            with sites.rss_anon_sampled(west.daemon) as at_west, sites.rss_anon_sampled(east.daemon) as at_east:
                cross()
            yield {"gateway.rss": (max(at_west), BUDGET_MIB), "gateway.rss.home": (max(at_east), BUDGET_MIB)}
