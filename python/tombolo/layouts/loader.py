"""Boxes of an engine's parameters, from a dry run of the engine's own loader.

The loader gets tensors without data. Such a tensor records slice, select, view and transpose until a
parameter copies it; then source and destination are known, and are a box. So fused and split
parameters become boxes at any tensor or expert parallelism, without a table of names. A loader
step that reads values, changes the dtype or turns a box has no box: that name goes through the
loader as a named tensor, and the log says why.

Of an expert or a layer that another rank has, the loader copies nothing. It is known by its name: one that
differs in numbers alone has boxes. This rank needs it by neither way."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..memory import Box, dtype_name
from . import strides

log = logging.getLogger("tombolo.layouts")

_VIEWS = {"alias", "as_strided", "detach", "expand", "movedim", "narrow", "permute", "select", "slice", "split", "split_with_sizes",
          "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view", "_unsafe_view", "_reshape_alias"}
_NUMBER = re.compile(r"\b\d+\b")
_SAME = {"clone", "_to_copy", "contiguous", "lift_fresh"} # other memory, and the same elements


class NeedsValues(Exception):
    """The loader did something to a tensor that has no data."""


class Target(NamedTuple):
    """A box of the checkpoint, and where it stands: elements [offset, offset + count) of a parameter."""

    parameter: str
    box: Box # its tensor is a flat view into the parameter


class Plan(NamedTuple):
    targets: list[Target]
    named: dict[str, str] # checkpoint name: why it goes through the loader

    @property
    def boxes(self) -> list[Box]:
        return [target.box for target in self.targets]


class Recorded(torch.Tensor):
    """A view of a checkpoint's tensor: its shape, strides and offset are those of `view`, on no device."""

    tb_name: str
    tb_whole: tuple[int, ...]
    tb_view: Any
    tb_record: Callable[["Recorded", Any], None]

    @staticmethod
    def __new__(cls, name: str, whole: tuple[int, ...], view: Any, record: Any, device: Any = "cpu") -> "Recorded":
        made: Recorded = torch.Tensor._make_wrapper_subclass(cls, view.shape, strides=view.stride(), dtype=view.dtype, device=device)
        made.tb_name, made.tb_whole, made.tb_view, made.tb_record = name, whole, view, record
        return made

    def __repr__(self) -> str: # type: ignore[override]
        return f"<{self.tb_name} {list(self.shape)}, no data>"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any: # type: ignore[override]
        kind = func._schema.name.removeprefix("aten::")
        if kind == "copy_" and not isinstance(args[0], cls) and isinstance(args[1], cls):
            args[1].tb_record(args[1], args[0])
            return args[0]
        own = next((arg for arg in args if isinstance(arg, cls)), None)
        if own is None:
            raise NeedsValues(f"{kind} on a list of tensors")
        if kind in _SAME:
            wanted = (kwargs or {}).get("dtype")
            if wanted is not None and wanted != own.dtype:
                raise NeedsValues(f"it becomes {wanted}")
            return cls(own.tb_name, own.tb_whole, own.tb_view, own.tb_record, (kwargs or {}).get("device") or own.device)
        if kind not in _VIEWS:
            raise NeedsValues(f"the loader calls {kind}, which reads values")
        out = func(*tree_map(lambda arg: arg.tb_view if isinstance(arg, cls) else arg, args), **(kwargs or {}))
        return tree_map(lambda made: cls(own.tb_name, own.tb_whole, made, own.tb_record, own.device) if isinstance(made, torch.Tensor) else made, out)


class _Untouched(TorchDispatchMode):
    """While it is entered, nothing writes to the parameters: a loader fills rows that the checkpoint lacks."""

    def __init__(self, places: Mapping[int, Any]) -> None:
        super().__init__()
        self._places = places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written: Any = args[0] if args and func._schema.is_mutable else None
        if type(written) in (torch.Tensor, torch.nn.Parameter) and written.untyped_storage()._cdata in self._places \
                and not any(isinstance(arg, Recorded) for arg in args):
            return written
        return func(*args, **(kwargs or {}))


