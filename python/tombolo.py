"""Tombolo from Python: publish and follow the versions of a model's weights.

A thin ctypes layer over libtombolo (include/tombolo/tombolo.h is the manual): no build step, no
dependency. Memory is anything with the buffer protocol: bytearray, mmap, numpy arrays, torch CPU
tensors through .numpy(); or torch CUDA tensors as they are.

    import tombolo
    with tombolo.Session("unix:/run/tombolo/east.sock") as session:
        run = session.run_open("policy", "trainer-7")
        weights = session.register({"w": ("BF16", (1024, 1024), buffer)})
        session.publish("policy", run, number=1, registration=weights)

Each failure of the library is a tombolo.Error with .status (an int of status.h), .name ("timeout")
and the library's own sentence. Calls release the GIL while they block. KeyboardInterrupt ends wait,
wait_site and stage within a quarter of a second. Other calls return by themselves, in 30 seconds at
most, and KeyboardInterrupt is raised then. The library is found as TOMBOLO_LIBRARY, or by the usual
ways of the loader."""

import contextlib
import ctypes
import ctypes.util
import gc
import math
import os
import threading
import time
import weakref
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p, sizeof

WAIT_FOREVER = 0xFFFFFFFF
SHADOW, IN_PLACE = 0, 1
MINIMUM, EXACT, LATEST, NEXT = 0, 1, 2, 3
HOLDS, ACTIVATED = 0, 1
COPY, SWITCH, PATCH = 0, 1, 2  # how a version gets into the registered buffers
PROVE_ASKED, PROVE_ALWAYS, PROVE_NEVER = 0, 1, 2  # when what is computed from is compared with what was sealed

OK, AGAIN, DONE_BEFORE, TIMEOUT, CANCELLED, END = 0, 1, 2, 3, 4, 5
BAD_ARGUMENT, BAD_STATE = -501, -502
TOO_LARGE = -506
NOT_FOUND, GATEWAY_AWAY = -503, -310
_SLICE_MS = 250 # how long a call may keep KeyboardInterrupt waiting


class Error(Exception):
    """A call that did not do what was asked."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status
        self.name = _lib.tb_status_name(status).decode()


class Again(Error):
    """Not yet: call again after the session's eventfd became readable."""


class Uid(ctypes.Structure):
    """128 bits that name one version for ever."""

    _fields_ = [("bytes", c_uint8 * 16)]

    def __bytes__(self):
        return bytes(self.bytes)

    def __str__(self):
        return bytes(self).hex()

    def __repr__(self):
        return f"Uid({self})"

    def __eq__(self, other):
        return isinstance(other, Uid) and bytes(self) == bytes(other)

    def __hash__(self):
        return hash(bytes(self))

    @classmethod
    def parse(cls, text):
        raw = bytes.fromhex(text)
        if len(raw) != 16:
            raise ValueError(f"a uid has 32 hex digits, not {text!r}")
        return cls((c_uint8 * 16)(*raw))


class _Sized(ctypes.Structure):
    """The structs of tombolo.h begin with their size."""

    def __init__(self, **fields):
        super().__init__(struct_bytes=sizeof(type(self)), **fields)


class _SessionOptions(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("threads", c_uint32), ("gateway", c_char_p), ("name", c_char_p), ("host", c_char_p),
                ("rack", c_char_p), ("ca", c_char_p), ("cert", c_char_p), ("key", c_char_p), ("fabric_address", c_char_p),
                ("pace_bytes_per_s", c_uint64), ("spot", c_uint32), ("open_timeout_ms", c_uint32),
                ("no_verbs", c_uint32), ("protect", c_uint32), ("no_prepare", c_uint32),
                ("sign_cert", c_char_p), ("sign_key", c_char_p)]


class _TensorDesc(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("rank", c_uint32), ("shape", POINTER(c_uint64)), ("memory", c_void_p)]


