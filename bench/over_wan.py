"""Links over the emulated WAN (sim/wan), against iperf3 and the TLS pump on the same link in turns.

The sweep for the best iperf3 or pump is done once, in short runs; the rounds then take that one in turns with ours."""

import contextlib
import importlib.util
import json
import subprocess
import time

import harness
import keys
import lab as sites
from beside_peers import Ours
from measuring import Skip, measurement
from veth import die_with_parent

MIB = 1 << 20
TCP = "tcp: {rmem: 4096 131072 268435456, wmem: 4096 131072 268435456}\n"


class WanWire:
    """What Ours needs of a wire, over a lab of sim/wan."""

    def __init__(self, wan):
        self.wan = wan
        self.name = {"a": wan.netns("east"), "b": wan.netns("west")}
        self.address = {"a": wan.address("east"), "b": wan.address("west")}

    def argv(self, end, *words):
        return ["ip", "netns", "exec", self.name[end], *map(str, words)]

    def run(self, end, *words, timeout_s=120):
        done = subprocess.run(self.argv(end, *words), capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise harness.Failed(f"{words[0]} exited {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def serving(self, *words):
        server = subprocess.Popen(self.argv("b", *words), stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
        try:
            yield
        finally:
            server.kill()
            server.wait()

    def listens(self, port):
        return f":{port} " in subprocess.run(self.argv("b", "ss", "-Hltn"), capture_output=True, text=True, check=False).stdout

    def held_up(self):
        """Refuses what was measured while the emulator fell behind."""
        counters = self.wan.read_counters()
        if counters.get("void"):
            raise Skip(f"the emulator fell behind, so the run is void: {counters.get('why')}")


@contextlib.contextmanager
def wan_of(bench, rate, loss, mtu):
    """A WanWire of 80 ms there and back."""
    spec = importlib.util.spec_from_file_location("wanlab", keys.ROOT / "sim/wan/wanlab.py")
    wanlab = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wanlab)
    scenario = bench.folder / f"{rate}-{loss}-{mtu}.yaml"
    scenario.write_text(f"sites: [east, west]\nmtu: {mtu}\n{TCP}paths:\n  - {{between: [east, west], rate: {rate}, delay: 40ms, "
                        f"queue: 20MiB, loss: {loss}}}\n")
    try:
        with wanlab.lab(scenario) as wan:
            yield WanWire(wan)
    except wanlab.LabError as error:
        raise Skip(str(error)) from error


def iperf_gbit(wire, size, streams, congestion):
    end = wire.run("a", "iperf3", "-J", "-c", wire.address["b"], "-p", "5201", "-P", streams, "-C", congestion, "-n", size // streams)
    return end["end"]["sum_received"]["bits_per_second"] / 1e9


def pump_gbit(bench, wire, size, streams, congestion):
    port = 5301
    same = ("--bytes", size, "--streams", streams, "--congestion", congestion, "--port", port)
    with wire.serving(bench.pump, "--listen", wire.address["b"], *same):
        harness.wait_for("the pump's sink listens", lambda: wire.listens(port), timeout_s=20)
        return wire.run("a", bench.pump, "--connect", wire.address["b"], *same)["gb_per_s"] * 8


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
    with wan_of(bench, *link) as wire, harness.Lab() as lab, wire.serving("iperf3", "-s", "-B", wire.address["b"], "-p", "5201"):
        harness.wait_for("iperf3 listens", lambda: wire.listens(5201), timeout_s=20)

        def measure(size):
            if other == "iperf3":
                return lambda streams, congestion: iperf_gbit(wire, size, streams, congestion)
            return lambda streams, congestion: pump_gbit(bench, wire, size, streams, congestion)
        streams, congestion = best(bench, measure(256 * MIB))
        bench.say(f"  the best {other}: {streams} streams, {congestion}; then in turns, {mib} MiB each")
        path = bench.weights(mib * MIB)
        size = path.stat().st_size
        ours = Ours(wire, lab, path, mib)
        for _ in range(bench.rounds):
            seconds, _ = ours.cross()
            pair = (size * 8 / seconds / 1e9, measure(mib * MIB)(streams, congestion))
            wire.held_up()
            yield {key: pair}


@measurement("link.wan.2g80")
def wan_2g80(bench):
    yield from against(bench, "link.wan.2g80", ("2Gbit", "0.01%", 1500), "iperf3")


@measurement("link.wan.2g80.loss01")
def wan_2g80_loss01(bench):
    yield from against(bench, "link.wan.2g80.loss01", ("2Gbit", "0.1%", 1500), "iperf3")


@measurement("link.wan.5g80.jumbo")
def wan_5g80_jumbo(bench):
    yield from against(bench, "link.wan.5g80.jumbo", ("5Gbit", "0.01%", 9000), "pump")


@measurement("link.burst")
def burst(bench):
    """100 MB after a minute of silence; 10 s of it where a first look is asked for."""
    rate, rtt_s = 1e9, 0.08
    with wan_of(bench, "1Gbit", "0%", 1500) as wire, harness.Lab() as lab:
        path = bench.weights(100_000_000)
        ours = Ours(wire, lab, path, 256)
        ours.cross()
        for _ in range(bench.rounds):
            time.sleep(10 if bench.quick else 60)  # the silence that is measured
            start = time.monotonic()
            number = next(ours.numbers)
            sites.publish(ours.rank, ours.run, number)
            sites.logged_at(ours.west.daemon, "copy.whole", f"number={number} ")
            pair = (time.monotonic() - start, path.stat().st_size * 8 / rate + rtt_s)
            wire.held_up()
            yield {"link.burst": pair}
