"""Links over the emulated WAN (sim/wan), against iperf3 and the TLS pump on the same link in turns.

The sweep for the best iperf3 or pump is done once: short runs of all ways, then the fastest few at the size that is measured; the rounds
then take the one that was fastest there in turns with ours, whose own search for the number of streams has had one crossing by then.
`link.cold` has the cost of a path of which nothing is known."""

import collections
import contextlib
import itertools
import time

import harness
import lab as sites
from beside_peers import Ours
from connection import lent
from keys import CONGESTION_PATHS
from measuring import Skip, measurement
from veth import Wire
from wan_wire import Void, judged, judged_apart, wan_of, wan_wire

MIB = 1 << 20


SHORT = 256 * MIB
FINALISTS = 3  # in a second at 2 Gbit/s a way's beginning counts for more than in the eight that are measured


def speeds(bench, measure, size, ways):
    """{way: how fast it was in one run}, but for those of which nothing is known."""
    found = {}
    for way in ways:
        try:
            found[way] = measure(size, *way)
        except Void as void:
            streams, congestion, more = way
            bench.say(f"  {' '.join([f'{streams} streams, {congestion}', *more])}: {void}")
    return found


def best(bench, measure, size, ways):
    """(streams, congestion, way) of the fastest at that size, of those that were fastest in a short run each."""
    streams = (4, 16) if bench.quick else (1, 4, 8, 16, 32)
    short = speeds(bench, measure, SHORT, itertools.product(streams, bench.congestions(), ways))
    last = sorted(short, key=short.get, reverse=True)[:FINALISTS]
    found = (speeds(bench, measure, size, last) if size != SHORT else None) or short
    if not found:
        raise Skip("not one way of the other could be measured")
    return max(found, key=found.get)


WAYS = {"iperf3": [()], "pump": [(), ("--batched",)]}  # the pump's blocking and batched, as on loopback


def against(bench, key, link, other):
    """Rounds of ours and the best of `other`, iperf3 or the pump, over one link."""
    mib = 256 if bench.quick else 2048
    with wan_of(bench, *link) as wire, harness.Lab() as lab, wire.serving(5201, "iperf3", "-s", "-B", wire.address["b"], "-p", "5201"):
        def measure(size, streams, congestion, way):
            if other == "iperf3":
                return wire.iperf(size, streams, congestion)
            return wire.pump(bench.pump, size, streams, congestion, *way)["gb_per_s"] * 8
        streams, congestion, way = best(bench, measure, mib * MIB, WAYS[other])
        bench.say(f"  the best {other}: {' '.join([f'{streams} streams, {congestion}', *way])}; then in turns, {mib} MiB each")
        path = bench.weights(mib * MIB)
        size = path.stat().st_size
        ours = Ours(wire, lab, path, mib, link={"streams": "auto"})
        ours.cross()
        yield from judged_apart(bench, wire, (key,), lambda: size * 8 / ours.cross()[0] / 1e9, lambda: measure(mib * MIB, streams, congestion, way))


@measurement("link.wan.2g80")
def wan_2g80(bench):
    yield from against(bench, "link.wan.2g80", ("2Gbit", "0.01%", 1500), "iperf3")


@measurement("link.wan.2g80.loss01")
def wan_2g80_loss01(bench):
    yield from against(bench, "link.wan.2g80.loss01", ("2Gbit", "0.1%", 1500), "iperf3")


@measurement("link.wan.5g80.jumbo")
def wan_5g80_jumbo(bench):
    yield from against(bench, "link.wan.5g80.jumbo", ("5Gbit", "0.01%", 9000), "pump")


@measurement("link.burst", quick=False)
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
        # With keep: 1 the next publish takes the version before out of the arena, and with it the
        # stream that is still sending a hedged chunk of it a second time: one version in twenty
        # waits for a cold stream then, 8 RTT.
        ours = Ours(wire, lab, path, 64, keep=2)
        for _ in range(4):
            ours.published_to_held_s()

        def once():
            seconds = ours.published_to_held_s()
            return {"link.warm": (seconds - path.stat().st_size * 8 / rate, rtt_s)}
        yield from judged(bench, wire, once)


@measurement("link.warm.step")
def warm_step(bench):
    rtt_s, size = 0.15, 8 * MIB
    with wan_of(bench, "1Gbit", "0%", rtt_ms=150) as wire, harness.Lab() as lab:
        files = bench.versions(size, 2)
        ours = Ours(wire, lab, files[0], 8, steps=True, spare_mib=64)
        turns = 0

        def once():
            nonlocal turns
            turns += 1
            path = files[turns % 2]
            ours.rank.ok("fill", tensors=harness.safetensors_table(path), file=str(path))
            time.sleep(0.5)  # a trainer's next step: the site has said that it expects it
            return {"link.warm.step": (ours.published_to_held_s(), rtt_s)}
        for _ in range(4):
            once()
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


