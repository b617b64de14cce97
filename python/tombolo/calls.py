"""Calls that block, beside signals and fork()."""

import _thread
import contextlib
import os
import threading
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
            self._lock.release()


def beside(call: Callable[[], T], interrupted: Callable[[Gate], None]) -> T:
    """call() in a thread of its own, so that KeyboardInterrupt reaches the main thread. That one calls
    interrupted(ended) then: `ended` is set once call() has ended. From another thread it is called as it is."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: list[T] = []
    failed: list[BaseException] = []
    go, ended, given_up = Gate(), Gate(), False

    def run() -> None:
        go.wait()
        try:
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
    except KeyboardInterrupt:
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
