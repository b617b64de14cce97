"""Stalls and ages as rollouts feel them: stall, and the age of what they run; and the three figures of TensorHub's paper as scenarios of ours.

The naive way is what a reader does without replicas: it pulls the full version over the same path, here by the TLS pump, which
is faster than any program users have. Its rollout cannot generate meanwhile, and the trainer has to leave its bytes alone until
the last reader has them. Ours stages while rollouts serve, and their stall is `activate`.

stall: mean over the readers. hold: how long the trainer waits. age: of the version, when the last reader has it. Where readers come one
after the other both are of those that came so far, the age since the first came: nobody had the version before."""

import concurrent.futures
import contextlib
import json
import subprocess
import threading
import time

import harness
import lab as sites
from beside_peers import Ours, median
from measuring import mean_age, measurement
from veth import Wire, die_with_parent
from wan_wire import judged_apart, wan_of

MIB = 1 << 20
READERS = 8
REMOTE_MIB = 256
NIC = 64 * MIB       # bytes a second of each emulated NIC inside a site
STANDALONE_MIB = 64
ELASTIC_MIB = 128
ELASTIC_NIC = 32 * MIB  # a pull takes four seconds alone, so several are under way when one comes each second
EVERY_S = 10


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def counts(bench):
    return (1, READERS) if bench.quick else (1, 2, 4, READERS)


# ---- all at once ----


def all_stage_and_switch(site, workers, uid, published):
    """(mean stall, age when the last has switched); each stages at once, then all activate at once."""
    for w in workers:
        w.worker.send("wait", model="policy", kind="latest", timeout_ms=120000)
        w.worker.send("stage", uid=uid, timeout_ms=120000)
    for w in workers:
        for what in ("waits", "stages"):
            harness.expect(f"{w.worker.name} {what}", w.worker.receive(timeout_s=150)["status"], "ok")
    for w in workers:
        w.worker.send("activate", uid=uid)
    stalls = [w.worker.receive(timeout_s=60) for w in workers]
    age = time.monotonic() - published
    harness.expect("activations", {s["status"] for s in stalls}, {"ok"})
    return mean(s["stall_ns"] for s in stalls) / 1e9, age


class Following:
    """Workers that take each version as it comes and release the one before."""

    def __init__(self, workers):
        self.workers, self.before = workers, None

    def release(self, uid):
        if self.before is not None:
            for w in self.workers:
                w.worker.ok("release", uid=self.before)
        self.before = uid


def remote_update(ours, following, workers):
    """{stall, hold, age} of one version that workers of the other site take."""
    start = time.monotonic()
    done = sites.publish(ours.rank, ours.run, next(ours.numbers))
    harness.wait_for("west holds it", lambda: ours.west.holds(done["uid"]), timeout_s=120)
    stall, age = all_stage_and_switch(ours.west, workers, done["uid"], start)
    for w in following.workers:
        if w not in workers:  # so that all have the same before
            w.stage(done["uid"], timeout_ms=60000)
            w.activate(done["uid"])
    following.release(done["uid"])
    return {"stall": stall, "hold": done["hold_ns"] / 1e9, "age": age}


def naive_remote(bench, wire, size, readers):
    """Each reader pulls all of it by a stream of its own, all at once."""
    done = wire.pump(bench.pump, size * readers, readers, "cubic")
    return {"stall": mean(done["stream_s"]), "hold": done["seconds"], "age": done["seconds"]}


def figure_rows(bench, name, title, seen):
    """The table of a figure, and what its plot is made of; seen: {readers: ([ours], [naive])}."""
    rows = []
    for n, (ours, naive) in sorted(seen.items()):
        rows.append([str(n)] + [f"{median(r[what] for r in side):.3g}" for what in ("stall", "hold", "age") for side in (ours, naive)])
    bench.table(name, (f"{title}: readers", "stall s, ours", "naive", "hold s, ours", "naive", "age s, ours", "naive"), rows)