@measurement("link.cold")
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


STREAMS_MBIT = 400


@contextlib.contextmanager
def at_a_tenth(ours):
    """One of the streams is paced at a tenth of its share."""
    pid = ours.east.daemon.popen.pid
    with lent(pid) as streams:
        name, stream = next(iter(streams.items()))
        stream.pace(int(STREAMS_MBIT * 1e6 / 8 / sites.LINK_STREAMS / 10))
    yield
    with lent(pid) as streams:
        if name in streams:
            streams[name].pace(0)


@contextlib.contextmanager
def stalled(ours):
    """Every packet of one of the streams is lost before it is read; those of the others are not."""
    pid = ours.west.daemon.popen.pid
    with lent(pid) as streams:
        name, stream = next(iter(streams.items()))
        stream.hear_nothing()
    yield
    with lent(pid) as streams:
        if name in streams:
            streams[name].hear()


def one_slow_stream(bench, key, held):
    """A version over eight streams that are alike, then over seven and one that is `held`. One that nobody counts goes between: a stream that
    was held takes a while to be fast again, and another may have to come in its place."""
    mib = 64 if bench.quick else 256
    with wan_of(bench, f"{STREAMS_MBIT}Mbit", "0%") as wire, harness.Lab() as lab:
        ours = Ours(wire, lab, bench.weights(mib * MIB), mib)
        ours.cross()

        def once():
            ours.cross()
            usual = ours.cross()[0]
            with held(ours):
                late = ours.cross()[0]
            bench.say(f"  {usual:.2f} s, and {late:.2f} s with one stream {key.rpartition('.')[2]}")
            return {key: (late, usual)}
        yield from judged(bench, wire, once)


@measurement("link.stream.tenth")
def stream_tenth(bench):
    yield from one_slow_stream(bench, "link.stream.tenth", at_a_tenth)


@measurement("link.stream.stalled")
def stream_stalled(bench):
    yield from one_slow_stream(bench, "link.stream.stalled", stalled)


TURNS = 3           # of each in a round: one crossing and another of the same differ by a tenth
WORTH_A_TURN = 1.5  # what took so many times the best's seconds in the first crossing is not the better one


class Leader:
    """Which way takes the least time over all rounds so far. The luckiest of each round would be better than any way is."""

    def __init__(self):
        self.seconds = collections.Counter()

    def of(self, seconds):
        self.seconds.update(seconds)
        return min(self.seconds, key=self.seconds.get)


def in_turns(ways, turns, each=TURNS):
    """So many times each, and each time another one first; `turns` counts them over all rounds."""
    for turn in itertools.islice(turns, each):
        first = turn % len(ways)
        yield from ways[first:] + ways[:first]


class AtPhase:
    """Begins what is measured at the same moment of a schedule that repeats, as the emulator has it since its start."""

    def __init__(self, period_s, at_s):
        self.period_s, self.at_s, self.began = period_s, at_s, time.monotonic()

    def wait(self):
        time.sleep((self.at_s - (time.monotonic() - self.began)) % self.period_s)


def congestion(bench, name, mib, phase=None, each=TURNS):
    """Gateways for each congestion control beside each other on one path, which cross in turns once each has crossed."""
    path = bench.weights(mib * MIB)
    size = path.stat().st_size * 8 / 1e9
    with wan_wire(name) as wire, contextlib.ExitStack() as labs:
        at = AtPhase(*phase) if phase else None
        ways = {}
        for way in ("auto", *bench.congestions()):
            ways[way] = Ours(wire, labs.enter_context(harness.Lab()), path, mib, link={"congestion": way}, spare_mib=128)

        def crossed_s(way):
            if at is not None:
                at.wait()
            return ways[way].cross()[0]
        yield from congestions_in_turns(bench, wire, f"link.congestion.{name}", size, crossed_s, each)


def congestions_in_turns(bench, wire, key, size, crossed_s, each=TURNS):
    """Rounds of `auto` against the better one; crossed_s(way): seconds of a crossing of so many Gbit."""
    first = {way: crossed_s(way) for way in ("auto", *bench.congestions())}
    bench.say("  first crossings: " + ", ".join(f"{way} {seconds:.1f} s" for way, seconds in first.items()))
    worth = WORTH_A_TURN * min(first[way] for way in bench.congestions())
    kept = ["auto", *(way for way in bench.congestions() if first[way] <= worth)]
    turns, leader = itertools.count(), Leader()

    def once():
        seconds = dict.fromkeys(kept, 0)
        for way in in_turns(kept, turns, each):
            seconds[way] += crossed_s(way)
        goodput = {way: size * each / s for way, s in seconds.items()}
        bench.say("  " + ", ".join(f"{way} {rate:.4g}" for way, rate in goodput.items()))
        return {key: (goodput["auto"], goodput[leader.of({way: seconds[way] for way in kept[1:]})])}
    yield from judged(bench, wire, once)


