"""publish() and follow() through a real gateway, with tensors that need no framework.

Covers: python/tombolo/__init__.py python/tombolo/publishing.py python/tombolo/following.py python/tombolo/versions.py
Covers: python/tombolo/core.py python/tombolo/memory.py python/tombolo/sessions.py python/tombolo/library.py
"""

import array
import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import types
from unittest import mock

import packages
from harness import Failed, Process, expect, main, scenario, wait_for

import tombolo
from tombolo.memory import view_of


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            expect(f"{word!r} in {str(error)!r}", word in str(error), True)
        return error
    raise Failed(f"no {kind.__name__} was raised")


class Strided:
    """The interface of an array by numpy. Columns of a wider one are not contiguous."""

    def __init__(self, memory, shape, strides=None, readonly=False):
        self.memory, self.dtype = memory, "bfloat16"
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.__array_interface__ = {"data": (address, readonly), "shape": shape, "strides": strides, "typestr": "<V2", "version": 3}


def site_of(lab):
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=4)
    site.start()
    os.environ["TOMBOLO_GATEWAY"] = f"unix:{site.session_socket}"
    return site


@scenario
def a_few_lines_publish_and_follow(lab):
    """P1 P2: three versions from a dictionary into another, one after another. Objects say where they
    stand. A version can be awaited, and `async for` gives the newest."""
    site_of(lab)
    weights = {"w": array.array("f", range(1000)), "step": array.array("q", [0]), "bf16": Strided(bytearray(64), (4, 8))}
    target = {"w": array.array("f", bytes(4000)), "step": array.array("q", [0]), "bf16": Strided(bytearray(64), (4, 8))}
    with tombolo.follow("policy", into=target, host="b") as reader:
        expect("repr", repr(reader), "<tombolo.Follower policy, version none, waiting>")
        for step in (1, 2, 3):
            weights["step"][0] = step
            weights["bf16"].memory[:] = bytes([step]) * 64
            version = tombolo.publish("policy", step, weights, blobs={"config.json": b"{}"}, run="key", host="a")
            expect("repr", repr(version), f"<tombolo.Version policy 1:{step}, {version.bytes} bytes, published>")
            got = reader.next(timeout=60) if step < 3 else asyncio.run(newest(reader, version))
            expect("version", (got, got.state, reader.version.number), (version, "active", step))
            expect("bytes", (target["step"][0], target["w"] == weights["w"], target["bf16"].memory), (step, True, weights["bf16"].memory))
        version.wait_activated(timeout=60)
        blobs = [item for item in reader.items() if item.is_blob]
        expect("blobs", [(blob.name, bytes(blob.bytes)) for blob in blobs], [("config.json", b"{}")])
        raised(tombolo.Error, lambda: reader.next(timeout=0.01), "not in the time given")
        raised(tombolo.Error, lambda: tombolo.publish("policy", 1, weights, run="key", host="a"))
        tombolo.close_publishers()
    expect("repr", repr(reader), "<tombolo.Follower policy, version 3, closed>")


async def newest(reader, version):
    await version.held(timeout=60)
    task = asyncio.create_task(version.held(site="nowhere"))  # a wait that is cancelled holds up nobody
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, tombolo.Error):
        await task
    async for got in reader:
        return got


@scenario
def five_calls_are_enough_for_an_engine(lab):
    """P1 P2: tensors that do not stay are published by name. The engine stages a version by its number
    while it serves, and applies it in its pause. A version that is not staged is refused."""
    site_of(lab)
    memory = bytearray(8)
    target = array.array("B", bytes(8))

    class Temporary(array.array):
        def copy(self):
            return Temporary("B", self)

        def __setitem__(self, at, value):
            super().__setitem__(slice(None) if at is Ellipsis else at, value)
        dtype, shape = "uint8", (8,)
    trainer, engine = tombolo.Core("policy", run="key"), tombolo.Core("policy", into={"w": target})
    for step in (4, 5):
        memory[:] = bytes([step]) * 8
        trainer.publish_named(step, iter([("w", Temporary("B", memory))]))
        expect("before", engine.version(), None if step == 4 else 4)
        raised(ValueError, lambda step=step: engine.apply(step), f"version {step} is not staged")
        engine.stage(step, timeout=60)
        expect("the tensors do not change", target[0], 0 if step == 4 else 4)
        engine.apply(step)
        expect("after", (engine.version(), bytes(target), engine.apply(step)), (step, bytes(memory), None))
        expect("staged already", engine.stage(step).number, step)
    trainer.publish_named(6, iter([("w", Temporary("B", memory))]))
    wait_for("it is staged without waiting", lambda: engine.begin(6))
    expect("by name", [(name, bytes(view)) for name, view in engine.named()], [("w", bytes(memory))])
    expect("its shapes", engine.manifest(), {"w": ("U8", (8,))})
    engine.apply(6)
    trainer.close()
    with tombolo.Publisher("policy", run="another") as again:
        again.publish(6, {"w": array.array("B", bytes([9]) * 8)})
        wait_for("the new run's version of that number", lambda: engine.begin(6) and engine.follower.staged)
        engine.apply(6)
        expect("the new run's bytes", bytes(target), bytes([9]) * 8)
    engine.close()


