"""The ctypes module against a real gateway: what Python publishes, Python follows.

Covers: python/tombolo/sessions.py python/tombolo/library.py
"""

import contextlib
import ctypes
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

from harness import BUILD, PATIENCE_MS, SOURCE, Failed, Process, expect, main, scenario, wait_for

sys.path.insert(0, str(SOURCE / "python"))
os.environ.setdefault("TOMBOLO_LIBRARY", str(BUILD / "intra/client/libtombolo.so"))

WEIGHTS = ("BF16", (700, 1000))
BYTES = 700 * 1000 * 2


def expect_error(what, kind, name, call):
    try:
        call()
    except kind as error:
        expect(what, error.name, name)
        return str(error)
    raise Failed(f"{what}: nothing was raised")


class OnGpu:
    """A tensor on a GPU as torch describes it; the bytes are the host's, which the library finds
    out from the driver, or from there being none."""
    is_cuda = True

    def __init__(self, memory, contiguous=True):
        self.memory, self.contiguous = memory, contiguous

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def numel(self):
        return len(self.memory) // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous


@scenario
def python_publishes_and_follows(lab):
    """P1 P2: three versions from a bytearray behind a tensor's face, followed into memory of
    ours, a blob beside them."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, name="trainer", host="a") as trainer, tombolo.Session(gateway, name="rollout", host="b") as rollout:
        weights = bytearray(BYTES)
        run = trainer.run_open("policy", "key")
        sealed = trainer.register({"w": (*WEIGHTS, OnGpu(weights))})
        for wrong in (OnGpu(weights, contiguous=False), OnGpu(bytearray(BYTES - 2))):
            try:
                trainer.register({"w": (*WEIGHTS, wrong)})
                raise Failed("a wrong tensor was registered")
            except ValueError as error:
                expect("named", "w: " in str(error), True)
        target = rollout.buffer(BYTES)
        subscription = rollout.subscribe("policy", registration=rollout.register({"w": (*WEIGHTS, target)}))
        expect_error("nothing there", tombolo.Again, "again", lambda: rollout.wait("policy", timeout_ms=0))
        before = None
        for number in (1, 2, 3):
            weights[:] = bytes((number * 37 + i) & 0xFF for i in range(1000)) * (BYTES // 1000)
            info = trainer.publish("policy", run, number, registration=sealed, blobs={"config.json": b'{"step":%d}' % number},
                                   codec="zstd" if number == 2 else None)
            expect("bytes", info.bytes, BYTES + 10)
            version = rollout.wait("policy", after=before, timeout_ms=PATIENCE_MS)
            expect("number", (version.number, version.uid), (number, info.uid))
            subscription.stage(version.uid, timeout_ms=PATIENCE_MS)
            subscription.activate(version.uid)
            expect("weights", bytes(target) == bytes(weights), True)
            items = {item.name: bytes(item.bytes) for item in subscription.items(version.uid)}
            expect("blob", items["config.json"], b'{"step":%d}' % number)
            subscription.release(version.uid)
            before = version.uid
        trainer.wait_site(before, state=tombolo.ACTIVATED, timeout_ms=PATIENCE_MS)
        expect_error("backwards", tombolo.Error, "bad_state", lambda: trainer.publish("policy", run, 0, registration=sealed))
        expect("status", '"schema":1' in rollout.status(), True)


def refused(what, call):
    try:
        call()
    except ValueError as error:
        return str(error)
    raise Failed(f"{what}: nothing was raised")


@scenario
def python_after_the_end_and_in_other_memory(lab):
    """An object that has ended is refused by name, and not a crash; tensors move while they are suspended;
    a blob has all of an array's bytes."""
    import array
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    session = tombolo.Session(f"unix:{site.session_socket}", name="both")
    weights, elsewhere = bytearray(range(256)) * 16, bytearray(range(256)) * 16
    sealed = session.register({"w": ("U8", (4096,), weights), "none": ("U8", (0,), bytearray())})
    run = session.run_open("policy", "key")
    numbers = array.array("d", (1.5, 2.5, 3.5))
    session.publish("policy", run, 1, registration=sealed, mode=tombolo.IN_PLACE, blobs={"numbers": numbers, "empty": b""})
    sealed.suspend()
    refused("too few", lambda: sealed.resume([elsewhere]))
    refused("too small", lambda: sealed.resume([bytearray(4095), bytearray()]))
    sealed.resume([elsewhere, bytearray()])
    weights[:] = bytes(4096) # nobody reads here any more
    expect_error("a kind of proof that there is not", tombolo.Error, "bad_argument", lambda: session.subscribe("policy", prove=3))
    expect_error("to stage on the GPU of nothing", tombolo.Error, "bad_argument", lambda: session.subscribe("policy", stage_on_gpu=True))
    subscription = session.subscribe("policy", prove=tombolo.PROVE_ALWAYS)
    version = session.wait("policy", timeout_ms=PATIENCE_MS)
    subscription.stage(version.uid, timeout_ms=PATIENCE_MS)
    items = {item.name: bytes(item.bytes) for item in subscription.items(version.uid)}
    expect("moved", items["w"], bytes(elsewhere))
    expect("all of the array", (items["numbers"], items["empty"]), (numbers.tobytes(), b""))
    sealed.suspend()
    others = bytearray(4096)
    expect_error("other bytes than were sealed", tombolo.Error, "conflict", lambda: sealed.resume([others, bytearray()]))
    elsewhere.append(0) # given back
    try:
        others.append(0)
        raise Failed("memory where tensors stand was not kept")
    except BufferError:
        pass
    session.close()
    for call in (lambda: subscription.stage(version.uid), subscription.unsubscribe, sealed.suspend, sealed.unregister,
                 lambda: sealed.resume([others, bytearray()])):
        expect("said", "has ended" in refused("after the end", call), True)
    expect_error("the session", tombolo.Error, "bad_argument", lambda: session.wait("policy", timeout_ms=0))


