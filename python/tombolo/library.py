"""The functions and structs of include/tombolo/tombolo.h by ctypes, and how the library is found.

`lib` loads the library at its first use: TOMBOLO_LIBRARY, then the one that the wheel has, then the
usual ways of the loader. A call of `lib` releases the GIL."""

import ctypes
import operator
import os
from collections.abc import Collection
from ctypes import POINTER, c_char, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any

WAIT_FOREVER = 0xFFFFFFFF
SHADOW, IN_PLACE = 0, 1
MINIMUM, EXACT, LATEST, NEXT = 0, 1, 2, 3
HOLDS, ACTIVATED = 0, 1
COPY, SWITCH, PATCH = 0, 1, 2 # how a version gets into the registered buffers
PROVE_ASKED, PROVE_ALWAYS, PROVE_NEVER = 0, 1, 2 # when what is computed from is compared with what was sealed

OK, AGAIN, DONE_BEFORE, TIMEOUT, CANCELLED, END = 0, 1, 2, 3, 4, 5
BAD_ARGUMENT, BAD_STATE = -501, -502
TOO_LARGE = -506
NOT_FOUND, GATEWAY_AWAY = -503, -310
FORKED, LAYOUT_MISMATCH = -509, -511
GROUP_BROKEN, CONFLICT = -605, -505
GONE = (-601, -602, -603, -604, -510) # superseded, lost, broken, withdrawn, pin lost: ask for another version

NATIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native") # of a wheel: the library and the programs


