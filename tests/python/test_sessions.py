"""Memory that a session keeps and frees: behind an interrupt, beside calls of other threads, and when Python ends.

Covers: python/tombolo/calls.py python/tombolo/sessions.py python/tombolo/publishing.py
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

from watched import ENVIRONMENT, Beside, Memory, seen, site_of  # first, as it finds the harness

from harness import PATIENCE_S, Failed, expect, main, scenario, wait_for

import tombolo
from tombolo import calls, sessions


def opened():
    return tombolo.Session(os.environ["TOMBOLO_GATEWAY"])


def interrupted_in(name, call, number=signal.SIGINT, raised=KeyboardInterrupt):
    """The library's function ends, and its caller is interrupted before it hears of that. Gives the statuses."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cancelled, statuses = threading.Event(), []

    def after(status):
        statuses.append(status)
        os.kill(os.getpid(), number)
        cancelled.wait(PATIENCE_S)
    with seen(name, after=after), seen("tb_cancel", before=cancelled.set):
        try:
            call()
            raise Failed(f"{name}: nothing was raised")
        except raised:
            expect(f"{name} was cancelled", cancelled.is_set(), True)
    return statuses


@scenario
def an_end_is_known_behind_an_interrupt(lab):
    """P1 P6: Ctrl-C comes just behind the end of a call. A registration that was freed is not used again, and the member
    that nobody got leaves its group."""
    site_of(lab)
    with opened() as session:
        registration = session.register({"w": bytearray(4)})
        expect("unregister", interrupted_in("tb_unregister", registration.unregister), [0])
        expect("the registration", (repr(registration), len(session._kept)), ("<tombolo.Registration of 1 tensors, ended>", 0))
        registration.unregister()
        left = []
        with seen("tb_unsubscribe", after=left.append):
            expect("subscribe", interrupted_in("tb_subscribe", lambda: session.subscribe("policy", group="engine", member=(0, 1))), [0])
            expect("the member left", left, [0])
        subscription = session.subscribe("policy", group="engine", member=(0, 1))
        expect("unsubscribe", interrupted_in("tb_unsubscribe", subscription.unsubscribe), [0])
        expect("the subscription", repr(subscription), "<tombolo.Subscription policy, ended>")
        subscription.unsubscribe()
    with tombolo.Publisher("policy", run="key") as publisher:
        publisher.publish(1, {"w": bytearray(4)})
        other = {"w": bytearray(8)}
        expect("publish", interrupted_in("tb_unregister", lambda: publisher.publish(2, other)), [0])
        expect("the publisher's", publisher._registration, None)
        expect("published", publisher.publish(2, other).number, 2)


@scenario
def another_registrations_memory_is_not_given_up(lab):
    """P1: a registration ends, and another thread registers at its address before the first one hears of it."""
    site_of(lab)
    with opened() as session:
        lives, others = [], []

        def register_another(_):
            memory = Memory(4)
            lives.append(weakref.ref(memory))
            others.append(session.register({"w": memory}))

        def in_one_thread():  # one thread gets the memory again that it freed
            olds = [session.register({"w": bytearray(4)}) for _ in range(40)]
            with seen("tb_unregister", after=register_another):
                for old in olds:
                    old.unregister()
        expect("error", Beside(in_one_thread).ended().error, None)
        gc.collect()
        expect("what the library may touch", [life() is not None for life in lives], [True] * len(lives))
        for other in others:
            other.unregister()
        gc.collect()
        expect("what is kept", ([life() for life in lives if life() is not None], session._kept), ([], {}))


@scenario
def each_exception_of_a_handler_ends_a_call(lab):
    """P6: the handler of a signal raises TimeoutError or SystemExit. The call is cancelled, and has ended when that comes out."""
    site_of(lab)

    def exits(*_):
        raise SystemExit(3)

    def times_out(*_):
        raise TimeoutError
    with opened() as session:
        for raised, handler in ((SystemExit, exits), (TimeoutError, times_out)):
            before = signal.signal(signal.SIGALRM, handler)
            try:
                expect("run_open", interrupted_in("tb_run_open", lambda: session.run_open("policy", "key"), signal.SIGALRM, raised), [0])
            finally:
                signal.signal(signal.SIGALRM, before)


@scenario
def a_publisher_that_cannot_begin_leaves_no_session(lab):
    """P10: a gateway does not know the model, again and again."""
    site = site_of(lab)
    for _ in range(3):
        with contextlib.suppress(tombolo.Error):
            tombolo.Publisher("unknown", run="key")
            raise Failed("nothing was raised")
    expect("open", len(sessions._living), 0)
    wait_for("its sessions are gone", lambda: not site.control("status")["sessions"])


