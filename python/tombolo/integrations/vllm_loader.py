"""The loader of `--load-format tombolo`. It derives from vLLM's own, so this module imports
that."""

from collections.abc import Iterator
from typing import Any

from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from .. import core


@register_model_loader("tombolo")
class Loader(BaseModelLoader):
    """`--load-format tombolo --model-loader-extra-config '{"model": "policy", "version": 7}'`:
    the engine starts from that version, of the nearest source, or not at all. Configuration and
    tokenizer come from vLLM's --model."""

    def download_model(self, model_config: Any) -> None:
        """The gateway's site has it, or gets it."""

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        return core.copies(**(self.load_config.model_loader_extra_config or {}))

    def load_weights(self, model: Any, model_config: Any) -> None:
        model.load_weights(self.get_all_weights(model_config, model))
