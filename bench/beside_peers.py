"""Tombolo and the programs that users move weights with today, over one wire: the same file, encrypted, verified.

Ours goes from gateway to gateway, RAM to RAM; theirs from a file to a file, both in tmpfs. Eight local copies are eight
workers that staged it (each digest checked) on our side, and eight files, copied two at a time and checked by SHA-256, on
theirs."""

import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import harness
import lab as sites
import peers
from measuring import Skip, measurement
from veth import Wire, tree_cpu_s
from wan_wire import Void, not_void, rounds_that_count, wan_wire

MIB = 1 << 20
COPIES = 8
SHAPED_MBIT = 800     # where a transfer is cut or killed in its middle: 256 MiB take 2.7 s
SHAPED_MIB = 256
CUT_S = 5
GIVE_UP_S = 60
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class GaveUp(Exception):
    pass


@contextlib.contextmanager
def in_memory(bench):
    folder = pathlib.Path(tempfile.mkdtemp(prefix=bench.prefix, dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def source_file(bench, folder, mib):
    """The bench's weights, where all can read them."""
    made = bench.weights(mib * MIB)
    return pathlib.Path(shutil.copy(made, folder / "weights.safetensors"))


def how_it_ended(client):
    return f"exited {client.returncode}" if client.returncode >= 0 else f"ended by {signal.Signals(-client.returncode).name}"


class Theirs:
    """One peer, served: pull() as often as asked."""

    def __init__(self, wire, peer):
        self.wire, self.peer, self.to = wire, peer, peer.ground.dir / "dst/m"
        self.servers = peer.serve(wire)

    def close(self):
        for s in self.servers:
            s.terminate()
        for s in self.servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                s.wait(3)
            s.kill()
            s.wait()
        self.clear()

    def clear(self):
        for f in self.to.parent.iterdir():
            f.unlink()

    def start(self, again=False):
        words = (self.peer.resume if again else self.peer.pull)(self.to)
        with open(self.peer.ground.dir / "log/client.out", "ab") as log:
            self.said_from = log.tell()
            return self.wire.start("b", *words, env=self.peer.env, log=log)

    def last_words(self):
        """Of this client, for people: what it said last, in one line."""
        said = (self.peer.ground.dir / "log/client.out").read_bytes()[self.said_from:].decode(errors="replace").split("\n")
        return next((line.strip()[:200] for line in reversed(said) if line.strip()), "it said nothing")

    def wait(self, client, look=None):
        """The client's core-seconds, once it ended well."""
        end = time.monotonic() + GIVE_UP_S
        while True:
            pid, status, used = os.wait4(client.pid, os.WNOHANG)
            if pid:
                client.returncode = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > end:
                os.killpg(client.pid, signal.SIGKILL)
                client.wait()
                raise GaveUp(f"not done after {GIVE_UP_S} s")
            if look is not None:
                look()
            time.sleep(0.002)
        if client.returncode != 0:
            raise GaveUp(f"{how_it_ended(client)}: {self.last_words()}")
        return used.ru_utime + used.ru_stime

    def right(self):
        return self.to.exists() and peers.openssl("dgst", "-sha256", "-r", self.to,
                                                  folder=self.to.parent).split()[0] == self.peer.ground.sha256

    def pull(self, look=None):
        """(seconds, core-seconds of both ends)"""
        self.clear()
        before = sum(tree_cpu_s(s.pid) for s in self.servers)
        start = time.monotonic()
        client_cpu = self.wait(self.start(), look)
        seconds = time.monotonic() - start
        cpu = client_cpu + sum(tree_cpu_s(s.pid) for s in self.servers) - before
        if not self.right():
            raise GaveUp("the bytes differ")
        return seconds, cpu

    def copies_s(self):
        """Seconds of eight local copies of what was pulled, each verified."""
        def one(i):
            to = self.to.with_name(f"copy{i}")
            shutil.copyfile(self.to, to)
            got = peers.openssl("dgst", "-sha256", "-r", to, folder=to.parent).split()[0]
            if got != self.peer.ground.sha256:
                raise GaveUp(f"copy {i} differs")
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, range(COPIES)))
        return time.monotonic() - start

    def killed(self, size):
        """(share of the file that came twice, whether an unfinished file stood under the final name)"""
        begun = self.wire.received_bytes()
        self.clear()
        client = self.start()
        while self.wire.received_bytes() - begun < size / 2:
            if client.poll() is not None:
                raise GaveUp(f"{how_it_ended(client)} before its middle")
            time.sleep(0.002)
        os.killpg(client.pid, signal.SIGKILL)  # rsync's receiver is a child of its own
        client.wait()
        bare = self.to.exists()
        self.wait(self.start(again=True))
        if not self.right():
            raise GaveUp("the bytes differ after the second start")
        return self.wire.received_bytes() - begun, bare


