"""Where the bytes of tensors stand, and how their dtypes are spelled.

A tensor is one of torch or numpy, an object with DLPack or the buffer protocol, or a tuple (dtype,
shape, buffer). No framework is imported here: a tensor is known by its attributes."""

import ctypes
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_char
from typing import Any, NamedTuple

_BITS = {"U8": 8, "I8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6,
         "F6_E3M2": 6, "F4": 4, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64,
         "F64": 64, "C64": 64}
# As numpy, ml_dtypes and torch name them. Not float4_e2m1fn_x2: its shape counts pairs, and that of
# F4 counts elements.
_SPELLED = {"uint8": "U8", "int8": "I8", "bool": "BOOL", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32", "uint64": "U64",
            "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
            "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
            "float8_e8m0fnu": "F8_E8M0"}
_FORMATS = {"B": "U8", "b": "I8", "c": "U8", "?": "BOOL", "H": "U16", "h": "I16", "e": "F16", "I": "U32", "i": "I32", "f": "F32",
            "Q": "U64", "q": "I64", "L": "U64", "l": "I64", "d": "F64", "Zf": "C64"}
_DLPACK = {(0, 8): "I8", (0, 16): "I16", (0, 32): "I32", (0, 64): "I64", (1, 8): "U8", (1, 16): "U16", (1, 32): "U32", (1, 64): "U64",
           (2, 16): "F16", (2, 32): "F32", (2, 64): "F64", (4, 16): "BF16", (5, 64): "C64", (6, 8): "BOOL", (10, 8): "F8_E4M3",
           (11, 8): "F8_E4M3FNUZ", (12, 8): "F8_E5M2", (13, 8): "F8_E5M2FNUZ", (14, 8): "F8_E8M0"}


def dtype_name(dtype: object) -> str:
    """A dtype of numpy, ml_dtypes or torch as safetensors and the library spell it ("torch.bfloat16" is
    "BF16"). Other text stays: "F4", or "NAME:BITS" for a dtype that the library does not know."""
    text = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    return _SPELLED.get(text.removeprefix("torch."), text)


def bytes_of(dtype: str, shape: Iterable[int]) -> int:
    name, colon, bits = dtype.partition(":")
    if colon and not bits.isdecimal() or not colon and name not in _BITS:
        raise ValueError(f"dtype {dtype!r} is unknown: give the name and bits of an element as NAME:BITS")
    return ((int(bits) if colon else _BITS[name]) * math.prod(shape) + 7) // 8


def on_gpu(buffer: Any) -> bool:
    """A tensor that says where it stands, as torch's do: in a GPU, where no view of it can be made."""
    return bool(getattr(buffer, "is_cuda", False))


def _is_torch(tensor: Any) -> bool:
    return hasattr(tensor, "data_ptr") and hasattr(tensor, "element_size")


