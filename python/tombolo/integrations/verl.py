"""verl: a checkpoint engine, and a manager that keeps the network out of the pause. docs/integrations/verl.md is the guide.

    actor_rollout_ref.rollout.checkpoint_engine.backend=tombolo
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=tombolo.integrations.verl
    actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.tombolo.model=policy
    actor_rollout_ref.rollout.checkpoint_manager_class=tombolo.integrations.verl.CheckpointEngineManager

Importing this module registers the engine."""

import importlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import ray
from verl.checkpoint_engine import base
from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
from verl.utils.ray_utils import auto_await

from ..core import Core
from ..versions import Version


def _of_rank_0(mine: bool) -> bool:
    """As rank 0 says, on each rank of the trainer: one that went by itself would gather alone."""
    distributed: Any = importlib.import_module("torch.distributed")
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return mine
    said = [mine]
    distributed.broadcast_object_list(said, src=0)
    return bool(said[0])


@base.CheckpointEngineRegistry.register("tombolo")
class CheckpointEngine(base.CheckpointEngine):
    """One of an actor's or a rollout's worker. gateway: of the trainer's site; rollout_gateway: of the rollouts' (both:
    TOMBOLO_GATEWAY of the process where they are not given). wait_s: how long a rollout waits for a step that is not
    staged yet. actor, rollout: more options of Core, of one side each."""

    wire_format = "named_tensors"

    def __init__(self, bucket_size: int = 0, is_master: bool = False, *, model: str = "policy", gateway: str | None = None,
                 rollout_gateway: str | None = None, wait_s: float = 600, actor: dict[str, Any] | None = None,
                 rollout: dict[str, Any] | None = None) -> None:
        self.model, self.is_master, self.wait_s = model, is_master, wait_s
        self._out = Core(model, gateway=gateway, **(actor or {}))
        self._in = Core(model, gateway=rollout_gateway or gateway, **(rollout or {}))
        self._sent: int | None = None
        self._version: Version | None = None # of rank 0

    def prepare(self) -> dict[str, Any]:
        return {"model": self.model}

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], ...]:
        """Nobody connects to anybody: versions go by their model's name."""
        models = sorted({worker["model"] for worker in metadata})
        if len(models) != 1:
            raise ValueError(f"actors and rollouts speak of different models: {', '.join(models)}")
        return {"rank": list(range(actor_wg_world_size))}, {"rank": list(range(rollout_world_size))}

    def init_process_group(self, rank: int) -> None:
        pass

    def finalize(self) -> None:
        pass

    def close(self) -> None:
        self._out.close()
        self._in.close()

    @staticmethod
    def _step(global_steps: int | None) -> int:
        if global_steps is None:
            raise ValueError("tombolo: update_weights needs global_steps: it is the version's number")
        return int(global_steps)

    async def send_weights(self, weights: Iterable[tuple[str, Any]], global_steps: int | None = None) -> dict[str, Any]:
        """Returns when the gateway owns the version. Each rank walks through the weights, as they are gathered by all;
        rank 0 publishes."""
        step, began = self._step(global_steps), time.perf_counter()
        if _of_rank_0(step == self._sent): # before the pause, by the manager below
            return {}
        pairs = iter(weights)
        if not self.is_master:
            for _ in pairs:
                pass
            self._sent = step # where no rank can ask rank 0
            return {}
        try:
            if self._version is None or self._version.number != step: # else it was sealed, and not yet held
                self._version = self._out.publish_named(step, pairs)
        finally:
            for _ in pairs: # the others gather them still
                pass
        self._version.wait_held(timeout=self.wait_s) # by the gateway, whatever becomes of this process
        self._sent = step
        return {"tombolo/version": step, "tombolo/bytes": self._version.bytes, "tombolo/publish_s": time.perf_counter() - began}

    def stage(self, global_steps: int) -> None:
        """While the replica serves."""
        self._in.stage(self._step(global_steps), self.wait_s)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, Any]]:
        """Pairs of what is staged, which end with the next step: the server copies them. A step that is not here in
        wait_s is an error, and the replica keeps what it has."""
        step = self._step(global_steps)
        self._in.stage(step, self.wait_s)
        for pair in self._in.named(step):
            yield pair
        self._in.apply(step)


class CheckpointEngineManager(base.CheckpointEngineManager):
    """Publishes and stages before it pauses the replicas: the pause has the copy alone. With another backend it is the
    one of verl."""

    @auto_await
    async def update_weights(self, global_steps: int | None = None) -> dict[str, Any]:
        ahead: dict[str, Any] = {}
        if issubclass(self.backend_cls, CheckpointEngine):
            workers = [worker for replica in self.replicas for worker in replica.workers]
            calls = self.actor_wg.update_weights(global_steps=global_steps, mode=self.backend)
            if workers:
                rollout = RayWorkerGroup(worker_handles=workers, ray_cls_with_init=RayClassWithInitArgs(cls=base._worker_cls))
                calls = calls + rollout.execute_checkpoint_engine(["stage"] * len(workers), [global_steps] * len(workers))
            for result in ray.get(calls):
                ahead.update(result or {})
        return {**ahead, **(await super().update_weights(global_steps) or {})}
