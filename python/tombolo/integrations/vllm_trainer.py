"""vLLM's trainer-side interface: one call publishes a version, and has the engine change over to it."""

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.distributed.weight_transfer import base

from ..core import Core


@dataclass
class TrainerInit(base.TrainerInitInfo):
    backend: ClassVar[str] = "tombolo"
    model: str = "policy"
    gateway: str | None = None          # the trainer's
    engine_gateway: str | None = None   # the engine's; None: TOMBOLO_GATEWAY there
    step: int = 0                       # of the first send_weights, minus one
    run: str | None = None
    session: dict[str, Any] | None = None        # more options of the trainer's session: certificates, for example
    engine_session: dict[str, Any] | None = None # and of the engine's
    site: str | None = None             # where the engine is: send_weights waits until that site holds the version


class Trainer(base.TrainerWeightTransferEngine):
    """vLLM's trainer-side interface: send_weights() publishes, waits until the engine's site has the version, and makes
    the engine change over. To publish without that wait call tombolo.publish, and update() when it suits."""

    init_info_cls = TrainerInit

    @classmethod
    def trainer_init(cls, init_info: TrainerInit, *, client: Any, source: Any = None) -> "Trainer":
        made = cls(client=client, source=source, is_sender=init_info.is_sender)
        made.info, made.step = init_info, init_info.step
        made.core = Core(init_info.model, gateway=init_info.gateway, run=init_info.run, publisher=init_info.session)
        if made.is_sender:
            client.init_weight_transfer_engine({"model": init_info.model, "gateway": init_info.engine_gateway, "session": init_info.engine_session})
        return made

    def send_weights(self) -> None:
        self.step += 1
        if not self.is_sender: # the source gathers on all ranks
            for _ in self.source:
                pass
            return
        version = self.core.publish_named(self.step, self.source)
        version.wait_held(self.info.site)
        update(self.client, self.step)

    def shutdown(self) -> None:
        self.core.close()


def update(client: Any, version: int) -> None:
    """The phases. After a failure it closes the sessions of the ranks that did not raise, so that the next update starts."""
    client.start_weight_update()
    try:
        client.update_weights({"version": version})
    except Exception:
        with contextlib.suppress(Exception):
            client.finish_weight_update()
        raise
    client.finish_weight_update(weight_version=str(version))
