"""Allocations and system calls of whole programs fail, one after the other: once, and once and from then on.

A clean run counts the calls at each fault point (base/fault.h); then the run is repeated with call k failing. Each time a
spread of the calls is tried; with TB_FAULT_ALL=1 every one. A run may fail; it may not crash, hang, leak (sanitized builds
say so) or lie: what answered well is there, byte for byte."""

import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import sys

from harness import PATIENCE_S, TOMBOLO, Failed, expect, main, scenario, wait_for

ALL = os.environ.get("TB_FAULT_ALL") == "1"
SPREAD = 2           # calls of a point that are tried when not all are
GATEWAY_SPREAD = 1


def spread(calls, most):
    """Numbers of 1..calls: all, or `most` from the first to the last."""
    if ALL or calls <= most:
        return list(range(1, calls + 1))
    return sorted({1 + round(i * (calls - 1) / max(most - 1, 1)) for i in range(most)} if most > 1 else {(calls + 1) // 2})


def plans(calls, most):
    """("point", "k" or "k+") for each call to fail. From then on: half of them, where not all are tried."""
    for point, count in calls.items():
        for i, k in enumerate(spread(count, most)):
            for mode in ("", "+") if ALL else ("+",) if i % 2 else ("",):
                yield point, f"{k}{mode}"


def counted(path):
    """{point: calls} of those that were called."""
    return {name: int(n) for name, n in (line.split() for line in path.read_text().splitlines()) if int(n) > 0}


def run(site, env, *args):
    base = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{site.session_socket}", TOMBOLO_CONTROL=str(site.control_socket))
    try:
        return subprocess.run([str(TOMBOLO), *map(str, args)], env=dict(base, **env), capture_output=True, text=True,
                              errors="replace", timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"tombolo {args[0]} with {env} hung") from e


def sane(done, what):
    """No signal, no sanitizer's finding, and a refusal has a line."""
    if done.returncode < 0:
        raise Failed(f"{what}: ended by signal {-done.returncode}: {done.stderr[-2000:]}")
    for word in ("Sanitizer", "runtime error", "assert.failed"):
        if word in done.stderr:
            raise Failed(f"{what}: {done.stderr[-4000:]}")
    if done.returncode != 0 and not (done.stderr + done.stdout).strip():
        raise Failed(f"{what}: exited {done.returncode} without a word")


def source_of(lab):
    folder = lab.dir / "source"
    folder.mkdir()
    data = bytes(range(256)) * 1200
    header = json.dumps({"a": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    (folder / "config.json").write_text('{"n": 1}\n')
    return folder


def same(left, right):
    names = sorted(p.name for p in left.iterdir())
    return all((right / n).exists() and filecmp.cmp(left / n, right / n, shallow=False) for n in names)


class Commands:
    """The commands under test; each has `args(n)` and, when it exited with 0, `check(n)`."""

    def __init__(self, lab, site):
        self.lab, self.site = lab, site
        self.source = source_of(lab)
        self.n = 0

    def publish(self, env):
        self.n += 1
        done = run(self.site, env, "publish", "policy", self.source, "--version", self.n, "--json", "--timeout", "1s")
        if done.returncode == 0:
            into = self.lab.dir / f"check-{self.n}"
            self.site.cli("subscribe", "policy", "--into", into, "--version", self.n, "--timeout", "20s")
            expect(f"version {self.n} is what was published", same(self.source, into / str(self.n)), True)
            shutil.rmtree(into)
            self.good = self.n
        return done

    def subscribe(self, env):
        into = self.lab.dir / "into"
        shutil.rmtree(into, ignore_errors=True)
        done = run(self.site, env, "subscribe", "policy", "--into", into, "--version", self.good, "--timeout", "1s")
        there = (into / str(self.good)).is_dir() and (into / str(self.good) / "STABLE").exists()
        if done.returncode == 0 and not there:
            raise Failed(f"subscribe with {env} exited 0 and left no version")
        if there and not same(self.source, into / str(self.good)):
            raise Failed(f"subscribe with {env} called other bytes stable")
        return done

    def versions(self, env):
        done = run(self.site, env, "versions", "policy", "--json")
        if done.returncode == 0:
            expect("versions says ok", json.loads(done.stdout)["ok"], True)
        return done

    def pki(self, env):
        into = self.lab.dir / "pki-try"
        shutil.rmtree(into, ignore_errors=True)
        done = run(self.site, env, "pki", "init", "--dir", into, "--site", "east")
        expect(f"pki init with {env}: both files or none", (into / "ca.crt").exists() and (into / "ca.key").exists(),
               done.returncode == 0)
        return done

    def config(self, env):
        return run(self.site, env, "config", "check", self.site.dir / "tombolod.yaml")


@scenario
def each_call_of_a_command_may_fail(lab):
    """P10 P7: a command whose call fails says so or succeeds; what it says is done is done; its gateway serves on."""
    east, _, _ = lab.east_west(arena_mib=64, through_link=False)
    east.start()
    commands = Commands(lab, east)
    calls_path = lab.dir / "calls"
    for name in ("publish", "subscribe", "versions", "pki", "config"):
        command = getattr(commands, name)
        done = command({"TB_FAULT_CALLS": str(calls_path)})
        sane(done, f"{name} without a fault")
        expect(f"{name} without a fault ({done.stderr})", done.returncode, 0)
        calls = counted(calls_path)
        refused = tried = 0
        for point, k in plans(calls, SPREAD):
            done = command({"TB_FAULT": f"{point}:{k}"})
            sane(done, f"{name} with {point}:{k}")
            tried += 1
            refused += done.returncode != 0
            if not east.daemon.alive():
                raise Failed(f"the gateway ended when {name} ran with {point}:{k}")
        print(f"{name}: {sum(calls.values())} calls at {len(calls)} points, {tried} runs with a fault, {refused} refused")
        if refused == 0:
            raise Failed(f"no fault hit {name}")
    expect("the gateway's end", east.daemon.terminate(), 0)


@scenario
def each_call_of_a_gateway_may_fail(lab):
    """P6 P7: a gateway whose call fails once ends with a line that says why, or lands the version all the same; with calls
    that fail from then on it does not crash, hang at its end, or say that it holds what it does not."""
    east, west, _ = lab.east_west(arena_mib=16, through_link=False)
    source = source_of(lab)
    east.start()
    east.cli("publish", "policy", source, "--version", "1")
    uid = east.versions()[0]["uid"]
    into = lab.dir / "west-into"

    def begin(env):
        for path in (west.arena_path, *pathlib.Path(west.dir).glob("store.sqlite*")):
            pathlib.Path(path).unlink(missing_ok=True)
        west.start(wait=False, env=env)

    def holds_or_over():
        if not west.daemon.alive():
            return "over"
        try:
            return west.holds(uid) and "holds"
        except (OSError, ValueError, KeyError):
            return None

    def end(what):
        code = west.daemon.popen.returncode if not west.daemon.alive() else west.daemon.terminate()
        if code not in (0, 1):
            raise Failed(f"{what}: ended with {code}: " + west.daemon.log_path.read_text(errors="replace")[-3000:])
        for word in ("Sanitizer", "runtime error", "assert.failed"):
            if west.daemon.logged(word):
                raise Failed(f"{what}: " + west.daemon.log_path.read_text(errors="replace")[-4000:])
        if code == 1 and not west.daemon.logged("error ") and not west.daemon.logged("tombolod.yaml:"):
            raise Failed(f"{what}: ended with 1 and no line that says why")

    calls_path = lab.dir / "calls"
    begin({"TB_FAULT_CALLS": str(calls_path)})
    wait_for("west holds the version", lambda: holds_or_over() == "holds")
    end("west without a fault")
    calls = counted(calls_path)
    over = held = 0
    for point, k in plans(calls, GATEWAY_SPREAD if not ALL else 0):
        what = f"west with {point}:{k}"
        begin({"TB_FAULT": f"{point}:{k}"})
        sticky = k.endswith("+")
        try:
            state = wait_for(what, holds_or_over, 2 if sticky else None)
        except Failed:
            if not sticky:
                raise
            state = "neither"
        if state == "holds":
            held += 1
            if not sticky:
                shutil.rmtree(into, ignore_errors=True)
                west.cli("subscribe", "policy", "--into", into, "--version", "1", "--timeout", "20s")
                expect(f"{what}: the bytes are the published ones", same(source, into / "1"), True)
        over += state == "over"
        end(what)
        if not east.daemon.alive():
            raise Failed(f"east ended: {what}")
    print(f"gateway: {sum(calls.values())} calls at {len(calls)} points; {held} runs landed it, {over} ended with a line")
    expect("east's end", east.daemon.terminate(), 0)


if __name__ == "__main__":
    sys.exit(main())