class _SliceDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("rank", c_uint32), ("name", c_char_p), ("dtype", c_char_p), ("shape", POINTER(c_uint64)),
                ("first", POINTER(c_uint64)), ("count", POINTER(c_uint64)), ("memory", c_void_p), ("split_axis", c_uint32),
                ("split_count", c_uint32)]


class RunInfo(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("joined", c_uint32), ("run", Uid), ("run_order", c_uint64), ("last_number", c_uint64),
                ("has_last", c_uint32), ("resumed_run_order", c_uint64), ("resumed_number", c_uint64),
                ("shut_out_run_order", c_uint64), ("shut_out_number", c_uint64), ("shut_out_has_last", c_uint32), ("reserved", c_uint32)]


class _BlobDesc(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("bytes", c_void_p), ("count", c_uint64)]


class _PublishOptions(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("mode", c_uint32), ("model", c_char_p), ("run", POINTER(Uid)), ("number", c_uint64),
                ("shard_index", c_uint32), ("shard_count", c_uint32), ("registration", c_void_p), ("blobs", POINTER(_BlobDesc)),
                ("blob_count", c_uint32), ("codec", c_char_p), ("timeout_ms", c_uint32), ("retry", c_uint32)]


class PublishInfo(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("chunk_count", c_uint32), ("uid", Uid), ("bytes", c_uint64),
                ("encoded_bytes", c_uint64), ("hold_ns", c_uint64)]


class _SubscribeOptions(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("member_count", c_uint32), ("member_index", c_uint32), ("model", c_char_p),
                ("group", c_char_p), ("registration", c_void_p), ("update", c_uint32), ("second", c_void_p),
                ("stage_on_gpu", c_uint32), ("prove", c_uint32), ("home_ca", c_char_p)]


class _WaitOptions(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("kind", c_uint32), ("model", c_char_p), ("run_order", c_uint64), ("number", c_uint64),
                ("after", POINTER(Uid)), ("timeout_ms", c_uint32)]


class VersionInfo(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("shard_count", c_uint32), ("uid", Uid), ("run_order", c_uint64), ("number", c_uint64),
                ("bytes", c_uint64), ("whole_here", c_uint32)]


class ActivateInfo(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("buffer", c_uint32), ("stall_ns", c_uint64), ("copied_bytes", c_uint64),
                ("patched_bytes", c_uint64), ("staged_bytes", c_uint64), ("fetched_chunks", c_uint32), ("reserved", c_uint32)]


class _Item(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("is_blob", c_uint32), ("shard_index", c_uint32), ("rank", c_uint32), ("name", c_char_p),
                ("dtype", c_char_p), ("shape", POINTER(c_uint64)), ("bytes", c_void_p), ("count", c_uint64),
                ("dtype_bits", c_uint32)]


_BLOB_BYTES_MAX = 100 << 20 # of one

