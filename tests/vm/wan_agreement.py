#!/usr/bin/env python3
"""wan_agreement.py measure netem|emulator: iperf3 over CASES, as root, by that one; one line of
JSON. wan_agreement.py compare FOLDER: the emulator here against netem in the VM that one_boot.py
keeps in FOLDER.

netem needs a kernel that has it, which the VM's is; the emulated WAN needs a processor that
keeps its time, which the VM's does not (in there 1 packet in 100 comes over 8 ms late, and the
run is void). So each runs where it can, on the same scenario.

Covers: sim/wan/wanlab.py
"""
import json, pathlib, statistics, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sim/wan"))
import one_boot
import wanlab

RATE_MBIT = 5  # what an emulated CPU carries, also beside other work: of 10 it loses a fifth then
LOSS_PERCENT = 0.1
CASES = tuple((rtt_ms, congestion) for rtt_ms in (30, 80) for congestion in ("bbr", "cubic"))
SECONDS, ROUNDS = 15, 2
VOID_MAX = 2  # rounds of one case in which the emulator may fall behind, and which are taken again
WITHIN = 0.15
SCENARIO = """sites: [east, west]
tcp: {{rmem: 4096 131072 16777216, wmem: 4096 131072 16777216, congestion: {congestion}}}
paths:
  - {{between: [east, west], rate: {rate}Mbit, delay: {delay}ms, queue: {queue}KiB, loss: {loss}%}}
"""


class Void(Exception):
    pass


def one(wan):
    """Mbit/s of one transfer; its first 3 s, in which it looks for the rate, do not count."""
    argv = ["iperf3", "-J", "-O", "3", "-t", str(SECONDS), "-c", wan.address("west")]
    done = subprocess.run(wan.enter("east", argv), capture_output=True, text=True, timeout=SECONDS + 60)
    told = json.loads(done.stdout)
    if "error" in told:
        sys.exit(f"iperf3: {told['error']}")
    return told["end"]["sum_received"]["bits_per_second"] / 1e6


def rounds(file, netem, seed):
    with wanlab.lab(file, seed, netem) as wan:
        argv = wan.enter("west", ["iperf3", "-s", "--forceflush"])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
            try:
                while "listening" not in (line := server.stdout.readline()):
                    if not line:
                        sys.exit("iperf3 -s ended before it listened")
                got = [one(wan) for _ in range(ROUNDS)]
            finally:
                server.kill()
    if wan.void:
        raise Void(wan.why)
    return got


def measured(by):
    """{"30 ms bbr": [Mbit/s, ...], ...}"""
    all_rounds = {}
    with tempfile.TemporaryDirectory() as folder:
        for rtt_ms, congestion in CASES:
            file = pathlib.Path(folder) / "agreement.yaml"
            queue_kib = max(64, round(2 * RATE_MBIT * rtt_ms * 1e3 / 8 / 1024))  # twice what the path holds
            text = SCENARIO.format(rate=RATE_MBIT, delay=rtt_ms / 2, queue=queue_kib, loss=LOSS_PERCENT,
                                   congestion=congestion)
            file.write_text(text, encoding="ascii")
            for seed in range(1, 2 + VOID_MAX):
                try:
                    all_rounds[f"{rtt_ms} ms {congestion}"] = rounds(file, by == "netem", seed)
                    break
                except Void:
                    if seed > VOID_MAX:
                        raise
    return all_rounds


def compare(folder):
    boot = one_boot.Boot(folder)
    code = one_boot.result(boot, "iperf3_over_netem")
    if code != 0:
        return code
    netem = json.loads((boot.share / "iperf3_over_netem").read_text(encoding="utf-8").partition(": ")[2])
    apart = []
    for case, ours in measured("emulator").items():
        ratio = statistics.median(ours) / statistics.median(netem[case])
        apart.append(abs(ratio - 1))
        spans = [f"{statistics.median(got):.2f} ({min(got):.2f} to {max(got):.2f})"
                 for got in (netem[case], ours)]
        print(f"{case}: netem {spans[0]}, emulator {spans[1]} Mbit/s, ratio {ratio:.3f}", flush=True)
    print(f"goodputs agree within {max(apart):.1%}; asked for: {WITHIN:.0%}")
    return 0 if max(apart) <= WITHIN else 1


def main():
    if sys.argv[1:2] not in (["measure"], ["compare"]) or len(sys.argv) != 3:
        sys.exit(__doc__)
    reason = wanlab.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 77
    try:
        if sys.argv[1] == "compare":
            return compare(sys.argv[2])
        print(json.dumps({case: [round(one_of, 3) for one_of in got]
                          for case, got in measured(sys.argv[2]).items()}))
        return 0
    except Void as why:
        print(f"skipped: the emulator fell behind {VOID_MAX + 1} times ({why}): this machine is too busy")
        return 77


if __name__ == "__main__":
    sys.exit(main())
