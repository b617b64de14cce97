"""The loader of `--load-format tombolo`. It derives from vLLM's own, so this module imports that."""

import contextlib
from collections.abc import Iterator
from typing import Any

from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from ..core import Core
from . import vllm


class Loader(BaseModelLoader):
    """`--load-format tombolo --model-loader-extra-config '{"model": "policy", "version": 7}'`: the engine starts from that
    version, of the nearest source, or not at all. Configuration and tokenizer come from vLLM's --model."""

    def download_model(self, model_config: Any) -> None:
        """The gateway's site has it, or gets it."""

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        """Copies, one at a time: a loader may keep tensors until it has a layer whole, and the session ends here."""
        given = dict(self.load_config.model_loader_extra_config or {})
        name, version = given.get("model", "policy"), given.get("version")
        if version is None:
            raise ValueError("tombolo: model_loader_extra_config names no \"version\"")
        with contextlib.closing(Core(name, gateway=given.get("gateway"), **(given.get("session") or {}))) as core:
            core.stage(int(version), float(given.get("timeout_s", 600)))
            for item, tensor in core.named(int(version)):
                yield item, tensor.clone() if hasattr(tensor, "clone") else bytes(tensor)
        vllm.started[name] = int(version)

    def load_weights(self, model: Any, model_config: Any) -> None:
        model.load_weights(self.get_all_weights(model_config, model))
