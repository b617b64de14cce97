"""Files of safetensors into tensors that stand already: an engine's first weights, or those it goes back to.

    load_files(["model-00001-of-00002.safetensors", ...], into=module)

Bytes are read into the tensors' own memory, by several threads; no second copy of the file is made."""

import math
import os
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from .memory import bytes_of, tensors_of, view_of

_HEADER_BYTES_MAX = 100 << 20
_READ_BYTES, _LAST_BYTES = 64 << 20, 1 << 20 # of one read: the most, and the least


class _Part(NamedTuple):
    """Bytes of one tensor in a file, and the memory they go to."""

    file: int
    at: int
    memory: memoryview


def _row(row: Any) -> tuple[str, tuple[int, ...], int, int]:
    begin, end = row["data_offsets"]
    return str(row["dtype"]), tuple(map(int, row["shape"])), int(begin), int(end)


def header_of(path: str | os.PathLike[str]) -> tuple[dict[str, tuple[str, tuple[int, ...], int, int]], int]:
    """{name: (dtype, shape, begin, end)} of a file, and where its tensors begin. The file is believed in nothing."""
    import json # here: an import of tombolo does not need it

    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        count = int.from_bytes(file.read(8), "little")
        if not 2 <= count <= min(_HEADER_BYTES_MAX, size - 8):
            raise ValueError(f"{path}: that is no safetensors file")
        try:
            table = json.loads(file.read(count))
            rows = {name: _row(row) for name, row in table.items() if name != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: the header of this safetensors file cannot be read: {error}") from None
    for name, (dtype, shape, begin, end) in rows.items():
        if not 0 <= begin <= end <= size - 8 - count or end - begin != bytes_of(dtype, shape):
            raise ValueError(f"{path}: {name} does not fit into the file")
    return rows, 8 + count


def _cut(wholes: list[_Part], threads: int) -> list[_Part]:
    """The list from whose end threads take, one by one: long reads first, as each costs a turn of the interpreter, and
    ever shorter ones, so that no thread waits long for the last one."""
    left, parts = sum(len(whole.memory) for whole in wholes), list[_Part]()
    for whole in wholes:
        at, size = 0, len(whole.memory)
        while at < size:
            count = min(max(left // (4 * threads), _LAST_BYTES), _READ_BYTES, size - at)
            parts.append(_Part(whole.file, whole.at + at, whole.memory[at:at + count]))
            at, left = at + count, left - count
    parts.reverse()
    return parts


def _read(parts: list[_Part], turn: "threading.Lock", failed: list[BaseException]) -> None:
    while not failed:
        with turn:
            if not parts:
                return
            part = parts.pop()
        try:
            done = 0
            while done < len(part.memory):
                got = os.preadv(part.file, [part.memory[done:]], part.at + done)
                if got == 0:
                    raise ValueError("the file became shorter while it was read")
                done += got
        except BaseException as error: # goes to the caller
            failed.append(error)


def load_files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], into: Any, *, threads: int | None = None) -> None:
    """into: a module, or {name: tensor}, in host memory and contiguous. Each of its tensors has to be in a file, with its
    shape and dtype; nothing is written before all were found. Of tied tensors one name is enough."""
    import ctypes

    views = {name: view_of(name, tensor, writable=True) for name, tensor in tensors_of(into).items()}
    if any(getattr(view.keep, "is_cuda", False) for view in views.values()):
        raise ValueError("load_files reads into host memory: copy to the GPU from there")
    files: list[int] = []
    wholes: list[_Part] = []
    found: set[tuple[int | None, int]] = set() # of tied tensors one is enough; of a part of another's memory it is not
    named: set[str] = set()
    try:
        for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
            rows, base = header_of(path)
            files.append(os.open(path, os.O_RDONLY))
            for name in rows.keys() & views.keys():
                (dtype, shape, begin, end), view = rows[name], views[name]
                if name in named:
                    raise ValueError(f"{name} is in two files: {path} is the second")
                named.add(name)
                if (dtype, math.prod(shape), shape) != (view.dtype, math.prod(view.shape), view.shape):
                    raise ValueError(f"{name}: the file has {dtype}{list(shape)}, and the tensor is {view.dtype}{list(view.shape)}")
                found.add((view.address, end - begin))
                if view.address is None:
                    continue
                whole = memoryview((ctypes.c_char * (end - begin)).from_address(view.address)).cast("B")
                wholes.append(_Part(files[-1], base + begin, whole))
        missing = sorted(name for name, view in views.items() if view.address is not None and
                         (view.address, bytes_of(view.dtype, view.shape)) not in found)
        if missing:
            raise ValueError(f"no file has {', '.join(missing[:5])}{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}")
        failed: list[BaseException] = []
        turn, most = threading.Lock(), threads or os.cpu_count() or 1
        parts = _cut(wholes, most)
        workers = [threading.Thread(target=_read, args=(parts, turn, failed), name="tombolo-read", daemon=True)
                   for _ in range(min(most, max(len(parts), 1)) - 1)]
        begun: list[threading.Thread] = []
        try:
            for worker in workers:
                worker.start()
                begun.append(worker)
            _read(parts, turn, failed)
        except BaseException as error:
            failed.append(error)
        finally:
            for worker in begun: # nothing is closed, and nobody goes on, before they ended
                worker.join()
        if failed:
            raise failed[0]
    finally:
        for file in files:
            os.close(file)
