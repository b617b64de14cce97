"""vLLM's trainer-side interface: one call publishes a version, and has the engine change over to
it."""

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.distributed.weight_transfer import base

from ..core import Core


@dataclass
class TrainerInit(base.TrainerInitInfo):
    """trainer: options of Core, on this side; engine: more of the engine's init_info. step: of
    the first send_weights, minus one. site: where the engine is; send_weights waits until that
    site holds the version."""

    backend: ClassVar[str] = "tombolo"
    model: str = "policy"
    step: int = 0
    trainer: dict[str, Any] | None = None
    engine: dict[str, Any] | None = None
    site: str | None = None


class Trainer(base.TrainerWeightTransferEngine):
    """send_weights() publishes, waits until the engine's site has the version, and makes the
    engine change over. To publish without that wait call tombolo.publish, and update() when it
    suits."""

    init_info_cls = TrainerInit

    @classmethod
    def trainer_init(cls, init_info: TrainerInit, *, client: Any, source: Any = None) -> "Trainer":
        made, to = cls(client=client, source=source, is_sender=init_info.is_sender), init_info
        made.step, made.site = to.step, to.site
        made.core = Core(to.model, **(to.trainer or {}))
        if made.is_sender:
            client.init_weight_transfer_engine({"model": to.model, **(to.engine or {})})
        return made

    def send_weights(self) -> None:
        self.step += 1
        if self.core.send(self.step, self.source, self.is_sender, self.site):
            update(self.client, self.step)

    def shutdown(self) -> None:
        self.core.close()


def update(client: Any, version: int) -> None:
    """The phases. After a failure it closes the sessions of the ranks that did not raise, so
    that the next update starts."""
    client.start_weight_update()
    try:
        client.update_weights({"version": version})
    except Exception:
        with contextlib.suppress(Exception):
            client.finish_weight_update()
        raise
    client.finish_weight_update(weight_version=str(version))
