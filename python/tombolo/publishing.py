"""publish(): the tensors of a trainer become a version of a model."""

import atexit
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .calls import new_lock
from .library import IN_PLACE, SHADOW, WAIT_FOREVER, Uid, one_of, unsigned
from .memory import Box, View, refill, synchronise, tensors_of, view_of
from .sessions import Registration, Session
from .versions import Version, milliseconds

DEFAULT_GATEWAY = "unix:/run/tombolo/session.sock"
_MODES = {"shadow": SHADOW, "in_place": IN_PLACE}


def gateway_address(gateway: str | None) -> str:
    return gateway or os.environ.get("TOMBOLO_GATEWAY") or DEFAULT_GATEWAY


def run_key(run: str | None) -> str:
    """Ranks of one run need one key: given, or of the environment. Else a run is a process."""
    torchrun = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return run or os.environ.get("TOMBOLO_RUN") or (torchrun if torchrun != "none" else f"{os.uname().nodename}-{os.getpid()}")


class Publisher:
    """Publishes versions of one model. Tensors are registered once, and again only when others come. Calls may come from
    several threads; one runs at a time.

    run: the trainer's run; a new key shuts the run before out (TOMBOLO_RUN, or torchrun's id).
    shard: (rank, ranks) where several ranks publish parts; with DTensors the ranks of their mesh.
    mode: "shadow" copies, so the tensors may change when publish() returns; "in_place" does not.
    gather: a tensor that is not contiguous is copied, and not refused.
    dtype: torch tensors of floating point are cast to it, as FP32 masters for a BF16 engine."""

    def __init__(self, model: str, *, gateway: str | None = None, run: str | None = None, shard: tuple[int, int] | None = None,
                 mode: str = "shadow", gather: bool = False, dtype: object = None, codec: str | None = None,
                 **session_options: Any) -> None:
        self._mode = _MODES[one_of("mode", mode, _MODES)]
        self.model, self._dtype = model, dtype
        self._gather, self._codec, self._shard = gather, codec, shard
        self._turn = new_lock()
        self._session = Session(gateway_address(gateway), **session_options)
        try:
            self._run = self._session.run_open(model, run_key(run))
        except BaseException:
            self._session.close()
            raise
        self._registration: Registration | None = None
        self._signature: list[Any] = []
        self._views: list[View] = []
        self._in_place: Uid | None = None
        self.version: Version | None = None # the last one

    def __repr__(self) -> str:
        state = "closed" if self._session._own is None else "open"
        return f"<tombolo.Publisher {self.model}, version {self.version.number if self.version else 'none'}, {state}>"

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    def _register(self, boxes: Sequence[Box] | None, named: Mapping[str, Any]) -> None:
        """The tensors of this call, where they are not those of the call before."""
        views = [view_of(box.name, box.tensor, gather=self._gather, cast=self._dtype) for box in boxes] if boxes is not None else \
            [view_of(name, tensor, gather=self._gather, cast=self._dtype) for name, tensor in named.items()]
        places = [box[:4] + box[5:] for box in boxes] if boxes is not None else list(named)
        signature = [(place, view.dtype, view.shape, None if view.gathered is not None else view.address)
                     for place, view in zip(places, views, strict=True)]
        if self._registration is not None and signature == self._signature:
            for old, new in zip(self._views, views, strict=True):
                if new.gathered is not None: # into the copy that is registered
                    refill(old, new)
            return
        if self._registration is not None:
            before, self._registration = self._registration, None # first: an interrupt leaves none that has ended
            before.unregister()
        self._views, self._signature = views, signature
        if boxes is None:
            self._registration = self._session.register_views(dict(zip(named, views, strict=True)))
        elif boxes:
            self._registration = self._session.register_boxes(boxes, views)

    def publish(self, step: int, tensors: Any, *, blobs: Mapping[str, Any] | None = None, timeout: float | None = 30) -> Version:
        """tensors: a module, {name: tensor}, pairs, or a list of Box. blobs: {relative path: bytes}. timeout: seconds for
        the gateway's answer; None: no end."""
        with self._turn:
            return self._publish(unsigned("step", step), tensors, blobs, timeout)

    def _publish(self, step: int, tensors: Any, blobs: Mapping[str, Any] | None, timeout: float | None) -> Version:
        boxes, shard = None, self._shard or (0, 1)
        named: Mapping[str, Any] = {}
        if isinstance(tensors, Sequence) and all(isinstance(box, Box) for box in tensors):
            boxes = tensors
        else:
            named = tensors_of(tensors)
            if any(hasattr(tensor, "placements") for tensor in named.values()):
                from .layouts import dtensor

                boxes = dtensor.boxes(named)
                shard = self._shard or dtensor.shard()
        if self._in_place is not None:
            self._session.unpublish(self._in_place)
            self._in_place = None
        self._register(boxes, named)
        synchronise(named.values() if boxes is None else (box.tensor for box in boxes))
        info = self._session.publish(
            self.model, self._run, step, registration=self._registration, blobs=blobs, mode=self._mode, shard=shard, codec=self._codec,
            timeout_ms=WAIT_FOREVER if timeout is None else max(1, milliseconds(timeout))) # 0 is the library's own time
        if self._mode == IN_PLACE:
            self._in_place = info.uid
        self.version = Version(self._session, self.model, info.uid, step, self._run.run_order, info.bytes, "published")
        return self.version