@measurement("stall.remote8", "figure.crossdc")
def remote(bench):
    mib = 64 if bench.quick else REMOTE_MIB
    with wan_of(bench, "1Gbit", "0%") as wire, harness.Lab() as lab:
        path = bench.weights(mib * MIB)
        size = path.stat().st_size
        ours = Ours(wire, lab, path, mib)
        ours.add_workers()
        following = Following(ours.workers)
        for _ in range(2):
            remote_update(ours, following, ours.workers)
        seen = {n: ([], []) for n in counts(bench)}

        def stall(side, n, done):
            seen[n][side].append(done)
            return done["stall"]

        def ours_at_once(n=READERS):
            return stall(0, n, remote_update(ours, following, ours.workers[:n]))

        def naive_at_once(n=READERS):
            return stall(1, n, naive_remote(bench, wire, size, n))
        for n in counts(bench)[:-1]:
            ours_at_once(n)
            naive_at_once(n)
        yield from judged_apart(bench, wire, ("stall.remote8", "figure.crossdc"), ours_at_once, naive_at_once)
    figure_rows(bench, "figure-crossdc", f"{size // MIB} MiB over 1 Gbit/s, 80 ms", seen)


@contextlib.contextmanager
def home_site(bench, mib):
    """(lab, site, path, rank, run): readers of the trainer's own site, each host with a NIC of its own."""
    with harness.Lab() as lab:
        path = bench.weights(mib * MIB)
        east = lab.site("east", arena_mib=2 * sites.mib_of(path) + 512)
        east.models["policy"] = {"home": "east", "keep": 1}
        east.extra = {"session": {"lease_ms": 10000}, "fabric": sites.WHOLE_INSIDE}
        east.start()
        harness.wait_for("east's catalog has recovered", lambda: not east.control("status")["recovering"])
        yield lab, east, path, *sites.rank(lab, east, path)


def publish_at_home(east, rank, run, number):
    start = time.monotonic()
    done = sites.publish(rank, run, number)
    harness.wait_for("east holds it", lambda: east.holds(done["uid"]), timeout_s=120)
    return done, start


def naive_at_home(bench, wire, size, readers):
    """The pump from a NIC of the same rate; a stream a reader."""
    same = ("--bytes", size * readers, "--streams", readers, "--port", "5302")
    sink = wire.start("b", bench.pump, "--listen", wire.address["b"], *same)
    try:
        harness.wait_for("the sink listens", lambda: ":5302 " in subprocess.run(
            wire.argv("b", "ss", "-Hltn"), capture_output=True, text=True, check=False).stdout, timeout_s=20)
        done = sites.tool(wire.argv("a", bench.pump, "--connect", wire.address["b"], *same))
    finally:
        sink.kill()
        sink.wait()
    return {"stall": mean(done["stream_s"]), "hold": done["seconds"], "age": done["seconds"]}


