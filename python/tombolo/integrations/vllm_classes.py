"""Classes that vLLM asks for by name: they derive from its own, so this module imports it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.distributed.weight_transfer import base
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from ..core import Core
from . import vllm


class Engine(vllm.Calls, base.WeightTransferEngine):
    """init_info: "model", "gateway", "timeout_s", "group", "direct"; update_info: "version". Other keys are not read."""

    init_info_cls = update_info_cls = dict
    supports_draft_weight_update, update_kind = False, "dense"

    def __init__(self, config: Any, vllm_config: Any, device: Any = None, model: Any = None) -> None:
        if model is not None:
            super().__init__(config, vllm_config, device, model)
        else: # before the engine owned the loading: (config, parallel_config)
            super().__init__(config, vllm_config)
            self.vllm_config, self.model = vllm_config, None

    def parse_init_info(self, init_dict: dict[str, Any]) -> dict[str, Any]:
        return dict(init_dict) # on several ranks an error here would be one too many

    def parse_update_info(self, update_dict: dict[str, Any]) -> dict[str, Any]:
        return dict(update_dict)

    def init_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.tombolo_open(self.model, self.vllm_config, init_info)

    def start_weight_update(self) -> None:
        """Nothing is touched before receive_weights knows that all ranks have the version."""

    def receive_weights(self, update_info: dict[str, Any], load_weights: Any = None) -> None:
        self.tombolo_call(self.vllm_config, lambda: self.opened().update(int(update_info["version"]), load_weights))

    def finish_weight_update(self) -> None:
        """receive_weights did all of it."""

    def shutdown(self) -> None:
        if self.tombolo is not None:
            self.tombolo.close()

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any = None) -> None: # abstract in some
        raise NotImplementedError("publish with tombolo.publish, or with the trainer engine")


class Loader(BaseModelLoader):
    """`--load-format tombolo --model-loader-extra-config '{"model": "policy", "version": 7}'`: the engine starts from that
    version, of the nearest source, or not at all. Configuration and tokenizer come from vLLM's --model."""

    def download_model(self, model_config: Any) -> None:
        """The gateway's site has it, or gets it."""

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        given = dict(self.load_config.model_loader_extra_config or {})
        name, version = given.get("model", "policy"), given.get("version")
        if version is None:
            raise ValueError("tombolo: model_loader_extra_config names no \"version\"")
        with contextlib.closing(Core(name, gateway=given.get("gateway"))) as core:
            core.stage(int(version), float(given.get("timeout_s", 600)))
            yield from core.named(int(version))
        vllm.started[name] = int(version)

    def load_weights(self, model: Any, model_config: Any) -> None:
        model.load_weights(self.get_all_weights(model_config, model))


@dataclass
class TrainerInit(base.TrainerInitInfo):
    backend: ClassVar[str] = "tombolo"
    model: str = "policy"
    gateway: str | None = None          # the trainer's
    engine_gateway: str | None = None   # the engine's; None: TOMBOLO_GATEWAY there
    step: int = 0                       # of the first send_weights, minus one
    run: str | None = None
    site: str | None = None             # where the engine is: send_weights waits until that site holds the version


class Trainer(base.TrainerWeightTransferEngine):
    """vLLM's trainer-side interface: send_weights() publishes, waits until the engine's site has the version, and makes
    the engine change over. To publish without that wait call tombolo.publish, and update() when it suits."""

    init_info_cls = TrainerInit

    @classmethod
    def trainer_init(cls, init_info: TrainerInit, *, client: Any, source: Any = None) -> "Trainer":
        made = cls(client=client, source=source, is_sender=init_info.is_sender)
        made.info, made.step = init_info, init_info.step
        made.core = Core(init_info.model, gateway=init_info.gateway, run=init_info.run)
        if made.is_sender:
            client.init_weight_transfer_engine({"model": init_info.model, "gateway": init_info.engine_gateway})
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