ENDS = """
import atexit, os, sys
def last():
    print([s._own is None for s in closed], bytes(held), flush=True)
atexit.register(last)
import tombolo
class Memory(bytearray):
    def __del__(self):
        os.write(1, b"freed " + self[:1] + b"\\n")
def fails():
    raise OSError
gateway = tombolo.publishing.gateway_address(None)
publisher = tombolo.Publisher("policy", run="key")
version = publisher.publish(1, {"w": bytearray(b"once")})
version.wait_held()
failing, closed = [[tombolo.Session(gateway) for _ in range(4)] for _ in range(2)]
for session in failing:
    session.close = fails
reader = tombolo.follow("policy")
reader._session.register({"w": Memory(b"kept")})
reader.stage(timeout=float(sys.argv[1]))
held = next(reader.items()).bytes[1:]
"""


@scenario
def memory_is_there_until_a_process_has_ended(lab):
    """P1: Python ends while a slice of a view is there, and some sessions cannot be closed. The slice is readable, the
    memory of its session is not freed, and the others are closed."""
    site_of(lab)
    done = subprocess.run([sys.executable, "-c", ENDS, str(PATIENCE_S)], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    expect(f"it says ({done.stderr})", (done.returncode, done.stdout), (0, f"{[True] * 4} {b'nce'}\n"))


@scenario
def a_gate_may_be_opened_twice(lab):
    """P6: a second set() opens the lock while the waiter holds it. A thread that fails in its wait is heard of."""
    gate = calls.Gate()
    gate._is_set, real = False, gate._lock

    class Opened:
        """The lock, which somebody opens at once when it was taken."""

        def acquire(self, timeout):
            real.release()
            return real.acquire(timeout=timeout) and (real.release() or True)

        def release(self):
            real.release()
    gate._lock = Opened()
    gate.wait(PATIENCE_S)
    wait = calls.Gate.wait

    def fails(self, seconds=-1):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("release unlocked lock")
        wait(self, seconds)

    def late(*_):
        raise TimeoutError
    calls.Gate.wait, before = fails, signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        calls.beside(lambda: 1, lambda _: None)
        raise Failed("nothing was raised")
    except RuntimeError as error:
        expect("it", str(error), "release unlocked lock")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        calls.Gate.wait = wait
        signal.signal(signal.SIGALRM, before)


@scenario
def a_session_is_freed_behind_its_calls(lab):
    """P1 P6: close() comes while another thread has read the handle and has not yet called the library; from two threads;
    and from the handler of a signal within a call."""
    site_of(lab)
    session, order, within, go = opened(), [], threading.Event(), threading.Event()
    with seen("tb_status", before=lambda: (within.set(), go.wait(PATIENCE_S)), after=lambda _: order.append("status")), \
            seen("tb_session_close", before=lambda: order.append("close")), seen("tb_cancel", before=lambda: order.append("cancel")):
        asks = Beside(session.status)
        within.wait(PATIENCE_S)
        closes = Beside(session.close)
        wait_for("it is about to end", lambda: bool(order))
        first = set(order)
        go.set()
        asks.ended()
        expect("close", closes.ended().error, None)
    expect("order", (first, [what for what in order if what != "cancel"]), ({"cancel"}, ["status", "close"]))

    session, order, within, go = opened(), [], threading.Event(), threading.Event()
    with seen("tb_session_close", before=lambda: (within.set(), go.wait(PATIENCE_S)), after=lambda _: order.append("close")):
        one = Beside(session.close)
        within.wait(PATIENCE_S)
        other = Beside(lambda: (session.close(), order.append("returned")))
        other.join(0.1) # a close() that does not wait has returned by then
        go.set()
        expect("errors", (one.ended().error, other.ended().error), (None, None))
    expect("order", order, ["close", "returned"])

    session, order = opened(), []
    before = signal.signal(signal.SIGALRM, lambda *_: session.close())
    try:
        with seen("tb_wait", before=lambda: signal.raise_signal(signal.SIGALRM), after=lambda _: order.append("wait")), \
                seen("tb_session_close", before=lambda: order.append("close")), contextlib.suppress(tombolo.Error):
            session.wait("policy", timeout_ms=0)
    finally:
        signal.signal(signal.SIGALRM, before)
    expect("order", (order, session._own), (["wait", "close"], None))


if __name__ == "__main__":
    sys.exit(main())
