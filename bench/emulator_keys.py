"""The emulated WAN itself: is a link of sim/wan as fast and as far as its scenario says, and how much does it carry while sender and receiver
share the machine with it."""

import contextlib
import subprocess
import sys

import harness
from measuring import measurement
from veth import die_with_parent
from wan_wire import judged, wan_of

HEADERS = 52  # IP, TCP and its timestamps: of each packet
# Before others, as the emulator is: what is measured is the link, not how long a probe waits for a
# processor.
FIRST = """
import json, os, socket, struct, sys, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
"""
PROBE = FIRST + """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
due = time.monotonic()
for _ in range(int(sys.argv[2])):
    due += 0.005
    time.sleep(max(0.0, due - time.monotonic()))
    s.sendto(struct.pack("q", time.time_ns()) + b"x" * 92, (sys.argv[1], 7))
"""
# The kernel says when a packet came, SO_TIMESTAMPNS; prints how far, in ms, one packet in a hundred
# is from the delay asked, or further.
MEET = FIRST + """
SO_TIMESTAMPNS = 35
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
s.bind(("0.0.0.0", 7))
print("up", flush=True)
s.settimeout(20)
delays = []
for _ in range(int(sys.argv[1])):
    data, ancillary, _, _ = s.recvmsg(200, 200)
    seconds, ns = struct.unpack("qq", ancillary[0][2][:16])
    delays.append(seconds * 10**9 + ns - struct.unpack("q", data[:8])[0])
off = sorted(abs(delay / 1e6 - float(sys.argv[2])) for delay in delays)
print(json.dumps(off[len(off) * 99 // 100]))
"""


@contextlib.contextmanager
def at(wire, end, *words):
    """A program at one end, killed with the context."""
    program = subprocess.Popen(wire.argv(end, *words), stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    try:
        yield program
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


@measurement("wan.rate")
def rate(bench):
    """Behind the first seconds of four streams there is always something queued, so what comes is what the link lets through."""
    asked, mtu = 500e6, 1500
    with wan_of(bench, "500Mbit", "0%", mtu) as wire, wire.serving(5201, "iperf3", "-s", "-B", wire.address["b"], "-p", "5201"):
        def once():
            bits = wire.iperf_bits(4, "cubic", "-O", "3", "-t", "5") * mtu / (mtu - HEADERS)
            return {"wan.rate": (abs(bits / asked - 1) * 100, 2.0)}
        yield from judged(bench, wire, once)


@measurement("wan.delay")
def delay(bench):
    """Of a link that does nothing else."""
    count = 400 if bench.quick else 1000
    rtt_ms = 80
    with wan_of(bench, "1Gbit", "0%", rtt_ms=rtt_ms) as wire:
        def once():
            with at(wire, "b", sys.executable, "-c", MEET, count, rtt_ms / 2) as meet:
                harness.expect("the meeting point", meet.stdout.readline().strip(), "up")
                subprocess.run(wire.argv("a", sys.executable, "-c", PROBE, wire.address["b"], count), check=True, timeout=60)
                return {"wan.delay": (float(meet.stdout.readline()), 1.0)}
        yield from judged(bench, wire, once)


def carried(bench, key, gbit, mtu):
    """Eight paced streams that ask for 99 % of what TCP can get of the link."""
    most = gbit * (mtu - HEADERS) / mtu
    each = int(most * 0.99 / 8 * 1e9)
    with wan_of(bench, f"{gbit}Gbit", "0%", mtu) as wire, wire.serving(5201, "iperf3", "-s", "-B", wire.address["b"], "-p", "5201"):
        def once():
            return {key: (wire.iperf_bits(8, "cubic", "--fq-rate", each, "-O", "2", "-t", "4" if bench.quick else "8") / 1e9, most)}
        yield from judged(bench, wire, once)


@measurement("wan.2g.mtu1500")
def carried_2g(bench):
    yield from carried(bench, "wan.2g.mtu1500", 2, 1500)


@measurement("wan.5g.mtu9000")
def carried_5g(bench):
    yield from carried(bench, "wan.5g.mtu9000", 5, 9000)