class Ours:
    """East in a, west in b, full copies, or `steps` as the product's defaults have them; cross() as often as asked."""

    def __init__(self, wire, lab, path, mib, steps=False, link=None, spare_mib=512, keep=None):
        self.wire, self.lab = wire, lab
        self.path = path
        lab.dir.chmod(0o755)
        mib = max(mib, sites.mib_of(path))
        keep = keep or (2 if steps and mib < 1024 else 1)  # home keeps the base until west has named it; a large version is longer landing
        self.east, self.west = sites.east_west(lab, arena_mib=(keep + 1) * mib + spare_mib, steps=steps, link=link, keep=keep)
        self.east.address = wire.address["a"]
        self.west.peers["east"] = f"{wire.address['a']}:{self.east.port}"
        for site, end in ((self.east, "a"), (self.west, "b")):
            site.prefix = site.worker_prefix = ["ip", "netns", "exec", wire.name[end], "setpriv", "--pdeathsig", "KILL"]
            site.start()
        self.west.wait_link("east")
        self.rank, self.run = sites.rank(lab, self.east, path)
        self.numbers = itertools.count(1)
        self.workers = []
        self.active = None

    def add_workers(self):
        host = pathlib.Path(BOOT_ID).read_text(encoding="ascii").strip()
        self.workers = [harness.Rollout(self.lab, self.west, f"reader{i}", self.path, host=host) for i in range(COPIES)]

    def publish(self):
        """(number, uid) of a version that is whole in east's arena, while west hears nothing."""
        number = next(self.numbers)
        uid = sites.publish(self.rank, self.run, number)["uid"]
        harness.wait_for("east holds it", lambda: self.east.holds(uid), timeout_s=120)
        return number, uid

    def published_to_held_s(self):
        """Seconds from the publish call until all of it is held in west. Returns once east holds it too: a delta
        crosses faster than a large version lands, and the next one needs the room of the one before."""
        start = time.monotonic()
        number = next(self.numbers)
        uid = sites.publish(self.rank, self.run, number)["uid"]
        seconds = sites.logged_at(self.west.daemon, "copy.whole", f"number={number} ", timeout_s=300) - start
        harness.wait_for("east holds it", lambda: self.east.holds(uid), timeout_s=120)
        return seconds

    def cpu_s(self):
        return sum(tree_cpu_s(s.daemon.popen.pid) for s in (self.east, self.west))

    def cross(self):
        """(seconds, core-seconds of both gateways)"""
        with sites.stopped(self.west.daemon):
            number, _ = self.publish()
            before = self.cpu_s()
        seconds = sites.crossing_s(self.west, number)
        return seconds, max(0.01, self.cpu_s() - before)

    def copies_s(self):
        """Seconds from the crossing's begin until eight workers staged the version."""
        with sites.stopped(self.west.daemon):
            number, uid = self.publish()
            for w in self.workers:
                w.worker.send("wait", model="policy", kind="exact", number=number, run_order=1, timeout_ms=60000)
                w.worker.send("stage", uid=uid, timeout_ms=60000)
        begun = sites.logged_at(self.west.daemon, "crossing.begun", f"number={number} ")
        for w in self.workers:
            for what in ("waits", "stages"):
                harness.expect(f"{w.worker.name} {what}", w.worker.receive(timeout_s=90)["status"], "ok")
        seconds = time.monotonic() - begun
        for w in self.workers:
            w.activate(uid)
            if self.active is not None:  # as a rollout does: two versions in memory, not one more each round
                w.worker.ok("release", uid=self.active)
        self.active = uid
        return seconds

    def whole(self, uid, look=None):
        end = time.monotonic() + GIVE_UP_S
        while not self.west.holds(uid):
            if time.monotonic() > end:
                raise GaveUp(f"not whole after {GIVE_UP_S} s")
            if look is not None:
                look()
            time.sleep(0.01)

    def timed(self, look=None):
        """Seconds of a publish call and its crossing, where the wire is the limit."""
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            published = pool.submit(self.publish)
            while look is not None and not published.done():
                look()
                time.sleep(0.01)
            _, uid = published.result()
        self.whole(uid, look)
        return time.monotonic() - start

    def killed(self, size):
        begun = self.wire.received_bytes()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            published = pool.submit(self.publish)
            harness.wait_for("half of it came", lambda: self.wire.received_bytes() - begun >= size / 2, timeout_s=60)
            self.west.kill()
            _, uid = published.result()
        self.west.start()
        self.whole(uid)
        return self.wire.received_bytes() - begun


