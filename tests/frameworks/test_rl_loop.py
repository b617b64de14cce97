"""python/examples/rl_loop with real torch and vLLM, over loopback: three steps; an end by Ctrl-C.

Covers: python/examples/rl_loop/run python/examples/rl_loop/trainer.py
Covers: python/examples/rl_loop/rollouts.py python/examples/rl_loop/sites.py
Covers: python/examples/rl_loop/messages.py python/examples/rl_loop/weights.py
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python")]
import packages  # noqa: E402
from harness import PATIENCE_S, Process, Skipped, expect, main, scenario, wait_for  # noqa: E402
import leavings  # noqa: E402

RUN = packages.SOURCE / "python/examples/rl_loop/run"
STEPS = 3


def skip_without_vllm():
    if packages.python_of("vllm") is None:
        raise Skipped("no environment of vLLM")


@scenario
def three_steps_cross_and_serve_bit_for_bit(lab):
    """P1 P2: each version that the engine served is the trainer's, by its live weights. Each
    request says which versions answered it, and none of them is of a later step."""
    skip_without_vllm()
    seen, drawn = lab.dir / "loop.json", lab.dir / "loop.svg"
    done = subprocess.run(
        [RUN, "--local", "--engines", "1", "--steps", str(STEPS), "--json", seen, "--plot", drawn],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    expect(f"exit code ({done.stdout}{done.stderr})", done.returncode, 0)
    report = json.loads(seen.read_text())
    found = report["measures"]
    expect("versions", [version["number"] for version in report["versions"]], list(range(STEPS + 1)))
    expect("all weights were others", len({version["digest"] for version in report["versions"]}), STEPS + 1)
    expect("the last one serves", report["switches"][-1]["version"], STEPS)
    expect("bit for bit", (found["differ"], found["served"]), ([], 1 + len(report["switches"])))
    expect("requests", len(report["requests"]), STEPS * 16 * 8)
    for request in report["requests"]:
        spans = request["spans"]
        expect(
            f"spans {spans}",
            (spans[0][0], spans[-1][1], [a[1] for a in spans[:-1]]),
            (0, 16, [b[0] for b in spans[1:]]),
        )
        expect(f"no version from the future {request}", spans[-1][2] < request["step"], True)
    for key in ("publish_s", "held_s", "changed", "wire_bytes", "prepare_s", "pause_s", "converge_s"):
        expect(key, found[key]["median"] is not None, True)
    for words in (
        f"step {STEPS} of {STEPS}: reward",
        "engine 0 serves version",
        "activation pause",
        "bit for bit",
    ):
        expect(f"{words!r} in {done.stdout}", words in done.stdout, True)
    xml.etree.ElementTree.parse(drawn)


@scenario
def all_ends_with_it_when_it_is_interrupted(lab):
    """Ctrl-C when gateways, trainer and engine are at work: exit code 130, and nothing stays."""
    skip_without_vllm()
    with open(lab.dir / "loop.log", "ab") as log:
        loop = Process(
            "rl_loop", [RUN, "--local", "--engines", "1", "--steps", "1000"], lab.dir / "loop.log", stdout=log
        )
    lab.processes.append(loop)

    def is_at_work():
        expect("it goes on", loop.alive(), True)
        return "engine 0 serves version 0" in loop.log_path.read_text()

    wait_for("the engine answers the first step", is_at_work)
    prefix = leavings.prefix_of("tombolo-rl-loop", loop.popen.pid)
    expect("processes are marked", len(leavings.marked(*leavings.mark_of(prefix))) >= (4 if os.geteuid() == 0 else 2), True)
    loop.signal(signal.SIGINT)
    expect("exit code", loop.popen.wait(PATIENCE_S), 130)
    wait_for("its processes are gone", lambda: not leavings.marked(*leavings.mark_of(prefix)))
    wait_for("its folders are gone", lambda: not list(leavings.folders(prefix)))


if __name__ == "__main__":
    sys.exit(main())
