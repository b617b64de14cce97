"""What a link costs: its goodput on loopback, and the memory of the gateways at its ends."""

import itertools

import harness
import lab as sites
from measuring import Key, measurement

MIB = 1 << 20
BUDGET_MIB = 64 + sites.LINK_STREAMS


def pump_gb_per_s(bench, size):
    """The best of streams and congestion controls, in this minute."""
    best = 0
    for streams in (1, 2) if bench.quick else (1, 2, 4, 8):
        for congestion in bench.congestions():
            best = max(best, sites.tool([bench.pump, "--bytes", size, "--streams", streams,
                                         "--congestion", congestion])["gb_per_s"])
    return best


def crossings(lab, bench, size):
    """(east, west, cross) with two versions crossed already, so that both arenas' pages are mapped; cross() publishes
    the next, which is whole in east's arena before west hears of it, and returns (bytes, seconds) of its crossing."""
    path = bench.weights(size)
    east, west = sites.east_west(lab, arena_mib=2 * size // MIB + 512, keep=1)
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


@measurement(Key("link.loopback", "GB/s", ">= 0.5",
                 "goodput of a version of 1 GiB from east's arena to west's, TLS 1.3 and digests on, from crossing "
                 f"begun to whole at west; {sites.LINK_STREAMS} streams, raw codec",
                 "the TLS pump: best of 1, 2, 4, 8 streams, bbr and cubic where the kernel has them, cold 1 GiB"))
def link_loopback(bench):
    with harness.Lab() as lab:
        _, _, cross = crossings(lab, bench, 1024 * MIB)
        for _ in range(bench.rounds):
            count, seconds = cross()
            yield {"link.loopback": (count / seconds / 1e9, pump_gb_per_s(bench, 1024 * MIB))}


@measurement(Key("gateway.rss", "MiB", "<= 1.0",
                 "RssAnon of the receiving gateway, the most of samples at 10 Hz while a version of 1 GiB is landed "
                 "at home and crosses",
                 f"64 MiB and 1 MiB for each of {sites.LINK_STREAMS} streams"),
             Key("gateway.rss.home", "MiB", "<= 1.0", "the same of the sending gateway, at the model's home",
                 f"64 MiB and 1 MiB for each of {sites.LINK_STREAMS} streams"))
def gateway_rss(bench):
    with harness.Lab() as lab:
        east, west, cross = crossings(lab, bench, 1024 * MIB)
        for _ in range(bench.rounds):
            with sites.rss_anon_sampled(west.daemon) as at_west, sites.rss_anon_sampled(east.daemon) as at_east:
                cross()
            yield {"gateway.rss": (max(at_west), BUDGET_MIB), "gateway.rss.home": (max(at_east), BUDGET_MIB)}
