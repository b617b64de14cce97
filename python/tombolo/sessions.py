"""Sessions, registrations and subscriptions: the calls of tombolo.h with the same names, without `tb_`.

Memory is kept alive as long as the library may touch it: until unregister() or close(), even if
nothing refers to the object any more. Sessions that are open when Python ends are closed then. A
handle that is used after its end raises ValueError, and in a child of fork() tombolo.Forked."""

import atexit
import contextlib
import ctypes
import errno
import functools
import gc
import itertools
import math
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_char, c_char_p, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any

from . import library as c
from .calls import Calls, Gate, T, beside, beside_or_undone, new_lock
from .library import AGAIN, BAD_ARGUMENT, BAD_STATE, CANCELLED, COPY, END, FORKED, GATEWAY_AWAY, HOLDS, LATEST, NOT_FOUND, OK, SHADOW
from .library import PROVE_ASKED, TIMEOUT, TOO_LARGE, WAIT_FOREVER, ActivateInfo, Again, Error, Forked, PublishInfo, RunInfo
from .library import Uid, VersionInfo
from .library import check, lib, text_of, unsigned
from .memory import Box, View, address_of, bytes_at, bytes_of, view_of

_SLICE_MS = 250 # how long a call may keep KeyboardInterrupt waiting
_BLOB_BYTES_MAX = 100 << 20 # of one
_living: set["Session"] = set() # that are open


@atexit.register
def _close_all() -> None:
    """Before Python frees the memory that others read."""
    for session in list(_living):
        try:
            session.close()
        except BaseException: # an array of a view is still there: the session and its memory stay until the process has ended
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


class _Owned:
    """A part of a session, which ends with it: after that its handle is not shown to the library."""

    def __init__(self, session: "Session", handle: c_void_p) -> None:
        self._session = session # kept alive as long as this is
        self._own: c_void_p | None = handle

    @property
    def _handle(self) -> c_void_p:
        if self._own is None or self._session._handle is None:
            raise ValueError(f"this {type(self).__name__.lower()} has ended")
        return self._own

    @property
    def _state(self) -> str:
        return "ended" if self._own is None or self._session._own is None else "open"


class Registration(_Owned):
    """Tensors registered once; their memory is kept alive until unregister() has returned."""

    def __init__(self, session: "Session", handle: c_void_p, key: int, count: int, read_only: str | None = None) -> None:
        super().__init__(session, handle)
        self._key, self._count = key, count
        self.read_only = read_only # the name of a tensor that nobody may write to

    def __repr__(self) -> str:
        return f"<tombolo.Registration of {self._count} tensors, {self._state}>"

    def unregister(self) -> None:
        def unregister() -> int: # all of it, also where the caller is interrupted
            status: int = lib.tb_unregister(self._handle)
            if status == OK:
                self._own = None
                self._session._kept.pop(self._key, None)
            return status
        if self._own is not None:
            self._session._ask(unregister)

    def suspend(self) -> None:
        self._session._ask(lambda: lib.tb_suspend(self._handle))

    def resume(self, buffers: Sequence[Any] | None = None) -> None:
        """buffers: where the tensors stand now, in the order of their registration; None: where they
        were."""
        if buffers is None:
            self._session._ask(lambda: lib.tb_resume(self._handle, None, 0))
            return
        _ = self._handle # raises where it has ended
        places = [address_of(buffer, f"buffer {i}") for i, buffer in enumerate(buffers)]
        kept = self._session._kept[self._key]
        if len(places) != len(kept):
            raise ValueError(f"{len(places)} buffers for {len(kept)} tensors")
        for i, (buffer, (_, size, *_)) in enumerate(zip(buffers, kept, strict=True)):
            if bytes_at(buffer) != size:
                raise ValueError(f"buffer {i}: {bytes_at(buffer)} bytes of memory where there were {size}")
        memories = (c_void_p * len(places))(*(address for address, _ in places))

        def resume() -> int:
            status: int = lib.tb_resume(self._handle, memories, len(places))
            if status not in (BAD_ARGUMENT, BAD_STATE): # they stand there from now on, also where this failed
                self._session._kept[self._key] = [(pinned, *rest) for (_, pinned), (_, *rest) in zip(places, kept, strict=True)]
            return status
        self._session._ask(resume)