def register_congestion(name, mib):
    @measurement(f"link.congestion.{name}", quick=False)
    def measure(bench):
        yield from congestion(bench, name, mib)


for scenario in CONGESTION_PATHS:
    register_congestion(scenario, 16 if scenario == "satellite-bad" else 128)


@measurement("link.congestion.flapping", quick=False)
def congestion_flapping(bench):
    """Begun a second into its ten: from four to six there is no path, and nothing comes back from eight on for half a second."""
    yield from congestion(bench, "flapping", 192, phase=(10, 1), each=2)


CODECS = ("raw", "zstd", "planes", "sparse")


class OursInTurns(Ours):
    """A model's memory takes two versions a step apart, by turns; two ranks have one each of other layouts, for full copies. Steps and `keep` are
    so many that the last step is there when the next one comes behind the full copies, and of their layouts nothing is when their turn comes."""

    STEPS = 3

    def __init__(self, wire, lab, files, mib, codec):
        super().__init__(wire, lab, files[0], mib, steps=True, link={"codec": codec}, spare_mib=mib, keep=self.STEPS + 1)
        self.files, self.turn = files, 0
        self.others = [sites.rank(lab, self.east, path, name=f"other{i}") for i, path in enumerate(files[2:])]

    def full_s(self, rank):
        with sites.stopped(self.west.daemon):
            number = next(self.numbers)
            uid = sites.publish(*rank, number)["uid"]
            harness.wait_for("east holds it", lambda: self.east.holds(uid), timeout_s=120)
        return sites.crossing_s(self.west, number)

    def step_s(self):
        self.turn += 1
        path = self.files[self.turn % 2]
        self.rank.send("fill", tensors=harness.safetensors_table(path), file=str(path))
        harness.expect("fill", self.rank.receive(timeout_s=120)["status"], "ok")
        return self.published_to_held_s()

    def seconds(self):
        """Of a full copy, where there are layouts for one, and of the steps behind it. One more goes ahead: TCP finds the path anew behind steps
        of next to no bytes."""
        full = [self.full_s(rank) for rank in self.others]
        return {"full": full[-1] if full else 0, "step": sum(self.step_s() for _ in range(self.STEPS))}


