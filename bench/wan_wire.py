"""A wire whose two ends are sites of sim/wan: a scenario that is shipped, or one made of rate, delay, loss and MTU."""

import contextlib
import importlib.util
import json
import subprocess

import harness
import keys
from measuring import VOID_MAX, Skip
from veth import Ends, die_with_parent

TCP = "tcp: {rmem: 4096 131072 268435456, wmem: 4096 131072 268435456}\n"


class WanWire(Ends):
    """A wire as programs of the bench need it, over a lab of sim/wan; east is a, west is b."""

    device = {"a": "wan0", "b": "wan0"}

    def __init__(self, wan):
        self.wan = wan
        self.name = {"a": wan.netns("east"), "b": wan.netns("west")}
        self.address = {"a": wan.address("east"), "b": wan.address("west")}

    def run(self, end, *words, timeout_s=300):
        """The JSON that a program prints."""
        done = subprocess.run(self.argv(end, *words), capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise harness.Failed(f"{words[0]} exited {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def serving(self, port, *words):
        """A server at b while the context lasts, once it listens."""
        server = subprocess.Popen(self.argv("b", *words), stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
        try:
            harness.wait_for(f"{words[0]} listens", lambda: self.listens(port), timeout_s=20)
            yield
        finally:
            server.kill()
            server.wait()

    def listens(self, port):
        return f":{port} " in subprocess.run(self.argv("b", "ss", "-Hltn"), capture_output=True, text=True, check=False).stdout

    def iperf_says(self, streams, congestion, *words, timeout_s=300):
        """The result of iperf3 on its way to its server at b, which is served at 5201."""
        return self.run("a", "iperf3", "-J", "-c", self.address["b"], "-p", "5201", "-P", streams, "-C", congestion, *words, timeout_s=timeout_s)

    def iperf_bits(self, *words):
        """Bit/s that iperf3's server received."""
        return received_bits(self.iperf_says(*words))

    def iperf(self, size, streams, congestion):
        """Gbit/s of so many bytes on all streams together; 0 if it does not end within two minutes, as one stream of cubic on a lossy path."""
        try:
            said = self.iperf_says(streams, congestion, "-n", size, timeout_s=120)
        except subprocess.TimeoutExpired:
            return 0
        bits = received_bits(said)
        sent = said["end"]["sum_sent"]["bytes"]
        if sent < size:
            raise harness.Failed(f"iperf3 sent {sent} of {size} bytes on {streams} streams")
        return bits / 1e9

    def pump(self, program, size, streams, congestion, *more):
        """The result of the TLS pump on its way from a to b."""
        same = ("--bytes", size, "--streams", streams, "--congestion", congestion, "--port", 5301, *more)
        with self.serving(5301, program, "--listen", self.address["b"], *same):
            return self.run("a", program, "--connect", self.address["b"], *same)

    def verdict(self):
        """Why what was measured last does not count; None: it does."""
        since = self.wan.read_counters()["since"]
        return f"the emulator fell behind: {since['why']}" if since["void"] else None

    def carrier_gone(self):
        for end in "ab":  # a bucket that holds no packet passes none
            self.tc("add", end, "tbf", "rate", "8kbit", "burst", "1", "limit", "1")

    def carrier_back(self):
        for end in "ab":
            self.tc("del", end)

    def tc(self, what, end, *how):
        subprocess.run(["tc", "-n", self.name[end], "qdisc", what, "dev", "wan0", "root", *how], capture_output=True, check=what == "add")


def wanlab():
    spec = importlib.util.spec_from_file_location("wanlab", keys.ROOT / "sim/wan/wanlab.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def wan_wire(scenario):
    """A WanWire over a scenario's file or a shipped name."""
    lab = wanlab()
    try:
        with lab.lab(scenario) as wan:
            if not {"east", "west"} <= wan.names.keys():
                raise Skip(f"{scenario} has no sites named east and west")
            wire = WanWire(wan)
            wire.name_hosts()
            try:
                yield wire
            finally:
                wire.forget_hosts()
    except lab.LabError as error:
        raise Skip(str(error)) from error


def wan_of(bench, rate, loss, mtu=1500, rtt_ms=80):
    """A WanWire of so many ms there and back."""
    scenario = bench.folder / f"{rate}-{loss}-{mtu}-{rtt_ms}.yaml"
    scenario.write_text(f"sites: [east, west]\nmtu: {mtu}\n{TCP}paths:\n  - {{between: [east, west], rate: {rate}, delay: {rtt_ms / 2}ms, "
                        f"queue: 20MiB, loss: {loss}}}\n")
    return wan_wire(scenario)


TRIES = 3  # of one measurement, while the emulator falls behind


class Void(RuntimeError):
    """The emulator fell behind, or iperf3 failed, each time: nothing is known of either side."""


def received_bits(said):
    """Bit/s of what `iperf3 -J` said. It exits 0 when it failed, too, and has a sentence then instead of numbers."""
    if "error" in said or "sum_received" not in said["end"]:
        raise Void(f"iperf3: {said.get('error', 'it says no sum of what was received')}")
    return said["end"]["sum_received"]["bits_per_second"]


def tried(wire, do, machine=None):
    """(what do() came to, why that does not count or None); (None, why) when it is void by itself."""
    if machine is not None:
        machine.begin(floor=False)
    try:
        got = do()
    except Void as void:
        wire.verdict()  # nor is what comes next judged with it
        return None, str(void)
    return got, wire.verdict() or (machine.why_void() if machine is not None else None)


def not_void(wire, do, machine=None):
    """do(), once the emulator kept up with all of it: each is judged by itself."""
    for _ in range(TRIES):
        wire.verdict()  # what came before is not judged with it
        got, why = tried(wire, do, machine)
        if why is None:
            return got
    raise Void(f"void: {why}, {TRIES} times")


def rounds_that_count(bench, once):
    """The answers of once(), for as many rounds as are asked; those that raise Void are told of and made up for, within reason."""
    good, why = 0, None
    for _ in range(bench.rounds + VOID_MAX):
        try:
            row = once()
        except Void as void:
            why = void
            bench.void += 1
            bench.say(f"  this round does not count: {void}")
            continue
        yield row
        good += 1
        if good == bench.rounds:
            return
    if good == 0:
        raise Skip(f"no round counts: {why}")


def judged_apart(bench, wire, names, ours, theirs):
    """Rounds of {each of names: (ours(), theirs())}, either judged by itself, so that what is void costs its own time alone."""
    yield from rounds_that_count(bench, lambda: dict.fromkeys(names, (not_void(wire, ours, bench.machine), not_void(wire, theirs, bench.machine))))


def judged(bench, wire, once):
    """The answers of once(), round by round, but for rounds in which the emulator fell behind or iperf3 failed."""
    wire.verdict()  # what came before is not judged with it

    def one():
        pairs, why = tried(wire, once, bench.machine)
        if why is not None:
            raise Void(why + "".join(f"; {name} {a:.4g}, {b:.4g}" for name, (a, b) in (pairs or {}).items()))
        return pairs
    yield from rounds_that_count(bench, one)