class _Views:
    """Views into staged versions. They end before the memory does."""

    def __init__(self) -> None:
        self._rows: dict[bytes, list[tuple[weakref.ref[memoryview], weakref.ref[Any]]]] = {} # of a uid: weak references to the views and to what stands for their memory

    def new(self, uid: Uid, address: int, count: int) -> memoryview:
        memory = (c_char * count).from_address(address)
        view = memoryview(memory).toreadonly().cast("B")
        self._rows.setdefault(bytes(uid), []).append((weakref.ref(view), weakref.ref(memory)))
        return view

    def forget_dead(self, uid: Uid) -> None:
        """Of views that nobody has any more nothing is kept, however often items() is called."""
        self._rows[bytes(uid)] = [row for row in self._rows.get(bytes(uid), ()) if row[1]() is not None]

    def end(self, *uids: Uid) -> None:
        """Views of these versions (none named: of all) raise ValueError from now on. An array or a slice of
        a view cannot be ended: as long as there is one, this raises BufferError."""
        keys = [bytes(uid) for uid in uids] or list(self._rows)
        rows = [row for key in keys for row in self._rows.get(key, ())]
        for collect in (False, True):
            if collect:
                gc.collect() # an array in a cycle holds its memory until then
            for view in filter(None, (ref() for ref, _ in rows)):
                with contextlib.suppress(BufferError):
                    view.release()
            held = sum(memory() is not None for _, memory in rows)
            if not held:
                break
        if held:
            raise BufferError(f"arrays or slices still use the bytes of {held} tensors or blobs in staging: delete or copy them first")
        for key in keys:
            self._rows.pop(key, None)


class Item:
    """A tensor or blob of a staged version. `bytes` is a read-only view into staging; None for a tensor
    that staging does not keep whole. The view ends with release(): it then raises ValueError."""

    def __init__(self, raw: c.RawItem, view: memoryview | None) -> None:
        self.name: str = raw.name.decode()
        self.is_blob = bool(raw.is_blob)
        self.shard: int = raw.shard_index
        self.dtype: str | None = raw.dtype.decode() if raw.dtype else None
        self.dtype_bits: int = raw.dtype_bits # of one element; 0 of a blob
        self.shape: tuple[int, ...] = tuple(raw.shape[i] for i in range(raw.rank))
        self.bytes = view