# name: arguments; all return int but those in _RETURNS.
_CALLS = {
    "tb_status_name": [c_int],
    "tb_last_error": [],
    "tb_library_version": [],
    "tb_session_open": [POINTER(_SessionOptions), POINTER(c_void_p)],
    "tb_session_close": [c_void_p],
    "tb_session_eventfd": [c_void_p],
    "tb_cancel": [c_void_p],
    "tb_status": [c_void_p, c_char_p, POINTER(c_char), c_uint64, POINTER(c_uint64)],
    "tb_buffer_new": [c_void_p, c_uint64, POINTER(c_void_p)],
    "tb_buffer_free": [c_void_p, c_void_p],
    "tb_register": [c_void_p, POINTER(_TensorDesc), c_uint32, POINTER(c_void_p)],
    "tb_register_slices": [c_void_p, POINTER(_SliceDesc), c_uint32, POINTER(c_void_p)],
    "tb_unregister": [c_void_p],
    "tb_suspend": [c_void_p],
    "tb_resume": [c_void_p, POINTER(c_void_p), c_uint32],
    "tb_run_open": [c_void_p, c_char_p, c_char_p, POINTER(RunInfo)],
    "tb_run_join": [c_void_p, c_char_p, c_char_p, POINTER(RunInfo)],
    "tb_publish_prepare": [c_void_p, POINTER(_PublishOptions)],
    "tb_publish": [c_void_p, POINTER(_PublishOptions), POINTER(PublishInfo)],
    "tb_unpublish": [c_void_p, POINTER(Uid), c_uint32],
    "tb_subscribe": [c_void_p, POINTER(_SubscribeOptions), POINTER(c_void_p)],
    "tb_unsubscribe": [c_void_p],
    "tb_wait": [c_void_p, POINTER(_WaitOptions), POINTER(VersionInfo)],
    "tb_wait_site": [c_void_p, POINTER(Uid), c_char_p, c_uint32, c_uint32],
    "tb_stage": [c_void_p, POINTER(Uid), c_uint32],
    "tb_activate": [c_void_p, POINTER(Uid), POINTER(ActivateInfo)],
    "tb_release": [c_void_p, POINTER(Uid)],
    "tb_staged_item": [c_void_p, POINTER(Uid), c_uint32, POINTER(_Item)],
}
_RETURNS = {"tb_status_name": c_char_p, "tb_last_error": c_char_p, "tb_library_version": c_char_p, "tb_session_close": None,
            "tb_cancel": None}


def _load():
    lib = ctypes.CDLL(os.environ.get("TOMBOLO_LIBRARY") or ctypes.util.find_library("tombolo") or "libtombolo.so.0")
    for name, arguments in _CALLS.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = _RETURNS.get(name, c_int)
    return lib


_lib = _load()


def library_version():
    return _lib.tb_library_version().decode()


def _check(status):
    if status == OK:
        return
    text = _lib.tb_last_error().decode(errors="replace")
    raise (Again if status == AGAIN else Error)(status, text)


def _text(value):
    return None if value is None else os.fspath(value).encode()


def _on_gpu(buffer):
    """A tensor that says where it stands, as torch's do: in a GPU, where no view of it can be made."""
    return bool(getattr(buffer, "is_cuda", False))


def _bytes_at(buffer):
    return buffer.numel() * buffer.element_size() if _on_gpu(buffer) else memoryview(buffer).nbytes


def _address(buffer, what):
    """Where a buffer's bytes stand, and the object that keeps them there: while it lives, a bytearray
    cannot be resized."""
    if _on_gpu(buffer):
        if not buffer.is_contiguous():
            raise ValueError(f"{what}: the memory has to be contiguous")
        return buffer.data_ptr() or None, buffer
    view = memoryview(buffer)
    if view.readonly or not view.c_contiguous:
        raise ValueError(f"{what}: the memory has to be writable and contiguous")
    if view.nbytes == 0:
        return None, view
    first = c_char.from_buffer(view.cast("B"))
    return ctypes.addressof(first), first


_BITS = {"U8": 8, "I8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6,
         "F6_E3M2": 6, "F4": 4, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64,
         "F64": 64, "C64": 64}
# As numpy, ml_dtypes and torch name them. Not float4_e2m1fn_x2: its shape counts pairs, and that of
# F4 counts elements.
_SPELLED = {"uint8": "U8", "int8": "I8", "bool": "BOOL", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32", "uint64": "U64",
            "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
            "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
            "float8_e8m0fnu": "F8_E8M0"}


def dtype_name(dtype):
    """A dtype of numpy, ml_dtypes or torch as safetensors and the library spell it ("torch.bfloat16" is
    "BF16"). Other text stays: "F4", or "NAME:BITS" for a dtype that the library does not know."""
    text = str(dtype)
    return _SPELLED.get(text.removeprefix("torch."), text)


def _bytes_of(dtype, shape):
    name, colon, bits = dtype.partition(":")
    if colon and not bits.isdecimal() or not colon and name not in _BITS:
        raise ValueError(f"dtype {dtype!r} is unknown: give the name and bits of an element as NAME:BITS")
    return ((int(bits) if colon else _BITS[name]) * math.prod(shape) + 7) // 8


