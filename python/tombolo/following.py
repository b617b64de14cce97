"""follow(): versions of a model get into the tensors of a reader."""

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from .calls import new_lock
from .library import AGAIN, CONFLICT, COPY, EXACT, GATEWAY_AWAY, GONE, GROUP_BROKEN, LATEST, LAYOUT_MISMATCH, NOT_FOUND, PATCH
from .library import SWITCH, TIMEOUT
from .library import PROVE_ALWAYS, PROVE_ASKED, PROVE_NEVER, ActivateInfo, Again, Error, Forked, Uid, VersionInfo, one_of
from .memory import Box, View, scatter, synchronise, tensors_of, view_of
from .publishing import gateway_address
from .sessions import Item, Registration, Session
from .versions import Deadline, Version, in_thread

_Kind = tuple[str, tuple[int, ...]] # dtype, and the shape of the whole tensor
_UPDATES = {"copy": COPY, "switch": SWITCH, "patch": PATCH}
_PROVES = {"asked": PROVE_ASKED, "always": PROVE_ALWAYS, "never": PROVE_NEVER}
_ASK_AGAIN = (*GONE, GROUP_BROKEN, CONFLICT) # the version that was wanted ended, or the group goes elsewhere


class Follower:
    """A reader of one model: stage() brings a version beside the tensors, apply() puts it into them.

    into: a module, {name: tensor}, or a list of Box; None: versions stay in staging, items() shows
    them. second: for update="switch", the same tensors elsewhere.
    group, member: the ranks of one engine that switch together, and (index, count) of this one.
    update: "copy", "switch" or "patch" (tombolo.h, enum tb_update).
    prove, home_ca: as in Session.subscribe; "asked", "always" or "never".
    gather: a tensor that is not contiguous gets its bytes through a copy, and is not refused.
    check: names, shapes and dtypes are compared with those of the newest version here, at once. False:
    not before stage(), as where the trainer is about to change them.

    `for version in follower` and `async for version in follower` stage and apply the newest version,
    again and again. One thread at a time uses a follower."""

    def __init__(self, model: str, into: Any = None, *, gateway: str | None = None, group: str | None = None,
                 member: tuple[int, int] = (0, 1), update: str = "copy", second: Any = None, gather: bool = False,
                 stage_on_gpu: bool = False, prove: str = "asked",
                 home_ca: Any = None, check: bool = True, **session_options: Any) -> None:
        update_mode, prove_mode = _UPDATES[one_of("update", update, _UPDATES)], _PROVES[one_of("prove", prove, _PROVES)]
        self.model = model
        self.version: Version | None = None # that the tensors hold
        self.staged: Version | None = None  # that apply() takes
        self._old: list[Version] = [] # to be released
        self._gather = gather
        self._calls = new_lock()
        self._session = Session(gateway_address(gateway), **session_options)
        try:
            self._views, registration, kinds = self._register(into)
            _, other, _ = self._register(second)
            self._subscription = self._session.subscribe(model, group=group, member=member, registration=registration,
                                                         update=update_mode, second=other, stage_on_gpu=stage_on_gpu,
                                                         prove=prove_mode, home_ca=home_ca)
            if check and kinds:
                self._check(kinds)
        except BaseException:
            self._session.close()
            raise

    def _register(self, into: Any) -> tuple[list[View], Registration | None, dict[str, _Kind]]:
        if into is None:
            return [], None, {}
        if isinstance(into, Sequence) and all(isinstance(box, Box) for box in into):
            views = [view_of(box.name, box.tensor, gather=self._gather, writable=True) for box in into]
            kinds = {box.name: (view.dtype, tuple(box.shape)) for box, view in zip(into, views, strict=True)}
            return views, self._session.register_boxes(into, views), kinds
        named = {name: view_of(name, tensor, gather=self._gather, writable=True) for name, tensor in tensors_of(into).items()}
        return list(named.values()), self._session.register_views(named), {name: (view.dtype, view.shape) for name, view in named.items()}

    def _check(self, kinds: dict[str, _Kind]) -> None:
        try:
            newest = self._session.wait(self.model, LATEST, timeout_ms=0)
            there = self._session.tensors(newest.uid)
        except Error: # there is none yet, or it went: stage() compares
            return
        wrong = [] if there is None else [_said(name, mine, there.get(name)) for name, mine in kinds.items() if not _fits(mine, there.get(name))]
        if wrong:
            more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise Error(LAYOUT_MISMATCH, f"{self.model}: these are not the tensors of version {newest.number}: {'; '.join(wrong[:5])}{more}")

    def __repr__(self) -> str:
        state = "closed" if self._session._own is None else f"staged {self.staged.number}" if self.staged else "waiting"
        return f"<tombolo.Follower {self.model}, version {self.version.number if self.version else 'none'}, {state}>"

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._calls:
            self._session.close()

    # ---- step by step ----

    def _deadline(self, timeout: float | None, stop: threading.Event | None = None) -> Deadline:
        return Deadline(timeout, stop, self._session)

    def _of(self, info: VersionInfo, state: str) -> Version:
        return Version(self._session, self.model, Uid(info.uid.bytes), info.number, info.run_order, info.bytes, state)

    def _wait(self, deadline: Deadline, number: int | None, run_order: int) -> Version:
        what = f"{self.model} {'newer' if number is None else number}"
        while True:
            slice_ms = deadline.slice_ms(what)
            try:
                with self._calls:
                    if number is not None:
                        info = self._session.wait(self.model, EXACT, number=number, run_order=run_order, timeout_ms=slice_ms)
                    else:
                        info = self._session.wait(self.model, LATEST, after=self.version.uid if self.version else None, timeout_ms=slice_ms)
                return self._of(info, "staging")
            except Error as error:
                deadline.goes_on(error)

    def _stage(self, version: Version, deadline: Deadline) -> None:
        self._release_old()
        while True:
            slice_ms = deadline.slice_ms(f"{version!r}")
            try:
                with self._calls:
                    self._subscription.stage(version.uid, timeout_ms=slice_ms)
                break
            except Error as error:
                deadline.goes_on(error)
        self._has_staged(version)

    def _has_staged(self, version: Version) -> None:
        before, self.staged = self.staged, version
        version.state = "staged"
        self._old = [old for old in self._old if old != version]
        if before is not None and before != version:
            self._old.append(before)
            self._release_old()

    def _apply(self, deadline: Deadline) -> ActivateInfo:
        version = self.staged
        if version is None:
            raise ValueError(f"{self.model}: nothing is staged")
        synchronise(view.keep for view in self._views)
        while True:
            slice_ms = deadline.slice_ms(f"{version!r} at the group's other members")
            with contextlib.suppress(Again), self._calls:
                info = self._subscription.activate(version.uid)
                break
            self._session.wait_readable(min(slice_ms, 20) / 1000)
        for view in self._views:
            if view.gathered is not None:
                scatter(view)
        if self.version is not None and self.version != version:
            self._old.append(self.version)
        self.version, self.staged = version, None
        version.state = "active"
        return info

    def _release_old(self) -> None:
        """Versions that the active one came after as a delta; it is staged still, for the next one. Not in
        apply(), which is short."""
        for version in list(self._old):
            try:
                with self._calls:
                    self._subscription.release(version.uid)
            except BufferError: # somebody reads items() of it still
                continue
            except Error as error:
                if error.status != NOT_FOUND:
                    raise
            version.state = "released"
            self._old.remove(version)

    def stage(self, number: int | None = None, *, run_order: int = 0, timeout: float | None = None) -> Version:
        """Returns when that version (None: the newest) is whole here. The tensors do not change. It
        refuses a version whose names, shapes or dtypes are others than those of `into`."""
        deadline = self._deadline(timeout)
        version = self._wait(deadline, number, run_order)
        self._stage(version, deadline)
        return version

    def begin(self, number: int | None = None, *, run_order: int = 0) -> Version | None:
        """stage() that does not wait. It starts, goes on in background, and gives the version to the call
        that finds it whole here."""
        kind, after = (LATEST, self.version.uid if self.version else None) if number is None else (EXACT, None)
        try:
            with self._calls:
                info = self._session.wait(self.model, kind, number=number or 0, run_order=run_order, after=after, timeout_ms=0)
            version = self._of(info, "staging")
            if version in (self.staged, self.version):
                return version
            self.drop() # a member is counted for what it staged last
            with self._calls:
                self._subscription.stage(version.uid, timeout_ms=0)
        except Error as error:
            if error.status not in (AGAIN, TIMEOUT, GATEWAY_AWAY):
                raise
            return None
        self._has_staged(version)
        return version

    def drop(self) -> None:
        """Gives up the version that is staged and not applied, so that its group may stage another."""
        if self.staged is not None:
            self._old.append(self.staged)
            self.staged = None
        self._release_old()

    def apply(self, timeout: float | None = None) -> ActivateInfo:
        """Puts the staged version into the tensors, together with the group's other members. Nobody may
        read the tensors meanwhile."""
        return self._apply(self._deadline(timeout))

    def newest(self, timeout: float = 1) -> int | None:
        """The number of the newest version that is whole at this site; None: none is in that time."""
        try:
            return self._wait(self._deadline(timeout), None, 0).number
        except Error as error:
            if error.status not in (TIMEOUT, GATEWAY_AWAY):
                raise
            return None

    def kinds(self, number: int, *, timeout: float | None = None) -> dict[str, _Kind] | None:
        """{name: (dtype, shape)} of that version, once it is whole at this site. Nothing is staged. None: the gateway
        is of the release before, and does not say it."""
        version = self._wait(self._deadline(timeout), number, 0)
        with self._calls:
            return self._session.tensors(version.uid)

    def is_renumbered(self, version: Version) -> bool:
        """The gateway has another version of that number, of a newer run. False where it is away."""
        try:
            with self._calls:
                info = self._session.wait(self.model, EXACT, number=version.number, timeout_ms=0)
        except Forked:
            raise
        except Error:
            return False
        return bool(info.run_order > version.run_order)

    def items(self, version: Version | None = None) -> Iterator[Item]:
        """Tensors and blobs of a version that is staged or active; None: the one that was staged last."""
        version = version or self.staged or self.version
        return iter(()) if version is None else self._subscription.items(version.uid)

    def cancel(self) -> None:
        """Ends a call that waits in another thread."""
        self._session.cancel()

    # ---- one version behind another ----

    def _next(self, deadline: Deadline) -> Version:
        while True:
            version = self._wait(deadline, None, 0)
            try:
                self._stage(version, deadline)
                self._apply(deadline)
                return version
            except Error as error:
                away = error.status == GATEWAY_AWAY and deadline.left() != 0 # of the switch, which does not wait for its return
                if not away and error.status not in _ASK_AGAIN:
                    raise
                self.staged = None
                self._session.wait_readable(0.02)

    def next(self, timeout: float | None = None) -> Version:
        """Stages and applies the newest version that is not yet here."""
        return self._next(self._deadline(timeout))

    def __iter__(self) -> Iterator[Version]:
        while True:
            yield self.next()

    async def __aiter__(self) -> AsyncIterator[Version]:
        while True:
            yield await in_thread(lambda stop: self._next(self._deadline(None, stop)))


def _fits(mine: _Kind, theirs: _Kind | None) -> bool:
    return theirs is not None and (mine[0].partition(":")[0], mine[1]) == theirs


def _said(name: str, mine: _Kind, theirs: _Kind | None) -> str:
    there = "none of that name" if theirs is None else f"{theirs[0]}{list(theirs[1])}"
    return f'tensor "{name}" is {mine[0]}{list(mine[1])} here, and the version has {there}'


def follow(model: str, into: Any = None, **options: Any) -> Follower:
    """A Follower: `for version in tombolo.follow("policy", into=module)`. options are those of Follower and
    Session."""
    return Follower(model, into, **options)