class Subscription(_Owned):
    """A member of a reader group: stage, activate, release."""

    def __init__(self, session: "Session", handle: c_void_p, model: str, registration: tuple[Registration | None, ...]) -> None:
        super().__init__(session, handle)
        self.model, self._registration = model, registration
        self._views = _Views()
        session._views.append(self._views)

    def __repr__(self) -> str:
        return f"<tombolo.Subscription {self.model}, {self._state}>"

    def stage(self, uid: Uid, timeout_ms: int = WAIT_FOREVER) -> None:
        """Returns when the version is whole here. Raises Again if it still arrives after timeout_ms."""
        try:
            check(self._session._wait(timeout_ms, lambda ms: lib.tb_stage(self._handle, byref(uid), ms)))
        except Again:
            raise
        except Error:
            self._end_what_went(uid)
            raise

    def activate(self, uid: Uid) -> ActivateInfo:
        """The short switch. Raises Again until every member of the group has staged it. Gives its
        ActivateInfo."""
        info = ActivateInfo()
        check(self._session._run(lambda: lib.tb_activate(self._handle, byref(uid), byref(info))))
        return info

    def _end_what_went(self, uid: Uid) -> None:
        """A version that ended is not in staging any more."""
        if self._own is None or self._session._handle is None:
            return
        if self._session._run(lambda: lib.tb_staged_item(self._handle, byref(uid), 0, byref(c.RawItem()))) == NOT_FOUND:
            with contextlib.suppress(BufferError): # it has gone, although something uses it
                self._views.end(uid)

    def release(self, uid: Uid) -> None:
        """Views of the version end. While an array or a slice of a view is still there, this raises
        BufferError, and the version stays."""
        _ = self._handle # raises where it has ended
        self._views.end(uid)
        self._session._ask(lambda: lib.tb_release(self._handle, byref(uid)))

    def items(self, uid: Uid) -> Iterator[Item]:
        """Gives an Item for each tensor and blob."""
        self._views.forget_dead(uid)
        index = 0
        while True:
            raw = c.RawItem()
            status = self._session._run(functools.partial(self._item, uid, index, raw))
            if status == END:
                return
            check(status)
            empty = memoryview(b"") if not raw.count else None
            yield Item(raw, self._views.new(uid, raw.bytes, raw.count) if raw.bytes and raw.count else empty)
            index += 1

    def _item(self, uid: Uid, index: int, raw: c.RawItem) -> int:
        status: int = lib.tb_staged_item(self._handle, byref(uid), index, byref(raw))
        return status

    def unsubscribe(self) -> None:
        """Views of all its versions end, as with release()."""
        def unsubscribe() -> int: # all of it, also where the caller is interrupted
            status: int = lib.tb_unsubscribe(self._handle)
            if status == OK:
                self._own = None
            return status
        if self._own is not None:
            self._views.end()
            self._session._ask(unsubscribe)


def _open(options: c.SessionOptions, gateway: str) -> c_void_p:
    """Interrupted, it leaves no session behind."""
    handle: c_void_p = beside_or_undone(lambda: _connect(options, gateway), lib.tb_session_close, lambda _: None)
    return handle


def _connect(options: c.SessionOptions, gateway: str) -> c_void_p:
    """Where nothing listens the library waits for a gateway that starts (10 s), and this raises at once. A
    caller that wants to wait gives open_timeout_ms."""
    handle = c_void_p()
    if options.open_timeout_ms != 0:
        check(lib.tb_session_open(byref(options), byref(handle)))
        return handle
    options.open_timeout_ms = _SLICE_MS
    status = lib.tb_session_open(byref(options), byref(handle)) if _nobody_at(gateway, False) is None else GATEWAY_AWAY
    if status == GATEWAY_AWAY:
        why = _nobody_at(gateway, True)
        if why is not None:
            raise Error(GATEWAY_AWAY, f"no gateway listens at {gateway} ({why}): start one (tombolod --config FILE), or name "
                        "another by TOMBOLO_GATEWAY or gateway=. open_timeout_ms= waits for one that starts")
        options.open_timeout_ms = 0
        status = lib.tb_session_open(byref(options), byref(handle))
    check(status)
    return handle


def _nobody_at(gateway: str, connect: bool) -> str | None:
    """Why nobody can be reached there; None: somebody may. A gateway notes connections that say nothing,
    so this connects only where it did not answer."""
    import socket

    unix = gateway.startswith("unix:")
    try:
        if unix and not connect:
            os.stat(gateway.removeprefix("unix:"))
        elif unix:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(1)
                probe.connect(gateway.removeprefix("unix:"))
        elif connect:
            host, _, port = gateway.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except ValueError: # the library says it better, and so with other errors
        return None
    except OSError as error:
        return error.strerror if error.errno in (errno.ENOENT, errno.ECONNREFUSED) else None
    return None


def _sizes(axes: Sequence[int]) -> Any:
    return (c_uint64 * max(len(axes), 1))(*axes)