class _Owned:
    """A part of a session, which ends with it: after that its handle is not shown to the library."""

    def __init__(self, session, handle):
        self._session = session # kept alive as long as this is
        self._own = handle

    @property
    def _handle(self):
        if self._own is None or self._session._handle is None:
            raise ValueError(f"this {type(self).__name__.lower()} has ended")
        return self._own


class Registration(_Owned):
    """Tensors registered once; their memory is kept alive until unregister() has returned."""

    def __init__(self, session, handle, keep):
        super().__init__(session, handle)
        self._keep = keep

    def unregister(self):
        if self._own is not None:
            _check(_lib.tb_unregister(self._handle))
            self._own = self._keep = None

    def suspend(self):
        _check(_lib.tb_suspend(self._handle))

    def resume(self, buffers=None):
        """buffers: where the tensors stand now, in the order of their registration; None: where they
        were."""
        if buffers is None:
            _check(_lib.tb_resume(self._handle, None, 0))
            return
        places = [_address(buffer, f"buffer {i}") for i, buffer in enumerate(buffers)]
        kept = self._keep
        if len(places) != len(kept):
            raise ValueError(f"{len(places)} buffers for {len(kept)} tensors")
        for i, (buffer, (_, size, *_)) in enumerate(zip(buffers, kept)):
            if _bytes_at(buffer) != size:
                raise ValueError(f"buffer {i}: {_bytes_at(buffer)} bytes of memory where there were {size}")
        status = _lib.tb_resume(self._handle, (c_void_p * len(places))(*(address for address, _ in places)), len(places))
        if status not in (BAD_ARGUMENT, BAD_STATE): # they stand there from now on, also where this failed
            self._keep = [(pinned, *rest) for (_, pinned), (_, *rest) in zip(places, kept)]
        _check(status)


class _Views:
    """Views into staged versions. They end before the memory does."""

    def __init__(self):
        self._rows = {} # of a uid: weak references to the views and to what stands for their memory

    def new(self, uid, address, count):
        memory = (c_char * count).from_address(address)
        view = memoryview(memory).toreadonly().cast("B")
        self._rows.setdefault(bytes(uid), []).append((weakref.ref(view), weakref.ref(memory)))
        return view

    def forget_dead(self, uid):
        """Of views that nobody has any more nothing is kept, however often items() is called."""
        self._rows[bytes(uid)] = [row for row in self._rows.get(bytes(uid), ()) if row[1]() is not None]

    def end(self, *uids):
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

    def __init__(self, raw, view):
        self.name = raw.name.decode()
        self.is_blob = bool(raw.is_blob)
        self.shard = raw.shard_index
        self.dtype = raw.dtype.decode() if raw.dtype else None
        self.dtype_bits = raw.dtype_bits # of one element; 0 of a blob
        self.shape = tuple(raw.shape[i] for i in range(raw.rank))
        self.bytes = view


