#!/usr/bin/env python3
"""`tombolo lag`: each reason of its list is caused, and its evidence is true (P10). Reasons of
links are caused in test_links.py, too, and a day that is spent in test_limits.py.
docs/lab-notes/lag-reasons.md has the list.

Covers: gateway/cli/operator/lag_command.c gateway/daemon/links/lag.c
Covers: gateway/daemon/links/site_lag.c gateway/daemon/control/lag_status.c
"""

import contextlib
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

from harness import (CRAWL, SOURCE, TOMBOLO, Failed, Rollout, SlowDisk, Trainer, Worker, expect, flip_in_file, made, main, safetensors, safetensors_table,
                     scenario, up, wait_for)
from lagging import WHY, causes, far_pair, row, says

RATE = r"\d+ bytes/s over \d+ streams, rtt \d+\.\d ms"
FROM = f"from east: {RATE}"
TO = rf"to west: {RATE}, limited by \w+( \(\w+\))?"
SAID = r"\w+ said so \d+\.\d s ago(, by way of \w+)?"
# Whole versions, and a link that stays up while nothing comes over it. OLD: a peer of the release
# before, that says nothing of itself.
PATIENT = {"codec": "raw", "heartbeat_ms": 60000, "down_ms": 600000, "stream_idle_ms": 600000}
OLD = {**PATIENT, "protocol_max": 1}
CURRENT = {"up-to-date", "no-subscriber"}
# A slow relay of bytes between two gateways looks to TCP like a receiver that does not read.
MOVES = {"crossing", "receiver-cpu", "window-limited"}
NOT_UP = {"link-down", "refused-by-peer", "tls-failed"}  # of a link that is closed as soon as it is opened


def nobody_is_behind(*sites):
    """Each says it of itself, and home of the others. Where no worker subscribes, the site says
    that instead."""
    for site in sites:
        home = site.models["policy"]["home"] == site.name
        for of in [site.name, *(site.peers if home else ())]:
            says(site, CURRENT, f"({SAID})?", of=of, known=True, versions=0, bytes=0)


def both_say(east, west, reason, **fields):
    """West's row at both ends of the link: the same numbers. They are asked for one after the
    other, so they are waited for."""
    def same():
        rows = [says(s, reason, ".*", known=True, **fields) for s in (east, west)]
        keys = ("head", "latest", "versions", "bytes", "reason", "eta_s")
        return rows[0] if all(rows[0][k] == rows[1][k] for k in keys) else None
    return wait_for("both ends say the same", same)


def each_says(east, west, reason, limit):
    """Of west, whose only version crosses. East says what limits the streams, too. The bytes
    change between the two answers."""
    says(west, reason, FROM, head="1:1", versions=1)
    says(east, reason, rf"to west: {RATE}, limited by {limit}", head="1:1", versions=1)


def published(site, trainer, number, **fields):
    """A version that is ready, and its size."""
    uid = trainer.publish(number, **fields)
    wait_for("it is ready", lambda: site.version(uid, trainer.model)["state"] in ("ready", "kept"))
    return uid, site.version(uid, trainer.model)["bytes"]


def monitors(site, code, begins, *options):
    """The line of `tombolo lag --check` as a monitoring system reads it."""
    done = site.cli("lag", "--check", *options, check=False)
    expect("exit code and line", (done.returncode, done.stdout[:len("TOMBOLO ") + len(begins)]), (code, f"TOMBOLO {begins}"))