class _Recorder:
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.places = {tensor.untyped_storage()._cdata: (name, tensor) for name, tensor in parameters.items()}
        self.targets: list[Target] = []

    def __call__(self, source: Recorded, target: Any) -> None:
        name, parameter = self.places.get(target.untyped_storage()._cdata, (None, None))
        if name is None or parameter is None:
            raise NeedsValues("it is copied into a tensor that is no parameter")
        if source.dtype != target.dtype:
            raise NeedsValues(f"it is {dtype_name(source.dtype)}, and the parameter {name} is {dtype_name(target.dtype)}")
        view = source.tb_view.expand(target.shape)
        try:
            copied = strides.copies(source.tb_whole, view.storage_offset(), tuple(view.shape), view.stride(), target.storage_offset(), target.stride())
        except strides.NoBox as error:
            raise NeedsValues(str(error)) from None
        for copy in copied:
            count = 1
            for n in copy.count:
                count *= n
            memory = parameter.detach().as_strided((count,), (1,), copy.offset).view(copy.count)
            self.targets.append(Target(name, Box(source.tb_name, source.tb_whole, copy.first, copy.count, memory)))


def _torch_dtype(spelled: str) -> torch.dtype:
    for text in ("uint8", "int8", "bool", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn",
                 "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        found = getattr(torch, text, None)
        if found is not None and dtype_name(text) == dtype_name(spelled):
            dtype: torch.dtype = found
            return dtype
    raise NeedsValues(f"torch has no dtype {spelled}")


def _try(load: Callable[[Iterable[tuple[str, Any]]], Any], names: Iterable[str], manifest: Mapping[str, tuple[str, tuple[int, ...]]],
         recorder: _Recorder) -> None:
    pairs = []
    for name in names:
        dtype, shape = manifest[name]
        view = torch.empty(shape, dtype=_torch_dtype(dtype), device="meta")
        pairs.append((name, Recorded(name, tuple(shape), view, recorder)))
    with torch.no_grad(), _Untouched(recorder.places):
        load(iter(pairs))


def dry_run(model: Any, manifest: Mapping[str, tuple[str, tuple[int, ...]]],
            load: Callable[[Iterable[tuple[str, Any]]], Any] | None = None) -> Plan:
    """manifest: {checkpoint name: (dtype, shape)} of what the trainer publishes. load: the engine's
    loader, model.load_weights by default. The model's tensors do not change."""
    load = load or model.load_weights
    parameters = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    recorder = _Recorder(parameters)
    named: dict[str, str] = {}
    try:
        _try(load, manifest, manifest, recorder)
    except Exception: # of which name, the next pass says
        recorder.targets.clear()
        for name in manifest:
            begin = len(recorder.targets)
            try:
                _try(load, [name], manifest, recorder)
            except Exception as error: # a loader of others: it fails as it likes, and this name goes the other way
                del recorder.targets[begin:]
                named[name] = str(error) or type(error).__name__
    boxed = {target.box.name for target in recorder.targets}
    alike = {_NUMBER.sub("#", name) for name in boxed}
    left = [name for name in manifest if name not in boxed and name not in named]
    named.update((name, "the loader copied nothing of it") for name in left if _NUMBER.sub("#", name) not in alike)
    plan = Plan(recorder.targets, named)
    _say(plan, sum(name not in named for name in left))
    return plan


def _say(plan: Plan, elsewhere: int) -> None:
    by_parameter: dict[str, int] = {}
    for target in plan.targets:
        by_parameter[target.parameter] = by_parameter.get(target.parameter, 0) + 1
    for parameter, count in by_parameter.items():
        log.debug("layout.boxes parameter=%s boxes=%d", parameter, count)
    for name, why in plan.named.items():
        log.warning("layout.named tensor=%s why=%s", name, why)
    log.info("layout.planned boxes=%d named=%d elsewhere=%d", len(plan.targets), len(plan.named), elsewhere)


def manifest_of(items: Iterable[Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Of Follower.items()."""
    return {item.name: (item.dtype, item.shape) for item in items if not item.is_blob}


def mismatches(wanted: Iterable[Box], manifest: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
    """The boxes that the publisher does not have: a sentence each, with both shapes."""
    wrong = []
    for box in wanted:
        dtype = dtype_name(box.tensor.dtype)
        if box.name not in manifest:
            wrong.append(f"{box.name}: the version has no such tensor")
        elif manifest[box.name] != (dtype, tuple(box.shape)):
            there = manifest[box.name]
            wrong.append(f"{box.name}: this reader wants {dtype}{list(box.shape)}, and the version has {there[0]}{list(there[1])}")
    return wrong
