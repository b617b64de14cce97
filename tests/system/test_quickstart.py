"""The quickstart ends well, also over an emulated WAN, where it says how much of the link it took.

Covers: sim/quickstart.c deploy/quickstart
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import BUILD, PATIENCE_S, SOURCE, Failed, Skipped, expect, main, scenario, wait_for
from capture import Capture

sys.path.append(str(SOURCE / "sim/wan"))
import leavings  # noqa: E402
import wanlab  # noqa: E402


class Quickstart:
    """deploy/quickstart with a folder of its own for what is temporary, whose name is short
    enough for the sockets in it."""

    def __init__(self, folder, *words):
        self.argv = [str(SOURCE / "deploy/quickstart"), "--build", str(BUILD), *words]
        self.folder, self.env = folder, dict(os.environ, TMPDIR=folder)

    def run(self, *words):
        return subprocess.run([*self.argv, *words], env=self.env, capture_output=True, text=True, timeout=240)

    @contextlib.contextmanager
    def in_the_middle(self):
        """One of many versions, of which the first has crossed; killed at the end if it still runs."""
        running = subprocess.Popen([*self.argv, "--versions", "9"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   start_new_session=True)
        try:
            expect("a first version", any(line.lstrip().startswith("0 ") for line in running.stdout), True)
            yield running
        finally:
            running.kill()
            running.stdout.close()
            running.wait()

    def left(self):
        """Folders, and processes that were begun in it."""
        return [*os.listdir(self.folder), *leavings.orphans("tombolo-quickstart"), *leavings.marked("TMPDIR", self.folder)]

    def leaves_nothing(self):
        wait_for(f"nothing is left: {self.left()}", lambda: not self.left())


class Gate:
    """Stands in front of a program: its caller waits there until it is opened."""

    def __init__(self, folder, program):
        self.reached, self.opened = folder / f"{program}.reached", folder / f"{program}.opened"
        shim = folder / program
        shim.write_text(f'#!/bin/sh\n: >{self.reached}\nwhile ! [ -e {self.opened} ]; do sleep 0.02; done\nexec {shutil.which(program)} "$@"\n')
        shim.chmod(0o755)

    def wait(self, caller, timeout_s):
        wait_for("it comes so far", lambda: self.reached.exists() or caller.poll() is not None, timeout_s)
        if not self.reached.exists():
            raise Failed(f"it ended with {caller.returncode}: {caller.stderr.read()}")


class SitesOf:
    """The namespaces of a lab that another process has made."""

    def __init__(self, pid):
        said = subprocess.check_output(["ip", "netns", "list"], text=True)
        self.names = {name.rpartition("-")[2]: name for name in re.findall(rf"^tbw-{pid}-\S+", said, re.M)}

    def enter(self, site, argv):
        return ["ip", "netns", "exec", self.names[site], *argv]


def run_watched(quickstart, *words):
    """Its output, and every packet between its sites, before the first of which it asks jq
    where they are; at its end it removes its folders."""
    with tempfile.TemporaryDirectory() as folder:
        begin, end = (Gate(pathlib.Path(folder), program) for program in ("jq", "rm"))
        env = dict(quickstart.env, PATH=f"{folder}:{os.environ['PATH']}")
        running = subprocess.Popen([*quickstart.argv, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            begin.wait(running, PATIENCE_S)
            with Capture(SitesOf(running.pid), "east", "west") as seen:
                begin.opened.touch()
                end.wait(running, 240)
            end.opened.touch()
            out, err = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
            running.wait()
        return subprocess.CompletedProcess(running.args, running.returncode, out, err), seen


@scenario
def the_quickstart_ends_well(lab):
    """P1: deploy/quickstart: verdict good and 0; with a spoiled byte bad and 8; no process and
    no folder is left, also after SIGINT and SIGKILL."""
    with tempfile.TemporaryDirectory() as folder:
        quickstart = Quickstart(folder, "--bytes", "6M")
        done = quickstart.run("--versions", "2")
        expect(f"exit code ({done.stdout}{done.stderr})", done.returncode, 0)
        expect("verdict", "every byte equal" in done.stdout, True)
        done = quickstart.run("--spoil", *[str(p) for p in lab.weights(2)])
        expect(f"exit code of a spoiled one ({done.stdout}{done.stderr})", done.returncode, 8)
        expect("bad verdict", "DIFFERENT" in done.stdout and "BAD" in done.stdout, True)
        with quickstart.in_the_middle() as running:
            os.killpg(running.pid, signal.SIGINT)
            running.stdout.read()
            expect("exit code after SIGINT", running.wait(PATIENCE_S), 130)
        quickstart.leaves_nothing()
        with quickstart.in_the_middle() as running:
            os.killpg(running.pid, signal.SIGKILL)
        quickstart.leaves_nothing()


@scenario
def the_quickstart_over_a_wan_says_its_share(_lab):
    """P1 P8: deploy/quickstart --wan: every byte equal, goodput as a share of the link's rate;
    every packet between its sites belongs to a TLS connection; killed in the middle it leaves
    nothing, and runs again."""
    if why := wanlab.why_not():
        raise Skipped(why)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "near.yaml"
        # The way back has another rate, which is no measure of what crosses.
        path.write_text("sites: [east, west]\npaths:\n  - {from: west, to: east, rate: 60Mbit, delay: 5ms}\n  - {from: east, to: west, rate: 80Mbit, delay: 5ms}\n")
        with tempfile.TemporaryDirectory() as temporary:
            quickstart = Quickstart(temporary, "--wan", str(path), "--bytes", "16M")
            for number in (signal.SIGTERM, signal.SIGKILL):
                with quickstart.in_the_middle() as running:
                    running.send_signal(number)
                    expect("exit code", running.wait(PATIENCE_S), 143 if number == signal.SIGTERM else -9)
                wait_for("no namespace", lambda pid=running.pid: f"tbw-{pid}-" not in subprocess.check_output(["ip", "netns", "list"], text=True))
                done, seen = run_watched(quickstart, "--versions", "2")
                quickstart.leaves_nothing()
                rows = must_have_crossed(done)
                expect("what is no TLS", seen.complaints()[:1], [])
                expect("connections that were seen", len(seen.streams) > 2, True)
                passed = sum(stream.next for stream in seen.streams)
                expect(f"{passed} bytes passed, at least what is said of the wire: {rows}", passed >= sum(span_of(wire)[0] for _, wire, _ in rows), True)


def must_have_crossed(done):
    """A run over 80 Mbit/s: (logical, wire, seconds) of its versions. In bf16 a first version is
    at most 1.52 times as long as what crosses; a machine of which others have most is slow."""
    void = done.returncode == wanlab.VOID and "VOID" in done.stderr
    expect(f"exit code ({done.stdout}{done.stderr})", done.returncode == 0 or void, True)
    expect(f"verdict ({done.stdout})", "every byte equal" in done.stdout, True)
    said = re.search(r"(\d+) Mbit/s for the first, which is (\d+) % of the link's 80 Mbit/s \((\d+) % with what was on the wire\); (\d+) % for the best",
                     done.stdout)
    expect(f"goodput is told ({done.stdout})", said is not None, True)
    rate, first, wire, best = map(int, said.groups())
    expect(f"a share from 5 to 155 %: {said[0]}", 5 <= first <= 155 and abs(rate - 0.8 * first) <= 1 and best >= first, True)
    rows = re.findall(r"^ +\d+  +([\d.]+ k?M?B)  +([\d.]+ k?M?B) .*?  ([\d.]+ s)  ", done.stdout, re.MULTILINE)
    expect(f"two versions in the table ({done.stdout})", len(rows) == 2, True)
    shares = [percent_of(logical, time, 80e6) for logical, _, time in rows]
    expect(f"the first's share, by the table's bytes and seconds: {shares}, {said[0]}", within(first, *shares[0]), True)
    expect(f"the best's: {shares}, {said[0]}", within(best, *map(max, *shares)), True)
    # A byte that crossed took its time: no more of them than the link's rate allows (and the
    # emulator's 2 % of it).
    expect(f"the wire's: {rows}, {said[0]}", within(wire, *percent_of(rows[0][1], rows[0][2], 80e6)) and wire <= 102, True)
    expect(f"bytes of bf16 on the wire: {rows}", 0.6 <= span_of(rows[0][1])[0] / span_of(rows[0][0])[0] <= 1.02, True)
    return rows


def span_of(text):
    """The range of "16.8 MB" and "0.63 s" before they were rounded."""
    number, unit = text.split()
    scale = {"s": 1, "B": 1, "kB": 1e3, "MB": 1e6}[unit]
    half = 0.5 * 10 ** -len(number.partition(".")[2])
    return (float(number) - half) * scale, (float(number) + half) * scale


def percent_of(count, time, bit_per_s):
    """The least and the most that a rate may be of the link's."""
    (least, most), (soonest, latest) = span_of(count), span_of(time)
    return least * 800 / latest / bit_per_s, most * 800 / max(soonest, 1e-3) / bit_per_s


def within(percent, least, most):
    return least - 0.5 <= percent <= most + 0.5


if __name__ == "__main__":
    sys.exit(main())