HIDDEN, HEADS, EXPERTS, INNER = 512, 16, 8, 384  # a head has 32 rows
Q, KV = HIDDEN, HIDDEN // 4


def cell(shape, seed):
    """The bytes of a BF16 tensor: no two rows alike."""
    rows = shape[0] * (shape[1] if len(shape) == 3 else 1)
    return b"".join(((seed * 7919 + row * 31 + i) & 0xFFFF).to_bytes(2, "little") for row in range(rows) for i in range(shape[-1]))


def cut_out(whole, shape, first, count):
    """A box of dense bytes."""
    out, row = bytearray(), 2 * shape[-1]
    outer = [(a, b) for a in range(first[0], first[0] + count[0]) for b in (range(first[1], first[1] + count[1]) if len(shape) == 3 else (0,))]
    for a, b in outer:
        at = ((a * shape[1] + b) if len(shape) == 3 else a) * row
        out += whole[at + 2 * first[-1]:at + 2 * (first[-1] + count[-1])]
    return bytes(out)


class Model:
    """Tensors as tensor parallelism cuts them: q, k, v and up by rows, out and down by columns,
    experts by number, a norm not at all."""

    AXES = {"q": ((Q, HIDDEN), 0), "k": ((KV, HIDDEN), 0), "v": ((KV, HIDDEN), 0), "out": ((HIDDEN, Q), 1), "up": ((4 * HIDDEN, HIDDEN), 0),
            "down": ((HIDDEN, 4 * HIDDEN), 1), "experts": ((EXPERTS, INNER, HIDDEN), 0), "norm": ((1, HIDDEN), None)}

    def __init__(self):
        self.bytes = {name: cell(shape, i + 1) for i, (name, (shape, _)) in enumerate(self.AXES.items())}

    def box(self, name, rank, ranks):
        shape, axis = self.AXES[name]
        first, count = [0] * len(shape), list(shape)
        if axis is not None:
            count[axis] = shape[axis] // ranks
            first[axis] = rank * count[axis]
        return shape, first, count

    def boxes(self, name, rank, ranks):
        return [self.box(name, rank, ranks)]

    def split_of(self, name):
        """Axis and count that a publisher declares."""
        axis = self.AXES[name][1]
        return (0, 0) if axis is None else (axis, 8)

    def slices(self, rank, ranks, memory, split=False, stands_at=lambda memory: memory):
        """Of one rank, in one piece of memory: q, k and v one behind another, as engines fuse them."""
        at, slices = 0, []
        for name in self.AXES:
            for shape, first, count in self.boxes(name, rank, ranks):
                size = 2 * math.prod(count)
                slices.append((name, "BF16", shape, first, count, stands_at(memory[at:at + size]), *(self.split_of(name) if split else ())))
                at += size
        return slices

    def packed(self, rank, ranks):
        return b"".join(cut_out(self.bytes[name], *box) for name in self.AXES for box in self.boxes(name, rank, ranks))


