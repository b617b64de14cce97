"""Links over the emulated WAN (sim/wan), against iperf3 and the TLS pump on the same link in turns.

The sweep for the best iperf3 or pump is done once, in short runs; the rounds then take that one in turns with ours."""

import contextlib
import time

import harness
import lab as sites
from beside_peers import Ours
from keys import CONGESTION_PATHS
from measuring import measurement
from wan_wire import judged, wan_of, wan_wire

MIB = 1 << 20


def best(bench, measure):
    """(streams, congestion) of the fastest in one short run each."""
    found = {}
    for streams in (4, 16) if bench.quick else (1, 4, 8, 16, 32):
        for congestion in bench.congestions():
            found[(streams, congestion)] = measure(streams, congestion)
    return max(found, key=found.get)


def against(bench, key, link, other):
    """Rounds of ours and the best of `other`, iperf3 or the pump, over one link."""
    mib = 256 if bench.quick else 2048
    with wan_of(bench, *link) as wire, harness.Lab() as lab, wire.serving(5201, "iperf3", "-s", "-B", wire.address["b"], "-p", "5201"):
        def measure(size, streams, congestion):
            if other == "iperf3":
                return wire.iperf(size, streams, congestion)
            return wire.pump(bench.pump, size, streams, congestion)["gb_per_s"] * 8
        streams, congestion = best(bench, lambda s, c: measure(256 * MIB, s, c))
        bench.say(f"  the best {other}: {streams} streams, {congestion}; then in turns, {mib} MiB each")
        path = bench.weights(mib * MIB)
        size = path.stat().st_size
        ours = Ours(wire, lab, path, mib)

        def once():
            seconds, _ = ours.cross()
            return {key: (size * 8 / seconds / 1e9, measure(mib * MIB, streams, congestion))}
        yield from judged(bench, wire, once)


@measurement("link.wan.2g80")
def wan_2g80(bench):
    yield from against(bench, "link.wan.2g80", ("2Gbit", "0.01%", 1500), "iperf3")


@measurement("link.wan.2g80.loss01")
def wan_2g80_loss01(bench):
    yield from against(bench, "link.wan.2g80.loss01", ("2Gbit", "0.1%", 1500), "iperf3")


@measurement("link.wan.5g80.jumbo")
def wan_5g80_jumbo(bench):
    yield from against(bench, "link.wan.5g80.jumbo", ("5Gbit", "0.01%", 9000), "pump")


@measurement("link.burst", slow=True)
def burst(bench):
    """100 MB after a minute of silence; 10 s of it where a first look is asked for."""
    rate, rtt_s = 1e9, 0.08
    with wan_of(bench, "1Gbit", "0%") as wire, harness.Lab() as lab:
        path = bench.weights(100_000_000)
        ours = Ours(wire, lab, path, 256)
        ours.cross()

        def once():
            time.sleep(10 if bench.quick else 60)  # the silence that is measured
            seconds = ours.published_to_held_s()
            return {"link.burst": (seconds, path.stat().st_size * 8 / rate + rtt_s)}
        yield from judged(bench, wire, once)


@measurement("link.warm")
def warm(bench):
    """As a step of a training: small, and the connections are as the version before left them."""
    rate, rtt_s, size = 1e9, 0.15, 8 * MIB
    with wan_of(bench, "1Gbit", "0%", rtt_ms=150) as wire, harness.Lab() as lab:
        path = bench.weights(size)
        ours = Ours(wire, lab, path, 64)
        for _ in range(4):
            ours.published_to_held_s()

        def once():
            seconds = ours.published_to_held_s()
            return {"link.warm": (seconds - path.stat().st_size * 8 / rate, rtt_s)}
        yield from judged(bench, wire, once)


def reached_s(samples, share):
    """samples: [(seconds, bytes held)]. When half a second brought that share of what a second of the second half brings."""
    end = samples[-1][0]
    middle = next(s for s in samples if s[0] >= end / 2)
    steady = (samples[-1][1] - middle[1]) / (end - middle[0])
    first = 0
    for at, held in samples:
        while at - samples[first][0] > 0.5:
            first += 1
        if at - samples[first][0] > 0.4 and held - samples[first][1] >= share * steady * (at - samples[first][0]):
            return at
    return end


