"""SGLang: a receiver of versions in each of its workers, or a custom weight loader. docs/integrations/sglang.md is the guide.

    --weight-update-receivers tombolo.integrations.sglang.Receiver    # servers.Sglang(urls) speaks to it
    load_format="tombolo.integrations.sglang.load"                    # of /update_weights_from_tensor, elsewhere

TOMBOLO_MODEL and TOMBOLO_GATEWAY are read where the request does not say."""

import importlib
import os
import uuid
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from . import replica

STEP = "tombolo.version" # the tensor that names the version, for load()


def _group() -> Any:
    """SGLang's group of the workers of one engine."""
    return importlib.import_module("sglang.srt.distributed.parallel_state").get_tp_group()


class Worker(replica.Engine):
    """One worker of SGLang, as a Replica sees it."""

    def __init__(self, context: Any) -> None:
        self.model = context.model
        self.rank, self.ranks = context.tp_rank, context.tp_size

    def process_group(self) -> Any:
        return _group().cpu_group

    def computes(self, module: Any) -> bool:
        """Its quantisation methods compute something from what is loaded."""
        method = getattr(module, "quant_method", None)
        return method is not None and not type(method).__name__.startswith("Unquantized")


class Receiver:
    """context: SGLang's WeightUpdateReceiverContext. Its init_payload is what Replica.told()
    says; "ahead" (true) stages the newest version while the engine serves, where that has one
    worker: several would each find another one the newest, and a group takes no older one than
    it staged."""

    def __init__(self, context: Any) -> None:
        told = {"model": os.environ.get("TOMBOLO_MODEL", "policy"), **(context.init_payload or {})}
        worker = Worker(context)
        self._ahead = told.get("ahead", True) and worker.ranks == 1
        self.replica = replica.Replica.told(told, worker, worker.gather(f"sglang-{uuid.uuid4().hex}")[0])
        self.replica.open()
        self._go_ahead()

    def _go_ahead(self) -> None:
        if self._ahead and self.replica.core is not None:
            self.replica.core.ahead()

    def receive(self, payload: dict[str, Any] | None) -> None:
        """In the engine's pause: {"version": step}. Each worker raises where one of them cannot,
        and all keep what they had."""
        self.replica.update(replica.version_of(payload))
        self._go_ahead()

    def destroy(self) -> None:
        self.replica.close()


_receivers: dict[int, tuple[Any, Receiver]] = {} # of load(): by the model


def load(model: Any, named_tensors: Iterable[tuple[str, Any]]) -> None:
    """A custom weight loader. The request has one tensor, `tombolo.version`, which holds the
    step."""
    named = dict(named_tensors)
    if STEP not in named:
        raise ValueError(f"tombolo: the tensors of this request name no version: send ({STEP!r}, torch.tensor([STEP]))")
    if id(model) not in _receivers:
        try:
            group = _group()
        except (ImportError, AssertionError): # no group was made: one worker
            group = SimpleNamespace(rank_in_group=0, world_size=1)
        context = SimpleNamespace(model=model, tp_rank=group.rank_in_group, tp_size=group.world_size, init_payload=None)
        _receivers[id(model)] = model, Receiver(context)
    _receivers[id(model)][1].receive({"version": int(named[STEP])})
