"""Calls that wait: a gateway that restarts, cancel(), await, Ctrl-C, fork, and the end of the process.

Covers: python/tombolo/calls.py python/tombolo/sessions.py python/tombolo/versions.py python/tombolo/following.py
"""

import array
import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref

from watched import ENVIRONMENT, Beside, Memory, seen, site_of  # first, as it finds the harness

from harness import PATIENCE_S, Failed, Process, expect, main, scenario, wait_for

import tombolo
from tombolo import library


def version_of(step, run="key"):
    return tombolo.publish("policy", step, {"w": array.array("B", bytes([step]) * 4)}, run=run)


@scenario
def a_wait_goes_on_behind_a_restart_of_the_gateway(lab):
    """P6 P9: the gateway is killed, and is back later. A caller that waits for a version at a site
    gets it, and so does a reader that had begun to stage it. A caller that gives less time is told
    that the gateway is away."""
    site = site_of(lab)
    target = {"w": array.array("B", bytes(4))}
    version, reader = version_of(1), tombolo.follow("policy", into=target)
    version.wait_held(timeout=PATIENCE_S)
    away = threading.Event()

    def note(status):
        if status == tombolo.GATEWAY_AWAY:
            away.set()

    kills = [site.kill]

    def killed_once():
        if kills:
            kills.pop()()
    with seen("tb_wait_site", after=note):
        site.kill()
        waits = Beside(lambda: version.wait_held(timeout=PATIENCE_S))
        wait_for("it heard that the gateway is away", away.is_set)
        error = Beside(lambda: version.wait_held(timeout=0.3)).ended().error
        expect(f"its reason ({error})", (error.name, "not in the time given" in str(error)), ("gateway_away", True))
        site.start()
        expect("it is held", waits.ended().error, None)
    away.clear()
    with seen("tb_stage", before=killed_once, after=note):
        reads = Beside(lambda: reader.next(timeout=PATIENCE_S))
        wait_for("it heard that the gateway is away", lambda: away.is_set() or not reads.is_alive())
        site.start()
        expect("it was staged", (reads.ended().error, bytes(target["w"])), (None, bytes([1]) * 4))
    reader.close()
    tombolo.close_publishers()


@scenario
def a_cancelled_call_ends_wherever_it_is(lab):
    """P6: cancel() comes between two waits, or while a reader waits for the members of its group."""
    site_of(lab)
    with tombolo.follow("policy") as reader:
        calls = []

        def once(status):
            calls.append(status)
            if len(calls) == 1:
                reader.cancel()
        with seen("tb_wait", after=once):
            error = Beside(lambda: reader.stage(9)).ended().error
        expect("stage", (error.name, len(calls)), ("cancelled", 1))
    version = version_of(1)
    with tombolo.follow("policy", group="engine", member=(0, 2)) as one, tombolo.follow("policy", group="engine", member=(1, 2)):
        one.stage(1, timeout=PATIENCE_S)
        asked = []
        with seen("tb_activate", after=asked.append):
            applies = Beside(one.apply)
            wait_for("it waits for the other member", lambda: asked.count(tombolo.AGAIN) > 1)
            one.cancel()
            expect("apply", applies.ended().error.name, "cancelled")
        waits = Beside(lambda: version.wait_activated())
        with seen("tb_wait_site", after=lambda status: version._session.cancel()):
            expect("wait_activated", waits.ended().error.name, "cancelled")
    tombolo.close_publishers()


@scenario
def many_may_await_at_once(lab):
    """P6 P7: waits take none of the few threads that an event loop lends to everybody. One that is cancelled has ended when
    its task has, and calls nothing any more."""
    site_of(lab)
    with tombolo.follow("policy"):  # which activates nothing
        version, inside = version_of(1), []
        with seen("tb_wait_site", before=lambda: inside.append(1), after=lambda status: inside.pop()):
            asyncio.run(await_many(version, inside))
    tombolo.close_publishers()


async def await_many(version, inside):
    tasks = [asyncio.create_task(version.activated()) for _ in range(40)]
    while len(inside) < min(40, (os.cpu_count() or 1) + 4):
        await asyncio.sleep(0.01)
    expect("another's thread", await asyncio.wait_for(asyncio.to_thread(lambda: 7), PATIENCE_S), 7)
    for task in tasks:
        task.cancel()
    expect("cancelled", {type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)}, {asyncio.CancelledError})
    expect("calls", inside, [])


@scenario
def nothing_is_written_behind_a_cancelled_await(lab):
    """P2: a task is cancelled while a version gets into its tensors. It ends when the version is there, and not before: the
    engine may compute again then."""
    site_of(lab)
    target = {"w": array.array("B", bytes(4))}
    with tombolo.follow("policy", into=target) as reader:
        version_of(1)
        asyncio.run(cancel_in_apply(reader, target))
        expect("the reader knows it", (reader.version.number, bytes(target["w"])), (1, bytes([1]) * 4))
    tombolo.close_publishers()