def available(bench):
    found, absent = [], []
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    for peer in peers.PEERS:
        lacks = [n for n in peer.needs if shutil.which(n, path=path) is None]
        if lacks:
            absent.append((peer.name, f"skipped: {', '.join(lacks)} not installed; bench/setup installs it"))
        else:
            found.append(peer)
    for name, why in absent:
        bench.say(f"  {name}: {why}")
    return found, dict(absent)


def with_peer(wire, peer, do, notes):
    """do(theirs), or None and a note why not. Void goes on: that is no failure of the peer's."""
    theirs = None
    try:
        theirs = Theirs(wire, peer)
        return do(theirs)
    except Void:
        raise
    except (GaveUp, RuntimeError, OSError) as error:
        notes[peer.name] = str(error).splitlines()[0]
        return None
    finally:
        if theirs is not None:
            theirs.close()
        for f in (peer.ground.dir / "dst").iterdir():
            f.unlink()


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


OUR_NAME = "Tombolo, gateway to gateway"


def row_of(wire, ours, size, theirs=None):
    """(seconds, core-seconds a GiB of both ends, seconds until eight local copies are verified, if we have workers)"""
    seconds, cpu = not_void(wire, ours.cross if theirs is None else theirs.pull)
    copies = None
    if ours.workers:
        copies = not_void(wire, ours.copies_s) if theirs is None else seconds + theirs.copies_s()
    return seconds, cpu * (1 << 30) / size, copies


def compared(bench, made, notes, of_ours, of_theirs):
    """{name: what was seen} of one round, ours first; of each peer that did not fail by itself, which the notes name. Void, if the emulator
    fell behind beside any of them: the best of the others is not the best."""
    row, who = {}, OUR_NAME
    try:
        row[OUR_NAME] = of_ours()
        for peer in made:
            who = peer.name
            got = of_theirs(peer)
            if got is not None:
                row[peer.name] = got
    except GaveUp as why:
        raise Skip(f"ours: {why}") from why
    except Void as why:
        raise Void(f"{who}: {why}") from why
    if len(row) == 1:
        raise Skip("no peer could pull: " + "; ".join(notes.values()))
    bench.say(f"  compared with: {', '.join(name for name in row if name != OUR_NAME)}")
    return row


def left_out(notes, seen, cells):
    """Rows of the table for peers that are in no round, or not in all of them."""
    most = max(map(len, seen.values()), default=0)
    for name, why in notes.items():
        rounds = len(seen.get(name, ()))
        if rounds < most:
            yield (name, why if rounds == 0 else f"not compared in {most - rounds} of {most} rounds: {why}", *[""] * (cells - 2))


def each_once(bench, wire, ours, made, size, notes):
    """{name: row_of} of one round."""
    row = compared(bench, made, notes, lambda: row_of(wire, ours, size),
                   lambda peer: with_peer(wire, peer, lambda theirs: row_of(wire, ours, size, theirs), notes))
    for name, got in row.items():
        copies = "" if got[2] is None else f", 8 copies {got[2]:.2f} s"
        bench.say(f"  {name}: {size * 8 / got[0] / 1e9:.2f} Gbit/s, {got[1]:.2f} core-s/GiB{copies}")
    return row


