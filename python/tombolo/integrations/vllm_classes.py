"""Classes that vLLM asks for by name: they derive from its own, so this module imports it."""

import contextlib
from collections.abc import Iterator
from typing import Any

from vllm.distributed.weight_transfer import base
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from ..core import Core
from . import vllm


class Info(dict[str, Any]):
    """What the trainer sent, with what some vLLMs read of it."""

    is_checkpoint_format, update_kind = True, "dense"


class Engine(vllm.Calls, base.WeightTransferEngine):
    """init_info: "model", "gateway", "timeout_s", "group", "direct"; update_info: "version". Other keys are not read."""

    init_info_cls = update_info_cls = Info
    supports_draft_weight_update, update_kind = False, "dense"

    def __init__(self, config: Any, vllm_config: Any, device: Any = None, model: Any = None) -> None:
        if model is not None:
            super().__init__(config, vllm_config, device, model)
        else: # before the engine owned the loading: (config, parallel_config)
            super().__init__(config, vllm_config)
            self.vllm_config, self.model = vllm_config, None

    def parse_init_info(self, init_dict: dict[str, Any]) -> Info:
        return Info(init_dict) # on several ranks an error here would be one too many

    def parse_update_info(self, update_dict: dict[str, Any]) -> Info:
        return Info(update_dict)

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
