"""Links over the emulated WAN (sim/wan), against iperf3 and the TLS pump on the same link in turns.

The sweep for the best iperf3 or pump is done once, in short runs; the rounds then take that one in turns with ours."""

import time

import harness
from beside_peers import Ours
from measuring import measurement
from wan_wire import judged, wan_of

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