class Subscription(_Owned):
    """A member of a reader group: stage, activate, release."""

    def __init__(self, session, handle, registration):
        super().__init__(session, handle)
        self._registration = registration
        self._views = _Views()
        session._views.append(self._views)

    def stage(self, uid, timeout_ms=WAIT_FOREVER):
        """Returns when the version is whole here. Raises Again if it still arrives after timeout_ms."""
        try:
            _check(self._session._wait(timeout_ms, lambda ms: _lib.tb_stage(self._handle, byref(uid), ms)))
        except Again:
            raise
        except Error:
            self._end_what_went(uid)
            raise

    def activate(self, uid):
        """The short switch. Raises Again until every member of the group has staged it. Gives its
        ActivateInfo."""
        info = ActivateInfo()
        _check(_lib.tb_activate(self._handle, byref(uid), byref(info)))
        return info

    def _end_what_went(self, uid):
        """A version that ended is not in staging any more."""
        if self._own is None or self._session._handle is None:
            return
        if _lib.tb_staged_item(self._own, byref(uid), 0, byref(_Item())) == NOT_FOUND:
            with contextlib.suppress(BufferError): # it has gone, whoever uses it
                self._views.end(uid)

    def release(self, uid):
        """Views of the version end. While an array or a slice of a view is still there, this raises
        BufferError, and the version stays."""
        handle = self._handle
        self._views.end(uid)
        _check(_lib.tb_release(handle, byref(uid)))

    def items(self, uid):
        """Gives an Item for each tensor and blob."""
        self._views.forget_dead(uid)
        index = 0
        while True:
            raw = _Item()
            status = _lib.tb_staged_item(self._handle, byref(uid), index, byref(raw))
            if status == END:
                return
            _check(status)
            empty = memoryview(b"") if not raw.count else None
            yield Item(raw, self._views.new(uid, raw.bytes, raw.count) if raw.bytes and raw.count else empty)
            index += 1

    def unsubscribe(self):
        """Views of all its versions end, as with release()."""
        if self._own is not None:
            handle = self._handle
            self._views.end()
            _check(_lib.tb_unsubscribe(handle))
            self._own = None


