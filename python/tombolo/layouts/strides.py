"""From a strided view of a whole tensor, copied into a strided view of memory, to boxes.

Pure. A loader's chain of slice, select, view and transpose is one such view, whatever its length."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

BOXES_MAX = 1024


class NoBox(Exception):
    """The copy is none of boxes: why."""


class Copy(NamedTuple):
    first: tuple[int, ...]
    count: tuple[int, ...] # type: ignore[assignment]
    offset: int # of the box in the memory, in elements; it is dense there


def _strides(shape: Sequence[int]) -> list[int]:
    found, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        found[axis] = step
        step *= shape[axis]
    return found


def _axes(size: int, stride: int, shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]] | None:
    """[(axis, count)] of a run of a view: along one axis, or over whole axes and a part of the next one."""
    for axis in reversed(range(len(shape))):
        if strides[axis] == stride and shape[axis] > 1:
            if size <= shape[axis]:
                return [(axis, size)]
            if size % shape[axis] or axis == 0:
                return None
            rest = _axes(size // shape[axis], stride * shape[axis], shape, strides)
            return None if rest is None else [*rest, (axis, shape[axis])]
    return None


def _coalesced(dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    out: list[tuple[int, int, int]] = []
    for size, source, target in dims:
        if out and out[-1][1] == source * size and out[-1][2] == target * size:
            out[-1] = (out[-1][0] * size, source, target)
        else:
            out.append((size, source, target))
    return out


def _pieces(shape: Sequence[int], dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    """[(axis, count, stride, target stride)] of the dims, one axis each; axis -1: steps over elements."""
    strides, found = _strides(shape), []
    for size, source, target in dims:
        axes = _axes(size, source, shape, strides)
        if axes is None:
            found.append((-1, size, source, target))
            continue
        step = 1
        pieces = []
        for axis, count in reversed(axes):
            pieces.append((axis, count, strides[axis], target * step))
            step *= count
        found += reversed(pieces)
    return found


def _inner(pieces: list[tuple[int, int, int, int]]) -> int:
    """How many of the last pieces make one box that is dense in memory."""
    dense, seen, taken = 1, set(), 0
    for axis, count, _, target in reversed(pieces):
        if axis < 0 or axis in seen or target != dense:
            break
        seen.add(axis)
        dense, taken = dense * count, taken + 1
    return taken


def copies(shape: Sequence[int], offset: int, sizes: Sequence[int], source: Sequence[int], target_offset: int,
           target: Sequence[int]) -> list[Copy]:
    """The boxes of a copy from the view (offset, sizes, source strides) of a dense tensor of this shape to
    the view (target_offset, sizes, target strides). Raises NoBox."""
    dims = [(n, s, t) for n, s, t in zip(sizes, source, target, strict=True) if n != 1]
    if any(s == 0 for _, s, _ in dims):
        raise NoBox("it is repeated")
    if [s for _, s, _ in dims] != sorted((s for _, s, _ in dims), reverse=True):
        raise NoBox("it is transposed")
    if 0 in sizes:
        return []
    pieces = _pieces(shape, _coalesced(dims))
    taken = _inner(pieces)
    outer, inner = pieces[:len(pieces) - taken], pieces[len(pieces) - taken:]
    number = 1
    for _, steps_of_piece, _, _ in outer:
        number *= steps_of_piece
    if number > BOXES_MAX:
        raise NoBox(f"it makes {number} boxes, and {BOXES_MAX} are the most")
    strides, found = _strides(shape), []
    for steps in product(*(range(count) for _, count, _, _ in outer)):
        at = offset + sum(step * piece[2] for step, piece in zip(steps, outer, strict=True))
        place = target_offset + sum(step * piece[3] for step, piece in zip(steps, outer, strict=True))
        first = [at // strides[axis] % shape[axis] for axis in range(len(shape))]
        count = [1] * len(shape)
        for axis, n, _, _ in inner:
            count[axis] = n
        if any(f + n > size for f, n, size in zip(first, count, shape, strict=True)):
            raise NoBox("it goes over the end of an axis")
        found.append(Copy(tuple(first), tuple(count), place))
    return found