@measurement("figure.standalone", quick=False)
def standalone(bench):
    with home_site(bench, STANDALONE_MIB) as (lab, east, path, rank, run), Wire() as wire:
        wire.shape(NIC * 8 // 1_000_000)
        size = path.stat().st_size
        workers = [harness.Rollout(lab, east, f"r{i}", path, host=f"host{i}", pace=NIC) for i in range(READERS)]
        following = Following(workers)
        seen, number = {}, 0

        def at_once(n):
            nonlocal number
            number += 1
            done, start = publish_at_home(east, rank, run, number)
            stall, age = all_stage_and_switch(east, workers[:n], done["uid"], start)
            for w in workers[n:]:
                w.stage(done["uid"], timeout_ms=60000)
                w.activate(done["uid"])
            following.release(done["uid"])
            pair = {"stall": stall, "hold": done["hold_ns"] / 1e9, "age": age}, naive_at_home(bench, wire, size, n)
            for kept, one in zip(seen.setdefault(n, ([], [])), pair):
                kept.append(one)
            return pair
        for n in (READERS, *counts(bench)[:-1]):  # the first for the pages of stagings
            at_once(n)
        del seen[READERS]
        for _ in range(bench.rounds):
            us, them = at_once(READERS)
            yield {"figure.standalone": (us["stall"], them["stall"])}
    figure_rows(bench, "figure-standalone", f"{STANDALONE_MIB} MiB, NICs of {NIC * 8 / 1e6:.0f} Mbit/s", seen)


# ---- one a second ----


def each_second(count, do):
    """[do(i)] of threads that begin a second apart."""
    start = time.monotonic()

    def one(i):
        time.sleep(max(0.0, start + i - time.monotonic()))  # the arrival that is measured
        return do(i)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def joins_ours(lab, east, path, uid, turn):
    """[(seconds from a reader's start until it has switched, stall)]"""
    names = threading.Lock()

    def join(i):
        start = time.monotonic()
        with names:
            reader = harness.Rollout(lab, east, f"join{turn}-{i}", path, host=f"join{turn}-{i}", pace=ELASTIC_NIC)
        reader.stage(uid, timeout_ms=60000)
        reply = reader.activate(uid)
        return time.monotonic() - start, reply["stall_ns"] / 1e9, reader
    done = each_second(READERS, join)
    for *_, reader in done:
        reader.worker.ok("close")
        reader.worker.kill()
    return [(seconds, stall) for seconds, stall, _ in done]


def joins_naive(bench, wire, size):
    """[seconds of each pull]; the sinks stand before, each with its memory."""
    ports = range(5310, 5310 + READERS)
    sinks = [wire.start("b", bench.pump, "--listen", wire.address["b"], "--port", p, "--bytes", size, "--streams", 1) for p in ports]
    try:
        harness.wait_for("the sinks listen", lambda: all(f":{p} " in subprocess.run(
            wire.argv("b", "ss", "-Hltn"), capture_output=True, text=True, check=False).stdout for p in ports), timeout_s=20)
        return each_second(READERS, lambda i: sites.tool(wire.argv(
            "a", bench.pump, "--connect", wire.address["b"], "--port", ports[i], "--bytes", size, "--streams", 1))["seconds"])
    finally:
        for s in sinks:
            s.kill()
            s.wait()


def until_s(seconds, count):
    """Since the first of readers that come a second apart came, until the last of so many has what it came for."""
    return max(i + s for i, s in enumerate(seconds[:count]))


def elastic_row(count, hold_s, seen):
    """Of the reader that came as the count-th; seen: [([(seconds, stall) of ours], [seconds of each pull])] by round."""
    def of(what):
        return f"{median(map(what, seen)):.3g}"
    i = count - 1
    return (str(count), of(lambda r: r[0][i][0]), of(lambda r: r[1][i]), of(lambda r: r[0][i][1]), of(lambda r: r[1][i]),
            f"{hold_s:.3g}", of(lambda r: until_s(r[1], count)), of(lambda r: until_s([s for s, _ in r[0]], count)), of(lambda r: until_s(r[1], count)))


@measurement("figure.elastic", quick=False)
def elastic(bench):
    with home_site(bench, ELASTIC_MIB) as (lab, east, path, rank, run), Wire() as wire:
        wire.shape(ELASTIC_NIC * 8 // 1_000_000)
        for number in (1, 2, 3):  # the rank's shadows are made for its first two versions
            done, _ = publish_at_home(east, rank, run, number)
        seen = []  # ([(seconds, stall)], [seconds])
        for turn in range(bench.rounds):
            seen.append((joins_ours(lab, east, path, done["uid"], turn), joins_naive(bench, wire, path.stat().st_size)))
            yield {"figure.elastic": (mean(s for s, _ in seen[-1][0]), mean(seen[-1][1]))}
    rows = [elastic_row(i + 1, done["hold_ns"] / 1e9, seen) for i in range(READERS)]
    bench.table("figure-elastic", (f"{ELASTIC_MIB} MiB, NICs of {ELASTIC_NIC * 8 / 1e6:.0f} Mbit/s, one a second: reader",
                                   "s until it has switched, ours", "naive", "stall s, ours", "naive", "hold s, ours", "naive", "age s, ours", "naive"), rows)


# ---- the age of what runs ----


def follow_latest(w, numbers, first, count, before, start, out):
    """One rollout: waits for what is newer than it has, stages, switches, releases what it had."""
    after, active = before, None
    while active is None or active < first + count - 1:
        reply = w.worker.call("wait", model="policy", kind="minimum", run_order=1, number=(active or first - 1) + 1, timeout_ms=60000)
        if reply["status"] != "ok":
            raise harness.Failed(f"{w.worker.name} waits: {reply}")
        uid, active = reply["uid"], reply["number"]
        w.stage(uid, timeout_ms=60000)
        w.activate(uid)
        out.append((time.monotonic() - start, active - first))
        if after is not None:
            w.worker.ok("release", uid=after)
        after = uid
    return after


def train(ours, files, number):
    """The rank's memory is that version's: a step of an optimizer behind, or ahead of, the one before."""
    path = files[number % len(files)]
    ours.rank.send("fill", tensors=harness.safetensors_table(path), file=str(path))
    harness.expect("fill", ours.rank.receive(timeout_s=60)["status"], "ok")


def age_of_ours(ours, following, files, versions):
    """Mean age over a stretch of so many versions."""
    numbers = [next(ours.numbers) for _ in range(versions)]
    train(ours, files, numbers[0])
    start = time.monotonic()
    outs = [[] for _ in ours.workers]
    with concurrent.futures.ThreadPoolExecutor(len(ours.workers)) as pool:
        jobs = [pool.submit(follow_latest, w, numbers, numbers[0], versions, following.before, start, out)
                for w, out in zip(ours.workers, outs)]
        for i, number in enumerate(numbers):
            time.sleep(max(0.0, start + i * EVERY_S - time.monotonic()))  # the trainer's step
            sites.publish(ours.rank, ours.run, number)
            train(ours, files, number + 1)
        following.before = [j.result(timeout=120) for j in jobs][0]
    time.sleep(max(0.0, start + versions * EVERY_S - time.monotonic()))  # the last version's time
    return mean(mean_age(out, versions, EVERY_S) for out in outs)


def pulls(wire, source, start, versions, out):
    """Notes what a reader's pulls bring: the newest version when each began, once it has all."""
    for line in source.stdout:
        done = json.loads(line)
        number = min(int((done["began"] - start) // EVERY_S), versions - 1)
        out.append((done["began"] + done["seconds"] - start, number))


def age_of_naive(bench, wire, size, versions):
    with contextlib.ExitStack() as stack:
        ends, outs, readers = [], [[] for _ in range(READERS)], []
        for i in range(READERS):
            same = ("--bytes", size, "--streams", 1, "--port", 5320 + i, "--congestion", "cubic", "--repeat", 1000)
            ends.append(wire.start("b", bench.pump, "--listen", wire.address["b"], *same))
            stack.callback(ends[-1].wait)
            stack.callback(ends[-1].kill)
        harness.wait_for("the sinks listen", lambda: all(wire.listens(5320 + i) for i in range(READERS)), timeout_s=20)
        for i in range(READERS):
            same = ("--bytes", size, "--streams", 1, "--port", 5320 + i, "--congestion", "cubic", "--repeat", 1000)
            source = subprocess.Popen(wire.argv("a", bench.pump, "--connect", wire.address["b"], *same), stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True, preexec_fn=die_with_parent)
            stack.callback(source.wait)
            stack.callback(source.kill)
            ends.append(source)
        start = time.monotonic()
        for source, out in zip(ends[READERS:], outs):
            readers.append(threading.Thread(target=pulls, args=(wire, source, start, versions, out)))
            readers[-1].start()
        time.sleep(versions * EVERY_S)  # the stretch that is measured
        for end in ends:
            end.kill()
        for r in readers:
            r.join()
    return mean(mean_age(out, versions, EVERY_S) for out in outs)


@measurement("age.remote8", quick=False)
def age(bench):
    """A round is a stretch of four versions, so five have twenty. Either side begins with the version before. Ours cross as the
    product's defaults have it: what changes from version to version is what crosses. A site that pulls has no base to pull against."""
    versions = 2 if bench.quick else 4
    with wan_of(bench, "1Gbit", "0%") as wire, harness.Lab() as lab:
        files = bench.versions(REMOTE_MIB * MIB, 2, lr="3.6e-7")
        path = files[0]
        ours = Ours(wire, lab, path, REMOTE_MIB, steps=True)
        ours.add_workers()
        following = Following(ours.workers)
        for _ in range(2):
            remote_update(ours, following, ours.workers)
        yield from judged_apart(bench, wire, ("age.remote8",), lambda: age_of_ours(ours, following, files, versions),
                                lambda: age_of_naive(bench, wire, path.stat().st_size, versions))
