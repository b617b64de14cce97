"""Boxes of a trainer's DTensors: FSDP2, HSDP, tensor parallelism, and FSDP2 over it.

No collective: a rank computes its own boxes from mesh, coordinate and placements. Of tensors that
several ranks hold, one publishes: the rank that the tensor's name points at, so that the work is
spread. Ranks agree on that without a word."""

import re
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..memory import Box

_WRAPPED = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")


class Split(NamedTuple):
    """The effect of one mesh axis on a tensor: its ranks have parts along `axis`; None: all have all of it."""

    axis: int | None
    late: bool = False # _StridedShard: parts of what the mesh axes to its right left over


def block(shape: Sequence[int], mesh: Sequence[int], coordinate: Sequence[int], splits: Sequence[Split]) -> tuple[list[int], list[int]]:
    """(first, count) of the rank at `coordinate`. Parts are those of torch.chunk: as long as the rounded
    up quotient, the last ones shorter or empty. FSDP2 over tensor parallelism puts its mesh axis first
    and cuts last, which is what `late` says."""
    first, count = [0] * len(shape), list(shape)
    order = [i for i, split in enumerate(splits) if not split.late] + [i for i, split in reversed(list(enumerate(splits))) if split.late]
    for i in order:
        axis = splits[i].axis
        if axis is None:
            continue
        each = -(-count[axis] // mesh[i])
        begin = min(each * coordinate[i], count[axis])
        first[axis] += begin
        count[axis] = min(each, count[axis] - begin)
    return first, count


def splits_of(name: str, placements: Iterable[Any], rank: int) -> list[Split]:
    """By the class of a placement: is_shard() is not true of each that shards."""
    found = []
    for placement in placements:
        kind = type(placement).__name__
        if kind == "Replicate":
            found.append(Split(None))
        elif kind in ("Shard", "_StridedShard"):
            found.append(Split(placement.dim % rank, kind == "_StridedShard"))
        else:
            raise ValueError(f"{name}: its placement {placement} has no box: redistribute the tensor first")
    return found


def publishes(name: str, mesh: Sequence[int], coordinate: Sequence[int], splits: Sequence[Split]) -> bool:
    """Whether this one of the ranks that hold the same part publishes it."""
    spot = zlib.crc32(name.encode())
    for size, at, split in zip(mesh, coordinate, splits, strict=True):
        if split.axis is None:
            if at != spot % size:
                return False
            spot //= size
    return True


def shard() -> tuple[int, int]:
    """(rank, ranks) of this process in the default group; (0, 1) without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def plain_name(name: str) -> str:
    """Without what torch.compile and checkpointing of activations add."""
    return _WRAPPED.sub("", name)


def boxes(named: Mapping[str, Any]) -> list[Box]:
    """The part of the tensors that this rank publishes. One that is no DTensor is taken to be the same at all
    ranks."""
    found = []
    rank, ranks = shard()
    for raw_name, tensor in named.items():
        name, shape = plain_name(raw_name), tuple(int(n) for n in tensor.shape)
        if not hasattr(tensor, "placements"):
            if publishes(name, [ranks], [rank], [Split(None)]):
                found.append(Box(name, shape, (0,) * len(shape), shape, tensor))
            continue
        mesh = tensor.device_mesh
        coordinate = mesh.get_coordinate()
        if coordinate is None: # of a mesh that this rank is no part of
            continue
        splits = splits_of(name, tensor.placements, max(len(shape), 1))
        first, count = block(shape, tuple(mesh.shape), coordinate, splits)
        local = tensor.detach().to_local()
        if list(local.shape) != count and 0 not in count:
            raise ValueError(f"{name}: this rank has {list(local.shape)}, and by its placements {tensor.placements} it has {count}")
        if 0 not in count and publishes(name, tuple(mesh.shape), coordinate, splits):
            found.append(Box(name, shape, tuple(first), tuple(count), local))
    return found


def with_splits(found: Iterable[Box], parts: int = 8) -> list[Box]:
    """Says along which axis readers of up to tp=`parts` split matrices, so that they read little else:
    columns of o_proj, down_proj and w2, rows of others."""
    out = []
    for box in found:
        axis = 1 if re.search(r"(o_proj|down_proj|\bw2)\.weight$", box.name) else 0
        cut = len(box.shape) == 2 and box.shape[axis] % parts == 0
        out.append(box._replace(split_axis=axis, split_count=parts) if cut else box)
    return out