@scenario
def each_reason_of_lag_is_in_the_manuals(lab):
    """The list is closed, and the same where the program has it, in docs/control.md and in the
    help."""
    expect("how many", len(WHY), 35)
    page = (SOURCE / "docs/control.md").read_text()
    expect("docs/control.md", re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| [^|]+ \|$", page[page.index("| `reason` | meaning | look at |"):], re.M)[1:36], list(WHY.items()))
    text = subprocess.run([TOMBOLO, "help", "lag"], capture_output=True, text=True, check=True).stdout
    listed = re.search(r"reason\s+\(([^)]*)\)", text).group(1)
    expect("the help", re.findall(r"[\w-]+", listed), list(WHY))


@scenario
@causes("link-down")
def lag_of_a_site_that_never_came_up(lab):
    """P10: west never reached east. Neither knows anything of the other, and says how the link
    does, and no number."""
    east, west, link = lab.east_west()
    link.refusing = True
    east.start()
    west.start()
    unknown = {"known": False, "versions": None, "bytes": None, "seconds": None, "eta_s": None}
    says(west, NOT_UP, r"east: .+", head=None, **unknown)
    says(east, "up-to-date", "", of="east", head=None, versions=0, known=True)
    says(east, "link-down", "west: not connected yet", head=None, heard_s=None, **unknown)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid, _ = published(east, trainer, 1)
    says(east, "link-down", "west: not connected yet", head="1:1", heard_s=None, latest=None, **unknown)
    monitors(east, 3, "UNKNOWN: policy at west is not known (link-down)")
    expect("a word that is no time", east.cli("lag", "--check", "--warn", "soon", check=False).returncode, 3)
    r = says(west, NOT_UP, r"east: .+", head=None, heard_s=None, **unknown)
    if f"\n  {r['why']}: east: " not in west.cli("lag", "policy", "--why").stdout:
        raise Failed(f"as text it lacks what the row has: {r}")
    link.refusing = False
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_of_a_site_that_went_away(lab):
    """P10: west had the head. While its link is down nobody says so any more: east shows when it
    heard of west last, and west does not claim that it has the head, although it has all of
    which it heard."""
    east, west, link = lab.east_west()
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    west.wait_holds(published(east, trainer, 1)[0])
    nobody_is_behind(east, west)
    link.refusing = True
    link.cut()
    says(west, NOT_UP, r"east: .+", known=False, versions=None, head="1:1", latest="1:1")
    r = says(east, "link-down", r"west: .+", known=False, versions=None, bytes=None, latest="1:1")
    if not r["heard_s"] > 0:
        raise Failed(f"the row has no age: {r}")
    for s in (east, west):
        if not re.search(r"not known now; heard .* ago, it had 1:1", s.cli("lag", "policy", "--why").stdout):
            raise Failed(f"at {s.name} it has no age as text")
    uid, _ = published(east, trainer, 2)
    says(east, "link-down", r"west: .+", head="1:2", known=False, versions=None)
    says(west, NOT_UP, r"east: .+", known=False, head="1:1")
    link.refusing = False
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
def lag_of_a_home_that_is_down(lab):
    """P10: north has the model through west. East, its home, ends: north's link is up, and north
    says all the same that nobody knows the head."""
    east, west, _ = lab.east_west(through_link=False)
    north = lab.behind(west)
    up(east, west, north)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid, _ = published(east, trainer, 1)
    for s in (west, north):
        s.wait_holds(uid)
    says(north, CURRENT, "", of="north", known=True, versions=0, head="1:1")
    r = says(east, CURRENT, SAID, of="north", known=True, versions=0, latest="1:1", via="west")
    if "through west" not in east.cli("lag", "policy", "--why").stdout:
        raise Failed(f"the text does not name the relay of {r}")
    east.kill()
    for s in (west, north):
        says(s, {"link-down", "refused-by-peer"}, ".*", of=s.name, known=False, versions=None, latest="1:1")
    east.start()
    for s in (west, north):
        says(s, CURRENT, "", of=s.name, known=True, versions=0)
    says(east, CURRENT, "north said so .+, by way of west", of="north", known=True, via="west")
    north.kill()
    says(east, {"link-down", "refused-by-peer"}, "as west says", of="north", known=False, latest="1:1")


@scenario
@causes("right-denied")
def lag_of_a_site_that_may_not_read(lab):
    """P8 P10: east's `read:` lacks west. Each end says so, and neither that west has the head."""
    east, west, _ = lab.east_west(through_link=False)
    east.models["policy"] = dict(home="east", read=["tombolo://north/*"])
    up(east, west)
    published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    lacks = "east: models.policy.read lacks tombolo://west/gw"
    says(east, "right-denied", lacks, known=False, versions=None)
    says(west, "right-denied", lacks, known=False, versions=None, head=None)
    expect("versions that west knows of", west.versions(), [])


@scenario
@causes("dns-failed", "tls-failed", "refused-by-peer")
def lag_shows_why_a_link_is_down(lab):
    """P10: of east's name there is no address for west; then another CA signed its certificate;
    then east is not there. `lag` has the reason of the link."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    west.wait_holds(published(east, Trainer(lab, east, lab.weights(1)[0]), 1)[0])
    address, trust = west.peers["east"], west.trust
    other = lab.dir / "pki-other"  # another CA of west: east does not accept what it signed
    lab.tombolo("pki", "init", "--dir", other, "--site", "west")
    lab.tombolo("pki", "issue", "--dir", other, "--out", "gw", "tombolo://west/gw")
    for reason, at, pki in (("dns-failed", f"east.invalid:{east.port}", trust), ("tls-failed", address, other), ("refused-by-peer", address, trust)):
        west.kill()
        west.peers["east"], west.trust = at, pki
        if reason == "refused-by-peer":
            east.kill()
        west.start()
        says(west, reason, r"east: .+", known=False, versions=None, latest="1:1")
        if reason == "tls-failed":
            says(east, reason, r"west: .+", known=False, versions=None)


@scenario
@causes("unknown")
def lag_of_a_site_that_says_nothing_of_the_model(lab):
    """P10: west is up, and does not know the model: nothing was heard of it since the start."""
    east, west, _ = lab.east_west(through_link=False)
    west.models = {"other": dict(home="east")}
    west.subscribe = []
    up(east, west)
    published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    says(east, "unknown", r"west: the link is up for \d+\.\d s, and nothing was said of the model", known=False, versions=None, heard_s=None)


@scenario
@causes("no-subscriber", "worker-not-activating", "up-to-date")
def lag_of_workers(lab):
    """P10: west has the head. First nobody subscribes there, then a worker that does not stage
    it, then one that activated it."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.weights(1)[0]
    uid, _ = published(east, Trainer(lab, east, path), 1)
    west.wait_holds(uid)
    both_say(east, west, "no-subscriber", versions=0, active=None)
    reader = Rollout(lab, west, "reader", path)
    both_say(east, west, "worker-not-activating", versions=0, active=None)
    reader.stage(uid)
    reader.activate(uid)
    both_say(east, west, "up-to-date", versions=0, active="1:1")


@scenario
def both_ends_of_a_link_say_the_same(lab):
    """P10: of versions that come faster than they cross, the superseded ones are lacked by
    nobody; and both ends say the same numbers, and until when."""
    east, west, _ = lab.east_west(through_link=False)
    east.peer_keys["west"] = {"rate": "6Mbit"}
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    for number in range(1, 8):
        published(east, trainer, number)
    east.wait_holds(trainer.publish(8))
    # `keep` is 2, one more may be arriving. For a moment there are more: until home has evicted
    # what the last one superseded.
    both_say(east, west, {"waiting-base", "queued-behind", "rate-limited"}, head="1:8", versions={1, 2, 3})
    wait_for("an estimate, at both ends", lambda: row(west, "west")["eta_s"] and row(east, "west")["eta_s"] or row(west, "west")["reason"] in CURRENT)
    east.cli("limit", "west", "--rate", "none")
    nobody_is_behind(east, west)


@scenario
@causes("no-room")
def lag_of_a_site_without_room(lab):
    """P10: west's arena is full of what does not go. It says so each time it is asked, with what
    is needed and what there is, and no more once there is room."""
    east, west, _ = lab.east_west(through_link=False)
    west.arena_mib = 16
    for s in (east, west):
        s.models["other"] = dict(home="east")
    west.subscribe.append(("other", ["east"]))
    up(east, west)
    path = made(lab, "10M", 1)[0]
    other = Trainer(lab, east, path, names=("other0", "other1"), model="other").publish(1)
    west.wait_holds(other, model="other")
    uid, size = published(east, Trainer(lab, east, path), 1)
    r = says(west, "no-room", r"\d+ bytes needed, \d+ free in one piece", head="1:1", versions=1, bytes=size)
    expect("its numbers", [int(n) for n in re.findall(r"\d+", r["evidence"])], [size, west.control("status")["arena"]["largest_free"]])
    refused, said = west.counters()["arena_refused"], set()
    wait_for("it was asked for three times more", lambda: said.add(row(west, "west")["reason"]) or west.counters()["arena_refused"] >= refused + 3)
    expect("what was said meanwhile", said, {"no-room"})
    both_say(east, west, "no-room", versions=1, bytes=size)
    east.control("withdraw", model="other", version="1")
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
@causes("table-full")
def lag_of_a_site_whose_table_is_full(lab):
    """P10 P7: A follower that takes every version has no rows for all that its home keeps. It
    says so, names the model that has the rows in one line, and gets on to the head as rows come
    free (P6)."""
    east, west, _ = lab.east_west()
    east.models["policy"]["keep"] = 100
    west.models["policy"]["policy"] = "every"
    east.start()
    rank = Worker(lab, "rank", east)
    run = rank.ok("run", model="policy", key="k")["run"]
    for number in range(1, 101):
        uid = rank.ok("publish", model="policy", run=run, number=number, blob="x")["uid"]
    east.wait_holds(uid)
    west.start()
    says(west, "table-full", r"the model uses (\d+) of the \1 rows of versions that it may have")
    west.wait_holds(uid)
    nobody_is_behind(east, west)
    (line,) = west.daemon.logged("table.full", "table=versions")
    expect("who has the rows", "most_used_by=policy" in line, True)
    expect("counted", west.counters()["tables_full"], 1)
    text = west.cli("status").stdout
    expect(f"the table in {text}", len(re.findall(r"^table +versions +\d+ used, 64 at most so far, of \d+, \d+ refused$", text, re.M)), 1)


@scenario
@causes("store-down")
def lag_of_a_site_whose_store_is_down(lab):
    """P10: the disk of home's store does not answer, then west's. While it does not, that comes
    before what the link does."""
    east, west, link = lab.east_west()
    disks = {}
    for s in (east, west):
        s.extra["store"] = {"path": lab.arena_dir / f"{s.name}.sqlite", "slow_ms": 1000}  # where no other sync is slow
        disks[s] = SlowDisk(s)
        s.env = disks[s].env
    west.extra["link"] = east.extra["link"] = PATIENT
    link.refusing = True
    link.bytes_per_s = CRAWL
    east.start()
    west.start()
    uid, size = published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    says(east, "link-down", "west: .+", known=False)
    late = Worker(lab, "late", east)
    disks[east].hold()
    late.send("run", model="policy", key="run-b")
    says(east, "store-down", rf"[1-9]\d* rows wait for {re.escape(str(east.extra['store']['path']))}", of="east", versions=0)
    expect("a new run", late.receive()["status"], "site_store")
    disks[east].let_go()
    says(east, "up-to-date", "", of="east", versions=0)
    disks[west].hold()
    link.refusing = False
    r = says(west, "store-down", rf"[1-9]\d* rows wait for {re.escape(str(west.extra['store']['path']))}", head="1:1", versions=1)
    if not 0 < r["bytes"] <= size:
        raise Failed(f"of {size} bytes it lacks {r['bytes']}")
    says(east, "store-down", SAID, versions=1)
    disks[west].let_go()
    wait_for("what it says then", lambda: row(west, "west")["reason"] in MOVES | {"manifests", "stalled"})
    link.bytes_per_s = 0
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
@causes("manifests")
def lag_while_manifests_are_awaited(lab):
    """P10: west has heard of a version, and what it asks does not reach east."""
    east, west, link = lab.east_west()
    east.extra["link"] = west.extra["link"] = OLD
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    west.wait_holds(trainer.publish(1))
    nobody_is_behind(east, west)
    link.deaf = True
    uid, size = published(east, trainer, 2)
    says(west, "manifests", r"east was first asked for them \d+\.\d s ago", head="1:2", versions=1, bytes=size)
    says(east, "queued-behind", TO, head="1:2", versions=1, bytes=size)
    link.deaf = False
    west.wait_holds(uid)
    nobody_is_behind(east, west)


def another_crosses_first(lab, codec, reason):
    """Of a model that wants every version the second waits for the first, at the rate that an
    operator set."""
    east, west, _ = lab.east_west(through_link=False, policy="every")
    for s in (east, west):
        s.extra["link"] = {**PATIENT, "codec": codec}
    east.peer_keys["west"] = {"rate": "1Mbit"}
    up(east, west)
    trainer = Trainer(lab, east, lab.weights(1)[0])
    published(east, trainer, 1)
    both_say(east, west, "rate-limited", head="1:1", versions=1)
    says(east, "rate-limited", rf"to west: {RATE}, limited by cap \(1Mbit\)")
    monitors(east, 0, "OK: 2 rows, none is behind", "--warn", "1d", "--crit", "2d")
    monitors(east, 1, "WARNING: policy at west is 1 version, ", "--warn", 0, "--crit", "1d")
    monitors(east, 2, "CRITICAL: policy at west is 1 version, ", "--warn", 0, "--crit", 0)
    if "\n  next: tombolo limit PEER --rate none" not in east.cli("lag", "--why").stdout:
        raise Failed("--why says no next command")
    uid, size = published(east, trainer, 2)
    both_say(east, west, reason, head="1:2", versions=2, bytes=size, eta_s=None)
    says(east, reason, SAID)
    says(west, reason, r"policy 1:1 crosses, \d+ bytes of it are here")
    east.cli("limit", "west", "--rate", "none")
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
@causes("queued-behind", "rate-limited")
def lag_while_another_version_crosses_first(lab):
    """P10: whole versions wait for each other."""
    another_crosses_first(lab, "raw", "queued-behind")


@scenario
@causes("waiting-base")
def lag_while_its_base_crosses_first(lab):
    """P10: a version that goes as a difference waits for the one before it, which is its base."""
    another_crosses_first(lab, "auto", "waiting-base")


@scenario
@causes("stalled")
def lag_of_what_stands(lab):
    """P10: a path brings no chunk for many seconds, but bytes: it is no stall. Then nothing
    comes at all, and it is one."""
    east, west, link = lab.east_west()
    east.extra["link"] = west.extra["link"] = PATIENT
    up(east, west)
    link.bytes_per_s = CRAWL  # of a chunk of 1 MiB on each stream: 16 s
    uid, size = published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    wait_for("it begins", lambda: west.daemon.logged("crossing.begun", "number=1 "))
    begun = time.monotonic()

    def moves_without_a_chunk():
        reason = row(west, "west")["reason"]
        return time.monotonic() - begun > 4 and west.version(uid)["held_bytes"] == 0 and reason in MOVES
    wait_for("west sees it move before it has a chunk", moves_without_a_chunk)
    link.stalled = True
    r = says(west, "stalled", "from east: 0 bytes/s over .+", head="1:1", versions=1, eta_s=None)
    if not 0 < r["bytes"] <= size:
        raise Failed(f"of {size} bytes west lacks {r['bytes']}")
    link.stalled = False
    link.bytes_per_s = 0
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
@causes("receiver-cpu")
def lag_of_a_slow_receiver(lab):
    """P10: the other end does not read fast enough what is sent: the sender sees it, and tells
    west, so both say it."""
    east, west, link = lab.east_west()
    for s in (east, west):
        s.extra["link"] = PATIENT
    link.bytes_per_s = CRAWL
    up(east, west)
    uid, _ = published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    both_say(east, west, "receiver-cpu", head="1:1", versions=1)
    says(east, "receiver-cpu", rf"to west: {RATE}, limited by peer_window")
    link.bytes_per_s = 0
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
@causes("crossing")
def lag_while_it_crosses(lab):
    """P10: the path's rate alone limits the version: no packet is lost, and no buffer is small."""
    _, east, west = far_pair(lab, rate="16Mbit", queue="64MiB")
    up(east, west)
    published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    each_says(east, west, "crossing", "network")


def through_small_buffers(lab, key, limit):
    """The third value of that sysctl is far too small for rate x RTT, at both ends."""
    kernel = {"rmem": "4096 65536 67108864", "wmem": "4096 65536 67108864", key: "4096 16384 32768"}
    _, east, west = far_pair(lab, kernel, rate="400Mbit", delay="50ms")
    up(east, west)
    published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    each_says(east, west, "window-limited", limit)


@scenario
@causes("window-limited")
def lag_behind_a_small_buffer(lab):
    """P10: net.ipv4.tcp_wmem is too small. East's kernel says so, or its rate x RTT does."""
    through_small_buffers(lab, "wmem", "(send_buffer|network)")


@scenario
@causes("window-limited")
def lag_behind_a_small_window(lab):
    """P10: net.ipv4.tcp_rmem is too small. East sees a full window, and west knows that its
    window is small."""
    through_small_buffers(lab, "rmem", "peer_window")


@scenario
@causes("loss-limited")
def lag_over_a_path_that_loses(lab):
    """P10: the path loses five packets in a hundred."""
    _, east, west = far_pair(lab, rate="16Mbit", loss="5%")
    up(east, west)
    published(east, Trainer(lab, east, lab.weights(1)[0]), 1)
    each_says(east, west, "loss-limited", "network")


@contextlib.contextmanager
def slow_cores(daemon):
    """The gateway gets about a sixtieth of one core. A program that computes gets the rest."""
    core = min(os.sched_getaffinity(0))
    for task in pathlib.Path(f"/proc/{daemon.popen.pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that just ended
            os.sched_setaffinity(int(task.name), {core})
            os.setpriority(os.PRIO_PROCESS, int(task.name), 19)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                            preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


@scenario
@causes("sender-cpu")
def lag_of_a_slow_sender(lab):
    """P10: east's gateway encodes on a core that another program uses."""
    east, west, _ = lab.east_west(through_link=False)
    for s in (east, west):
        s.extra["link"] = {**PATIENT, "codec": "zstd"}
    up(east, west)
    trainer = Trainer(lab, east, made(lab, "64M", 1)[0])  # it lasts on a fast core, too
    with slow_cores(east.daemon):
        uid, _ = published(east, trainer, 1)
        each_says(east, west, "sender-cpu", "sender")
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@contextlib.contextmanager
def no_memory_beyond(site, spare_bytes):
    """The gateway's data may grow by so many bytes (`ulimit -d`)."""
    pid = site.daemon.popen.pid
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    used = int(re.search(r"VmData:\s+(\d+) kB", status).group(1)) << 10
    before = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (used + spare_bytes, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_DATA, before)


@scenario
@causes("receiver-memory")
def lag_of_a_site_without_memory(lab):
    """P10 P6: west's gateway gets no memory for the manifest of many tensors. It says so until
    it gets some, and then the version crosses."""
    east, west, _ = lab.east_west(through_link=False)
    up(east, west)
    path = lab.dir / "many.safetensors"
    safetensors(path, {f"layers.{i}.weight": ("U8", [16], i.to_bytes(16, "little")) for i in range(100_000)})
    with no_memory_beyond(west, 4 << 20):
        east.cli("publish", "policy", path, "--version", 1)
        says(west, "receiver-memory", "the memory budget is spent", head="1:1", versions=1)
        both_say(east, west, "receiver-memory", head="1:1", versions=1)
        wait_for("it was tried again", lambda: west.counters()["crossings_failed"] > 2)
        for event in ("crossing.refused", "crossing.failed"):
            expect(f"lines of {event}", len(west.daemon.logged(event, "status=site_nomem")), 1)
    nobody_is_behind(east, west)


@scenario
@causes("verify-failed")
def lag_of_chunks_that_are_wrong(lab):
    """P1 P10: bytes of east's arena change after they were held. West refuses the chunk, and
    says so until something else of the version lands."""
    east, west, link = lab.east_west()
    up(east, west)
    path = lab.weights(1)[0]
    link.bytes_per_s = 1 << 20
    uid = Trainer(lab, east, path).publish(1)
    east.wait_holds(uid)
    expect("tensor found in the arena", flip_in_file(east.arena_path, path, safetensors_table(path)[-1]), True)
    says(west, "verify-failed", r"chunk \d+ of shard \d came wrong from east, \d+ times? so far", head="1:1", versions=1)
    expect("west refused a chunk", west.counters()["chunks_bad"] > 0, True)
    link.bytes_per_s = 0
    west.wait_holds(uid)
    nobody_is_behind(east, west)


@scenario
@causes("source-publishing")
def lag_of_a_home_that_lost_its_arena(lab):
    """P10: of two ranks that have a version in place one is back at a gateway that lost all it
    held; the other is stopped."""
    east = lab.site("east")
    east.models["policy"] = dict(home="east")
    east.extra["session"] = {"lease_ms": 600000}  # till then it is not called lost
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    uid, _ = published(east, trainer, 1, in_place=1)
    east.wait_holds(uid)
    for rank in trainer.ranks:
        rank.stop()
    east.kill()
    east.arena_path.unlink()
    east.start()
    says(east, "source-publishing", "none of its shards is here", of="east", head="1:1", versions=1)
    for rank, words in zip(trainer.ranks, ("1 of 2 shards are here", "")):
        rank.signal(signal.SIGCONT)
        says(east, "source-publishing" if words else "up-to-date", words, of="east", head="1:1")
    expect("lost", east.counters()["versions_lost"], 0)


if __name__ == "__main__":
    sys.exit(main())