class Session:
    """One connection to the site's gateway. Options are those of struct tb_session_options."""

    def __init__(self, gateway: str, *, name: str | None = None, host: str | None = None, rack: str | None = None,
                 ca: str | os.PathLike[str] | None = None, cert: str | os.PathLike[str] | None = None,
                 key: str | os.PathLike[str] | None = None, fabric_address: str | None = None, threads: int = 0,
                 pace_bytes_per_s: int = 0, spot: bool = False, open_timeout_ms: int = 0, no_verbs: bool = False,
                 protect: bool = False, no_prepare: bool = False, sign_cert: str | os.PathLike[str] | None = None,
                 sign_key: str | os.PathLike[str] | None = None) -> None:
        options = c.SessionOptions(gateway=text_of(gateway), name=text_of(name), host=text_of(host), rack=text_of(rack), ca=text_of(ca),
                                  cert=text_of(cert), key=text_of(key), fabric_address=text_of(fabric_address), threads=threads,
                                  pace_bytes_per_s=pace_bytes_per_s, spot=int(spot), open_timeout_ms=open_timeout_ms,
                                  no_verbs=int(no_verbs), protect=int(protect), no_prepare=int(no_prepare),
                                  sign_cert=text_of(sign_cert), sign_key=text_of(sign_key))
        self.gateway = gateway
        self._pid = os.getpid()
        self._own: c_void_p | None = None
        self._views: list[_Views] = [] # of its subscriptions
        self._buffers: list[weakref.ref[memoryview]] = []
        self._kept: dict[int, list[tuple[Any, ...]]] = {} # of registrations: what their memory needs
        self._keys = itertools.count() # not the handles: another registration may get the address of one that ended
        self._calls, self._end = Calls(), new_lock()
        self._ending: c_void_p | None = None # what close() has to free
        self._is_late = False # close() came within a call of its own thread, from a signal's handler
        self.cancels = 0 # how often
        self._own = _open(options, gateway)
        _living.add(self)

    @property
    def _handle(self) -> c_void_p | None:
        if self._own is not None and os.getpid() != self._pid:
            raise Forked(FORKED, f"this session belongs to process {self._pid}, and this is its child {os.getpid()}: open a session "
                         "after fork, or start workers by spawn")
        return self._own

    def __repr__(self) -> str:
        return f"<tombolo.Session at {self.gateway}, {'closed' if self._own is None else 'open'}>"

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Views into staging end, as with release(), and so do those that buffer() gave. A call of another thread ends
        as by cancel(). From a signal's handler within a call, the session ends behind that call."""
        if os.getpid() != self._pid: # the parent's: it goes on there
            self._own = None
            return
        self._is_late = self._calls.in_this_thread()
        if self._is_late: # _run() comes back
            return
        with self._end: # a second thread returns behind the first one
            if self._own is not None:
                for views in self._views:
                    views.end()
                self._ending, self._own = self._own, None # no call begins from now on. An interrupt leaves it to the next close()
            if self._ending is not None:
                self._free()

    def _free(self) -> None:
        self._calls.wait(lambda: lib.tb_cancel(self._ending))
        free = lib.tb_session_close
        handle, self._ending = self._ending, None # nothing comes between this and the call: it is freed once
        if handle is None:
            return
        free(handle)
        self._kept.clear()
        _living.discard(self)
        for view in filter(None, (ref() for ref in self._buffers)):
            with contextlib.suppress(BufferError): # an array was made of it: its memory is gone all the same
                view.release()

    def _run(self, call: Callable[[], T]) -> T:
        """call() reads handles and gives them to the library: close() frees them behind it, or it finds none."""
        try:
            return self._calls.run(call)
        finally:
            if self._is_late:
                self.close()

    def _wait(self, timeout_ms: int, call: Callable[[int], int]) -> int:
        """call(ms) in slices, so that the main thread raises KeyboardInterrupt between two of them. Gives
        the last status."""
        timeout_ms = unsigned("timeout_ms", timeout_ms, c_uint32)
        if timeout_ms == 0 or threading.current_thread() is not threading.main_thread():
            return self._run(lambda: call(timeout_ms))
        cancels = self.cancels
        end = math.inf if timeout_ms == WAIT_FOREVER else time.monotonic() + timeout_ms / 1000
        while True:
            began = time.monotonic()
            status = self._run(functools.partial(call, max(1, int(min(_SLICE_MS, (end - began) * 1000)))))
            now = time.monotonic()
            if status not in (AGAIN, TIMEOUT, GATEWAY_AWAY) or now >= end:
                return status
            if self.cancels != cancels:
                raise Error(CANCELLED, "Session.cancel() was called: cancelled")
            if now - began < _SLICE_MS / 2000: # it did not wait: nor does this loop run round and round
                time.sleep(min(_SLICE_MS / 1000, end - now))

    def _ask(self, call: Callable[[], int]) -> None:
        """check(call()), for a call that the gateway may keep waiting. An interrupt cancels it, and waits for its end."""
        beside(lambda: self._check(call), self._cancel_until)

    def _check(self, call: Callable[[], int]) -> None:
        self._run(lambda: check(call())) # of one thread is the sentence of its failed call

    def _cancel_until(self, ended: Gate) -> None:
        while not ended.is_set(): # it may not have begun
            self.cancel()
            ended.wait(0.05)

    def fileno(self) -> int:
        """For select and asyncio: readable when something that was asked for may have changed."""
        descriptor: int = self._run(lambda: lib.tb_session_eventfd(self._handle))
        return descriptor

    def wait_readable(self, seconds: float) -> bool:
        """Not by select, which knows no descriptor over 1023."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def cancel(self) -> None:
        self.cancels += 1 # a wait may be between two slices
        self._run(lambda: lib.tb_cancel(self._handle))

    def status(self, what: str = "session") -> str:
        """JSON text: "session", "site", or "tensors UID" of a version."""
        # A second request for a larger buffer would cost the gateway a second answer.
        needed = c_uint64(1 << 22 if what.startswith("tensors ") else 1 << 16)
        while True:
            out = ctypes.create_string_buffer(needed.value)
            try:
                self._tell(what, out, needed)
                return out.value.decode()
            except Error as error:
                if error.status != TOO_LARGE:
                    raise

    def _tell(self, what: str, out: Any, needed: c_uint64) -> None:
        self._ask(lambda: lib.tb_status(self._handle, what.encode(), out, len(out), byref(needed)))

    def tensors(self, uid: Uid) -> dict[str, tuple[str, tuple[int, ...]]] | None:
        """{name: (dtype without bits, shape)} of a version that the site holds or gets. None: the gateway does not say it."""
        import json # here: an import of tombolo does not need it

        rows = json.loads(self.status(f"tensors {uid}")).get("tensors")
        return None if rows is None else {name: (dtype, tuple(shape)) for name, dtype, shape in rows}

    def buffer(self, count: int) -> memoryview:
        """Zeroed memory that readers of this host map: a memoryview. It ends with the session, and its
        memory is freed then: arrays of it must not be used any more."""
        memory = c_void_p()
        self._check(lambda: lib.tb_buffer_new(self._handle, unsigned("count", count), byref(memory)))
        view = memoryview((c_char * count).from_address(memory.value or 0)).cast("B")
        self._buffers.append(weakref.ref(view))
        return view

    def register(self, tensors: Mapping[str, Any], *, gather: bool = False, writable: bool = False) -> Registration:
        """tensors: {name: tensor}, each as view_of takes it: of torch or numpy, with DLPack or the buffer
        protocol, or a tuple (dtype, shape, buffer)."""
        return self.register_views({name: view_of(name, tensor, gather=gather, writable=writable) for name, tensor in tensors.items()})

    def register_views(self, views: Mapping[str, View]) -> Registration:
        descs = (c.TensorDesc * len(views))()
        keep: list[tuple[Any, ...]] = []
        for desc, (name, view) in zip(descs, views.items(), strict=True):
            sizes = _sizes(view.shape)
            desc.name, desc.dtype, desc.rank, desc.shape = name.encode(), view.dtype.encode(), len(view.shape), sizes
            desc.memory = view.address
            keep.append((view.keep, view.nbytes, sizes))
        return self._registered(lib.tb_register, descs, keep, next((name for name, view in views.items() if view.read_only), None))

    def _registered(self, register: Callable[..., int], descs: Any, keep: list[tuple[Any, ...]], read_only: str | None) -> Registration:
        handle, key = c_void_p(), next(self._keys)
        self._kept[key] = keep # first: an interrupt may come as soon as the library has it
        try:
            self._check(lambda: register(self._handle, descs, len(descs), byref(handle)))
        except Error:
            self._kept.pop(key, None)
            raise
        return Registration(self, handle, key, len(keep), read_only)

    def register_slices(self, slices: Sequence[tuple[Any, ...]]) -> Registration:
        """slices: a list of (name, dtype, shape of the whole tensor, first, count, buffer[, split axis,
        split count]). A name may be listed several times; a publisher lists no element twice."""
        return self.register_boxes([Box(name, tuple(shape), tuple(first), tuple(count), (dtype, count, buffer), *split)
                                    for name, dtype, shape, first, count, buffer, *split in slices])

    def register_boxes(self, boxes: Sequence[Box], views: Sequence[View] | None = None) -> Registration:
        """views: where the boxes stand, if the caller knows it."""
        views = [view_of(box.name, box.tensor) for box in boxes] if views is None else views
        descs = (c.SliceDesc * len(boxes))()
        keep: list[tuple[Any, ...]] = []
        for desc, box, view in zip(descs, boxes, views, strict=True):
            if view.nbytes != bytes_of(view.dtype, box.count):
                raise ValueError(f"{box.name}: {view.nbytes} bytes of memory for {view.dtype}{list(box.count)}")
            sizes = [_sizes(axis) for axis in (box.shape, box.first, box.count)]
            desc.struct_bytes, desc.rank = sizeof(c.SliceDesc), len(box.shape)
            desc.name, desc.dtype = box.name.encode(), view.dtype.encode()
            desc.shape, desc.first, desc.count = sizes
            desc.memory = view.address
            desc.split_axis, desc.split_count = box.split_axis, box.split_count
            keep.append((view.keep, view.nbytes, sizes))
        return self._registered(lib.tb_register_slices, descs, keep, next((box.name for box, view in zip(boxes, views, strict=True) if view.read_only), None))

    def run_open(self, model: str, key: str) -> RunInfo:
        info = RunInfo()
        self._ask(lambda: lib.tb_run_open(self._handle, model.encode(), key.encode(), byref(info)))
        return info

    def run_join(self, model: str, key: str) -> RunInfo:
        """As run_open, but a key that is not known starts a run only where the model has none yet."""
        info = RunInfo()
        self._ask(lambda: lib.tb_run_join(self._handle, model.encode(), key.encode(), byref(info)))
        return info

    def publish(self, model: str, run: RunInfo | Uid, number: int, *, registration: Registration | None = None,
                blobs: Mapping[str, Any] | None = None, mode: int = SHADOW, shard: tuple[int, int] = (0, 1), codec: str | None = None,
                timeout_ms: int = 0, retry: bool = False) -> PublishInfo:
        """blobs: {relative path: bytes}. shard: (index, count). Gives its PublishInfo."""
        blobs = blobs or {}
        descs = (c.BlobDesc * max(len(blobs), 1))()
        keep: list[bytes] = []
        for desc, (name, content) in zip(descs, blobs.items()):
            content = bytes(memoryview(content)) # of an array all bytes, whatever its items
            keep.append(content)
            desc.name, desc.bytes, desc.count = name.encode(), ctypes.cast(c_char_p(content), c_void_p), len(content)
        uid = run.run if isinstance(run, RunInfo) else run
        options = c.PublishOptions(mode=mode, model=model.encode(), run=ctypes.pointer(uid), number=number, shard_index=shard[0],
                                  shard_count=shard[1], registration=registration._handle if registration else None, blobs=descs,
                                  blob_count=len(blobs), codec=text_of(codec), timeout_ms=timeout_ms, retry=int(retry))
        info = PublishInfo()
        self._ask(lambda: lib.tb_publish(self._handle, byref(options), byref(info)))
        return info

    def prepare(self, model: str, registration: Registration, *, blob_bytes: int = 0, mode: int = SHADOW, shard: int = 0) -> None:
        """Makes the memory of the first publish ready, in background: call it behind register(). blob_bytes: those of its blobs."""
        sizes = [min(_BLOB_BYTES_MAX, blob_bytes - at) for at in range(0, blob_bytes, _BLOB_BYTES_MAX)]
        blobs = (c.BlobDesc * max(len(sizes), 1))(*(c.BlobDesc(count=size) for size in sizes))
        options = c.PublishOptions(mode=mode, model=model.encode(), shard_index=shard, registration=registration._handle,
                                  blobs=blobs, blob_count=len(sizes))
        self._check(lambda: lib.tb_publish_prepare(self._handle, byref(options)))

    def unpublish(self, uid: Uid, drain_ms: int = 10000) -> None:
        drain_ms = unsigned("drain_ms", drain_ms, c_uint32)
        self._ask(lambda: lib.tb_unpublish(self._handle, byref(uid), drain_ms))

    def subscribe(self, model: str, *, group: str | None = None, member: tuple[int, int] = (0, 1),
                  registration: Registration | None = None, update: int = COPY, second: Registration | None = None,
                  stage_on_gpu: bool = False, prove: int = PROVE_ASKED,
                  home_ca: str | os.PathLike[str] | None = None) -> Subscription:
        """member: (index, count) in the group. second: for SWITCH, the same tensors elsewhere.
        stage_on_gpu: for COPY, versions are staged in the memory of the GPU that the registration's
        tensors stand on. home_ca: a file with the CA of the model's home; a version counts with its
        home's signature alone then, and no gateway is believed.
        prove: when the tensors that are computed from are compared with what was sealed.
        PROVE_ASKED: when an operator asks (`tombolo verify MODEL --live`). PROVE_ALWAYS: also in
        background behind each activation. PROVE_NEVER: the engine writes to the tensors itself, as
        one does that repacks weights; a worker that is asked says that it is not provable."""
        for read_only in (given.read_only for given in (registration, second) if given is not None):
            if read_only is not None:
                raise ValueError(f"{read_only}: the memory is read-only, and versions would be written there")
        options = c.SubscribeOptions(member_count=member[1], member_index=member[0], model=model.encode(), group=text_of(group),
                                    registration=registration._handle if registration else None, update=update,
                                    second=second._handle if second else None, stage_on_gpu=int(stage_on_gpu),
                                    prove=prove, home_ca=text_of(home_ca))
        handle = c_void_p()

        def leave(_: None) -> None: # the member that the caller never gets
            self._run(lambda: lib.tb_unsubscribe(handle) if self._own is not None else OK)
        beside_or_undone(lambda: self._check(lambda: lib.tb_subscribe(self._handle, byref(options), byref(handle))), leave, self._cancel_until)
        return Subscription(self, handle, model, (registration, second))

    def wait(self, model: str, kind: int = LATEST, *, number: int = 0, run_order: int = 0, after: Uid | None = None,
             timeout_ms: int = WAIT_FOREVER) -> VersionInfo:
        """Gives the VersionInfo; with timeout_ms=0 raises Again when there is none yet.

        The version may be older than `after`: an operator withdrew that one, or pinned an older one at
        this site. stage and activate take it."""
        options = c.WaitOptions(kind=kind, model=model.encode(), run_order=run_order, number=number,
                               after=ctypes.pointer(after) if after is not None else None, timeout_ms=timeout_ms)
        info = VersionInfo()

        def wait(ms: int) -> int:
            options.timeout_ms = ms
            status: int = lib.tb_wait(self._handle, byref(options), byref(info))
            return status
        check(self._wait(timeout_ms, wait))
        return info

    def wait_site(self, uid: Uid, site: str | None = None, state: int = HOLDS, timeout_ms: int = WAIT_FOREVER) -> None:
        check(self._wait(timeout_ms, lambda ms: lib.tb_wait_site(self._handle, byref(uid), text_of(site), state, ms)))