async def cancel_in_apply(reader, target):
    within, go_on = threading.Event(), threading.Event()

    async def follow():
        async for _ in reader:
            pass
    with seen("tb_activate", before=lambda: (within.set(), go_on.wait())):
        task = asyncio.create_task(follow())
        while not within.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.5)
        task.cancel()  # once more, as impatient callers do
        try:
            expect("it has not ended", done, set())
        finally:
            go_on.set()
        expect("cancelled", type((await asyncio.gather(task, return_exceptions=True))[0]), asyncio.CancelledError)


INTERRUPTED = """
import sys, tombolo
from tombolo.library import lib
name, prepare, call = sys.argv[1:]
names = {"tombolo": tombolo, "model": "policy", "into": {"w": bytearray(4)}}
exec(prepare, names)
call = compile(call, "call", "exec") # of a text, exec notes an interrupt that this catches for one that nobody did
print("ready", flush=True)
sys.stdin.readline()
ended, real = [], getattr(lib, name)
def noted(*arguments):
    print("calls", flush=True)
    ended.append(real(*arguments))
    return ended[-1]
setattr(lib, name, noted)
try:
    exec(call, names)
    print("returned", flush=True)
except KeyboardInterrupt:
    print("interrupted", *ended, flush=True)
except tombolo.Error as error:
    print(error, flush=True)
"""
OPEN = "s = tombolo.Session(tombolo.publishing.gateway_address(None))"
PUBLISHED = "p = tombolo.Publisher(model, run='key', mode='in_place'); v = p.publish(1, into)"


@scenario
def ctrl_c_ends_each_call(lab):
    """P6: the gateway is stopped, and answers nothing. Ctrl-C ends a call, which has returned by then, and the process ends.
    While a session is opened there is nothing to cancel: what comes of it is given up."""
    site = site_of(lab)
    version_of(1, run="another")
    cancelled = f"interrupted {tombolo.CANCELLED}"
    for name, prepare, call, said in (
            ("tb_session_open", "", "tombolo.Session(tombolo.publishing.gateway_address(None), open_timeout_ms=600000)", "interrupted"),
            ("tb_run_open", OPEN, "s.run_open(model, 'key')", cancelled), ("tb_subscribe", OPEN, "s.subscribe(model)", cancelled),
            ("tb_status", OPEN, "s.status('site')", cancelled), ("tb_publish", PUBLISHED.replace("; v = p.publish(1, into)", ""), "p.publish(1, into)", cancelled),
            ("tb_unpublish", PUBLISHED, "p._session.unpublish(v.uid, 600000)", cancelled)):
        calls = Process(name, [sys.executable, "-c", INTERRUPTED, name, prepare, call], lab.dir / f"{name}.log", stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        lab.processes.append(calls)
        expect(name, calls.popen.stdout.readline(), "ready\n")
        site.daemon.signal(signal.SIGSTOP)
        calls.popen.stdin.write("go\n")
        calls.popen.stdin.flush()
        expect(name, calls.popen.stdout.readline(), "calls\n")
        calls.signal(signal.SIGINT)
        expect(name, calls.popen.stdout.readline().strip(), said)
        site.daemon.signal(signal.SIGCONT)
        expect("exit code", calls.ended(), 0)
    tombolo.close_publishers()


FORKED = """
import os, sys, threading, time, tombolo
from tombolo.library import lib
core, weights = tombolo.Core("policy", into={"w": bytearray(4)}), {"w": bytearray(b"once")}
tombolo.publish("policy", 1, weights, run="key").wait_held()
core.stage(1)
within, go_on = [], threading.Event()
def held(name):
    real = getattr(lib, name)
    def call(*arguments):
        if os.getpid() == parent:
            within.append(name)
            go_on.wait()
        return real(*arguments)
    setattr(lib, name, call)
parent = os.getpid()
held("tb_publish")
held("tb_wait")
threads = [threading.Thread(target=call) for call in (lambda: tombolo.publish("policy", 2, weights, run="key"), lambda: core.stage(1))]
for thread in threads:
    thread.start()
while len(within) < 2:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    code = 1
    for call in (lambda: core.stage(1), core.follower.apply):
        try:
            call()
            os._exit(2)
        except tombolo.Forked:
            pass
    core.close()
    tombolo.close_publishers()
    version = tombolo.publish("other", 1, weights, run="of the child")
    version.wait_held()
    with tombolo.follow("other", into={"w": bytearray(4)}) as reader:
        code = 7 if reader.next().number == 1 else 3
    sys.exit(code) # by its atexit, too
end = time.monotonic() + float(sys.argv[1])
while True:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended or time.monotonic() > end:
        break
    time.sleep(0.01)
if not ended:
    os.kill(child, 9)
go_on.set()
for thread in threads:
    thread.join()
core.close()
sys.exit(0 if ended and os.waitstatus_to_exitcode(status) == 7 else f"the child: {ended} {status}")
"""


@scenario
def a_child_is_not_held_up_by_what_its_parent_did(lab):
    """P6: fork comes while other threads publish and stage. In the child what was open is refused, and it publishes and
    follows by itself."""
    site_of(lab, "policy", "other")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, str(PATIENCE_S)], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    expect(f"exit code ({done.stderr})", done.returncode, 0)


