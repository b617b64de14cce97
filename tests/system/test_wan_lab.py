#!/usr/bin/env python3
"""The emulated WAN as a whole: sites that are far apart, decisions that a seed repeats, and nothing left behind."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile

from harness import SOURCE, Failed, main, scenario, wait_for

sys.path.insert(0, str(SOURCE / "sim/wan"))
import wanlab

ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7))
print("up", flush=True)
while True:
    data, who = s.recvfrom(2000)
    s.sendto(data, who)
"""
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
best = 9.0
for _ in range(50):
    began = time.monotonic()
    s.sendto(b"x" * 64, (sys.argv[1], 7))
    s.recv(2000)
    best = min(best, time.monotonic() - began)
print(best)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(500):
    s.sendto(b"x" * 200, (sys.argv[1], 9))
"""


def must(truth, text):
    if not truth:
        raise Failed(text)


def needs_root():
    reason = wanlab.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)


@scenario
def sites_are_as_far_apart_as_the_scenario_says(_lab):
    """What leaves one site comes to the other after its delay, never before, and is counted."""
    needs_root()
    with wanlab.lab("metro") as wan:
        echo = subprocess.Popen(wan.enter("west", [sys.executable, "-c", ECHO]), stdout=subprocess.PIPE)
        echo.stdout.readline()
        best = float(subprocess.check_output(wan.enter("east", [sys.executable, "-c", ASK, wan.address("west")])))
        echo.terminate()
        echo.wait()
        echo.stdout.close()
    must(best >= 0.002, f"metro is 2 ms there and back, not {best}")
    for path in wan.counters["paths"]:
        must(path["packets"] >= 50 and path["bytes"] >= 50 * 92, f"50 packets each way, not {path}")
        must(path["lost_wire"] == 0, "metro loses nothing")
    must(not left(wan.prefix), "namespaces are gone")


@scenario
def a_command_has_its_own_exit_code(_lab):
    """What runs beside the sites ends as it ended, and finds them."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "end.json"
        done = subprocess.run([SOURCE / "sim/wan/run", "--json", out, "metro", "--", "sh", "-c", 'test -r "$TB_WAN_LAB" && exit 7'])
        must(done.returncode == 7, f"7, not {done.returncode}")
        must(json.loads(out.read_text())["exit_code"] == 7, "the JSON says so too")
    refused = subprocess.run([SOURCE / "sim/wan/run", "no-such", "--", "true"], stderr=subprocess.PIPE, text=True)
    must(refused.returncode == 3 and "satellite-bad" in refused.stderr, f"3, and what there is: {refused.stderr}")


def decisions(folder, seed):
    file = folder / "lossy.yaml"
    file.write_text("sites: [a, b]\npaths:\n  - {between: [a, b], loss: 20%, duplicate: 5%, corrupt: 5%}\n")
    with wanlab.lab(file, seed) as wan:
        subprocess.run(wan.enter("a", [sys.executable, "-c", SEND, wan.address("b")]), check=True)
        wait_for("500 packets read", lambda: wan.read_counters()["paths"][0]["packets"] >= 500)
    return wan.counters["paths"][0]["decisions"]


@scenario
def a_seed_decides_the_same_again(_lab):
    """The same seed makes the same decisions for the same packets, and another one makes others."""
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        first, again, other = (decisions(folder, seed) for seed in (5, 5, 6))
    must(first == again, "seed 5 twice")
    must(first != other, "seed 5 and seed 6")


def left(prefix):
    names = subprocess.check_output(["ip", "netns", "list"], text=True)
    return [line for line in names.splitlines() if line.startswith(prefix)]


def alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def killed(number):
    command = 'cat "$TB_WAN_LAB"; echo; ip netns exec $(jq -r ".sites[0].netns" "$TB_WAN_LAB") sleep 1000 & echo $!; wait'
    run = subprocess.Popen([SOURCE / "sim/wan/run", "metro", "--", "sh", "-c", command], stdout=subprocess.PIPE, text=True)
    about, sleeper = json.loads(run.stdout.readline()), int(run.stdout.readline())
    wait_for("a process in the site", lambda: subprocess.check_output(["ip", "netns", "pids", about["sites"][0]["netns"]]))
    run.send_signal(number)
    run.wait()
    wait_for("no namespace", lambda: not left(about["sites"][0]["netns"]) and not left(about["sites"][1]["netns"]))
    wait_for("no process", lambda: not alive(about["emulator_pid"]) and not alive(sleeper))
    run.stdout.close()


@scenario
def a_killed_lab_leaves_nothing(_lab):
    """No namespace, device or process stays, whether it was asked to end or was killed."""
    needs_root()
    killed(signal.SIGTERM)
    killed(signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
