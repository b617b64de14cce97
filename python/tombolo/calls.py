"""Calls that block, beside signals and fork()."""

import _thread
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> Any:
    """One that a child of fork() finds free, as the thread that held it is not there."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_locks() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_locks)


class Gate:
    """As threading.Event, for one waiter. An Event that KeyboardInterrupt came through may stay locked."""

    def __init__(self) -> None:
        self._is_set, self._lock = False, threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        self._is_set = True
        with contextlib.suppress(RuntimeError): # it was open
            self._lock.release()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float = -1) -> None:
        if not self._is_set and self._lock.acquire(timeout=seconds):
            with contextlib.suppress(RuntimeError): # a second set() has just opened it
                self._lock.release()


class Calls:
    """The calls under way, so that the thing that they use is freed behind the last of them."""

    def __init__(self) -> None:
        self._turn, self._threads = new_lock(), dict[object, int]()

    def run(self, call: Callable[[], T]) -> T:
        """call() looks up what it uses: it is counted by then."""
        this = object()
        try:
            with self._turn:
                self._threads[this] = threading.get_ident()
            return call()
        finally:
            self._threads.pop(this, None)

    def in_this_thread(self) -> bool:
        return threading.get_ident() in list(self._threads.values())

    def wait(self, wake: Callable[[], None]) -> None:
        """Until no other thread is in a call. wake() ends a call that has begun, so it is repeated."""
        this = threading.get_ident()
        while True:
            with self._turn:
                if all(thread == this for thread in list(self._threads.values())):
                    return
            wake()
            time.sleep(0.005)


def beside(call: Callable[[], T], interrupted: Callable[[Gate], None]) -> T:
    """call() in a thread of its own, so that a signal's handler runs in the main thread meanwhile. Where the handler
    raises, as for Ctrl-C, the main thread calls interrupted(ended): `ended` is set once call() has ended. Another
    thread runs call() itself."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: list[T] = []
    failed: list[BaseException] = []
    go, ended, given_up = Gate(), Gate(), False

    def run() -> None:
        try:
            go.wait()
            if not given_up:
                result.append(call())
        except BaseException as error: # goes to the caller
            failed.append(error)
        finally:
            ended.set()
    try:
        try:
            _thread.start_new_thread(run, ()) # not by Thread.start(), which an interrupt leaves half done
        except RuntimeError: # Python ends, and starts no more threads
            return call()
        go.set()
        while not ended.is_set(): # a signal that comes just before a wait does not end that one
            ended.wait(0.25)
    except BaseException: # a handler may raise anything
        given_up = not go.is_set() # then it has called nothing, and will not
        go.set()
        if not given_up:
            interrupted(ended)
        raise
    if failed:
        try:
            raise failed[0]
        finally:
            failed.clear() # or the error holds itself, and with it all that the caller had
    return result[0]


def beside_or_undone(call: Callable[[], T], undo: Callable[[T], None], interrupted: Callable[[Gate], None]) -> T:
    """beside(). An interrupted caller never gets the result: undo(result) then, also where call() ends later."""
    turn, given_up = threading.Lock(), False
    done: list[T] = []

    def run() -> T:
        result = call()
        with turn:
            done.append(result)
            if given_up:
                undo(result)
        return result

    def stopped(ended: Gate) -> None:
        nonlocal given_up
        with turn:
            given_up = True
            if done:
                undo(done[0])
        interrupted(ended)
    return beside(run, stopped)