@scenario
def two_members_stage_ahead_and_the_named_version_wins(lab):
    """P2: a member that staged another version gives it up when the group is asked for one by name. The
    newest one comes in background, while the engine serves."""
    site_of(lab)
    tensors = [array.array("B", bytes(4)) for _ in range(2)]
    members = [tombolo.Core("policy", into={"w": tensors[i]}, group="engine", member=(i, 2)) for i in range(2)]
    for step in (1, 2):
        tombolo.publish("policy", step, {"w": array.array("B", bytes([step]) * 4)}, run="key")
    wait_for("one member has the newer one", lambda: members[0].begin(2))
    together(members, lambda member: member.stage(1, timeout=60))
    together(members, lambda member: member.apply(1))
    expect("what was named", [(m.version(), bytes(t)) for m, t in zip(members, tensors)], [(1, bytes([1]) * 4)] * 2)
    for member in members:
        member.ahead()
    for member in members:
        wait_for("the newest", lambda member=member: member.follower.staged and member.follower.staged.number == 2)
    expect("untouched", [bytes(t) for t in tensors], [bytes([1]) * 4] * 2)
    together(members, lambda member: member.apply(2))
    expect("then the newest", [bytes(t) for t in tensors], [bytes([2]) * 4] * 2)
    for member in members:
        member.close()
    tombolo.close_publishers()


