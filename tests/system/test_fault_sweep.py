"""Allocations and system calls of whole programs fail, one after the other: once, and once and
from then on.

A clean run counts the calls at each fault point: those of base/fault.h, where allocations of
libraries are one (`library`), and those functions of libc that tests/fault/calls.c stands in
front of, for every caller. Then the run is repeated with call k failing. Each time a spread of
the calls is tried; with TB_FAULT_ALL=1 every one up to MOST, and a spread of those behind it;
TB_FAULT_PART=i/n tries the i-th of n parts of that. A run may fail; it may not crash, hang, leak
(sanitized builds say so) or lie: what answered well is there, byte for byte.

Covers: base/fault.c gateway/daemon/main.c gateway/daemon/daemon.c gateway/cli/tombolo.c
"""

import filecmp
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from adopting import adopt_files
from harness import BUILD, PATIENCE, PATIENCE_S, SOURCE, TOMBOLO, Failed, expect, main, scenario, version_folder, wait_for

ALL = os.environ.get("TB_FAULT_ALL") == "1"
PART, PARTS = (int(n) for n in os.environ.get("TB_FAULT_PART", "0/1").split("/"))
# A short run tries a fourth of libc's functions, another with each commit.
TURN = int(subprocess.run(["git", "-C", str(SOURCE), "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout[:1] or "0", 16)
SPREAD = 2           # calls of a point that are tried when not all are
GATEWAY_SPREAD = 1
MOST = 100           # calls of a point that are all tried with TB_FAULT_ALL; as many more are spread over the rest
LEAKS = pathlib.Path(__file__).with_name("library_leaks.txt")
CALLS = BUILD / "tests/fault/libtb_calls.so"


def spread(calls, most):
    """Numbers of 1..calls: all, or `most` from the first to the last."""
    if ALL:
        return [*range(1, min(calls, MOST) + 1), *range(MOST + 1, calls + 1, max((calls - MOST) // MOST, 1))]
    if calls <= most:
        return list(range(1, calls + 1))
    return sorted({1 + round(i * (calls - 1) / max(most - 1, 1)) for i in range(most)} if most > 1 else {(calls + 1) // 2})


def plans(calls, most):
    """(what, environment, from then on) for each call to fail. From then on: half of them, where
    not all are tried."""
    number = 0
    for (variable, point), count in calls.items():
        for i, k in enumerate(spread(count, most)):
            for mode in ("", "+") if ALL else ("+",) if (i + number) % 2 else ("",):
                number += 1
                if not ALL and variable == "TB_CALLS" and (number + TURN) % 4 != 0:
                    continue  # they come in turns
                if number % PARTS == PART:
                    yield f"{point}:{k}{mode}", preloaded({variable: f"{point}:{k}{mode}"}), mode == "+"


def preloaded(env):
    # A sanitizer wants to be the first library; it need not be, as calls.c hands on to it.
    options = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0:handle_abort=1")))
    # OpenSSL frees less than it took when it gets no memory for its own end; what is ours is still
    # looked at.
    return {**env, "LD_PRELOAD": str(CALLS), "ASAN_OPTIONS": options, "LSAN_OPTIONS": f"suppressions={LEAKS}:print_suppressions=0"}


def counting(folder):
    return preloaded({"TB_FAULT_CALLS": str(folder / "calls"), "TB_CALLS_COUNT": str(folder / "libc")})


def counted(folder):
    """{(variable that makes it fail, point): calls} of those that were called."""
    calls = {}
    for variable, name in (("TB_FAULT", "calls"), ("TB_CALLS", "libc")):
        rows = (line.split() for line in (folder / name).read_text().splitlines())
        calls.update({(variable, point): int(n) for point, n in rows if int(n) > 0})
    return calls


def run(site, env, *args):
    base = dict(os.environ, TOMBOLO_GATEWAY=f"unix:{site.session_socket}", TOMBOLO_CONTROL=str(site.control_socket))
    try:
        return subprocess.run([str(TOMBOLO), *map(str, args)], env=dict(base, **env), capture_output=True, text=True,
                              errors="replace", timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"tombolo {args[0]} with {env} hung") from e


def aborted_by_library(text):
    """libuv and OpenSSL end the process where they cannot go on without memory; that is theirs
    to decide, and bounded. A crash in our code, or by SIGSEGV, is a finding."""
    if "AddressSanitizer: ABRT" not in text or "assert.failed" in text:
        return False
    frames = re.findall(r"^ +#\d+ 0x[0-9a-f]+ (.*)$", text, re.MULTILINE)
    first = next((f for f in frames if not re.search(r"nptl/|posix/|stdlib/|libc\.so", f)), "")
    return any(name in first for name in ("libuv.so", "libcrypto.so", "libssl.so"))


def sane(done, what):
    """No signal, no sanitizer's finding, and a refusal has a line."""
    if what.split()[-1].startswith("library:") and (aborted_by_library(done.stderr) or
                                                (done.returncode == -signal.SIGABRT and "assert.failed" not in done.stderr)):
        return
    if done.returncode < 0:
        raise Failed(f"{what}: ended by signal {-done.returncode}: {done.stderr[-2000:]}")
    for word in ("Sanitizer", "runtime error", "assert.failed"):
        if word in done.stderr:
            raise Failed(f"{what}: {done.stderr[-4000:]}")
    if done.returncode != 0 and not (done.stderr + done.stdout).strip():
        raise Failed(f"{what}: exited {done.returncode} without a word")


class Findings:
    """The things that went wrong, so that one run tells of all; it ends early where there is plenty."""

    def __init__(self):
        self.said = []

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is Failed:
            self.said.append(str(value))
            print(f"FINDING {value}", file=sys.stderr, flush=True)
        return kind is Failed and len(self.said) < 20

    def judge(self):
        if self.said:
            raise Failed(f"{len(self.said)} findings; the first: {self.said[0]}")


def source_of(lab, name="source", step=0):
    folder = lab.dir / name
    folder.mkdir()
    data = bytes((i + step) % 256 for i in range(256)) * 1200
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
        self.timeout = PATIENCE  # without a fault it succeeds, however busy the machine; with one it may stand still

    def publish(self, env):
        self.n += 1
        done = run(self.site, env, "publish", "policy", self.source, "--version", self.n, "--json", "--timeout", self.timeout)
        if done.returncode == 0:
            into = self.lab.dir / f"check-{self.n}"
            self.site.cli("subscribe", "policy", "--into", into, "--version", self.n, "--timeout", PATIENCE)
            expect(f"version {self.n} is what was published", same(self.source, version_folder(into, self.n)), True)
            shutil.rmtree(into)
            self.good = self.n
        return done

    def subscribe(self, env):
        into = self.lab.dir / "into"
        shutil.rmtree(into, ignore_errors=True)
        done = run(self.site, env, "subscribe", "policy", "--into", into, "--version", self.good, "--timeout", self.timeout)
        folder = version_folder(into, self.good)
        there = (folder / "STABLE").exists()
        if not there and folder.exists():
            raise Failed(f"subscribe with {env} left a folder without a marker")
        if done.returncode == 0 and not there:
            raise Failed(f"subscribe with {env} exited 0 and left no version")
        if there and not same(self.source, folder):
            raise Failed(f"subscribe with {env} called other bytes stable")
        return done

    def versions(self, env):
        done = run(self.site, env, "versions", "policy", "--json")
        if done.returncode == 0:
            try:
                reply = json.loads(done.stdout)
            except ValueError as e:
                raise Failed(f"versions with {env} exited 0 and printed no JSON: {e}") from e
            expect("versions says ok", reply["ok"], True)
        return done

    def sites(self, env):
        """A table that lacks a row for want of memory is none."""
        done = run(self.site, env, "sites", "-o", "tsv", "--sort", "site")
        if done.returncode == 0:
            expect(f"sites with {env}", [line.split("\t")[0] for line in done.stdout.splitlines()], ["site", "east", "west"])
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
    """P10 P7: a command whose call fails says so or succeeds; what it says is done is done; its
    gateway serves on."""
    east, _, _ = lab.east_west(arena_mib=64, through_link=False)
    east.start()
    commands, findings = Commands(lab, east), Findings()
    for name in ("publish", "subscribe", "versions", "sites", "pki", "config"):
        command = getattr(commands, name)
        commands.timeout = PATIENCE
        done = command(counting(lab.dir))
        sane(done, f"{name} without a fault")
        expect(f"{name} without a fault ({done.stderr})", done.returncode, 0)
        calls = counted(lab.dir)
        commands.timeout = "1s"
        refused = tried = 0
        for what, env, _ in plans(calls, SPREAD):
            tried += 1
            with findings:
                done = command(env)
                refused += done.returncode != 0
                sane(done, f"{name} with {what}")
            if not east.daemon.alive():
                raise Failed(f"the gateway ended when {name} ran with {what}")
        print(f"{name}: {sum(calls.values())} calls at {len(calls)} points, {tried} runs with a fault, {refused} refused")
        if refused == 0:
            raise Failed(f"no fault hit {name}")
    expect("the gateway's end", east.daemon.terminate(), 0)
    findings.judge()


def anchors_of(lab, east, west):
    """West has an anchor of the version before, as it was before its machine lost its memory,
    and that one's files."""
    folder, kept = lab.dir / "anchors", lab.dir / "anchors-kept"
    west.extra["anchor"] = {"dir": folder}
    source = source_of(lab, "older", step=1)
    east.cli("publish", "policy", source, "--version", "1")
    west.start()
    wait_for("an anchor", lambda: west.counters()["anchors_written"] > 0)
    expect("west's end", west.daemon.terminate(), 0)
    shutil.copytree(folder, kept)

    def again():
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
    return again


def sweep_gateway(lab, disk):
    """A gateway that lands a version; with `disk` it begins from an anchor, adopts the version's
    files, and writes an anchor of it."""
    east, west, _ = lab.east_west(arena_mib=16, through_link=False)
    source = source_of(lab)
    east.start()
    anchors_again = anchors_of(lab, east, west) if disk else lambda: None
    east.cli("publish", "policy", source, "--version", "2")
    uid = next(v["uid"] for v in east.versions() if v["number"] == 2)
    into = lab.dir / "west-into"

    def begin(env):
        for path in (west.arena_path, *pathlib.Path(west.dir).glob("store.sqlite*")):
            pathlib.Path(path).unlink(missing_ok=True)
        anchors_again()
        west.start(wait=False, env=env)

    def adopted():
        """The first answer began it, the next says how it stands."""
        adopt = west.control("adopt", model="policy")
        adopt = adopt if adopt.get("ok") else adopt_files(west, source)
        return not adopt.get("ok") or adopt["adopt"]["phase"] == "done"

    def anchored():
        """Or it failed, and is tried again in a minute."""
        counters = west.counters()
        return counters["anchors_written"] + counters["anchors_failed"] > 0

    def holds_or_over():
        if not west.daemon.alive():
            return "over"
        try:
            return (not disk or adopted() and anchored()) and west.holds(uid) and "holds"
        except (OSError, ValueError, KeyError):
            return None

    def end(what):
        code = west.daemon.popen.returncode if not west.daemon.alive() else west.daemon.terminate()
        log = west.daemon.log_path.read_text(errors="replace")
        if "library:" in what and (aborted_by_library(log) or (code == -signal.SIGABRT and "assert.failed" not in log)):
            west.daemon.log_path.write_text("")  # judged here; the lab would judge it again
            west.daemon.ended_by_us = True
            return
        early = code == -signal.SIGTERM and not west.daemon.logged("info start ")  # asked to end before it could hear of it
        if code not in (0, 1) and not early:
            raise Failed(f"{what}: ended with {code}: " + west.daemon.log_path.read_text(errors="replace")[-3000:])
        for word in ("Sanitizer", "runtime error", "assert.failed"):
            if west.daemon.logged(word):
                raise Failed(f"{what}: " + west.daemon.log_path.read_text(errors="replace")[-4000:])
        if code == 1 and not west.daemon.logged("error ") and not west.daemon.logged("tombolod.yaml:"):
            raise Failed(f"{what}: ended with 1 and no line that says why")

    def attempt(what, env, sticky):
        begin(env)
        try:
            state = wait_for(what, holds_or_over, 2 if sticky else None)
        except Failed:
            if not sticky:
                west.kill()  # or it would answer for those that come after it
                raise
            state = "neither"
        try:
            if state == "holds" and not sticky:
                shutil.rmtree(into, ignore_errors=True)
                west.cli("subscribe", "policy", "--into", into, "--version", "2", "--timeout", PATIENCE)
                expect(f"{what}: the bytes are the published ones", same(source, version_folder(into, 2)), True)
        except Failed as e:
            raise Failed(f"{what}: {e}") from e
        finally:
            end(what)
        return state

    findings = Findings()
    begin(counting(west.dir))  # where its sandbox lets it write
    wait_for("west holds the version", lambda: holds_or_over() == "holds")
    end("west without a fault")
    calls = counted(west.dir)
    over = held = 0
    for fault, env, sticky in plans(calls, GATEWAY_SPREAD):
        with findings:
            state = attempt(f"west with {fault}", env, sticky)
            held += state == "holds"
            over += state == "over"
        if not east.daemon.alive():
            raise Failed(f"east ended: west with {fault}")
    print(f"gateway: {sum(calls.values())} calls at {len(calls)} points; {held} runs landed it, {over} ended with a line")
    expect("east's end", east.daemon.terminate(), 0)
    findings.judge()


@scenario
def each_call_of_a_gateway_may_fail(lab):
    """P6 P7: a gateway whose call fails once ends with a line that says why, or lands the
    version all the same; with calls that fail from then on it does not crash, hang at its end,
    or say that it holds what it does not."""
    sweep_gateway(lab, disk=False)


@scenario
def each_call_of_a_gateway_with_disks_may_fail(lab):
    """P1 P3 P6: the same of one that begins from an anchor, adopts files, and writes an anchor."""
    sweep_gateway(lab, disk=True)


if __name__ == "__main__":
    sys.exit(main())