class _Facts(ctypes.Structure):
    """Py_buffer of Python's C interface."""

    _fields_ = [("address", ctypes.c_void_p), ("owner", ctypes.c_void_p), ("bytes", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("rank", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class _Held:
    """The memory behind a buffer, at .address, which stays there as long as this does. ctypes' own way is for memory
    that may be written to, and is dense."""

    _STRIDED = 0x18 # PyBUF_STRIDES
    _release = ctypes.pythonapi.PyBuffer_Release

    def __init__(self, view: memoryview) -> None:
        self._facts = _Facts()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(self._facts), self._STRIDED)
        self.address: int | None = self._facts.address

    def __del__(self) -> None:
        self._release(ctypes.byref(self._facts))


def _is_array(tensor: Any) -> bool:
    """numpy's, and what says of itself what numpy's say."""
    return hasattr(tensor, "__array_interface__") and hasattr(tensor, "dtype")


def bytes_at(buffer: Any) -> int:
    if _is_torch(buffer):
        count: int = buffer.numel() * buffer.element_size()
        return count
    return int(buffer.nbytes) if _is_array(buffer) else memoryview(buffer).nbytes


def address_of(buffer: Any, what: str, writable: bool = True) -> tuple[int | None, object]:
    """Where a buffer's bytes stand, and the object that keeps them there: while it lives, a bytearray
    cannot be resized."""
    if _is_torch(buffer):
        if not buffer.is_contiguous():
            raise ValueError(f"{what}: the memory has to be contiguous")
        return buffer.data_ptr() or None, buffer
    array = buffer.__array_interface__ if _is_array(buffer) else None # ml_dtypes' have no buffer protocol
    view = memoryview(b"" if array is not None else buffer)
    if writable and (array["data"][1] if array is not None else view.readonly):
        raise ValueError(f"{what}: the memory is read-only, and versions would be written there")
    if array is not None and array.get("strides") is not None or not view.c_contiguous:
        raise ValueError(f"{what}: the memory has to be contiguous")
    if array is not None:
        return array["data"][0] if math.prod(array["shape"]) else None, buffer
    if view.nbytes == 0:
        return None, view
    if view.readonly:
        held = _Held(view)
        return held.address, held
    first = c_char.from_buffer(view.cast("B"))
    return ctypes.addressof(first), first


class View(NamedTuple):
    """A tensor's elements in memory, dense and row-major."""

    dtype: str
    shape: tuple[int, ...]
    address: int | None  # None: it has no elements
    keep: object         # while this lives, the memory does
    gathered: Any = None # the tensor that `keep` is a contiguous copy of
    read_only: bool = False

    @property
    def nbytes(self) -> int:
        return bytes_of(self.dtype, self.shape)


class Box(NamedTuple):
    """A part of a tensor: elements [first, first + count) along each axis of the whole `shape`."""

    name: str
    shape: tuple[int, ...]
    first: tuple[int, ...]
    count: tuple[int, ...] # type: ignore[assignment]
    tensor: Any          # the memory of these elements, as view_of takes it
    split_axis: int = 0  # along which readers split the tensor, into `split_count` parts at most (publishers; 0: they do not)
    split_count: int = 0


def _cast(tensor: Any, dtype: object) -> Any:
    """A tensor of floating point in the dtype that is wanted: itself, where it has it."""
    wanted = dtype_name(dtype)
    if not tensor.is_floating_point() or dtype_name(tensor.dtype) == wanted:
        return tensor
    return tensor.to(torch_dtype(sys.modules["torch"], wanted))


def _of_torch(name: str, tensor: Any, gather: bool, writable: bool, cast: object) -> View:
    if hasattr(tensor, "placements"):
        raise ValueError(f"{name}: a DTensor has its boxes: tombolo.publish computes them, and tombolo.layouts.dtensor does; "
                         "into= takes its to_local() in a Box")
    if getattr(tensor, "is_meta", False):
        raise ValueError(f"{name}: a tensor on the meta device has no bytes")
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        raise ValueError(f"{name}: a tensor of layout {tensor.layout} has no dense bytes: give .to_dense()")
    spelled = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(int(n) for n in tensor.shape)
    if spelled == "float4_e2m1fn_x2": # pairs of F4
        spelled, shape = "F4", (*shape[:-1], shape[-1] * 2)
    own = tensor.detach() if hasattr(tensor, "detach") else tensor
    source = None
    lazy = getattr(own, "is_conj", bool)() or getattr(own, "is_neg", bool)() # its memory has the values before
    if cast is not None and (other := _cast(own, cast)) is not own:
        source, own, spelled = own, other.contiguous(), str(other.dtype)
    elif lazy or not own.is_contiguous():
        if not gather:
            how = "a conjugate or negative view" if lazy else f"not contiguous (shape {list(shape)}, strides {list(own.stride())})"
            raise ValueError(f"{name}: the tensor is {how}: give {'.resolve_conj().resolve_neg()' if lazy else '.contiguous()'}, or ask for gather=True")
        if writable and any(n > 1 and step == 0 for n, step in zip(own.shape, own.stride(), strict=True)):
            raise ValueError(f"{name}: elements of the tensor share their memory (shape {list(shape)}, strides {list(own.stride())})")
        source, own = own, (own.resolve_conj().resolve_neg() if lazy else own).contiguous()
    try:
        address = (own.data_ptr() or None) if own.numel() else None
    except RuntimeError as error: # of a tensor that only looks like one
        raise ValueError(f"{name}: {type(tensor).__name__} has no memory of its own: {error}") from None
    if own.numel() and address is None:
        raise ValueError(f"{name}: {type(tensor).__name__} has no memory of its own: give the tensors that it is made of")
    return View(dtype_name(spelled), shape, address, own, source)


def _of_array(name: str, array: Any, gather: bool, writable: bool) -> View:
    """numpy's: its interface, as arrays of bfloat16 (ml_dtypes) have no buffer protocol."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic): # a scalar, whose interface shows memory that is gone
        array = numpy.asarray(array)
        array.flags.writeable = False
    facts = array.__array_interface__
    shape, read_only = tuple(int(n) for n in facts["shape"]), bool(facts["data"][1])
    if writable and read_only:
        raise ValueError(f"{name}: the array is read-only")
    source = None
    if facts.get("strides") is not None:
        if not gather:
            raise ValueError(f"{name}: the array is not contiguous (shape {list(shape)}, strides {list(facts['strides'])}): "
                             "give numpy.ascontiguousarray(it), or ask for gather=True")
        source, array = array, array.copy(order="C")
        facts = array.__array_interface__
    return View(dtype_name(array.dtype), shape, facts["data"][0] if math.prod(shape) else None, array, source, read_only)


class Strided(NamedTuple):
    """Elements in memory that lie apart: of a buffer, or of DLPack."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] # in bytes
    itemsize: int
    keep: object

    def _runs(self) -> Iterator[tuple[int, int]]:
        """(address, bytes) of pieces that are dense, in the order of the elements."""
        bytes_, axes = self.itemsize, len(self.shape)
        while axes and (self.strides[axes - 1] == bytes_ or self.shape[axes - 1] == 1):
            axes -= 1
            bytes_ *= self.shape[axes]
        for index in itertools.product(*map(range, self.shape[:axes])):
            yield self.address + sum(i * stride for i, stride in zip(index, self.strides)), bytes_

    def gather(self) -> bytearray:
        return bytearray(b"".join(ctypes.string_at(at, count) for at, count in self._runs()))

    def scatter(self, dense: bytearray) -> None:
        at, begin = 0, ctypes.addressof(c_char.from_buffer(dense))
        for to, count in self._runs():
            ctypes.memmove(to, begin + at, count)
            at += count


def _gathered(name: str, dtype: str, source: Strided, gather: bool, writable: bool) -> View:
    where = f"shape {list(source.shape)}, strides {list(source.strides)} bytes"
    if not gather:
        raise ValueError(f"{name}: the tensor is not contiguous ({where}): make a contiguous copy, or ask for gather=True")
    if writable and any(n > 1 and step == 0 for n, step in zip(source.shape, source.strides, strict=True)):
        raise ValueError(f"{name}: elements of the tensor share their memory ({where})")
    dense = source.gather()
    return View(dtype, source.shape, ctypes.addressof(c_char.from_buffer(dense)), dense, source)


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _DLVersioned(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
                ("tensor", _DLTensor)]


_READ_ONLY, _DL_HOST = 1, (1, 3) # of _DLVersioned.flags; device types of memory that the host reads


def _capsule(name: str, tensor: Any) -> tuple[Any, _DLTensor, bool]:
    """Its end frees the tensor. Also whether the tensor is read-only, which the first DLPack does not say."""
    try:
        try:
            capsule = tensor.__dlpack__(max_version=(1, 0))
        except TypeError: # it is older
            capsule = tensor.__dlpack__()
    except (BufferError, RuntimeError, ValueError) as error:
        raise ValueError(f"{name}: {type(tensor).__name__} cannot be read by DLPack: {error}") from None
    pointer, is_valid = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    if not is_valid(capsule, b"dltensor_versioned"):
        return capsule, _DLTensor.from_address(pointer(capsule, b"dltensor")), False
    whole = _DLVersioned.from_address(pointer(capsule, b"dltensor_versioned"))
    return capsule, whole.tensor, bool(whole.flags & _READ_ONLY)


def _of_dlpack(name: str, tensor: Any, gather: bool, writable: bool) -> View:
    capsule, raw, read_only = _capsule(name, tensor)
    shape = tuple(raw.shape[i] for i in range(raw.rank))
    dtype = _DLPACK.get((raw.code, raw.bits)) if raw.lanes == 1 else None
    if dtype is None:
        raise ValueError(f"{name}: DLPack type code {raw.code} of {raw.bits} bits and {raw.lanes} lanes has no name here: "
                         "give (dtype, shape, buffer)")
    if writable and read_only:
        raise ValueError(f"{name}: {type(tensor).__name__} is read-only, and versions would be written there")
    keep, address = (capsule, tensor), (raw.data or 0) + raw.byte_offset
    strides = tuple(raw.strides[i] for i in range(raw.rank if raw.strides else 0))
    dense = 1
    for i in reversed(range(len(strides) if math.prod(shape) else 0)):
        if shape[i] != 1 and strides[i] != dense:
            apart = Strided(address, shape, tuple(step * raw.bits // 8 for step in strides), raw.bits // 8, keep)
            return _gathered(name, dtype, apart, gather and raw.device_type in _DL_HOST, writable)
        dense *= shape[i]
    return View(dtype, shape, address if math.prod(shape) else None, keep, None, read_only)


def _of_buffer(name: str, buffer: Any, gather: bool, writable: bool) -> View:
    try:
        memory = memoryview(buffer)
    except TypeError:
        raise TypeError(f"{name}: {type(buffer).__name__} is no tensor: it has neither DLPack nor the buffer protocol") from None
    spelled = memory.format.lstrip("@=<")
    dtype = _FORMATS.get(spelled if spelled not in ("l", "L") or memory.itemsize == 8 else {"l": "i", "L": "I"}[spelled])
    if dtype is None or _BITS[dtype] != 8 * memory.itemsize:
        raise ValueError(f"{name}: buffer format {memory.format!r} has no dtype: give (dtype, shape, buffer)")
    shape = tuple(memory.shape or ())
    if writable and memory.readonly:
        raise ValueError(f"{name}: the memory is read-only, and versions would be written there")
    if not memory.c_contiguous and memory.nbytes:
        held = _Held(memory)
        return _gathered(name, dtype, Strided(held.address or 0, shape, tuple(memory.strides or ()), memory.itemsize, held), gather, writable)
    address, keep = address_of(memory, name, writable)
    return View(dtype, shape, address, keep, None, memory.readonly)


def view_of(name: str, tensor: Any, *, gather: bool = False, writable: bool = False, cast: object = None) -> View:
    """gather: a tensor that is not contiguous is copied; else it is refused. writable: versions will be
    written there. cast: torch tensors of floating point are copied in this dtype."""
    if isinstance(tensor, tuple):
        dtype, shape, buffer = dtype_name(tensor[0]), tuple(int(n) for n in tensor[1]), tensor[2]
        if _checked(name, dtype, shape) != bytes_at(buffer):
            raise ValueError(f"{name}: {bytes_at(buffer)} bytes of memory for {dtype}{list(shape)}")
        address, keep = address_of(buffer, name, writable)
        return View(dtype, shape, address, keep, None, not _is_torch(buffer) and _read_only(buffer))
    if _is_torch(tensor):
        view = _of_torch(name, tensor, gather, writable, cast)
    elif _is_array(tensor):
        view = _of_array(name, tensor, gather, writable)
    elif hasattr(tensor, "__dlpack__"):
        view = _of_dlpack(name, tensor, gather, writable)
    else:
        view = _of_buffer(name, tensor, gather, writable)
    _checked(name, view.dtype, view.shape)
    return view


def _checked(name: str, dtype: str, shape: tuple[int, ...]) -> int:
    try:
        return bytes_of(dtype, shape)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read_only(buffer: Any) -> bool:
    return bool(buffer.__array_interface__["data"][1]) if _is_array(buffer) else memoryview(buffer).readonly


def scatter(view: View) -> None:
    """Copies the bytes of the copy to the memory of the tensor."""
    if isinstance(view.gathered, Strided):
        view.gathered.scatter(view.keep) # type: ignore[arg-type]
    elif hasattr(view.gathered, "copy_"):
        view.gathered.detach().copy_(view.keep)
    else:
        view.gathered[...] = view.keep


def refill(view: View, other: View) -> None:
    """The memory of one gets the bytes of the other, which is as long."""
    if _is_torch(view.keep):
        view.keep.copy_(other.keep) # type: ignore[attr-defined]
    elif view.address is not None and other.address is not None:
        ctypes.memmove(view.address, other.address, view.nbytes)


def tensors_of(source: Any) -> dict[str, Any]:
    """{name: tensor} of a mapping, of a module (its state_dict, tied names too), or of (name, tensor)
    pairs."""
    if hasattr(source, "state_dict"):
        source = source.state_dict()
    try:
        pairs = [(name, tensor) for name, tensor in (source.items() if isinstance(source, Mapping) else source)]
    except (TypeError, ValueError) as error:
        raise TypeError("tensors are a module, {name: tensor}, pairs of name and tensor, or a list of tombolo.Box, "
                        f"and not {type(source).__name__}: {error}") from error
    if not pairs:
        raise ValueError("no tensors were given")
    named: dict[str, Any] = {}
    for name, tensor in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a tensor's name is text, and not {type(name).__name__}")
        if name in named:
            raise ValueError(f"{name} is given twice")
        named[name] = tensor
    return named


def torch_dtype(torch: Any, name: str) -> Any:
    """None: torch has none of this name."""
    return next((getattr(torch, text, None) for text, known in _SPELLED.items() if known == name), None)


def torch_tensor(item: Any) -> Any:
    """An item of staging as a tensor of torch on its memory; where torch is not imported, its bytes. Of a
    dtype that torch has not, its bytes as uint8. Nobody may write there."""
    torch = sys.modules.get("torch")
    if torch is None:
        return item.bytes
    dtype = torch_dtype(torch, item.dtype)
    if item.bytes.nbytes == 0:
        return torch.empty(item.shape, dtype=dtype or torch.uint8)
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(item.bytes, dtype=torch.uint8)
    return flat if dtype is None else flat.view(dtype).view(item.shape)


def synchronise(tensors: Iterable[Any]) -> None:
    """The library does not wait for a GPU's streams, so this does, once a device."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for device in {str(tensor.device) for tensor in tensors if on_gpu(tensor)}:
        torch.cuda.current_stream(device).synchronize()