UNCLOSED = """
import tombolo
publisher = tombolo.Publisher("policy", run="key", mode="in_place")
version = publisher.publish(2, {"w": bytearray(1 << 20)})
version.wait_held()
reader = tombolo.follow("policy", into={"w": bytearray(1 << 20)})
print(reader.next())
"""


@scenario
def memory_stays_as_long_as_the_library_may_touch_it(lab):
    """P1: a registration that nobody has any more is the library's still, until the session is closed. A process that closes
    nothing ends its sessions when it ends."""
    site = site_of(lab)
    session = tombolo.Session(os.environ["TOMBOLO_GATEWAY"])
    lives = []

    def registered():
        memory = Memory(8)
        lives.append(weakref.ref(memory))
        return session.register({"w": memory})
    session.publish("policy", session.run_open("policy", "key"), 1, registration=registered(), mode=tombolo.IN_PLACE)
    session.subscribe("policy", registration=registered(), prove=tombolo.PROVE_ALWAYS)
    third = registered()
    gc.collect()
    expect("what the library may touch", [life() is not None for life in lives], [True, True, True])
    expect("repr", repr(third), "<tombolo.Registration of 1 tensors, open>")
    third.unregister()
    expect("unregistered", ([life() is not None for life in lives], repr(third)), ([True, True, False], "<tombolo.Registration of 1 tensors, ended>"))
    with seen("tb_session_close", before=lambda: expect("no call begins beside its end", session._own, None)):
        session.close()
    gc.collect()
    expect("closed", [life() is not None for life in lives], [False, False, False])
    lost = site.counters()["sessions_lost"]
    done = subprocess.run([sys.executable, "-c", UNCLOSED], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    expect(f"it says ({done.stderr})", (done.returncode, done.stdout.startswith("<tombolo.Version policy")), (0, True))
    wait_for("its sessions are gone", lambda: not site.control("status")["sessions"])
    expect("sessions that were lost", site.counters()["sessions_lost"], lost)


@scenario
def no_reader_writes_to_memory_that_is_read_only(lab):
    """P1 P10: such a tensor is published as it is, and a subscription to it is refused by its name. A number that does not
    fit is refused before anything is sent."""
    site_of(lab)
    with tombolo.Session(os.environ["TOMBOLO_GATEWAY"]) as session:
        given = session.register({"v": bytearray(4), "w": b"once"})
        run = session.run_open("policy", "key")
        session.publish("policy", run, 1, registration=given)
        for call, word in ((lambda: session.subscribe("policy", registration=given), "w: the memory is read-only"),
                           (lambda: tombolo.follow("policy", into={"w": b"once"}), "w: the memory is read-only"),
                           (lambda: session.publish("policy", run, -1, registration=given), "number"),
                           (lambda: tombolo.publish("policy", -1, {"w": b"once"}, run="key"), "step"),
                           (lambda: session.wait("policy", timeout_ms=-1), "timeout_ms"), (lambda: session.buffer(-1), "count"),
                           (lambda: session.unpublish(tombolo.Uid(), -1), "drain_ms")):
            try:
                call()
                raise Failed(f"{word}: nothing was raised")
            except ValueError as error:
                expect(f"{word} in {error}", word in str(error), True)
        target = bytearray(4)
        with tombolo.follow("policy", into={"w": ("U8", (4,), target)}) as reader:
            expect("published", (reader.next(timeout=PATIENCE_S).number, bytes(target)), (1, b"once"))
    tombolo.close_publishers()


@scenario
def an_error_is_the_same_in_another_process(lab):
    """P10: Ray and multiprocessing carry an error as a pickle. An answer says what is in it."""
    for kind, status, name in ((tombolo.Error, tombolo.TIMEOUT, "timeout"), (tombolo.Forked, -509, "forked"),
                               (library.Again, tombolo.AGAIN, "again")):
        got = pickle.loads(pickle.dumps(kind(status, "policy 7: why")))
        expect("it", (type(got), got.status, got.name, str(got)), (kind, status, name, "policy 7: why"))
    expect("repr", repr(tombolo.ActivateInfo(stall_ns=7, buffer=1)),
           "ActivateInfo(buffer=1, stall_ns=7, copied_bytes=0, patched_bytes=0, staged_bytes=0, fetched_chunks=0)")


if __name__ == "__main__":
    sys.exit(main())
