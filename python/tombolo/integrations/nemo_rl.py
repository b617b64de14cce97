"""NeMo-RL: a checkpoint engine. docs/integrations/nemo-rl.md is the guide.

    policy.generation.refit_transport=tombolo.integrations.nemo_rl:CheckpointEngine
    policy.generation.refit_cfg."tombolo.integrations.nemo_rl:CheckpointEngine".backend_init_params.model=policy

NeMo-RL gives no number to a refit: the first policy worker counts, and its number goes to the others with the metadata of
prepare()."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from ..core import Core


class CheckpointEngine:
    """One of a policy's or of a rollout's worker. gateway: of the policy's site; rollout_gateway: of the rollouts' (both:
    TOMBOLO_GATEWAY of the process where they are not given). first: the number of the first refit. Named tensors are
    whole: NeMo-RL's ranks gather them."""

    shard_expert_weights = False
    cleanup_after_load = True

    def __init__(self, bucket_size: int, *, model: str = "policy", gateway: str | None = None, rollout_gateway: str | None = None,
                 first: int = 1, wait_s: float = 600, policy: dict[str, Any] | None = None, rollout: dict[str, Any] | None = None,
                 **_: Any) -> None:
        self.model, self.bucket_size, self.wait_s, self._next = model, max(bucket_size, 1), wait_s, first
        self._out = Core(model, gateway=gateway, **(policy or {}))
        self._in = Core(model, gateway=rollout_gateway or gateway, **(rollout or {}))
        self._is_sender: bool | None = None
        self._step = first

    def get_target_weight_layout(self) -> None:
        return None

    def prepare(self) -> dict[str, Any]:
        return {"model": self.model, "next": self._next}

    def _agree(self, train_world_size: int, metadata: list[dict[str, Any]]) -> None:
        models = sorted({worker["model"] for worker in metadata})
        if len(models) != 1:
            raise ValueError(f"policy and rollouts speak of different models: {', '.join(models)}")
        self._step = metadata[0]["next"] # of the first policy worker

    def init_policy_process_group(self, *, worker_rank: int, train_world_size: int, rollout_world_size: int, metadata: list[Any]) -> None:
        self._agree(train_world_size, metadata)
        self._is_sender = worker_rank == 0

    def init_rollout_process_group(self, *, rollout_rank: int, train_world_size: int, rollout_world_size: int, metadata: list[Any]) -> None:
        self._agree(train_world_size, metadata)

    def finalize(self) -> None:
        """Of one refit: the sessions stay."""

    async def send_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Returns when the gateway owns the version."""
        try:
            self._out.send(self._step, weights, bool(self._is_sender), timeout=self.wait_s)
        finally:
            self._next = self._step + 1 # it may be sealed: other weights get another number

    async def receive_weight_batches(self) -> AsyncIterator[list[tuple[str, Any]]]:
        """Pairs of what is staged, in lists of about bucket_size bytes."""
        self._in.stage(self._step, self.wait_s)
        batch: list[tuple[str, Any]] = []
        size = 0
        for name, tensor in self._in.named(self._step):
            if batch and size + tensor.nbytes > self.bucket_size:
                yield batch
                batch, size = [], 0
            batch.append((name, tensor))
            size += tensor.nbytes
        if batch:
            yield batch
        del batch
        self._in.apply(self._step)

    def close(self) -> None:
        self._out.close()
        self._in.close()