class Error(Exception):
    """A call that did not do what was asked: `status` is a number of status.h, `name` its name."""

    def __init__(self, status: int, text: str, name: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.name: str = name or lib.tb_status_name(status).decode()

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process, as of Ray or multiprocessing, which may have no library."""
        return type(self), (self.status, str(self), self.name)


class Again(Error):
    """Not yet: call again after the session's eventfd became readable."""


class Forked(Error):
    """The session belongs to the parent of this process."""


class LibraryMissing(ImportError):
    """libtombolo is not here, or cannot be loaded."""


class Uid(ctypes.Structure):
    """128 bits that name one version for ever."""

    _fields_ = [("bytes", c_uint8 * 16)]

    def __bytes__(self) -> bytes:
        return bytes(self.bytes)

    def __str__(self) -> str:
        return bytes(self).hex()

    def __repr__(self) -> str:
        return f"Uid({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uid) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))

    @classmethod
    def parse(cls, text: str) -> "Uid":
        raw = bytes.fromhex(text)
        if len(raw) != 16:
            raise ValueError(f"a uid has 32 hex digits, not {text!r}")
        return cls((c_uint8 * 16)(*raw))


def unsigned(what: str, value: Any, kind: Any = c_uint64) -> int:
    """A number that fits: of one that does not, ctypes takes other bits without a word."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {value!r}") from None
    most = (1 << 8 * sizeof(kind)) - 1
    if not 0 <= number <= most:
        raise ValueError(f"{what} is a number from 0 to {most}, not {number}")
    return number


def one_of(what: str, value: str, among: Collection[str]) -> str:
    if value not in among:
        raise ValueError(f"{what} is one of {', '.join(among)}, not {value!r}")
    return value


class Sized(ctypes.Structure):
    """The structs of tombolo.h begin with their size."""

    def __init__(self, **fields: Any) -> None:
        for name, kind, *_ in self._fields_:
            if name in fields and kind in (c_uint32, c_uint64):
                fields[name] = unsigned(name, fields[name], kind)
        super().__init__(struct_bytes=sizeof(type(self)), **fields)

    def __repr__(self) -> str:
        names = [name for name, *_ in self._fields_ if name not in ("struct_bytes", "reserved")]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class SessionOptions(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("threads", c_uint32), ("gateway", c_char_p), ("name", c_char_p), ("host", c_char_p),
                ("rack", c_char_p), ("ca", c_char_p), ("cert", c_char_p), ("key", c_char_p), ("fabric_address", c_char_p),
                ("pace_bytes_per_s", c_uint64), ("spot", c_uint32), ("open_timeout_ms", c_uint32),
                ("no_verbs", c_uint32), ("protect", c_uint32), ("no_prepare", c_uint32),
                ("sign_cert", c_char_p), ("sign_key", c_char_p)]


class TensorDesc(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("rank", c_uint32), ("shape", POINTER(c_uint64)), ("memory", c_void_p)]


class SliceDesc(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("rank", c_uint32), ("name", c_char_p), ("dtype", c_char_p), ("shape", POINTER(c_uint64)),
                ("first", POINTER(c_uint64)), ("count", POINTER(c_uint64)), ("memory", c_void_p), ("split_axis", c_uint32),
                ("split_count", c_uint32)]


class RunInfo(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("joined", c_uint32), ("run", Uid), ("run_order", c_uint64), ("last_number", c_uint64),
                ("has_last", c_uint32), ("resumed_run_order", c_uint64), ("resumed_number", c_uint64),
                ("shut_out_run_order", c_uint64), ("shut_out_number", c_uint64), ("shut_out_has_last", c_uint32), ("reserved", c_uint32)]


class BlobDesc(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("bytes", c_void_p), ("count", c_uint64)]


class PublishOptions(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("mode", c_uint32), ("model", c_char_p), ("run", POINTER(Uid)), ("number", c_uint64),
                ("shard_index", c_uint32), ("shard_count", c_uint32), ("registration", c_void_p), ("blobs", POINTER(BlobDesc)),
                ("blob_count", c_uint32), ("codec", c_char_p), ("timeout_ms", c_uint32), ("retry", c_uint32)]


class PublishInfo(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("chunk_count", c_uint32), ("uid", Uid), ("bytes", c_uint64),
                ("encoded_bytes", c_uint64), ("hold_ns", c_uint64)]


class SubscribeOptions(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("member_count", c_uint32), ("member_index", c_uint32), ("model", c_char_p),
                ("group", c_char_p), ("registration", c_void_p), ("update", c_uint32), ("second", c_void_p),
                ("stage_on_gpu", c_uint32), ("prove", c_uint32), ("home_ca", c_char_p)]


class WaitOptions(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("kind", c_uint32), ("model", c_char_p), ("run_order", c_uint64), ("number", c_uint64),
                ("after", POINTER(Uid)), ("timeout_ms", c_uint32)]


class VersionInfo(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("shard_count", c_uint32), ("uid", Uid), ("run_order", c_uint64), ("number", c_uint64),
                ("bytes", c_uint64), ("whole_here", c_uint32)]


class ActivateInfo(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("buffer", c_uint32), ("stall_ns", c_uint64), ("copied_bytes", c_uint64),
                ("patched_bytes", c_uint64), ("staged_bytes", c_uint64), ("fetched_chunks", c_uint32), ("reserved", c_uint32)]


class RawItem(Sized):
    _fields_ = [("struct_bytes", c_uint32), ("is_blob", c_uint32), ("shard_index", c_uint32), ("rank", c_uint32), ("name", c_char_p),
                ("dtype", c_char_p), ("shape", POINTER(c_uint64)), ("bytes", c_void_p), ("count", c_uint64),
                ("dtype_bits", c_uint32)]


# name: arguments; all return int but those in _RETURNS.
_CALLS: dict[str, list[Any]] = {
    "tb_status_name": [c_int],
    "tb_last_error": [],
    "tb_library_version": [],
    "tb_session_open": [POINTER(SessionOptions), POINTER(c_void_p)],
    "tb_session_close": [c_void_p],
    "tb_session_eventfd": [c_void_p],
    "tb_cancel": [c_void_p],
    "tb_status": [c_void_p, c_char_p, POINTER(c_char), c_uint64, POINTER(c_uint64)],
    "tb_buffer_new": [c_void_p, c_uint64, POINTER(c_void_p)],
    "tb_buffer_free": [c_void_p, c_void_p],
    "tb_register": [c_void_p, POINTER(TensorDesc), c_uint32, POINTER(c_void_p)],
    "tb_register_slices": [c_void_p, POINTER(SliceDesc), c_uint32, POINTER(c_void_p)],
    "tb_unregister": [c_void_p],
    "tb_suspend": [c_void_p],
    "tb_resume": [c_void_p, POINTER(c_void_p), c_uint32],
    "tb_run_open": [c_void_p, c_char_p, c_char_p, POINTER(RunInfo)],
    "tb_run_join": [c_void_p, c_char_p, c_char_p, POINTER(RunInfo)],
    "tb_publish_prepare": [c_void_p, POINTER(PublishOptions)],
    "tb_publish": [c_void_p, POINTER(PublishOptions), POINTER(PublishInfo)],
    "tb_unpublish": [c_void_p, POINTER(Uid), c_uint32],
    "tb_subscribe": [c_void_p, POINTER(SubscribeOptions), POINTER(c_void_p)],
    "tb_unsubscribe": [c_void_p],
    "tb_wait": [c_void_p, POINTER(WaitOptions), POINTER(VersionInfo)],
    "tb_wait_site": [c_void_p, POINTER(Uid), c_char_p, c_uint32, c_uint32],
    "tb_stage": [c_void_p, POINTER(Uid), c_uint32],
    "tb_activate": [c_void_p, POINTER(Uid), POINTER(ActivateInfo)],
    "tb_release": [c_void_p, POINTER(Uid)],
    "tb_staged_item": [c_void_p, POINTER(Uid), c_uint32, POINTER(RawItem)],
}
_RETURNS: dict[str, Any] = {"tb_status_name": c_char_p, "tb_last_error": c_char_p, "tb_library_version": c_char_p, "tb_session_close": None,
            "tb_cancel": None}

class _Library:
    """Loads at the first use of a function, so that `import tombolo` costs nothing."""

    def __init__(self) -> None:
        self._loaded: ctypes.CDLL | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in _CALLS:
            raise AttributeError(name)
        if self._loaded is None:
            self._loaded = _load()
        function = getattr(self._loaded, name)
        function.argtypes = _CALLS[name]
        function.restype = _RETURNS.get(name, c_int)
        setattr(self, name, function)
        return function


def library_path() -> str:
    named = os.environ.get("TOMBOLO_LIBRARY")
    if named:
        return named
    ours = os.path.join(NATIVE, "libtombolo.so.0")
    if os.path.exists(ours):
        return ours
    import ctypes.util # here: it takes as long to import as the rest

    return ctypes.util.find_library("tombolo") or "libtombolo.so.0"


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise LibraryMissing(
            f"libtombolo cannot be loaded: {error}. Install the wheel (pip install tombolo), or build Tombolo and "
            "set TOMBOLO_LIBRARY to the path of libtombolo.so") from None


lib = _Library()


def library_version() -> str:
    version: bytes = lib.tb_library_version()
    return version.decode()


def check(status: int) -> None:
    if status == OK:
        return
    text = lib.tb_last_error().decode(errors="replace")
    raise {AGAIN: Again, FORKED: Forked}.get(status, Error)(status, text)


def text_of(value: str | os.PathLike[str] | None) -> bytes | None:
    return None if value is None else os.fspath(value).encode()