def pairs_of(row, size, names, notes):
    """{key: (ours, the best of theirs)} in the order cpu, goodput, copies; None: no key for it."""
    mine, others = row[OUR_NAME], {n: g for n, g in row.items() if n != OUR_NAME}
    https = [g[1] for n, g in others.items() if "nginx" in n]
    if not https:
        raise Skip("neither rclone nor aria2 could pull: " + "; ".join(notes.values()))
    goodput = tuple(size * 8 / s / 1e9 for s in (mine[0], min(g[0] for g in others.values())))
    copies = None if mine[2] is None else (mine[2], min(g[2] for g in others.values()))
    return {name: pair for name, pair in zip(names, ((mine[1], min(https)), goodput, copies)) if name is not None}


def side_by_side(bench, wire, names, mib, title):
    found, notes = available(bench)
    seen = {}  # name -> [row_of]
    with in_memory(bench) as folder, harness.Lab() as lab:
        path = source_file(bench, folder, mib)
        size = path.stat().st_size
        ground = peers.Ground(folder / "ground", path, wire)
        made = [peer(ground) for peer in found]
        ours = Ours(wire, lab, path, mib)
        for _ in range(2):
            ours.cross()  # the arenas' pages are mapped from then on
        if names[2] is not None:
            ours.add_workers()
            for _ in range(2):
                ours.copies_s()  # and the pages of two stagings a worker
        for row in rounds_that_count(bench, lambda: each_once(bench, wire, ours, made, size, notes)):
            for name, got in row.items():
                seen.setdefault(name, []).append(got)
            yield pairs_of(row, size, names, notes)
    heads = [f"{title}, {size // MIB} MiB, {bench.rounds} rounds", "Gbit/s", "core-s/GiB, both ends", "s until 8 local copies are verified"]
    cells = len(heads) if names[2] is not None else len(heads) - 1
    rows = [(name, f"{size * 8 / median(g[0] for g in got) / 1e9:.2f}", f"{median(g[1] for g in got):.2f}",
             f"{median(g[2] for g in got):.2f}" if names[2] is not None else "")[:cells] for name, got in seen.items()]
    rows += left_out(notes, seen, cells)
    bench.table((names[1] or names[2]).removesuffix(".goodput"), tuple(heads[:cells]), rows)


@measurement("link.cpu", "peers.goodput")
def beside_peers(bench):
    """Of 1 GiB: their processes' start is a good part of the 0.2 s that 256 MiB take."""
    with Wire() as wire:
        yield from side_by_side(bench, wire, ("link.cpu", "peers.goodput", None), 256 if bench.quick else 1024, "on a veth")


@measurement("peers.copies8")
def copies_beside_peers(bench):
    """Of 256 MiB: eight workers have two stagings each."""
    with Wire() as wire:
        yield from side_by_side(bench, wire, (None, None, "peers.copies8"), 256, "eight copies behind a veth")


def over_scenario(bench, scenario, title):
    names = tuple(f"peers.{scenario}.{n}" for n in ("cpu", "goodput", "copies8"))
    with wan_wire(scenario) as wire:
        yield from side_by_side(bench, wire, names, 128 if bench.quick else 256, title)


@measurement("peers.continent.cpu", "peers.continent.goodput", "peers.continent.copies8", quick=False)
def beside_peers_continent(bench):
    yield from over_scenario(bench, "continent", "over sim/wan's continent (1 Gbit/s, 30 ms, 0.001 % loss)")


@measurement("peers.ocean.cpu", "peers.ocean.goodput", "peers.ocean.copies8", quick=False)
def beside_peers_ocean(bench):
    yield from over_scenario(bench, "ocean", "over sim/wan's ocean (1 Gbit/s, 80 ms, 0.01 % loss)")