def codec(bench, name, wire, mib, each=TURNS):
    files = [*bench.versions(mib * MIB, 2), *(bench.versions(size * MIB, 1)[0] for size in (mib - mib // 4, mib + mib // 4))]
    size = {"full": files[-1].stat().st_size / 1e9, "step": OursInTurns.STEPS * files[0].stat().st_size / 1e9}
    yield from codecs_in_turns(bench, wire, mib, each, files, size, {kind: f"link.codec.{name}.{kind}" for kind in size})


def codecs_in_turns(bench, wire, mib, each, files, size, keys):
    """Gateways for each codec beside each other on one path, which cross in turns; what is far behind in all that counts has no more turns."""
    with contextlib.ExitStack() as labs:
        ways = {way: OursInTurns(wire, labs.enter_context(harness.Lab()), files, mib + mib // 4, way) for way in ("auto", *CODECS)}
        for ours in ways.values():
            for _ in range(OursInTurns.STEPS):  # shadows are made, and `auto` has something to reckon with
                ours.step_s()
        first = {way: ours.seconds() for way, ours in ways.items()}
        for kind in size:
            bench.say(f"  first {kind}: " + ", ".join(f"{way} {s[kind]:.2f} s" for way, s in first.items()))
        worth = {kind: WORTH_A_TURN * min(first[way][kind] for way in CODECS) for kind in size}
        kept = ["auto", *(way for way in CODECS if any(first[way][kind] <= worth[kind] for kind in size))]
        turns, leader = itertools.count(), {kind: Leader() for kind in size}

        def once():
            seconds = {way: dict.fromkeys(size, 0) for way in kept}
            for way in in_turns(kept, turns, each):
                took = ways[way].seconds()
                for kind in size:
                    seconds[way][kind] += took[kind]
            pairs = {}
            for kind in size:
                rates = {way: size[kind] * each / s[kind] for way, s in seconds.items()}
                bench.say(f"  {kind}: " + ", ".join(f"{way} {rate:.4g}" for way, rate in rates.items()))
                pairs[keys[kind]] = (rates["auto"], rates[leader[kind].of({way: seconds[way][kind] for way in kept[1:]})])
            return pairs
        yield from judged(bench, wire, once)


@measurement("link.codec.50m.full", "link.codec.50m.step", quick=False)
def codec_50m(bench):
    with wan_of(bench, "50Mbit", "0%") as wire:
        yield from codec(bench, "50m", wire, 16)


@measurement("link.codec.1g.full", "link.codec.1g.step", quick=False)
def codec_1g(bench):
    with wan_of(bench, "1Gbit", "0%") as wire:
        yield from codec(bench, "1g", wire, 64)


@measurement("link.codec.loopback.full", "link.codec.loopback.step", quick=False)
def codec_loopback(bench):
    with Wire() as wire:
        yield from codec(bench, "loopback", wire, 96, 3 * TURNS)


def mixed_versions(bench, mib):
    """Two versions a step apart that changed every other tensor as an optimizer's step does, and the others everywhere."""
    few, most = (bench.versions(mib * MIB, 2, lr=lr) for lr in ("1e-6", "1e-2"))
    path = bench.folder / f"mixed-{mib}.safetensors"
    if not path.exists():
        rows = harness.safetensors_table(few[1])
        with open(few[1], "rb") as a, open(most[1], "rb") as b, open(path, "wb") as out:
            out.write(a.read())
            for row in rows[1::2]:
                b.seek(row["offset"])
                out.seek(row["offset"])
                out.write(b.read(row["bytes"]))
    return [few[0], path]


def mixed(bench, name, wire, mib):
    files = mixed_versions(bench, mib)
    size = {"step": OursInTurns.STEPS * files[0].stat().st_size / 1e9}
    yield from codecs_in_turns(bench, wire, mib, TURNS, files, size, {"step": f"link.codec.{name}.mixed"})


@measurement("link.codec.50m.mixed", quick=False)
def mixed_50m(bench):
    with wan_of(bench, "50Mbit", "0%") as wire:
        yield from mixed(bench, "50m", wire, 16)


@measurement("link.codec.1g.mixed", quick=False)
def mixed_1g(bench):
    with wan_of(bench, "1Gbit", "0%") as wire:
        yield from mixed(bench, "1g", wire, 64)


SWEEP_S = 10  # of the link's rate, for each of the last ways


def next_version(bench, key, mbit):
    """The publisher's memory takes the next version by turns of two files, a step of an optimizer apart. The full copy is the
    TLS pump's, as fast as it is on this link; it goes over a part of its memory again and again, as all of it stands beside two arenas
    and a rank.
    A step that is not measured goes ahead of each: during a full copy nobody touches the 10 GiB of a step, and virtual machines
    whose host takes note of that read them three to five times slower the next time."""
    mib = 128 if bench.quick else 2048
    with wan_of(bench, f"{mbit}Mbit", "0%") as wire, harness.Lab() as lab:
        def pump(size, streams, congestion, way):
            return wire.pump(bench.pump, size, streams, congestion, *way, "--memory", min(size, SHORT))
        how = best(bench, lambda *run: pump(*run)["gb_per_s"], max(SHORT, min(mib * MIB, mbit * 125_000 * SWEEP_S)), WAYS["pump"][:1])
        bench.say(f"  the best pump: {how[0]} streams, {how[1]}")
        files = bench.versions(mib * MIB, 2, lr="3e-7")  # 2.2 % of the elements of 2 GiB
        ours = Ours(wire, lab, files[0], mib, steps=True)
        for _ in range(2):  # the rank's shadows are made for its first two versions, as publish.hold has it
            ours.published_to_held_s()

        def full_copy():
            return pump(files[0].stat().st_size, *how)["seconds"]
        turns = 0

        def step():
            nonlocal turns
            turns += 1
            rows = harness.safetensors_table(files[turns % 2])
            ours.rank.send("fill", tensors=rows, file=str(files[turns % 2]))
            harness.expect("fill", ours.rank.receive(timeout_s=120)["status"], "ok")
            return ours.published_to_held_s()

        def second_step():
            bench.say(f"  behind the full copy: {step():.3f} s")
            return step()
        yield from judged_apart(bench, wire, (key,), second_step, full_copy)


@measurement("link.next_version", quick=False)
def next_version_200(bench):
    yield from next_version(bench, "link.next_version", 200)


@measurement("link.next_version.fast")
def next_version_1000(bench):
    yield from next_version(bench, "link.next_version.fast", 1000)
