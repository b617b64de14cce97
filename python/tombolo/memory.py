"""Where the bytes of tensors stand, and how their dtypes are spelled.

A tensor is one of torch or numpy, an object with DLPack or the buffer protocol, or a tuple (dtype,
shape, buffer). No framework is imported here: a tensor is known by its attributes."""

import ctypes
import math
import sys
from collections.abc import Iterable, Mapping
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


def bytes_at(buffer: Any) -> int:
    if _is_torch(buffer):
        count: int = buffer.numel() * buffer.element_size()
        return count
    return memoryview(buffer).nbytes


def address_of(buffer: Any, what: str) -> tuple[int | None, object]:
    """Where a buffer's bytes stand, and the object that keeps them there: while it lives, a bytearray
    cannot be resized."""
    if _is_torch(buffer):
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


class View(NamedTuple):
    """A tensor's elements in memory, dense and row-major."""

    dtype: str
    shape: tuple[int, ...]
    address: int | None  # None: it has no elements
    keep: object         # while this lives, the memory does
    gathered: Any = None # the tensor that `keep` is a contiguous copy of

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


def _of_torch(name: str, tensor: Any, gather: bool, cast: object) -> View:
    if hasattr(tensor, "placements"):
        raise ValueError(f"{name}: a DTensor is published by its boxes: tombolo.publish does it, tombolo.layouts.dtensor computes them")
    if getattr(tensor, "is_meta", False):
        raise ValueError(f"{name}: a tensor on the meta device has no bytes")
    spelled = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(int(n) for n in tensor.shape)
    if spelled == "float4_e2m1fn_x2": # pairs of F4
        spelled, shape = "F4", (*shape[:-1], shape[-1] * 2)
    own = tensor.detach() if hasattr(tensor, "detach") else tensor
    source = None
    if cast is not None and (other := _cast(own, cast)) is not own:
        source, own, spelled = own, other.contiguous(), str(other.dtype)
    elif not own.is_contiguous():
        if not gather:
            raise ValueError(f"{name}: the tensor is not contiguous (shape {list(shape)}, strides {list(own.stride())}): "
                             "give .contiguous(), or ask for gather=True")
        source, own = own, own.contiguous()
    return View(dtype_name(spelled), shape, (own.data_ptr() or None) if own.numel() else None, own, source)


def _of_array(name: str, array: Any, gather: bool, writable: bool) -> View:
    """numpy's: its interface, as arrays of bfloat16 (ml_dtypes) have no buffer protocol."""
    facts = array.__array_interface__
    shape = tuple(facts["shape"])
    if writable and facts["data"][1]:
        raise ValueError(f"{name}: the array is read-only")
    source = None
    if facts.get("strides") is not None:
        if not gather:
            raise ValueError(f"{name}: the array is not contiguous (shape {list(shape)}, strides {list(facts['strides'])}): "
                             "give numpy.ascontiguousarray(it), or ask for gather=True")
        source, array = array, array.copy(order="C")
        facts = array.__array_interface__
    return View(dtype_name(array.dtype), shape, facts["data"][0] if math.prod(shape) else None, array, source)


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def _of_dlpack(name: str, tensor: Any) -> View:
    capsule = tensor.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    raw = _DLTensor.from_address(pointer(capsule, b"dltensor")) # the capsule's end frees it
    shape = tuple(raw.shape[i] for i in range(raw.rank))
    dtype = _DLPACK.get((raw.code, raw.bits)) if raw.lanes == 1 else None
    if dtype is None:
        raise ValueError(f"{name}: DLPack type code {raw.code} of {raw.bits} bits and {raw.lanes} lanes has no name here: "
                         "give (dtype, shape, buffer)")
    dense = 1
    for i in reversed(range(raw.rank if raw.strides else 0)):
        if shape[i] != 1 and raw.strides[i] != dense:
            raise ValueError(f"{name}: the tensor is not contiguous (shape {list(shape)}): make a contiguous copy")
        dense *= shape[i]
    address = (raw.data or 0) + raw.byte_offset if math.prod(shape) else None
    return View(dtype, shape, address, (capsule, tensor))


def view_of(name: str, tensor: Any, *, gather: bool = False, writable: bool = False, cast: object = None) -> View:
    """gather: a tensor that is not contiguous is copied; else it is refused. writable: versions will be
    written there. cast: torch tensors of floating point are copied in this dtype."""
    if isinstance(tensor, tuple):
        dtype, shape, buffer = dtype_name(tensor[0]), tuple(tensor[1]), tensor[2]
        if bytes_at(buffer) != bytes_of(dtype, shape):
            raise ValueError(f"{name}: {bytes_at(buffer)} bytes of memory for {dtype}{list(shape)}")
        address, keep = address_of(buffer, name)
        return View(dtype, shape, address, keep)
    if _is_torch(tensor):
        return _of_torch(name, tensor, gather, cast)
    if hasattr(tensor, "__array_interface__"):
        return _of_array(name, tensor, gather, writable)
    if hasattr(tensor, "__dlpack__"):
        return _of_dlpack(name, tensor)
    try:
        memory = memoryview(tensor)
    except TypeError:
        raise TypeError(f"{name}: {type(tensor).__name__} is no tensor: it has neither DLPack nor the buffer protocol") from None
    if memory.format.lstrip("@=<") not in _FORMATS:
        raise ValueError(f"{name}: buffer format {memory.format!r} has no dtype: give (dtype, shape, buffer)")
    address, keep = address_of(memory, name)
    return View(_FORMATS[memory.format.lstrip("@=<")], tuple(memory.shape or ()), address, keep)


def tensors_of(source: Any) -> dict[str, Any]:
    """{name: tensor} of a mapping, of a module (its state_dict, tied names too), or of (name, tensor)
    pairs."""
    if hasattr(source, "state_dict"):
        source = source.state_dict()
    pairs = dict(source.items() if isinstance(source, Mapping) else source)
    if not pairs:
        raise ValueError("no tensors were given")
    return pairs


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
