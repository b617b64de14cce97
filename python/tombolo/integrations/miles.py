"""miles: an external weight transfer protocol. docs/integrations/miles.md is the guide.

    --update-weight-transfer-mode external --custom-weight-transfer-protocol-path tombolo.integrations.miles.build_protocol

TOMBOLO_MODEL, TOMBOLO_GATEWAY and TOMBOLO_SITES (the rollouts' sites, by commas) are read by the first rank."""

import importlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..publishing import Publisher
from . import servers

_WEIGHT_UPDATE = "miles.backends.training_utils.weight_update"


class Sender:
    """The first rank's part: tensors come in buckets, and are published together. The engines serve on until the version
    is at their sites; then they are paused, told, and resumed. switch: instead of servers.Sglang."""

    def __init__(self, switch: Any = None) -> None:
        self._memory: dict[str, Any] = {}
        self._new: set[str] = set()
        self._publisher: Publisher | None = None
        self._switch, self._urls = switch, list[str]()

    def connect(self, urls: Sequence[str], mode: str) -> None:
        if self._switch is None or list(urls) != self._urls and isinstance(self._switch, servers.Sglang):
            self._switch = servers.Sglang(urls, mode=mode)
        self._urls = list(urls)

    def add(self, bucket: Iterable[tuple[str, Any]]) -> None:
        """A bucket's tensors do not stay."""
        for name, tensor in bucket:
            kept = self._memory.get(name)
            if kept is None or kept.dtype != tensor.dtype or kept.shape != tensor.shape:
                self._memory[name] = tensor.detach().clone().contiguous()
            else:
                kept.copy_(tensor.detach())
            self._new.add(name)

    def publish(self, step: int) -> dict[str, float]:
        for name in self._memory.keys() - self._new:
            del self._memory[name]
        self._new.clear()
        began = time.perf_counter()
        if self._publisher is None:
            self._publisher = Publisher(os.environ.get("TOMBOLO_MODEL", "policy"))
        version = self._publisher.publish(step, self._memory, timeout=600)
        published = time.perf_counter()
        for site in (None, *filter(None, map(str.strip, os.environ.get("TOMBOLO_SITES", "").split(",")))): # None: this one
            version.wait_held(site, timeout=600)
        held = time.perf_counter()
        self._switch(step)
        return {"perf/tombolo_publish_s": published - began, "perf/tombolo_to_sites_s": held - published,
                "perf/tombolo_switch_s": time.perf_counter() - held, "perf/tombolo_bytes": float(version.bytes)}


def build_protocol(args: Any) -> Any:
    """The path as miles makes it. miles is imported here alone."""
    base: Any = importlib.import_module(f"{_WEIGHT_UPDATE}.protocol").WeightTransferProtocol
    placement: Any = type(base.required_placement)

    class Protocol(base): # type: ignore[misc]
        required_placement = placement(gather_pp=True) # the first rank gets all of it
        supports_lora = False
        use_weight_update_session = False # the receiver of the engine does it

        def __init__(self, args: Any) -> None:
            super().__init__(args)
            self.sender = Sender()

        def connect(self, rollout_engines: Sequence[Any], *_: Any, **__: Any) -> None:
            self.rollout_engines = rollout_engines
            self.is_sender = _rank() == 0
            if self.is_sender:
                self.sender.connect([engine.server_url for engine in rollout_engines], getattr(self.args, "pause_generation_mode", "retract"))

        def send_bucket(self, bucket: list[tuple[str, Any]]) -> None:
            self.sender.add(bucket)
            bucket.clear()

        def finalize(self, weight_version: int) -> None:
            """All ranks call it. All raise an error of the first one, or they would wait for it."""
            said: list[Any] = [None]
            if self.is_sender:
                try:
                    self.update_weight_metrics = self.sender.publish(weight_version)
                except Exception as error:
                    said[0] = f"{type(error).__name__}: {error}"
            distributed: Any = importlib.import_module("torch.distributed")
            if distributed.is_initialized() and distributed.get_world_size() > 1:
                distributed.broadcast_object_list(said, src=0, group=importlib.import_module("miles.utils.distributed_utils").get_gloo_group())
            if said[0] is not None:
                raise RuntimeError(f"tombolo: version {weight_version}: {said[0]}")

    return Protocol(args)


def _rank() -> int:
    distributed: Any = importlib.import_module("torch.distributed")
    return int(distributed.get_rank()) if distributed.is_initialized() else 0