class Session:
    """One connection to the site's gateway. Options are those of struct tb_session_options."""

    def __init__(self, gateway, *, name=None, host=None, rack=None, ca=None, cert=None, key=None, fabric_address=None, threads=0,
                 pace_bytes_per_s=0, spot=False, open_timeout_ms=0, no_verbs=False,
                 protect=False, no_prepare=False, sign_cert=None, sign_key=None):
        options = _SessionOptions(gateway=_text(gateway), name=_text(name), host=_text(host), rack=_text(rack), ca=_text(ca),
                                  cert=_text(cert), key=_text(key), fabric_address=_text(fabric_address), threads=threads,
                                  pace_bytes_per_s=pace_bytes_per_s, spot=int(spot), open_timeout_ms=open_timeout_ms,
                                  no_verbs=int(no_verbs), protect=int(protect), no_prepare=int(no_prepare),
                                  sign_cert=_text(sign_cert), sign_key=_text(sign_key))
        self._handle = None
        self._views = []   # of its subscriptions
        self._buffers = [] # weak references
        self._cancels = 0
        handle = c_void_p()
        _check(_lib.tb_session_open(byref(options), byref(handle)))
        self._handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Views into staging end, as with release(), and so do those that buffer() gave."""
        if self._handle is None:
            return
        for views in self._views:
            views.end()
        _lib.tb_session_close(self._handle)
        self._handle = None
        for view in filter(None, (ref() for ref in self._buffers)):
            with contextlib.suppress(BufferError): # an array was made of it: its memory is gone all the same
                view.release()

    def _wait(self, timeout_ms, call):
        """call(ms) in slices, so that the main thread raises KeyboardInterrupt between two of them. Gives
        the last status."""
        if timeout_ms == 0 or threading.current_thread() is not threading.main_thread():
            return call(timeout_ms)
        cancels = self._cancels
        end = math.inf if timeout_ms == WAIT_FOREVER else time.monotonic() + timeout_ms / 1000
        while True:
            began = time.monotonic()
            status = call(max(1, int(min(_SLICE_MS, (end - began) * 1000))))
            now = time.monotonic()
            if status not in (AGAIN, TIMEOUT, GATEWAY_AWAY) or now >= end:
                return status
            if self._cancels != cancels:
                raise Error(CANCELLED, "Session.cancel() was called: cancelled")
            if now - began < _SLICE_MS / 2000: # it did not wait: nor does this loop run round and round
                time.sleep(min(_SLICE_MS / 1000, end - now))

    def fileno(self):
        """For select and asyncio: readable when something that was asked for may have changed."""
        return _lib.tb_session_eventfd(self._handle)

    def cancel(self):
        self._cancels += 1 # a wait may be between two slices
        _lib.tb_cancel(self._handle)

    def status(self, what="session"):
        """JSON text: "session" or "site"."""
        needed = c_uint64(1 << 16)
        while True:
            out = ctypes.create_string_buffer(needed.value)
            status = _lib.tb_status(self._handle, what.encode(), out, len(out), byref(needed))
            if status != TOO_LARGE:
                _check(status)
                return out.value.decode()

    def buffer(self, count):
        """Zeroed memory that readers of this host map: a memoryview. It ends with the session, and its
        memory is freed then: arrays of it must not be used any more."""
        memory = c_void_p()
        _check(_lib.tb_buffer_new(self._handle, count, byref(memory)))
        view = memoryview((c_char * count).from_address(memory.value)).cast("B")
        self._buffers.append(weakref.ref(view))
        return view

    def register(self, tensors):
        """tensors: {name: (dtype, shape, buffer)}, dtypes as dtype_name takes them."""
        descs = (_TensorDesc * len(tensors))()
        keep = []
        for desc, (name, (dtype, shape, buffer)) in zip(descs, tensors.items()):
            dtype = dtype_name(dtype)
            address, pinned = _address(buffer, name)
            if _bytes_at(buffer) != _bytes_of(dtype, shape):
                raise ValueError(f"{name}: {_bytes_at(buffer)} bytes of memory for {dtype}{list(shape)}")
            sizes = (c_uint64 * max(len(shape), 1))(*shape)
            desc.name, desc.dtype, desc.rank, desc.shape, desc.memory = name.encode(), dtype.encode(), len(shape), sizes, address
            keep.append((pinned, _bytes_at(buffer), sizes))
        handle = c_void_p()
        _check(_lib.tb_register(self._handle, descs, len(tensors), byref(handle)))
        return Registration(self, handle, keep)

    def register_slices(self, slices):
        """slices: a list of (name, dtype, shape of the whole tensor, first, count, buffer[, split axis,
        split count]). A name may be listed several times; a publisher lists no element twice."""
        descs = (_SliceDesc * len(slices))()
        keep = []
        for desc, (name, dtype, shape, first, count, buffer, *split) in zip(descs, slices):
            dtype = dtype_name(dtype)
            address, pinned = _address(buffer, name)
            if _bytes_at(buffer) != _bytes_of(dtype, count):
                raise ValueError(f"{name}: {_bytes_at(buffer)} bytes of memory for {dtype}{list(count)}")
            sizes = [(c_uint64 * max(len(axis), 1))(*axis) for axis in (shape, first, count)]
            desc.struct_bytes, desc.rank, desc.name, desc.dtype = sizeof(_SliceDesc), len(shape), name.encode(), dtype.encode()
            desc.shape, desc.first, desc.count = sizes
            desc.memory = address
            desc.split_axis, desc.split_count = split or (0, 0)
            keep.append((pinned, _bytes_at(buffer), sizes))
        handle = c_void_p()
        _check(_lib.tb_register_slices(self._handle, descs, len(slices), byref(handle)))
        return Registration(self, handle, keep)

    def run_open(self, model, key):
        info = RunInfo()
        _check(_lib.tb_run_open(self._handle, model.encode(), key.encode(), byref(info)))
        return info

    def run_join(self, model, key):
        """As run_open, but a key that is not known starts a run only where the model has none yet."""
        info = RunInfo()
        _check(_lib.tb_run_join(self._handle, model.encode(), key.encode(), byref(info)))
        return info

    def publish(self, model, run, number, *, registration=None, blobs=None, mode=SHADOW, shard=(0, 1), codec=None, timeout_ms=0,
                retry=False):
        """blobs: {relative path: bytes}. shard: (index, count). Gives its PublishInfo."""
        blobs = blobs or {}
        descs = (_BlobDesc * max(len(blobs), 1))()
        keep = []
        for desc, (name, content) in zip(descs, blobs.items()):
            content = bytes(memoryview(content)) # of an array all bytes, whatever its items
            keep.append(content)
            desc.name, desc.bytes, desc.count = name.encode(), ctypes.cast(c_char_p(content), c_void_p), len(content)
        uid = run.run if isinstance(run, RunInfo) else run
        options = _PublishOptions(mode=mode, model=model.encode(), run=ctypes.pointer(uid), number=number, shard_index=shard[0],
                                  shard_count=shard[1], registration=registration._handle if registration else None, blobs=descs,
                                  blob_count=len(blobs), codec=_text(codec), timeout_ms=timeout_ms, retry=int(retry))
        info = PublishInfo()
        _check(_lib.tb_publish(self._handle, byref(options), byref(info)))
        return info

    def prepare(self, model, registration, *, blob_bytes=0, mode=SHADOW, shard=0):
        """Makes the memory of the first publish ready, in background: call it behind register(). blob_bytes: those of its blobs."""
        sizes = [min(_BLOB_BYTES_MAX, blob_bytes - at) for at in range(0, blob_bytes, _BLOB_BYTES_MAX)]
        blobs = (_BlobDesc * max(len(sizes), 1))(*(_BlobDesc(count=size) for size in sizes))
        options = _PublishOptions(mode=mode, model=model.encode(), shard_index=shard, registration=registration._handle,
                                  blobs=blobs, blob_count=len(sizes))
        _check(_lib.tb_publish_prepare(self._handle, byref(options)))

    def unpublish(self, uid, drain_ms=10000):
        _check(_lib.tb_unpublish(self._handle, byref(uid), drain_ms))

    def subscribe(self, model, *, group=None, member=(0, 1), registration=None, update=COPY, second=None,
                  stage_on_gpu=False, prove=PROVE_ASKED, home_ca=None):
        """member: (index, count) in the group. second: for SWITCH, the same tensors elsewhere.
        stage_on_gpu: for COPY, versions are staged in the memory of the GPU that the registration's
        tensors stand on. home_ca: a file with the CA of the model's home; a version counts with
        its home's signature alone then, and no gateway is believed.
        prove: when the tensors that are computed from are compared with what was sealed.
        PROVE_ASKED: when an operator asks (`tombolo verify MODEL --live`). PROVE_ALWAYS: also in
        background behind each activation. PROVE_NEVER: the engine writes to the tensors itself, as
        one does that repacks weights; a worker that is asked says that it is not provable."""
        options = _SubscribeOptions(member_count=member[1], member_index=member[0], model=model.encode(), group=_text(group),
                                    registration=registration._handle if registration else None, update=update,
                                    second=second._handle if second else None, stage_on_gpu=int(stage_on_gpu),
                                    prove=prove, home_ca=_text(home_ca))
        handle = c_void_p()
        _check(_lib.tb_subscribe(self._handle, byref(options), byref(handle)))
        return Subscription(self, handle, (registration, second))

    def wait(self, model, kind=LATEST, *, number=0, run_order=0, after=None, timeout_ms=WAIT_FOREVER):
        """Gives the VersionInfo; with timeout_ms=0 raises Again when there is none yet.

        The version may be older than `after`: an operator withdrew that one, or pinned an older one at
        this site. stage and activate take it."""
        options = _WaitOptions(kind=kind, model=model.encode(), run_order=run_order, number=number,
                               after=ctypes.pointer(after) if after is not None else None, timeout_ms=timeout_ms)
        info = VersionInfo()

        def wait(ms):
            options.timeout_ms = ms
            return _lib.tb_wait(self._handle, byref(options), byref(info))
        _check(self._wait(timeout_ms, wait))
        return info

    def wait_site(self, uid, site=None, state=HOLDS, timeout_ms=WAIT_FOREVER):
        _check(self._wait(timeout_ms, lambda ms: _lib.tb_wait_site(self._handle, byref(uid), _text(site), state, ms)))