def fault_of_ours(wire, ours, size):
    """(seconds, seconds with a cut, bytes on the wire, and with a kill, what lies under the final name)"""
    begun = wire.received_bytes()
    plain_s = ours.timed()
    clean = wire.received_bytes() - begun
    with wire.cut_once(size / 3, CUT_S) as look:
        cut_s = ours.timed(look)
    return plain_s, cut_s, clean, ours.killed(size), "in memory: no names"


def fault_of_theirs(wire, theirs, size):
    begun = wire.received_bytes()
    plain_s, _ = theirs.pull()
    clean = wire.received_bytes() - begun
    with wire.cut_once(size / 3, CUT_S) as look:
        cut_s, _ = theirs.pull(look)
    killed, bare = theirs.killed(size)
    return plain_s, cut_s, clean, killed, "yes" if bare else "no"


def faults_once(bench, wire, ours, made, size, notes):
    """{name: (seconds, seconds more with a cut, share that came twice after a kill, what lies under the final name)} of one round."""
    row = compared(bench, made, notes, lambda: not_void(wire, lambda: fault_of_ours(wire, ours, size)),
                   lambda peer: with_peer(wire, peer, lambda theirs: not_void(wire, lambda: fault_of_theirs(wire, theirs, size)), notes))
    for name, (plain_s, cut_s, clean, killed, bare) in row.items():
        row[name] = plain_s, cut_s - plain_s, max(0, killed - clean) / size, bare
        bench.say("  {}: {:.2f} s, {:.2f} s more with a cut, {:.1%} came twice, {}".format(name, *row[name]))
    return row


def after_a_fault(bench, wire, names, title, twice=None):
    """twice: the share that may come twice after a kill; None: the best peer's, or a twentieth: what was in flight comes twice."""
    found, notes = available(bench)
    seen = {}  # name -> [a row of faults_once]
    mib = SHAPED_MIB // 4 if bench.quick else SHAPED_MIB
    with in_memory(bench) as folder, harness.Lab() as lab:
        path = source_file(bench, folder, mib)
        size = path.stat().st_size
        ground = peers.Ground(folder / "ground", path, wire)
        made = [peer(ground) for peer in found]
        ours = Ours(wire, lab, path, mib, spare_mib=8 * sites.mib_of(path))  # one that just started evicts nothing: no version waits for that
        ours.timed()
        for row in rounds_that_count(bench, lambda: faults_once(bench, wire, ours, made, size, notes)):
            for name, got in row.items():
                seen.setdefault(name, []).append(got)
            mine = row.pop(OUR_NAME)
            yield {names[0]: (mine[1], min(got[1] for got in row.values())), names[1]: (mine[2], twice or max(0.05, min(got[2] for got in row.values())))}
    rows = [(name, f"{median(g[0] for g in got):.2f}", f"{median(g[1] for g in got):.2f}", f"{100 * median(g[2] for g in got):.1f} %", got[-1][3])
            for name, got in seen.items()]
    rows += left_out(notes, seen, 5)
    bench.table(names[0].replace("peers", "faults").removesuffix(".cut"), (
        f"{size // MIB} MiB {title}, {bench.rounds} rounds", "s", f"s more with the carrier gone for {CUT_S} s",
        "bytes that came twice after SIGKILL at half", "unfinished under the final name"), rows)


@measurement("peers.cut", "peers.kill", quick=False)
def faults_on_a_veth(bench):
    with Wire() as wire:
        wire.shape(SHAPED_MBIT)
        yield from after_a_fault(bench, wire, ("peers.cut", "peers.kill"), f"over {SHAPED_MBIT} Mbit/s", twice=0.05)


@measurement("peers.ocean.cut", "peers.ocean.kill", quick=False)
def faults_over_an_ocean(bench):
    with wan_wire("ocean") as wire:
        yield from after_a_fault(bench, wire, ("peers.ocean.cut", "peers.ocean.kill"), "over sim/wan's ocean")


@measurement("peers.continent.cut", "peers.continent.kill", quick=False)
def faults_over_a_continent(bench):
    with wan_wire("continent") as wire:
        yield from after_a_fault(bench, wire, ("peers.continent.cut", "peers.continent.kill"), "over sim/wan's continent")
