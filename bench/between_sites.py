"""What a link costs: its goodput on loopback, and the memory of the gateways at its ends."""

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


def published_at_east(lab, bench, size):
    """East with one version in its arena and nobody who reads it; west has not begun."""
    path = bench.weights(size)
    east, west = sites.east_west(lab, arena_mib=2 * size // MIB + 512, keep=1)
    east.start()
    worker, run = sites.rank(lab, east, path)
    uid = sites.publish(worker, run, 1)["uid"]
    harness.wait_for("east holds it", lambda: east.holds(uid), timeout_s=120)
    worker.kill()
    return east, west, east.version(uid)["bytes"]


@measurement(Key("link.loopback", "GB/s", ">= 0.5",
                 "goodput of a version of 1 GiB from east's arena to west's, TLS 1.3 and digests on, from crossing "
                 f"begun to whole at west; {sites.LINK_STREAMS} streams, raw codec",
                 "the TLS pump: best of 1, 2, 4, 8 streams, bbr and cubic where the kernel has them, cold 1 GiB"))
def link_loopback(bench):
    with harness.Lab() as lab:
        _, west, count = published_at_east(lab, bench, 1024 * MIB)
        for _ in range(bench.rounds):
            west.start()
            ours = count / sites.crossing_s(west, 1) / 1e9
            sites.forget(west)
            yield {"link.loopback": (ours, pump_gb_per_s(bench, 1024 * MIB))}


@measurement(Key("gateway.rss", "MiB", "<= 1.0",
                 "RssAnon of the receiving gateway, the most of samples at 10 Hz while a version of 1 GiB crosses",
                 f"64 MiB and 1 MiB for each of {sites.LINK_STREAMS} streams"),
             Key("gateway.rss.home", "MiB", "<= 1.0", "the same of the sending gateway, at the model's home",
                 f"64 MiB and 1 MiB for each of {sites.LINK_STREAMS} streams"))
def gateway_rss(bench):
    with harness.Lab() as lab:
        east, west, _ = published_at_east(lab, bench, 1024 * MIB)
        for _ in range(bench.rounds):
            west.start()
            with sites.rss_anon_sampled(west.daemon) as at_west, sites.rss_anon_sampled(east.daemon) as at_east:
                sites.crossing_s(west, 1)
            sites.forget(west)
            yield {"gateway.rss": (max(at_west), BUDGET_MIB), "gateway.rss.home": (max(at_east), BUDGET_MIB)}
