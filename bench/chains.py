"""Chains that workers join, leave and hold up, and what a step costs inside a site. All hosts are emulated: one process each, with
a NIC of its own that is paced, over tcp in clear, so that the cores are not the limit."""

import contextlib
import itertools
import signal
import time

import harness
import lab as sites
from measuring import measurement

MIB = 1 << 20
JOIN_NIC = 5 * MIB     # twenty of them copy 100 MiB/s in all
JOIN_MIB = 128         # a lone copy takes 26 s, so all twenty join while the first still reads
JOINERS = 20
SLOW_NIC = 16 * MIB
SLOW_MIB = 128
LINK_BIT_S = 200_000_000
LINK_MIB = 128
STEP_NIC = 12_500_000  # 100 Mbit/s
STEP_MIB = 256
STEP_LR = "3.6e-7"     # 2 % of the elements of so many bytes change
HOSTS = 8


@contextlib.contextmanager
def home(bench, mib, versions=1, **made):
    """(lab, east, rank, run, files): a site whose gateway is a NIC away from its workers' hosts."""
    with harness.Lab() as lab:
        files = bench.versions(mib * MIB, versions, **made)
        east = lab.site("east", arena_mib=3 * mib + 512)
        east.models["policy"] = dict(home="east", keep=2)
        east.extra = {"session": {"lease_ms": 10000}, "fabric": {"trusted": "true"}}
        east.start()
        harness.wait_for("east's catalog has recovered", lambda: not east.control("status")["recovering"])
        rank, run = sites.rank(lab, east, files[0])
        yield lab, east, rank, run, files


def held(site, number, rank, run):
    uid = sites.publish(rank, run, number)["uid"]
    harness.wait_for("the gateway holds it", lambda: site.holds(uid), timeout_s=120)
    return uid


def stages(workers, uid, timeout_s=300):
    """When each has staged it, by its own clock: seconds since now."""
    start = time.monotonic()
    for w in workers:
        w.worker.send("stage", uid=uid, timeout_ms=timeout_s * 1000)
    done = []
    for w in workers:
        harness.expect(f"{w.worker.name} stages", w.worker.receive(timeout_s=timeout_s)["status"], "ok")
        done.append(time.monotonic() - start)
    return done


def end(workers):
    for w in workers:
        w.worker.kill()


def joined_s(lab, site, path, uid, names, every_s):
    """Seconds from each worker's stage call until it has all; one comes every every_s."""
    import concurrent.futures
    workers = [harness.Rollout(lab, site, name, path, host=name, pace=JOIN_NIC) for name in names]
    begin = time.monotonic()

    def one(i):
        time.sleep(max(0.0, begin + i * every_s - time.monotonic()))
        return stages([workers[i]], uid)[0]
    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        took = list(pool.map(one, range(len(workers))))
    end(workers)
    return took


@measurement("chain.joins", "chain.joined_before", quick=False)
def joins(bench):
    """The slowest of twenty against a host alone; and of those that had others come behind them, the slowest likewise."""
    with home(bench, JOIN_MIB) as (lab, east, rank, run, files):
        uid = held(east, 1, rank, run)
        for i in range(bench.rounds):
            alone = joined_s(lab, east, files[0], uid, [f"alone{i}"], 0)[0]
            took = joined_s(lab, east, files[0], uid, [f"join{i}-{n}" for n in range(JOINERS)], 1.0)
            yield {"chain.joins": (max(took), alone), "chain.joined_before": (max(took[:-1]), alone)}