_publishers: dict[tuple[Any, ...], Publisher] = {}
_lock = new_lock()


def publish(model: str, step: int, tensors: Any, *, gateway: str | None = None, run: str | None = None,
            shard: tuple[int, int] | None = None, blobs: Mapping[str, Any] | None = None, gather: bool = False,
            **options: Any) -> Version:
    """Publishes `tensors` (a module, {name: tensor}, pairs, or boxes) as version `step` of the model.

    The tensors may change when it returns. The gateway is TOMBOLO_GATEWAY, or that of this host. The
    session and the registration stay for the next call; close_publishers() ends them, and so does the
    process. options are those of Publisher and Session."""
    key = (os.getpid(), model, gateway_address(gateway), run_key(run), shard, gather, *sorted((name, str(value)) for name, value in options.items()))
    with _lock:
        publisher = _publishers.get(key)
        if publisher is None:
            publisher = _publishers[key] = Publisher(model, gateway=gateway, run=run, shard=shard, gather=gather, **options)
    return publisher.publish(step, tensors, blobs=blobs)


@atexit.register
def close_publishers() -> None:
    """Ends what publish() keeps."""
    with _lock:
        for publisher in _publishers.values():
            publisher.close()
        _publishers.clear()


def named_copies(named: Iterable[tuple[str, Any]], memory: dict[str, Any]) -> dict[str, Any]:
    """Tensors that come one by one and do not stay, copied into memory that does: {name: tensor}. The
    memory is that of the call before where names, dtypes and shapes are the same."""
    found: dict[str, Any] = {}
    for name, tensor in named:
        memory[name] = found[name] = _copy_of(name, tensor, memory.get(name))
    for name in memory.keys() - found.keys():
        del memory[name]
    return found


def _copy_of(name: str, tensor: Any, kept: Any) -> Any:
    """Into the copy of the call before, where that suits. A copy is a tensor of torch, which may be on a GPU, or
    (dtype, shape, bytes)."""
    if hasattr(tensor, "detach") and hasattr(tensor, "clone"):
        own = tensor.detach()
        if kept is None or isinstance(kept, tuple) or kept.dtype != own.dtype or kept.shape != own.shape or kept.device != own.device:
            return own.clone().contiguous()
        kept.copy_(own)
        return kept
    view = view_of(name, tensor, gather=True)
    if not isinstance(kept, tuple) or kept[:2] != view[:2]:
        kept = (view.dtype, view.shape, bytearray(view.nbytes))
    refill(view_of(name, kept), view)
    return kept
