"""A version, and waiting for it: by a call, or by `await`."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .library import ACTIVATED, AGAIN, CANCELLED, HOLDS, TIMEOUT, Error, Uid, check, lib, text_of
from .sessions import Session

SLICE_MS = 250 # of a wait: how long it may go on behind a cancellation
T = TypeVar("T")


def milliseconds(seconds: float) -> int:
    return max(0, min(int(seconds * 1000), 0xFFFFFFFE))


class Deadline:
    """The time that a call may take. `stop` ends it early, from another thread."""

    def __init__(self, timeout: float | None, stop: threading.Event | None = None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout
        self._stop = stop

    def left(self) -> float | None:
        """Seconds; None: it never ends."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def slice_ms(self, what: str) -> int:
        """Of the next wait. Raises when there is none."""
        if self._stop is not None and self._stop.is_set():
            raise Error(CANCELLED, f"{what}: cancelled")
        if self._end is None:
            return SLICE_MS
        left = milliseconds(self._end - time.monotonic())
        if left == 0:
            raise Error(TIMEOUT, f"{what}: not in the time given")
        return min(left, SLICE_MS)


async def in_thread(call: Callable[[threading.Event], T]) -> T:
    """call(stop) in a thread of the event loop's pool. It ends soon after the caller was cancelled."""
    import asyncio # here: it takes longer to import than all of this package

    stop = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(None, call, stop)
    finally:
        stop.set()


def interruptible(session: Session, call: Callable[[], T]) -> T:
    """call() beside the main thread, so that KeyboardInterrupt cancels it. It has ended when this raises."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error: # goes to the caller
            failed.append(error)
    thread = threading.Thread(target=run, name="tombolo-call", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        session.cancel()
        thread.join()
        raise
    if failed:
        raise failed[0]
    return result[0]


class Version:
    """One version of a model. `number` is the trainer's step."""

    def __init__(self, session: Session, model: str, uid: Uid, number: int, run_order: int, size: int, state: str) -> None:
        self.model, self.uid, self.number, self.run_order = model, uid, number, run_order
        self.bytes, self.state = size, state
        self._session = session

    def __repr__(self) -> str:
        return f"<tombolo.Version {self.model} {self.run_order}:{self.number}, {self.bytes} bytes, {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.uid == other.uid

    def __hash__(self) -> int:
        return hash(self.uid)

    def _wait(self, site: str | None, state: int, deadline: Deadline) -> None:
        what = f"{self!r} at {site or 'this site'}"
        while True:
            status = lib.tb_wait_site(self._session._handle, self.uid, text_of(site), state, deadline.slice_ms(what))
            if status not in (AGAIN, TIMEOUT):
                check(status)
                return

    def wait_held(self, site: str | None = None, timeout: float | None = None) -> None:
        """Returns when all of it is at the site (None: this one)."""
        self._wait(site, HOLDS, Deadline(timeout))

    def wait_activated(self, site: str | None = None, timeout: float | None = None) -> None:
        """Returns when each reader group at the site computes from it."""
        self._wait(site, ACTIVATED, Deadline(timeout))

    async def held(self, site: str | None = None, timeout: float | None = None) -> None:
        await in_thread(lambda stop: self._wait(site, HOLDS, Deadline(timeout, stop)))

    async def activated(self, site: str | None = None, timeout: float | None = None) -> None:
        await in_thread(lambda stop: self._wait(site, ACTIVATED, Deadline(timeout, stop)))