@measurement("link.cold", slow=True)
def cold(bench):
    mib = 256 if bench.quick else 768
    path = bench.weights(mib * MIB)
    with wan_of(bench, "500Mbit", "0%") as wire:
        def once():
            with harness.Lab() as lab:
                ours = Ours(wire, lab, path, mib, link={"streams": "auto"})
                with sites.stopped(ours.west.daemon):
                    number, uid = ours.publish()
                begun = sites.logged_at(ours.west.daemon, "crossing.begun", f"number={number} ")
                samples, there = [], {}
                while there.get("held_bytes", 0) < there.get("bytes", 1):
                    there = ours.west.version(uid)
                    samples.append((time.monotonic() - begun, there["held_bytes"]))
                    time.sleep(0.05)  # between two samples
            return {"link.cold": (reached_s(samples, 0.9), 5.0)}
        yield from judged(bench, wire, once)


CONGESTION_TURNS = 3  # crossings of each in a round
WORTH_A_TURN = 1.5    # what took so many times the best's seconds in the first crossing is not the better one


def congestion(bench, name, mib):
    """Gateways for each congestion control beside each other on one path, which cross in turns once each has crossed."""
    path = bench.weights(mib * MIB)
    size = path.stat().st_size * 8 / 1e9
    with wan_wire(name) as wire, contextlib.ExitStack() as labs:
        ways = {}
        for way in ("auto", *bench.congestions()):
            ways[way] = Ours(wire, labs.enter_context(harness.Lab()), path, mib, link={"congestion": way}, spare_mib=128)
        first = {way: ours.cross()[0] for way, ours in ways.items()}
        bench.say("  first crossings: " + ", ".join(f"{way} {seconds:.1f} s" for way, seconds in first.items()))
        worth = WORTH_A_TURN * min(first[way] for way in bench.congestions())
        kept = ["auto", *(way for way in bench.congestions() if first[way] <= worth)]

        def once():
            seconds = dict.fromkeys(kept, 0)
            for turn in range(CONGESTION_TURNS):
                for way in kept[turn:] + kept[:turn]:
                    seconds[way] += ways[way].cross()[0]
            goodput = {way: size * CONGESTION_TURNS / s for way, s in seconds.items()}
            auto = goodput.pop("auto")
            bench.say(f"  auto {auto:.4g}, " + ", ".join(f"{way} {rate:.4g}" for way, rate in goodput.items()))
            return {f"link.congestion.{name}": (auto, max(goodput.values()))}
        yield from judged(bench, wire, once)


def register_congestion(name, mib):
    @measurement(f"link.congestion.{name}", quick=False)
    def measure(bench):
        yield from congestion(bench, name, mib)


for scenario in CONGESTION_PATHS:
    register_congestion(scenario, 16 if scenario == "satellite-bad" else 128)


def next_version(bench, key, rate):
    """The publisher's memory takes the next version by turns of two files, a step of an optimizer apart. The full copy is the
    TLS pump's, 8 streams."""
    mib = 128 if bench.quick else 2048
    with wan_of(bench, rate, "0%") as wire, harness.Lab() as lab:
        files = bench.versions(mib * MIB, 2)
        ours = Ours(wire, lab, files[0], mib, steps=True)
        for _ in range(2):  # the rank's shadows are made for its first two versions, as publish.hold has it
            ours.published_to_held_s()

        def full_copy():
            return wire.pump(bench.pump, files[0].stat().st_size, 8, "cubic")["seconds"]
        turns = 0

        def once():
            nonlocal turns
            turns += 1
            rows = harness.safetensors_table(files[turns % 2])
            ours.rank.send("fill", tensors=rows, file=str(files[turns % 2]))
            harness.expect("fill", ours.rank.receive(timeout_s=120)["status"], "ok")
            return {key: (ours.published_to_held_s(), full_copy())}
        yield from judged(bench, wire, once)


@measurement("link.next_version", slow=True, quick=False)
def next_version_200(bench):
    yield from next_version(bench, "link.next_version", "200Mbit")


@measurement("link.next_version.fast", slow=True)
def next_version_1000(bench):
    yield from next_version(bench, "link.next_version.fast", "1Gbit")
