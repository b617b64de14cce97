#!/usr/bin/env python3
"""The TLS pump, which links are held against (bench/pump.c): a floor that sent less, or ended
its clock sooner, would be no floor.

Covers: bench/pump.c
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from capture import Capture
from harness import BUILD, SOURCE, Skipped, expect, main, scenario

sys.path[:0] = [str(SOURCE / part) for part in ("bench", "sim/wan")]
import wan_wire
import wanlab

STREAMS, EACH = 3, 700_000
RATE_MBIT = 20
RATE_BIT = RATE_MBIT * 1_000_000
# All that a stream has to send fits into its socket: what a sender has got rid of is not yet there.
NARROW = f"""sites: [east, west]
tcp: {{rmem: 4096 131072 16777216, wmem: 4096 4194304 16777216}}
paths:
  - {{between: [east, west], rate: {RATE_MBIT}Mbit, delay: 5ms, queue: 8MiB}}
"""
SERVER_HELLO = 5 + 4 + 2 + 32  # its record's and message's heads, version, random: there is the session, then the cipher
AES_128_GCM_SHA256 = b"\x13\x01"


def narrow(folder):
    path = pathlib.Path(folder) / "narrow.yaml"
    path.write_text(NARROW)
    return path


def must_be_so(said, batched):
    """Its own word: all of it came, in no less time than the link takes."""
    wanted = {"bytes": STREAMS * EACH, "streams": STREAMS, "congestion": "cubic", "batched": batched}
    expect(f"what it says ({said})", {key: said[key] for key in wanted}, wanted)
    least_s = said["bytes"] * 8 / RATE_BIT
    expect(f"at least {least_s:.2f} s ({said})", said["seconds"] >= least_s, True)
    expect(f"GB/s ({said})", abs(said["gb_per_s"] - said["bytes"] / said["seconds"] / 1e9) < 1e-4, True)
    expect(f"each stream within it ({said})", len(said["stream_s"]) == STREAMS and max(said["stream_s"]) <= said["seconds"], True)


def must_have_passed(seen, count):
    """So many connections, of TLS 1.3 by the cipher that the gateways' has, each with its share,
    records' heads and a handshake."""
    expect("what is no TLS", seen.complaints(), [])
    ways = [stream.whole() for stream in seen.streams]
    there = [way for way in ways if len(way) >= EACH]
    back = [way for way in ways if len(way) < EACH]
    expect(f"connections ({[*map(len, ways)]})", (len(there), len(back)), (count, count))
    expect(f"bytes there ({[*map(len, there)]})", max(map(len, there)) <= EACH * 1.01 + 8192, True)
    for hello in back:
        cipher = SERVER_HELLO + 1 + hello[SERVER_HELLO]
        expect("the cipher", hello[cipher:cipher + 2], AES_128_GCM_SHA256)


@scenario
def the_pump_sends_all_of_it_by_tls(_lab):
    """As the bench runs it, blocking and batched: what it says to have sent is on the wire,
    encrypted, and its time is until all of it came."""
    if why := wanlab.why_not():
        raise Skipped(why)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, wanlab.lab(narrow(folder)) as wan, Capture(wan, "east") as seen:
        for more in ((), ("--batched",)):
            said = wan_wire.WanWire(wan).pump(BUILD / "bench/tombolo-pump", STREAMS * EACH + 1, STREAMS, "cubic", *more)
            must_be_so(said, bool(more))
            expect(f"began at {said['began']}", began <= said["began"] <= time.monotonic() - said["seconds"], True)
            began = time.monotonic()
    must_have_passed(seen, 2 * STREAMS)


@scenario
def the_pump_is_a_command_over_a_wan(_lab):
    """bench/pump SCENARIO: its numbers, the link's rate, and whether the emulator kept up, which
    is the exit code, too."""
    if why := wanlab.why_not():
        raise Skipped(why)
    with tempfile.TemporaryDirectory() as folder:
        words = ["--bytes", str(STREAMS * EACH), "--streams", str(STREAMS), "--json"]
        done = subprocess.run([SOURCE / "bench/pump", narrow(folder), *words], capture_output=True, text=True)
    expect(f"exit code ({done.stdout}{done.stderr})", done.returncode in (0, wanlab.VOID), True)
    said = json.loads(done.stdout)
    must_be_so(said, False)
    expect(f"the link's rate ({said})", (said["rate_bit"], round(said["gbit_per_s"], 3)), (RATE_BIT, round(said["gb_per_s"] * 8, 3)))
    expect(f"void is 75 ({done.stderr})", (done.returncode == wanlab.VOID, "VOID" in done.stderr), (said["void"] is not None,) * 2)


@scenario
def the_pump_refuses_impossible_requests(_lab):
    """bench/pump: what is asked wrongly is 2 and a line, and no traceback."""
    with tempfile.TemporaryDirectory() as folder:
        elsewhere = pathlib.Path(folder) / "elsewhere.yaml"
        elsewhere.write_text("sites: [a, b]\npaths:\n  - {between: [a, b]}\n")
        for words, why in ((["no-such"], "satellite-bad"), ([elsewhere], "named east and west"), (["metro", "--streams", "65"], "1 to 64"),
                           (["metro", "--bytes", "0"], "--bytes"), (["metro", "--congestion", "no-such"], "this kernel has")):
            done = subprocess.run([SOURCE / "bench/pump", *words], capture_output=True, text=True)
            expect(f"{words}: {done.stderr}", (done.returncode, why in done.stderr, "Traceback" in done.stderr), (2, True, False))


if __name__ == "__main__":
    sys.exit(main())
