"""A version, and waiting for it: by a call, or by `await`."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .library import ACTIVATED, AGAIN, CANCELLED, GATEWAY_AWAY, HOLDS, TIMEOUT, Error, Uid, check, lib, text_of
from .sessions import Session

SLICE_MS = 250 # of a wait: how long it may go on behind a cancellation
T = TypeVar("T")


def milliseconds(seconds: float) -> int:
    return int(max(0, min(seconds * 1000, 0xFFFFFFFE)))


class Deadline:
    """The time that a call may take. `stop` ends it early, from another thread, and so does cancel() of `session`,
    also between two waits."""

    def __init__(self, timeout: float | None, stop: threading.Event | None = None, session: Session | None = None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout
        self._stop, self._session = stop, session
        self._cancels = session.cancels if session is not None else 0
        self._asked = 0.0
        self._away: str | None = None # why the last wait says that the gateway is away

    def left(self) -> float | None:
        """Seconds; None: it never ends."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def slice_ms(self, what: str) -> int:
        """Of the next wait. Raises when there is none."""
        if self._stop is not None and self._stop.is_set() or self._session is not None and self._session.cancels != self._cancels:
            raise Error(CANCELLED, f"{what}: cancelled")
        self._asked = time.monotonic()
        if self._end is None:
            return SLICE_MS
        left = milliseconds(self._end - self._asked)
        if left == 0 and self._away is not None:
            raise Error(GATEWAY_AWAY, f"{what}: not in the time given: {self._away}")
        if left == 0:
            raise Error(TIMEOUT, f"{what}: not in the time given")
        return min(left, SLICE_MS)

    def goes_on(self, error: Error) -> None:
        """Behind a wait. Raises what is more than "not yet". A gateway that is away may come back."""
        if error.status not in (AGAIN, TIMEOUT, GATEWAY_AWAY):
            raise error
        self._away = str(error) if error.status == GATEWAY_AWAY else None
        if self._away is not None and time.monotonic() - self._asked < SLICE_MS / 2000: # it did not wait
            left = self.left()
            time.sleep(SLICE_MS / 1000 if left is None else min(SLICE_MS / 1000, left))


async def in_thread(call: Callable[[threading.Event], T]) -> T:
    """call(stop) in a thread of its own, as those of the event loop are few, and others need them. Where the caller is
    cancelled, it has ended when this raises: nobody writes to tensors any more."""
    import asyncio # here: it takes longer to import than all of this package
    from concurrent.futures import Future

    stop, made = threading.Event(), Future[T]()

    def run() -> None:
        try:
            made.set_result(call(stop))
        except BaseException as error: # goes to the caller
            made.set_exception(error)
    threading.Thread(target=run, name="tombolo-await", daemon=True).start()
    waiting = asyncio.ensure_future(asyncio.wrap_future(made))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        stop.set()
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError: # once more
                continue
        if not waiting.cancelled():
            waiting.exception() # or asyncio says that nobody asked for it
        raise


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
            slice_ms = deadline.slice_ms(what)
            try:
                check(self._session._run(lambda: lib.tb_wait_site(self._session._handle, self.uid, text_of(site), state, slice_ms)))
                return
            except Error as error:
                deadline.goes_on(error)

    def wait_held(self, site: str | None = None, timeout: float | None = None) -> None:
        """Returns when all of it is at the site (None: this one)."""
        self._wait(site, HOLDS, Deadline(timeout, session=self._session))

    def wait_activated(self, site: str | None = None, timeout: float | None = None) -> None:
        """Returns when each reader group at the site computes from it."""
        self._wait(site, ACTIVATED, Deadline(timeout, session=self._session))

    async def held(self, site: str | None = None, timeout: float | None = None) -> None:
        await in_thread(lambda stop: self._wait(site, HOLDS, Deadline(timeout, stop, self._session)))

    async def activated(self, site: str | None = None, timeout: float | None = None) -> None:
        await in_thread(lambda stop: self._wait(site, ACTIVATED, Deadline(timeout, stop, self._session)))