@scenario
def a_version_staged_and_not_taken_is_given_back(lab):
    """P2: by a follower that is told another number, whether it waits or not. The process has many descriptors,
    and its engine stages ahead all the same; a part that fails to close leaves no other one open."""
    site_of(lab)
    for step in (1, 2, 3):
        tombolo.publish("policy", step, {"w": array.array("B", bytes([step]) * 4)}, run="key")
    with tombolo.follow("policy", into={"w": array.array("B", bytes(4))}) as reader:
        first = reader.stage(1, timeout=60)
        second = wait_for("the second", lambda: reader.begin(2))
        expect("behind begin", (first.state, second.state), ("released", "staged"))
        reader.stage(3, timeout=60)
        expect("behind stage", (second.state, reader.staged.number), ("released", 3))
        raised(tombolo.Error, lambda: reader.stage(1, timeout=60), "newer")
        expect("it stays where another cannot be staged", reader.staged.number, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    many = [os.dup(0) for _ in range(1100)]
    engine = tombolo.Core("policy", into={"w": array.array("B", bytes(4))})
    engine.stage(3, timeout=60)
    expect("a descriptor that select does not know", engine.follower._session.fileno() > 1023, True)
    engine.apply(3)
    engine.ahead()
    tombolo.publish("policy", 4, {"w": array.array("B", bytes([4]) * 4)}, run="key")
    wait_for("the newest", lambda: engine.follower.staged and engine.follower.staged.number == 4)
    for descriptor in many:
        os.close(descriptor)
    follower, engine._publisher = engine.follower, types.SimpleNamespace(close=lambda: raise_(OSError("of the publisher")))
    raised(OSError, engine.close, "of the publisher")
    expect("closed", (repr(follower).endswith("closed>"), engine.version()), (True, None))
    tombolo.close_publishers()


@scenario
def a_reader_takes_only_what_its_home_signed(lab):
    """P1: home_ca names the CA of the model's home. A version that it signed is staged, of one follower and of an
    engine. With another site's CA the same version is refused, and the error says why."""
    site_of(lab)
    tombolo.publish("policy", 1, {"w": array.array("B", b"once")}, run="key")
    right, other = lab.pki_dir("east") / "ca.crt", lab.pki_dir("west") / "ca.crt"
    target = {"w": array.array("B", bytes(4))}
    with tombolo.follow("policy", into=target, home_ca=right) as reader:
        expect("staged", (reader.next(timeout=60).number, bytes(target["w"])), (1, b"once"))
    for ca in (other, str(other)):
        into = {"w": array.array("B", bytes(4))}
        with tombolo.follow("policy", into=into, home_ca=ca) as reader:
            raised(tombolo.Error, lambda reader=reader: reader.stage(1, timeout=60), "signer's certificate")
            expect("untouched", bytes(into["w"]), bytes(4))
    raised(tombolo.Error, lambda: tombolo.follow("policy", into=target, home_ca=lab.dir / "nowhere.crt"), "nowhere.crt")
    tombolo.close_publishers()


def raise_(error):
    raise error


def together(members, call):
    failed = []

    def run(member):
        try:
            call(member)
        except Exception as error:  # into the test's own thread
            failed.append(error)
    threads = [threading.Thread(target=run, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@scenario
def a_layout_of_another_model_is_refused_with_both_shapes(lab):
    """P10: names, shapes and dtypes are compared with the newest version's when a reader subscribes, and with
    those of each version before a byte of it is read. Boxes of a tensor go where they belong."""
    site_of(lab)
    weights = array.array("H", range(12))
    cases = (({"w": ("BF16", (4, 3), bytearray(24))}, ('"w"', "BF16[4,3]", "BF16[3,4]")),
             ({"w": ("F16", (3, 4), bytearray(24))}, ('"w"', "F16[3,4]", "BF16[3,4]")),
             ({"v": ("BF16", (3, 4), bytearray(24))}, ('"v"', "BF16[3,4]", "none of that name")),
             ([tombolo.Box("w", (4, 3), (0, 0), (1, 3), ("BF16", (1, 3), bytearray(6)))], ('"w"', "BF16[4,3]", "BF16[3,4]")))

    def refused(call, words):
        error = raised(tombolo.Error, call, words[0])
        text = str(error).replace(", ", ",").replace(" [", "[")
        for word in words:
            expect(f"{word} in {text}", word in text, True)
        expect("status", error.status, tombolo.LAYOUT_MISMATCH)
    with tombolo.Publisher("policy", run="key") as trainer:
        early = [tombolo.follow("policy", into=wrong) for wrong, _ in cases]  # nothing to compare with yet
        trainer.publish(1, {"w": ("BF16", (3, 4), weights)}, blobs={"v": b"no tensor"}).wait_held(timeout=60)
        for reader, (wrong, words) in zip(early, cases):
            refused(lambda wrong=wrong: tombolo.follow("policy", into=wrong), words)
            refused(lambda reader=reader: reader.stage(timeout=60), words)
            reader.close()
            with tombolo.follow("policy", into=wrong, check=False) as unchecked:
                refused(lambda unchecked=unchecked: unchecked.stage(timeout=60), words)
        column = bytearray(6)
        with tombolo.follow("policy", into=[tombolo.Box("w", (3, 4), (0, 1), (3, 1), ("BF16", (3, 1), column))]) as reader:
            reader.next(timeout=60)
            expect("a column", array.array("H", bytes(column)).tolist(), [1, 5, 9])
        session = tombolo.Session(os.environ["TOMBOLO_GATEWAY"])
        raised(tombolo.Error, lambda: session.status("tensors of it"), "tensors UID")
        expect("of no version", raised(tombolo.Error, lambda: session.tensors(tombolo.Uid())).name, "not_found")
        with mock.patch.object(tombolo.Session, "status", lambda *_: '{"schema":1,"site":"east"}'):
            tombolo.follow("policy", into=cases[0][0]).close()  # a gateway of the release before says nothing of tensors
        session.close()


FORKED = """
import os, sys, tombolo
session = tombolo.Session(os.environ["TOMBOLO_GATEWAY"])
child = os.fork()
if child == 0:
    try:
        session.status()
        os._exit(1)
    except tombolo.Forked as error:
        os._exit(7 if str(os.getppid()) in str(error) and error.name == "forked" else 2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert '"schema":1' in session.status()
"""
WAITING = """
import sys, tombolo
try:
    print("waits", flush=True)
    tombolo.follow("policy").next()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
PUBLISHING = """
import sys, tombolo
publisher = tombolo.Publisher("policy", run="key")
print("publishes", flush=True)
sys.stdin.readline()
try:
    print("calls", flush=True)
    publisher.publish(1, {"w": ("U8", (4096,), bytearray(4096))})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@scenario
def a_process_that_cannot_go_on_says_so_at_once(lab):
    """P10: no library, no gateway, a session of the parent: each is a sentence that says what to do.
    Ctrl-C ends a wait."""
    env = {**os.environ, "PYTHONPATH": str(packages.SOURCE / "python")}
    done = subprocess.run([sys.executable, "-c", "import tombolo; tombolo.library_version()"], capture_output=True, text=True,
                          env={**env, "TOMBOLO_LIBRARY": "/nowhere/libtombolo.so"}, check=False)
    for word in ("LibraryMissing", "/nowhere/libtombolo.so", "pip install tombolo", "TOMBOLO_LIBRARY"):
        expect(f"{word} in {done.stderr}", word in done.stderr, True)
    nobody = lab.dir / "nobody.sock"
    raised(tombolo.Error, lambda: tombolo.Session(f"unix:{nobody}"), "no gateway listens", str(nobody), "tombolod --config")
    site = site_of(lab)
    expect("fork", subprocess.run([sys.executable, "-c", FORKED], env=dict(env, **{"TOMBOLO_GATEWAY": os.environ["TOMBOLO_GATEWAY"]}),
                                  check=False).returncode, 0)
    waiting = Process("waiting", [sys.executable, "-c", WAITING], lab.dir / "waiting.log", stdout=subprocess.PIPE, text=True,
                      env=dict(env, TOMBOLO_GATEWAY=os.environ["TOMBOLO_GATEWAY"]))
    lab.processes.append(waiting)
    expect("it says", waiting.popen.stdout.readline(), "waits\n")
    wait_for("it has a session", lambda: "follow" in str(site.control("status")) or site.control("status")["sessions"])
    waiting.signal(signal.SIGINT)
    expect("it says", waiting.popen.stdout.readline(), "interrupted\n")
    expect("exit code", waiting.ended(), 0)
    publishing = Process("publishing", [sys.executable, "-c", PUBLISHING], lab.dir / "publishing.log", stdout=subprocess.PIPE, text=True,
                         stdin=subprocess.PIPE, env=dict(env, TOMBOLO_GATEWAY=os.environ["TOMBOLO_GATEWAY"]))
    lab.processes.append(publishing)
    expect("it says", publishing.popen.stdout.readline(), "publishes\n")
    site.daemon.signal(signal.SIGSTOP)  # a publish that gets no answer
    publishing.popen.stdin.write("go\n")
    publishing.popen.stdin.flush()
    expect("it says", publishing.popen.stdout.readline(), "calls\n")
    publishing.signal(signal.SIGINT)
    expect("it says", publishing.popen.stdout.readline(), "interrupted\n")
    site.kill()  # its socket is still there, and nobody listens
    raised(tombolo.Error, lambda: tombolo.Session(f"unix:{site.session_socket}"), "no gateway listens", "refused")


@scenario
def tensors_are_taken_as_they_are(lab):
    """P10: dtypes have one spelling for all libraries. An object that is not contiguous, not writable or no
    tensor is refused by its name."""
    expect("spellings", {tombolo.dtype_name(d) for d in ("torch.bfloat16", "bfloat16", "BF16")}, {"BF16"})
    expect("a view", view_of("w", array.array("d", [1.0, 2.0]))[:2], ("F64", (2,)))
    memory = bytearray(64)
    expect("an array", view_of("w", Strided(memory, (4, 8)))[:2], ("BF16", (4, 8)))
    raised(ValueError, lambda: view_of("layer.w", Strided(memory, (4, 2), (16, 2))), "layer.w", "not contiguous", "[16, 2]")
    raised(ValueError, lambda: view_of("layer.w", Strided(memory, (4, 8), readonly=True), writable=True), "layer.w", "read-only")
    raised(ValueError, lambda: view_of("layer.w", memoryview(b"1234"), writable=True), "layer.w", "read-only")
    raised(TypeError, lambda: view_of("layer.w", 3), "layer.w", "int is no tensor")
    raised(ValueError, lambda: view_of("layer.w", ("BF16", (3,), bytearray(4))), "layer.w", "4 bytes of memory for BF16[3]")
    expect("empty", view_of("w", ("F32", (0, 4), bytearray()))[2], None)


@scenario
def no_transfer_holds_the_interpreter(lab):
    """P10: each call waits for a gateway that is stopped, and it is this thread that lets the gateway go on. Of a
    call that held the interpreter it would not hear before that one had given up."""
    site = site_of(lab)
    weights, target = {"w": array.array("B", bytes(1 << 20))}, {"w": array.array("B", bytes(1 << 20))}
    publisher, reader = tombolo.Publisher("policy", run="key"), tombolo.follow("policy", into=target)
    publisher.publish(1, weights)
    reader.next(timeout=60)
    made = []
    for what, call in (("publish", lambda: made.append(publisher.publish(2, weights, timeout=15))),
                       ("wait_held", lambda: made[0].wait_held(timeout=15)),
                       ("stage", lambda: reader.stage(2, timeout=15)), ("apply", lambda: reader.apply(timeout=15))):
        goes_on(site, what, call)
    expect("version", reader.version, made[0])
    reader.close()
    publisher.close()


def goes_on(site, what, call):
    begun, ended = threading.Event(), []

    def run():
        begun.set()
        try:
            call()
            ended.append(None)
        except tombolo.Error as error:
            ended.append(error)
    thread, interval = threading.Thread(target=run), sys.getswitchinterval()
    site.daemon.signal(signal.SIGSTOP)
    sys.setswitchinterval(1000)  # a thread goes on until it lets the interpreter go by itself
    try:
        thread.start()
        begun.wait()
        expect(f"{what} has not ended when another thread goes on", ended, [])
    finally:
        site.daemon.signal(signal.SIGCONT)
        sys.setswitchinterval(interval)
        thread.join()
    expect(what, ended, [None])


if __name__ == "__main__":
    sys.exit(main())
