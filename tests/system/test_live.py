#!/usr/bin/env python3
"""Workers prove what they compute from (P1, P8, P10): an operator asks, or each activation is
looked at. A byte that changed in a worker's memory is an alarm that names tensor and rank.

Covers: gateway/daemon/live/live_asks.c gateway/daemon/live/live_status.c
Covers: gateway/cli/operator/verify_command.c
Covers: intra/client/live/live_proof.c intra/client/live/live_plan.c intra/client/live/prover.c
Covers: gateway/daemon/control/lag_evidence.c
"""

import json
import pathlib
import signal
import subprocess
import sys

from harness import PATIENCE, PATIENCE_MS, PATIENCE_S, TOMBOLO, Rollout, Trainer, expect, main, safetensors_table, scenario, up, wait_for
from waiting import Process


def flip_live(worker, path, row):
    """Inverts a byte of that tensor where the worker computes from it, and not where it is staged.
    False when it is not there."""
    data = path.read_bytes()[row["offset"]:row["offset"] + row["bytes"]]
    process = pathlib.Path(f"/proc/{worker.popen.pid}")
    for line in (process / "maps").read_text().splitlines():
        words = line.split()
        if "rw" not in words[1] or (len(words) > 5 and words[5] != "[heap]"):
            continue
        first, end = (int(at, 16) for at in words[0].split("-"))
        if end - first > 1 << 32:
            continue  # a sanitizer's own
        with open(process / "mem", "r+b", buffering=0) as memory:
            memory.seek(first)
            at = memory.read(end - first).find(data)
            if at < 0:
                continue
            memory.seek(first + at + row["bytes"] // 2)
            memory.write(bytes([data[row["bytes"] // 2] ^ 0xFF]))
        return True
    return False


def home(lab, **session):
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["session"] = session
    up(east)
    return east


def states(answer):
    return {row["worker"]: row["state"] for row in answer["workers"]}


def verify(site):
    return site.control("verify", model="policy", timeout_ms=PATIENCE_MS)


def verify_live(site, *options, timeout=PATIENCE, check=True):
    return site.cli("verify", "policy", "--live", "--timeout", timeout, *options, check=check)


def serving(site, worker):
    """The status of the worker's only subscription."""
    for session in site.control("status")["sessions"]:
        if session["name"] == worker and session["serving"]:
            return session["serving"][0]
    return None


def verdict(site, worker):
    row = serving(site, worker)
    return row["proof"]["verdict"] if row and row["proof"] else None


def reads(rollouts, uid):
    for r in rollouts:
        r.worker.send("stage", uid=uid, timeout_ms=PATIENCE_MS)
    for r in rollouts:
        expect(f"{r.worker.name} stages", r.worker.receive()["status"], "ok")
    for r in rollouts:
        r.activate(uid)


@scenario
def a_flipped_byte_in_a_live_tensor_is_an_alarm(lab):
    """P1 P10: of five workers two are a group, one has boxes, one repacks its weights, one is
    proven in background. A byte of rank 1 and one of the box change: both alarms name the tensor."""
    east = home(lab)
    path = lab.weights(1)[0]
    rows = safetensors_table(path)
    large = max(rows, key=lambda row: row["bytes"])
    small = min(rows, key=lambda row: row["bytes"])
    uid = Trainer(lab, east, path).publish(1)
    expect("nobody follows it", [verify_live(east).returncode, len(verify(east)["workers"])],
           [0, 0])
    pair = [Rollout(lab, east, f"w{i}", path, group="engine", index=i, count=2) for i in range(2)]
    box = Rollout(lab, east, "box", path, rows=[small])
    repacks = Rollout(lab, east, "repacks", path, prove=2)
    always = Rollout(lab, east, "always", path, prove=1)
    expect("before", set(states(verify(east)).values()), {"not provable"})
    reads([*pair, box, repacks, always], uid)
    wait_for("the one in background is proven", lambda: verdict(east, "always") == "proven")
    expect("nobody else", [verdict(east, r.worker.name) for r in pair], [None, None])
    done = verify_live(east, "--json")
    expect("states", states(json.loads(done.stdout)), {
        "w0": "proven", "w1": "proven", "box": "proven by box", "repacks": "not provable", "always": "proven"})
    row = serving(east, "w1")
    expect("serves", [row["run"], row["number"], row["rank"], row["proof"]["verdict"]], [1, 1, 1, "proven"])
    expect("bytes", row["proof"]["bytes"], sum(r["bytes"] for r in rows))
    shown = east.cli("status").stdout
    expect("status", "serving  w1" in shown and "policy 1:1, proven" in shown, True)
    expect("no alarm", [east.counters()["live_bad"], east.daemon.logged("live.differs")], [0, []])

    expect("found w1", flip_live(pair[1].worker, path, large), True)
    expect("found box", flip_live(box.worker, path, small), True)
    expect("found repacks", flip_live(repacks.worker, path, large), True)
    done = verify_live(east, check=False)
    expect("exit code", done.returncode, 8)
    expect("w1 and its tensor", [large["name"] in line for line in done.stdout.splitlines() if line.startswith("w1 ")], [True])
    alarms = east.daemon.logged("error live.differs", "worker=w1", "model=policy", "group=engine", "rank=1", "number=1")
    expect("alarms name rank and tensor", [large["name"] in line for line in alarms], [True])
    expect("of the box", len(east.daemon.logged("error live.differs", "worker=box", f"tensor={small['name']}")), 1)
    expect("the worker says so, too", len(pair[1].worker.logged("error live.differs", "rank=1")), 1)
    expect("counter", east.counters()["live_bad"], 2)
    expect("status", [verdict(east, w) for w in ("w0", "w1", "box", "repacks", "always")],
           ["proven", "differs", "differs", "not provable", "proven"])
    evidence = [s["evidence"] for s in east.control("lag")["lag"] if s["site"] == "east"]
    expect("evidence of lag", ["computes from other bytes" in e for e in evidence], [True])
    expect("asked again, no second alarm", [verify_live(east, check=False).returncode, east.counters()["live_bad"]], [8, 2])
    pair[1].activate(uid)  # it copies again
    expect("as sealed", states(verify(east))["w1"], "proven")


@scenario
def a_silent_worker_is_named(lab):
    """P7 P10: a worker that is stopped holds up nobody for longer than the timeout, and is named. One
    question a model is asked at a time."""
    east = home(lab, lease_ms=600000)  # the stopped one does not leave meanwhile
    path = lab.weights(1)[0]
    uid = Trainer(lab, east, path).publish(1)
    pair = [Rollout(lab, east, f"w{i}", path) for i in range(2)]
    reads(pair, uid)
    pair[0].worker.stop()

    def answered(seconds):
        done = verify_live(east, "--json", timeout=seconds, check=False)
        said = json.loads(done.stdout)
        expect("the stopped one, exit code", [states(said)["w0"], done.returncode], ["no answer", 4])
        return said
    seconds = 1  # enough for w1's proof, unless others have the cores
    while (said := answered(seconds))["silent"] > 1 and seconds < PATIENCE_S:
        seconds *= 2
    expect("states", [states(said), said["silent"]], [{"w0": "no answer", "w1": "proven"}, 1])
    asking = Process("asking", [TOMBOLO, "verify", "policy", "--live", "--timeout", PATIENCE, "--control", east.control_socket], lab.dir / "asking.log",
                     stdout=subprocess.PIPE)
    lab.processes.append(asking)
    table = lambda: next(t for t in east.control("status")["tables"] if t["table"] == "live_asks")  # noqa: E731
    wait_for("the question stands", lambda: table()["used"] == 1)
    expect("a second one", east.control("verify", model="policy")["status"], "conflict")
    pair[0].worker.signal(signal.SIGCONT)
    wait_for("it is answered", lambda: table()["used"] == 0)
    expect("exit code", asking.ended(), 0)
    for request, status in (({"model": "other"}, "not_found"), ({}, "bad_argument"), ({"model": "policy", "timeout_ms": 0}, "bad_argument")):
        expect(f"{request}", east.control("verify", **request)["status"], status)
    for arguments in (("policy",), ("policy", "--live", "--timeout", "11m")):
        expect(f"{arguments}", east.cli("verify", *arguments, check=False).returncode, 2)


@scenario
def a_follow_proves_what_it_keeps(lab):
    """P1: `tombolo subscribe --follow --prove` keeps the newest version staged, and proves it behind each activation."""
    east = home(lab)
    paths = lab.weights(2)
    trainer = Trainer(lab, east, paths[0])
    trainer.publish(1)
    follower = Process("follow", [TOMBOLO, "subscribe", "policy", "--into", lab.dir / "into", "--follow", "--prove", "--json",
                                  "--gateway", f"unix:{east.session_socket}"], lab.dir / "follow.log", stdout=subprocess.PIPE)
    lab.processes.append(follower)

    def proven(number):
        rows = [r for s in east.control("status")["sessions"] for r in s["serving"]]
        return [(r["number"], r["proof"]["verdict"]) for r in rows if r["proof"]] == [(number, "proven")]

    wait_for("the first is proven", lambda: proven(1))
    trainer.publish(2, paths[1])
    wait_for("the second is proven", lambda: proven(2))
    follower.signal(signal.SIGINT)
    expect("exit code", follower.ended(), 0)
    expect("--prove alone", east.cli("subscribe", "policy", "--into", lab.dir / "x", "--prove", check=False).returncode, 2)


if __name__ == "__main__":
    sys.exit(main())
