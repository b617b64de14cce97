"""vLLM: new versions in running workers, and engines that start from one. docs/integrations/vllm.md
is the guide.

vLLM calls register() in each of its processes, by the entry point `vllm.general_plugins` of the
wheel. Its interface is probed; its version is not asked for."""

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

from . import replica

# On a GPU they compute nothing from loaded weights.
_PLAIN = ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod")


def register() -> None:
    """May be called again and again."""
    for side, name in (("Engine", "vllm_classes.Engine"), ("Trainer", "vllm_trainer.Trainer")):
        factory = replica.part("vllm.distributed.weight_transfer", f"WeightTransfer{side}Factory")
        with contextlib.suppress(ValueError, AttributeError): # registered already; or not in this vLLM
            factory.register_engine("tombolo", *f"tombolo.integrations.{name}".rsplit(".", 1))
    replica.part("tombolo.integrations.vllm_loader", "Loader") # registers itself, where vLLM has its base
    replica.log_as("vllm") # which gives no other logger a place


def rank_of(config: Any) -> tuple[int, int]:
    """The rank, and how many there are."""
    parallel = getattr(config, "parallel_config", config)
    return int(parallel.rank), int(parallel.world_size)


class Worker(replica.Engine):
    """One worker of vLLM, as a Replica sees it. direct: names of quantisation methods that
    compute nothing from loaded weights."""

    def __init__(self, model: Any, config: Any, direct: Iterable[str] | None) -> None:
        self.model, self.config = model, config
        self.rank, self.ranks = rank_of(config)
        index = getattr(getattr(config, "parallel_config", config), "data_parallel_index", 0)
        mine = f"{getattr(config, 'instance_id', '')}-{index}"
        # Of its first rank, among all data-parallel engines, where they share experts.
        host = next(host for engine, host in self.gather((mine, os.uname().nodename)) if engine == mine)
        self.group = f"vllm-{host}-{mine}"
        on_gpu = model is not None and next(model.parameters()).is_cuda
        self.direct = set(direct if direct is not None else _PLAIN if on_gpu else ())

    def process_group(self) -> Any:
        return replica.part("vllm.distributed.parallel_state", "get_world_group")().cpu_group

    def computes(self, module: Any) -> bool:
        method = type(getattr(module, "quant_method", None)).__name__
        plain = method in ("NoneType", *self.direct) or next(module.parameters(recurse=False), None) is None
        return not plain or callable(getattr(module, "process_weights_after_loading", None))

    def begin_reload(self, modules: list[Any]) -> None:
        for module in modules:
            replica.part("vllm.model_executor.model_loader.reload", "initialize_layerwise_reload")(module)

    def end_reload(self, modules: list[Any]) -> None:
        finalize = replica.part("vllm.model_executor.model_loader.reload", "finalize_layerwise_reload")
        for module in modules:
            finalize(module, self.config.model_config)

    def first_weights(self) -> Any:
        made = replica.part("vllm.model_executor.model_loader", "get_model_loader")(self.config.load_config)
        return made.get_all_weights(self.config.model_config, self.model)


class Calls:
    """The common part of the engine and the worker extension. Of replies the last rank's alone
    may be an error."""

    tombolo: replica.Replica | None = None

    def _tombolo_call(self, config: Any, call: Callable[[], Any]) -> Any:
        within = hasattr(config, "parallel_config") and replica.part("vllm.config", "set_current_vllm_config")
        with within(config) if within else contextlib.nullcontext():
            return replica.raised_by_the_last(*rank_of(config), call)

    def tombolo_open(self, model: Any, config: Any, info: dict[str, Any]) -> None:
        """Told the same once more, it keeps its version."""
        def opened() -> None:
            worker = Worker(model, config, info.get("direct"))
            self.tombolo = replica.Replica.told(info, worker, worker.group).instead(self.tombolo)
            self.tombolo.open()
        self._tombolo_call(config, opened)

    def tombolo_do(self, config: Any, call: Callable[[replica.Replica], Any]) -> Any:
        def do() -> Any:
            if self.tombolo is None:
                raise RuntimeError("tombolo: call init_weight_transfer_engine first, or tombolo_init")
            return call(self.tombolo)
        return self._tombolo_call(config, do)


class Extension(Calls):
    """`--worker-extension-cls tombolo.integrations.vllm.Extension`: the same by collective_rpc,
    in each vLLM. It is also how a driver stages before the pause."""

    vllm_config: Any
    model_runner: Any

    def _tombolo_calls(self) -> Calls:
        engine = getattr(self, "weight_transfer_engine", None)
        return engine if isinstance(engine, Calls) else self

    def tombolo_init(self, info: dict[str, Any]) -> None:
        self._tombolo_calls().tombolo_open(self.model_runner.model, self.vllm_config, info)

    def tombolo_stage(self, version: int) -> Any:
        """It does not wait, as the engine serves: true once the version is staged on all ranks."""
        return self._tombolo_calls().tombolo_do(self.vllm_config, lambda to: to.begin(int(version)))

    def tombolo_update(self, version: int) -> Any:
        """One call instead of start, update and finish."""
        return self._tombolo_calls().tombolo_do(self.vllm_config, lambda to: to.update(int(version)))

    def tombolo_version(self) -> int | None:
        """That it got last, or started from."""
        held, load = self._tombolo_calls().tombolo, self.vllm_config.load_config
        started = load.model_loader_extra_config["version"] if load.load_format == "tombolo" else None
        return started if held is None or held.version() is None else held.version()
