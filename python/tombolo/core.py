"""The needs of an integration with a trainer or an engine: five calls.

    core = Core("policy", into=module)        # or boxes, or nothing
    core.publish_named(step, pairs)           # the trainer's side: pairs of (name, tensor), which need not stay
    core.stage(step)                          # the engine's side, while it serves
    core.apply(step)                          # in its pause
    core.version()                            # the step that the tensors hold
    core.close()

An engine that loads tensors by name takes no `into`, and reads named() once a version is staged. begin()
is stage() that does not wait; ahead() stages each newest version in background."""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .calls import new_lock
from .following import Follower
from .library import CONFLICT, GROUP_BROKEN, ActivateInfo, Error
from .memory import torch_tensor
from .publishing import Publisher, named_copies
from .sessions import Item
from .versions import Deadline, Version

_AHEAD_S = 0.25 # between two looks at what is newest, where nothing wakes the thread


class Core:
    """Opens its sessions when a call needs them. options are those of Follower and Session. publisher:
    options of Publisher alone. Calls may come from several threads; one runs at a time."""

    def __init__(self, model: str, *, gateway: str | None = None, run: str | None = None, shard: tuple[int, int] | None = None,
                 into: Any = None, publisher: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.model, self._gateway, self._run, self._shard, self._into, self._options = model, gateway, run, shard, into, options
        self._publisher: Publisher | None = None
        self._publisher_options = dict(publisher or {})
        self._follower: Follower | None = None
        self._memory: dict[str, Any] = {}
        self._turn = new_lock() # of the follower
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        reader, state = self._follower, "idle" if self._publisher is None else "open"
        if reader is not None:
            state = "waiting" if reader.staged is None else f"staged {reader.staged.number}"
        return f"<tombolo.Core {self.model}, version {self.version()}, {state}>"

    @property
    def follower(self) -> Follower:
        with self._turn:
            if self._follower is None:
                self._follower = Follower(self.model, self._into, gateway=self._gateway, **self._options)
            return self._follower

    # ---- the trainer's side ----

    def publish_named(self, step: int, named: Iterable[tuple[str, Any]], blobs: Mapping[str, Any] | None = None) -> Version:
        """Returns when the tensors may be gone: this process holds a copy. wait_held() of the version returns
        when the gateway has it, and close() may come then."""
        if self._publisher is None:
            self._publisher = Publisher(self.model, gateway=self._gateway, run=self._run, shard=self._shard, **self._publisher_options)
        return self._publisher.publish(step, named_copies(named, self._memory), blobs=blobs)

    def send(self, step: int, named: Iterable[tuple[str, Any]], is_sender: bool = True, site: str | None = None,
             timeout: float | None = None) -> bool:
        """Each rank of a trainer calls it, as all of them gather what they walk through. The
        sender publishes, and returns when the site (None: the one here) holds the version.
        False: this rank is not the sender. timeout: seconds for the hold, None: no end;
        tombolo.Error where it is over."""
        pairs = iter(named)
        version, failed = None, None
        try:
            version = self.publish_named(step, pairs) if is_sender else None
        except Exception as error:
            failed = error
        for _ in pairs: # the others gather them still
            pass
        if failed is not None:
            raise failed
        if version is not None:
            version.wait_held(site, timeout)
        return is_sender

    # ---- the engine's side ----

    def _here(self, step: int) -> Version | None:
        """None too where a newer run has the number by now: a trainer that came back counts from its last save."""
        follower = self.follower
        here = next((v for v in (follower.staged, follower.version) if v is not None and v.number == step), None)
        return None if here is None or follower.is_renumbered(here) else here

    def stage(self, step: int, timeout: float | None = None) -> Version:
        """Returns when the step is whole here and verified; at once where it is staged or active already. A
        group's members may ask for it in any order: another version that they staged is given up."""
        deadline = Deadline(timeout)
        with self._turn:
            while True:
                here = self._here(step)
                if here is not None:
                    return here
                self.follower.drop()
                try:
                    return self.follower.stage(step, timeout=deadline.left())
                except Error as error: # members of the group ask for another one still
                    if error.status not in (CONFLICT, GROUP_BROKEN) or deadline.left() == 0:
                        raise
                    self.follower._session.wait_readable(0.02)

    def begin(self, step: int) -> bool:
        """True: the step is staged, or active. False: it is on its way, and goes on in background."""
        with self._turn:
            if self._here(step) is not None:
                return True
            self.follower.drop()
            try:
                return self.follower.begin(step) is not None
            except Error as error:
                if error.status not in (CONFLICT, GROUP_BROKEN):
                    raise
                return False

    def ahead(self) -> None:
        """From here on the newest version is staged in background, once the one before was applied. A group
        whose members have all staged a version takes no older one: an engine that is told by number which
        version it gets calls begin() for that one instead."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._stage_ahead, args=(self.follower,), name="tombolo-ahead", daemon=True)
            self._thread.start()

    def _stage_ahead(self, follower: Follower) -> None:
        session = follower._session
        while not self._closing.is_set():
            with self._turn, contextlib.suppress(Error): # the call that names the version gets the error
                if not self._closing.is_set() and follower.staged is None:
                    follower.begin()
            if session.wait_readable(_AHEAD_S):
                with contextlib.suppress(BlockingIOError):
                    os.read(session.fileno(), 8)

    def _items(self, step: int | Version | None) -> Iterator[Item]:
        version = step if isinstance(step, Version) else self.follower.staged or self.follower.version if step is None else self._here(step)
        if version is None:
            raise ValueError(f"{self.model}: version {'of any number' if step is None else step} is not staged: call stage first")
        return self.follower.items(version)

    def named(self, step: int | Version | None = None) -> Iterator[tuple[str, Any]]:
        """(name, tensor) of a version that is staged or active (None: the one staged last; by its number the
        newest run's): torch tensors on its memory, where torch is imported, else memoryviews. They are
        read-only, and end with the version. Not of tensors of which `into` asks for parts."""
        for item in self._items(step):
            if not item.is_blob and item.bytes is not None:
                yield item.name, torch_tensor(item)

    def newest(self) -> int | None:
        """The step of the newest version that is whole at this site; None: there is none."""
        return self.follower.newest()

    def manifest(self, step: int | Version | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
        """{name: (dtype, shape)} of the same version."""
        return {item.name: (item.dtype or "", item.shape) for item in self._items(step) if not item.is_blob}

    def kinds(self, step: int, timeout: float | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
        """{name: (dtype, shape)} of a version that is whole at this site, or will be in that time. It is staged
        only where the gateway does not say them."""
        deadline = Deadline(timeout)
        with self._turn:
            there = self.follower.kinds(step, timeout=deadline.left())
            if there is None:
                self.stage(step, deadline.left())
                there = self.manifest(step)
            return there

    def apply(self, step: int, timeout: float | None = 60) -> ActivateInfo | None:
        """None: the tensors hold it already. A step that is not staged is refused: stage() is not for
        the pause."""
        with self._turn:
            staged = self.follower.staged
            if staged is None or staged.number != step:
                if self.version() == step:
                    return None
                raise ValueError(f"{self.model}: version {step} is not staged (staged: {staged.number if staged else 'none'}): call stage first")
            return self.follower.apply(timeout)

    def version(self) -> int | None:
        active = self._follower.version if self._follower is not None else None
        return None if active is None else active.number

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with contextlib.ExitStack() as stack: # the second closes where the first fails
            stack.callback(self._closing.clear)
            for part in (self._follower, self._publisher):
                if part is not None:
                    stack.callback(part.close)
            self._publisher = self._follower = None


def copies(*, model: str = "policy", version: int, timeout_s: float = 600, gateway: str | None = None,
           session: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of that version and of no other, by a session of its own, with these
    options. They are copies, which may be kept, made one at a time."""
    with contextlib.closing(Core(model, gateway=gateway, **(session or {}))) as core:
        core.stage(int(version), float(timeout_s))
        for name, tensor in core.named(int(version)):
            yield name, tensor.clone() if hasattr(tensor, "clone") else bytes(tensor)
