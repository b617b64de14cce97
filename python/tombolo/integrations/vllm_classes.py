"""The weight transfer engine, which vLLM asks for by name: it derives from vLLM's own, so this
module imports that."""

from typing import Any

from vllm.distributed.weight_transfer import base

from . import replica, vllm


class Info(dict[str, Any]):
    """The message of the trainer, with the fields that some vLLMs read. All keys are taken: on several
    ranks an error here would be one too many."""

    is_checkpoint_format, update_kind = True, "dense"


class Engine(vllm.Calls, base.WeightTransferEngine):
    """init_info: "direct", and as Replica.told() says; update_info: "version". Other keys are
    not read."""

    init_info_cls = update_info_cls = Info
    supports_draft_weight_update, update_kind = False, "dense"
    trainer_send_weights = None # abstract in some; tombolo.publish() does it

    def __init__(self, config: Any, vllm_config: Any, *device_and_model: Any) -> None:
        super().__init__(config, vllm_config, *device_and_model)
        if not device_and_model: # before the engine owned the loading: (config, parallel_config)
            self.vllm_config, self.model = vllm_config, None

    def init_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.tombolo_open(self.model, self.vllm_config, init_info)

    def start_weight_update(self) -> None:
        """Nothing is touched before receive_weights knows that all ranks have the version."""

    def receive_weights(self, update_info: dict[str, Any], load_weights: Any = None) -> None:
        self.tombolo_do(self.vllm_config, lambda to: to.update(replica.version_of(update_info), load_weights))

    def finish_weight_update(self) -> None:
        """receive_weights did all of it."""

    def shutdown(self) -> None:
        if self.tombolo is not None: # its ranks end without each other
            self.tombolo.close()