@measurement("chain.slow", "chain.slow_first", quick=False)
def slow_member(bench):
    """Eight hosts, the third or the first with a NIC of an eighth of the others': the seven, against eight that are equal."""
    with home(bench, SLOW_MIB) as (lab, east, rank, run, files):
        uid = held(east, 1, rank, run)

        def last_s(tag, slow):
            paces = [SLOW_NIC // 8 if n == slow else SLOW_NIC for n in range(HOSTS)]
            workers = [harness.Rollout(lab, east, f"{tag}-{n}", files[0], host=f"{tag}-{n}", pace=p) for n, p in enumerate(paces)]
            start = time.monotonic()
            for w in workers:
                w.worker.send("stage", uid=uid, timeout_ms=240000)
            for n, w in enumerate(workers):
                if n != slow:
                    harness.expect(f"{w.worker.name} stages", w.worker.receive(timeout_s=240)["status"], "ok")
            seconds = time.monotonic() - start
            end(workers)
            return seconds
        for i in range(bench.rounds):
            equal = last_s(f"equal{i}", None)
            yield {"chain.slow": (last_s(f"slow{i}", 2), equal), "chain.slow_first": (last_s(f"first{i}", 0), equal)}


def staged(worker, uid):
    """Its words about a version: what it holds, and by which hop it reads; between two sources there is none."""
    return next(s for s in worker.ok("status", what="session")["json"]["staged"] if s["uid"] == uid)


def in_mid_chain(bench, transport):
    """(uid, source, reader), once a round: two workers of a chain of three, one of which reads from the other. By shm they are of one
    host, and the reader is as slow as the NIC that its source reads by."""
    with home(bench, 64) as (lab, east, rank, run, files):
        uid = held(east, 1, rank, run)
        for i in range(bench.rounds):
            hosts = [f"h{i}-0", f"h{i}-0" if transport == "shm" else f"h{i}-1", f"h{i}-2"]
            workers = {f"w{i}-{n}": harness.Rollout(lab, east, f"w{i}-{n}", files[0], host=host, pace=8 * MIB) for n, host in enumerate(hosts)}

            def pair():
                members = east.control("chains")["chains"][-1]["members"]
                for m in members:
                    source = None if m["source"] is None else members[m["source"]]["name"]
                    if source in workers and m["name"] in workers and m["transport"] == transport and m["held_chunks"] > 0:
                        return workers[source].worker, workers[m["name"]].worker
                return None
            for name, w in workers.items():
                w.worker.refused("again", "stage", uid=uid, timeout_ms=0)
                harness.wait_for(f"{name} reads", lambda w=w: held_chunks(w.worker, east) > 0, timeout_s=60)
            source, reader = harness.wait_for(f"one reads from another by {transport}", pair, timeout_s=5)
            yield uid, source, reader
            source.signal(signal.SIGCONT)
            end(workers.values())


def resumes(bench, how, transport):
    """(seconds from the loss of a source until its reader reads there no more, and from then until it has bytes of another). The reader
    notices, or the site does before it and sends it there."""
    for uid, source, reader in in_mid_chain(bench, transport):
        plan = staged(reader, uid)["hop"]["plan"]
        source.signal(how)
        lost, noticed, resumed = time.monotonic(), None, None
        while resumed is None:
            said, now = staged(reader, uid), time.monotonic()
            if now > lost + 30:
                raise harness.Failed(f"{reader.name} does not go on")
            hop = said.get("hop")
            if noticed is None and (hop is None or hop["plan"] != plan):
                noticed = now
                if said["held_chunks"] == 0:
                    raise harness.Failed(f"{reader.name} begins anew")
            if noticed is not None and hop is not None and hop["bytes_read"] > 0:
                resumed = now
        yield noticed - lost, resumed - noticed


def held_chunks(worker, site):
    members = [m for c in site.control("chains")["chains"] for m in c["members"]]
    return max([m["held_chunks"] for m in members if m["name"] == worker.name], default=0)


@measurement("chain.killed")
def killed(bench):
    for noticed, resumed in resumes(bench, signal.SIGKILL, "tcp"):
        yield {"chain.killed": (noticed + resumed, 0.25)}


@measurement("chain.killed.shm")
def killed_on_its_host(bench):
    for noticed, resumed in resumes(bench, signal.SIGKILL, "shm"):
        yield {"chain.killed.shm": (noticed + resumed, 0.25)}


@measurement("chain.silent", "chain.resumed")
def silent(bench):
    for noticed, resumed in resumes(bench, signal.SIGSTOP, "tcp"):
        yield {"chain.silent": (noticed, 1.5), "chain.resumed": (resumed, 0.25)}


@measurement("chain.silent.shm", "chain.resumed.shm")
def silent_on_its_host(bench):
    for noticed, resumed in resumes(bench, signal.SIGSTOP, "shm"):
        yield {"chain.silent.shm": (noticed, 1.5), "chain.resumed.shm": (resumed, 0.25)}


@measurement("chain.cut_through", quick=False)
def cut_through(bench):
    """A link held to 200 Mbit/s by the sender's own limit is the bottleneck; eight hosts behind the receiving gateway, NICs of 537 Mbit/s.
    The first two versions are not counted: each makes memory to stage in, eight times on the same cores, which later ones use again."""
    with harness.Lab() as lab:
        path = bench.weights(LINK_MIB * MIB)
        east, west = sites.east_west(lab, arena_mib=3 * sites.mib_of(path) + 512, keep=2)
        east.peer_keys["west"] = {"rate": f"{LINK_BIT_S // 1000000}Mbit"}
        west.extra["fabric"] = dict(trusted="true", nic_bytes_per_s="64MiB", **sites.WHOLE_INSIDE)
        for site in (east, west):
            site.start()
        west.wait_link("east")
        rank, run = sites.rank(lab, east, path)
        workers = [harness.Rollout(lab, west, f"w{n}", path, host=f"w{n}", pace=64 * MIB) for n in range(HOSTS)]
        before = None
        for number in itertools.count(1):
            if number > bench.rounds + 2:
                break
            for w in workers:
                w.worker.send("wait", model="policy", kind="next", after=before, timeout_ms=120000)
            uid = sites.publish(rank, run, number)["uid"]
            for w in workers:
                harness.expect(f"{w.worker.name} hears of it", w.worker.receive(timeout_s=120).get("uid"), uid)
                w.worker.send("stage", uid=uid, timeout_ms=120000)
            begun = sites.logged_at(west.daemon, "crossing.begun", f"number={number} ")
            whole = sites.logged_at(west.daemon, "copy.whole", f"number={number} ")
            for w in workers:
                harness.expect(f"{w.worker.name} stages", w.worker.receive(timeout_s=60)["status"], "ok")
            last = time.monotonic()
            chunks = west.control("chains")["chains"][-1]["chunks"]
            sites.read_whole(workers, uid, path)
            for w in workers:
                w.activate(uid)
                if before is not None:
                    w.worker.ok("release", uid=before)
            before = uid
            allowed = 0.03 * (whole - begun) + HOSTS * (whole - begun) / chunks
            if number > 2:
                yield {"chain.cut_through": (last - whole, allowed)}


@measurement("chain.step", "chain.step.bytes", quick=False)
def step(bench):
    """The same eight hosts take by turns a version of which an optimizer's step changed 2 % of the elements; before, the first version whole."""
    with home(bench, STEP_MIB, versions=2, lr=STEP_LR) as (lab, east, rank, run, files):
        workers = [harness.Rollout(lab, east, f"w{n}", files[0], host=f"w{n}", pace=STEP_NIC) for n in range(HOSTS)]
        numbers, before = itertools.count(1), None

        def spread_s(path):
            nonlocal before
            rank.send("fill", tensors=harness.safetensors_table(path), file=str(path))
            harness.expect("fill", rank.receive(timeout_s=120)["status"], "ok")
            number = next(numbers)
            uid = sites.publish(rank, run, number)["uid"]
            took = max(stages(workers, uid))
            for w in workers:
                w.activate(uid)
                if before is not None:
                    w.worker.ok("release", uid=before)
            before = uid
            return took, sites.read_bytes(workers, uid)
        whole_s, whole = spread_s(files[0])  # nobody has a base
        spread_s(files[1])  # memory of two versions stands from then on
        for i in range(bench.rounds):
            took, read = spread_s(files[i % 2])
            yield {"chain.step": (took, whole_s), "chain.step.bytes": (read, whole)}