class Fused(Model):
    """q, k and v of a layer are one tensor under a name of its own, of which a rank has rows of
    each; its experts are no neighbours."""

    AXES = {f"{layer}.{name}": row for layer in range(2) for name, row in {
        "qkv": ((Q + 2 * KV, HIDDEN), 0), "out": ((HIDDEN, Q), 1), "experts": ((EXPERTS, INNER, HIDDEN), 0), "norm": ((1, HIDDEN), None)}.items()}
    ORDER = (0, 3, 1, 6, 2, 5, 4, 7) # rank 1 of 4 has experts 1 and 6

    def boxes(self, name, rank, ranks):
        shape, _ = self.AXES[name]
        if ranks == 1 or name.endswith(("out", "norm")):
            return super().boxes(name, rank, ranks)
        if name.endswith("experts"):
            per = EXPERTS // ranks
            return [(shape, [e, 0, 0], [1, *shape[1:]]) for e in self.ORDER[rank * per:(rank + 1) * per]]
        return [(shape, [begin + rank * (rows // ranks), 0], [rows // ranks, shape[1]]) for begin, rows in ((0, Q), (Q, KV), (Q + KV, KV))]

    def split_of(self, name):
        """A part of qkv is an eighth of k: four of them are an eighth of q. Experts are boxes of
        their own as it is."""
        return {"qkv": (0, (Q + 2 * KV) // (KV // 8)), "out": (1, 8)}.get(name.split(".")[1], (0, 0))


def four_ranks_publish(tombolo, lab, model, stack):
    """A version of tp=4. Gives the site, and what opens sessions there."""
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.extra = {"fabric": {"host": "here"}}
    site.start()

    def session(name, host=None):
        return stack.enter_context(tombolo.Session(f"unix:{site.session_socket}", name=name, host=host or name, threads=1))
    uids = set()
    for rank in range(4):
        trainer = session(f"trainer{rank}")
        memory = memoryview(bytearray(model.packed(rank, 4)))
        sealed = trainer.register_slices(model.slices(rank, 4, memory, split=True, stands_at=OnGpu))
        uids.add(bytes(trainer.publish("policy", trainer.run_open("policy", "key"), 1, registration=sealed, shard=(rank, 4)).uid))
    expect("uids", len(uids), 1)
    return site, session


def read_by_groups(tombolo, model, site, session):
    """Groups of 8, 2 and 1, every second reader by shm: all bytes, and at most 5 % more of them
    than its own."""
    for ranks in (8, 2, 1):
        group = []
        for rank in range(ranks):
            reader = session(f"tp{ranks}-{rank}", host="here" if (ranks + rank) % 2 else None)
            own = len(model.packed(rank, ranks))
            memory = memoryview(bytearray(own))
            subscription = reader.subscribe("policy", group=f"tp{ranks}", member=(rank, ranks),
                                            registration=reader.register_slices(model.slices(rank, ranks, memory)))
            group.append((rank, reader, subscription, memory, own))
        for _, reader, subscription, _, _ in group:
            subscription.stage(reader.wait("policy", timeout_ms=PATIENCE_MS).uid, timeout_ms=PATIENCE_MS)
        for rank, reader, subscription, memory, own in group:
            version = reader.wait("policy", timeout_ms=PATIENCE_MS)
            info = activated(tombolo, subscription, version.uid)
            expect(f"rank {rank} of {ranks}", bytes(memory) == model.packed(rank, ranks), True)
            read = next(s["read_bytes"] for s in json.loads(reader.status())["staged"] if s["uid"] == str(version.uid))
            print(f"rank {rank} of {ranks}: {read} bytes read, {info.staged_bytes} staged, {own} its own", flush=True)
            if max(read, info.staged_bytes) > own * 1.05:
                raise Failed(f"rank {rank} of {ranks} read {read} bytes for {own} of its own")
        by = {w["name"]: w["transport"] for w in site.version(str(version.uid))["workers"]}
        for rank in range(ranks):
            shm = (ranks + rank) % 2 == 1
            expect(f"rank {rank} of {ranks} reads by shm", by[f"tp{ranks}-{rank}"] == "shm", shm)


@scenario
def four_ranks_publish_and_any_number_reads(lab):
    """P1 P2: a version of tp=4 is read by groups of tp=8, tp=2 and tp=1, bit for bit; along the
    axes that the layout declares a reader reads at most 5 % more than its own, by the network
    and by shm. Experts are read by any numbers, columns by any columns."""
    import tombolo
    model = Model()
    with contextlib.ExitStack() as stack:
        site, session = four_ranks_publish(tombolo, lab, model, stack)
        read_by_groups(tombolo, model, site, session)
        reader = session("picker")
        odd = [("experts", "BF16", model.AXES["experts"][0], [e, 3, 5], [1, 100, 200], bytearray(2 * 100 * 200)) for e in (6, 1)]
        odd += [("down", "BF16", model.AXES["down"][0], [7, 999], [11, 600], bytearray(2 * 11 * 600))]
        subscription = reader.subscribe("policy", registration=reader.register_slices(odd))
        version = reader.wait("policy", timeout_ms=PATIENCE_MS)
        subscription.stage(version.uid, timeout_ms=PATIENCE_MS)
        activated(tombolo, subscription, version.uid)
        for name, _, shape, first, count, memory in odd:
            expect(name, bytes(memory) == cut_out(model.bytes[name], shape, first, count), True)


@scenario
def fused_tensors_and_experts_by_number_are_published(lab):
    """P1 P2: ranks of tp=4 have three boxes of a fused q/k/v under its own name, and experts
    that are no neighbours: {1, 6} of one tensor. Groups of tp=8, tp=2 and tp=1 read both, bit
    for bit, by the network and by shm, and at most 5 % more than their own. A tensor that holds an element twice is refused by its name,
    and so are files of such a version."""
    import tombolo
    model = Fused()
    with contextlib.ExitStack() as stack:
        site, session = four_ranks_publish(tombolo, lab, model, stack)
        read_by_groups(tombolo, model, site, session)
        twice = session("twice")
        shape = model.AXES["0.qkv"][0]
        rows = [("0.qkv", "BF16", shape, [first, 0], [2, HIDDEN], bytearray(4 * HIDDEN)) for first in (8, 9)]
        text = expect_error("an element twice", tombolo.Error, "bad_argument", lambda: twice.publish(
            "policy", twice.run_open("policy", "key"), 2, registration=twice.register_slices(rows)))
        expect("named", 'slices 0 and 1 of "0.qkv" overlap' in text, True)
        files = site.cli("subscribe", "policy", "--latest", "--into", lab.dir / "files", check=False)
        expect("files", (files.returncode != 0, "stands in several boxes" in files.stderr), (True, True))


def activated(tombolo, subscription, uid):
    while True:
        try:
            return subscription.activate(uid)
        except tombolo.Again:
            time.sleep(0.005)


@scenario
def withdrawn_and_back(lab):
    """P2 P10: an operator withdraws what a group computes from. It goes back to the version
    before, which is staged still, and reads nothing again; what it may not do before is refused
    with a reason."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=4)
    site.start()
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, name="trainer", host="a") as trainer, tombolo.Session(gateway, name="rollout", host="b") as rollout:
        weights, target = bytearray(BYTES), rollout.buffer(BYTES)
        run = trainer.run_open("policy", "key")
        sealed = trainer.register({"w": (*WEIGHTS, weights)})
        subscription = rollout.subscribe("policy", registration=rollout.register({"w": (*WEIGHTS, target)}))
        uids = []
        for number in (1, 2):
            weights[:] = bytes([number]) * BYTES
            trainer.publish("policy", run, number, registration=sealed)
            uids.append(rollout.wait("policy", after=uids[-1] if uids else None, timeout_ms=PATIENCE_MS).uid)
            subscription.stage(uids[-1], timeout_ms=PATIENCE_MS)
            activated(tombolo, subscription, uids[-1])
        words = "group", "1:2", "was not withdrawn"
        for what, call in (("stage", lambda: subscription.stage(uids[0], timeout_ms=PATIENCE_MS)), ("activate", lambda: subscription.activate(uids[0]))):
            text = expect_error(f"{what} backwards", tombolo.Error, "bad_state", call)
            expect(f"the reason ({text})", all(word in text for word in words), True)
        site.cli("withdraw", "policy", "1:2")
        expect("what is next", rollout.wait("policy", after=uids[1], timeout_ms=PATIENCE_MS).uid, uids[0])
        expect("withdrawn", "tb_wait" in expect_error("activate", tombolo.Error, "version_withdrawn", lambda: subscription.activate(uids[1])), True)
        subscription.stage(uids[0], timeout_ms=PATIENCE_MS)
        activated(tombolo, subscription, uids[0])
        expect("the bytes of 1", bytes(target) == bytes([1]) * BYTES, True)


@scenario
def rolled_back_and_forward(lab):
    """P2: an operator takes a group back to an older version, for all that it knows of no withdrawal. Without
    the pin it goes forward again."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=4)
    site.start()
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, name="trainer", host="a") as trainer, tombolo.Session(gateway, name="rollout", host="b") as rollout:
        weights, target = bytearray(BYTES), rollout.buffer(BYTES)
        run = trainer.run_open("policy", "key")
        sealed = trainer.register({"w": (*WEIGHTS, weights)})
        subscription = rollout.subscribe("policy", registration=rollout.register({"w": (*WEIGHTS, target)}))
        uids = []
        for number in (1, 2):
            weights[:] = bytes([number]) * BYTES
            trainer.publish("policy", run, number, registration=sealed)
            uids.append(rollout.wait("policy", after=uids[-1] if uids else None, timeout_ms=PATIENCE_MS).uid)
            subscription.stage(uids[-1], timeout_ms=PATIENCE_MS)
            activated(tombolo, subscription, uids[-1])
        site.cli("rollback", "policy", "1:1")
        expect("what is next", rollout.wait("policy", after=uids[1], timeout_ms=PATIENCE_MS).uid, uids[0])
        subscription.stage(uids[0], timeout_ms=PATIENCE_MS)
        activated(tombolo, subscription, uids[0])
        expect("the bytes of 1", bytes(target) == bytes([1]) * BYTES, True)
        expect_error("the newer one", tombolo.Error, "conflict", lambda: subscription.stage(uids[1], timeout_ms=PATIENCE_MS))
        site.cli("unpin", "policy")
        expect("what is next", rollout.wait("policy", after=uids[0], timeout_ms=PATIENCE_MS).uid, uids[1])
        subscription.stage(uids[1], timeout_ms=PATIENCE_MS)
        activated(tombolo, subscription, uids[1])
        expect("the bytes of 2", bytes(target) == bytes([2]) * BYTES, True)


@scenario
def a_view_ends_with_its_version(lab):
    """P1: a view of staged bytes shows nothing else later: after release a view raises, and
    while an array or a slice needs the bytes, release does not let them go."""
    import ctypes as arrays  # an array over a view, as numpy makes them
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=4)
    site.start()
    session = tombolo.Session(f"unix:{site.session_socket}", name="both", host="a")
    run = session.run_open("policy", "key")
    uids = [session.publish("policy", run, n, blobs={"config.json": b"%d" % n * 100, "empty": b""}).uid for n in (1, 2, 3)]
    subscription = session.subscribe("policy")

    def item(uid, name="config.json"):
        subscription.stage(uid, timeout_ms=PATIENCE_MS)
        return next(i for i in subscription.items(uid) if i.name == name)
    one = item(uids[0])
    view = one.bytes
    expect("while it is staged", bytes(view), b"1" * 100)
    subscription.release(uids[0])
    for what in (lambda: view[0], lambda: bytes(one.bytes), lambda: view[1:3]):
        expect("after release", "released" in refused("a view that ended", what), True)
    # Nothing is kept of views that went by themselves, and an empty blob has no memory.
    expect("empty", bytes(item(uids[1], "empty").bytes), b"")
    for _ in range(100):
        expect("again", bytes(item(uids[1]).bytes), b"2" * 100)
    expect("what is remembered", sum(map(len, subscription._views._rows.values())) < 5, True)
    part = item(uids[1]).bytes[10:20]
    array = (arrays.c_char * 5).from_buffer_copy(item(uids[1]).bytes[:5])  # its own bytes: holds nothing
    for call in (lambda: subscription.release(uids[1]), subscription.unsubscribe, session.close):
        try:
            call()
            raise Failed("what a slice shows has gone")
        except BufferError as error:
            expect("the reason", "1 tensors or blobs" in str(error), True)
        expect("the slice", (bytes(part), array.value), (b"2" * 10, b"22222"))
    del part
    cycle = [item(uids[1]).bytes[:3]]
    cycle.append(cycle)
    del cycle
    subscription.release(uids[1])  # what only the collector sees holds nothing up
    three, buffer = item(uids[2]), session.buffer(4096)
    session.close()
    for what in (lambda: three.bytes[0], lambda: buffer[0]):
        expect("after the session", "released" in refused("a view that ended", what), True)


INTERRUPTED = """
import sys
import tombolo
gateway, uid = sys.argv[1], tombolo.Uid.parse(sys.argv[2])
with tombolo.Session(gateway, name="waiting", host="elsewhere") as session:
    subscription = session.subscribe("policy")
    for name, call in (("wait", lambda: session.wait("policy", tombolo.EXACT, number=99)),
                       ("wait_site", lambda: session.wait_site(uid, state=tombolo.ACTIVATED)),
                       ("stage", lambda: subscription.stage(uid))):
        try:
            print("begins", name, flush=True)
            call()
            print("returned", name, flush=True)
        except KeyboardInterrupt:
            print("interrupted", name, flush=True)
"""


@scenario
def an_interrupt_ends_a_wait(lab):
    """P6: Ctrl-C ends each of the calls that may wait for ever, and the session is closed as usual."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.extra["fabric"] = {"host": "here", "pace_bytes_per_s": "64KiB"}  # nobody stages by tcp within a test
    site.start()
    with tombolo.Session(f"unix:{site.session_socket}", name="trainer", host="here") as trainer:
        sealed = trainer.register({"w": ("U8", (8 << 20,), bytearray(8 << 20))})
        uid = trainer.publish("policy", trainer.run_open("policy", "key"), 1, registration=sealed).uid
        site.wait_holds(str(uid))
        waiting = Process("waiting", [sys.executable, "-c", INTERRUPTED, f"unix:{site.session_socket}", str(uid)], lab.dir / "waiting.log",
                          stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE / "python")})
        lab.processes.append(waiting)
        for name in ("wait", "wait_site", "stage"):
            expect("it says", waiting.popen.stdout.readline(), f"begins {name}\n")
            stat = pathlib.Path(f"/proc/{waiting.popen.pid}/stat")
            wait_for("it waits", lambda stat=stat: stat.read_text().rsplit(")", 1)[1].split()[0] == "S")
            waiting.signal(signal.SIGINT)
            expect("it says", waiting.popen.stdout.readline(), f"interrupted {name}\n")
        expect("exit code", waiting.ended(), 0)


@scenario
def ranks_with_one_blob_name(lab):
    """P1 P10: Two ranks of a library give blobs of one name. Equal bytes are one file; other
    bytes, and a folder of that name, are refused at the seal, by both ranks' names."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    gateway = f"unix:{site.session_socket}"
    with tombolo.Session(gateway, name="rank-0", host="a") as zero, tombolo.Session(gateway, name="rank-1", host="a") as one:
        runs = [session.run_open("policy", "key") for session in (zero, one)]

        def publish(rank, number, blobs):
            return (zero, one)[rank].publish("policy", runs[rank], number, blobs=blobs, shard=(rank, 2))
        publish(0, 1, {"config.json": b"{}", "rng/0": b"zero"})
        uid = publish(1, 1, {"rng/1": b"one", "config.json": b"{}"}).uid
        expect("equal blobs", zero.wait("policy", timeout_ms=PATIENCE_MS).uid, uid)
        publish(0, 2, {"config.json": b"{}"})
        text = expect_error("other bytes", tombolo.Error, "conflict", lambda: publish(1, 2, {"config.json": b"[]"}))
        for word in ('"config.json"', "rank-0", "rank-1", "shards 0 and 1"):
            expect(f"the sentence names {word}", word in text, True)
        expect("the log does, too", len(site.daemon.logged("seal.refused", "config.json", "rank-0", "different bytes", "status=conflict")), 1)
        text = expect_error("a folder of that name", tombolo.Error, "conflict", lambda: publish(1, 2, {"config.json/main": b"{}"}))
        expect(f"the sentence names it ({text})", '"config.json" that is a folder of the other' in text, True)
        publish(1, 2, {"config.json": b"{}"})  # as it was to be
        expect("the version", zero.wait("policy", after=uid, timeout_ms=PATIENCE_MS).number, 2)


@scenario
def a_blob_of_a_rank_that_left_is_compared_after_a_restart(lab):
    """P1 P10: rank 0 hands its shard over. The gateway is killed, and rank 0 leaves before it is back. Rank 1 then gives a blob of the same name and
    length with other bytes. The gateway compares it with the bytes of rank 0's blob that it holds, and refuses the seal. With equal
    bytes the version is ready once rank 0 is back."""
    import tombolo
    site = lab.site("east")
    site.models["policy"] = dict(home="east")
    site.start()
    gateway = f"unix:{site.session_socket}"

    def publish(session, rank, blobs):
        return session.publish("policy", session.run_open("policy", "key"), 1, blobs=blobs, shard=(rank, 2))

    with tombolo.Session(gateway, name="rank-0", host="a") as zero:
        uid = str(publish(zero, 0, {"first": b"1", "config.json": b"{}" * 100}).uid)
        wait_for("the gateway holds rank 0's shard", lambda: site.version(uid)["held_bytes"] == 201)
        site.kill()
    site.start()
    with tombolo.Session(gateway, name="rank-1", host="a") as one:
        text = expect_error("other bytes", tombolo.Error, "conflict", lambda: publish(one, 1, {"config.json": b"[]" * 100}))
        for word in ('"config.json"', "rank-1", "shards 0 and 1"):
            expect(f"the sentence names {word}", word in text, True)
        publish(one, 1, {"config.json": b"{}" * 100})
        with tombolo.Session(gateway, name="rank-0", host="a") as zero:
            publish(zero, 0, {"first": b"1", "config.json": b"{}" * 100})
            expect("the version", one.wait("policy", timeout_ms=PATIENCE_MS).number, 1)


@scenario
def python_is_told_what_is_wrong(lab):
    """P10: an error is the library's own sentence."""
    import tombolo
    text = expect_error("no gateway", tombolo.Error, "gateway_away",
                        lambda: tombolo.Session(f"unix:{lab.dir}/nobody.sock", open_timeout_ms=200))
    expect("the sentence names it", "nobody.sock" in text, True)


if __name__ == "__main__":
    sys.exit(main())
