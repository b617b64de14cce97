"""The weight transfer engine, which vLLM asks for by name: it derives from vLLM's own, so this module imports that."""

from typing import Any

from vllm.distributed.weight_transfer import base

from . import vllm


class Info(dict[str, Any]):
    """What the trainer sent, with what some vLLMs read of it."""

    is_checkpoint_format, update_kind = True, "dense"


def _version(update_info: dict[str, Any]) -> int:
    if "version" not in update_info:
        raise ValueError('tombolo: update_info has to be {"version": N}')
    return int(update_info["version"])


class Engine(vllm.Calls, base.WeightTransferEngine):
    """init_info: "model", "gateway", "timeout_s", "group", "direct", "session"; update_info: "version". Other keys are not read."""

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
        self.tombolo_call(self.vllm_config, lambda: self.opened().update(_version(update_info), load_weights))

    def finish_weight_update(self) -> None:
        """receive_weights did all of it."""

    def shutdown(self) -> None:
        if self.tombolo is not None: # its ranks end without each other
            self.tombolo.close()

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any = None) -> None: # abstract in some
        raise NotImplementedError("publish with tombolo.publish, or with the trainer engine")
