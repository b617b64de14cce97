"""vLLM: new versions in running workers, and engines that start from one. docs/integrations/vllm.md is the guide.

vLLM calls register() in each of its processes, by the entry point `vllm.general_plugins` of the wheel. Its interface is
probed; its version is not asked for."""

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from . import replica

log = logging.getLogger("tombolo.integrations")
started: dict[str, int] = {} # model: the version that Loader gave this process' engine
_PLAIN = ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod") # compute nothing from loaded weights, on a GPU


def _part(module: str, name: str) -> Any:
    """None: not in this vLLM."""
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(f"vllm.{module}"), name, None)
    return None


def register() -> None:
    """May be called again and again."""
    for factory, name in (("WeightTransferEngineFactory", "vllm_classes.Engine"), ("WeightTransferTrainerFactory", "vllm_trainer.Trainer")):
        with contextlib.suppress(ValueError, AttributeError): # registered already; or not in this vLLM
            _part("distributed.weight_transfer", factory).register_engine("tombolo", *f"tombolo.integrations.{name}".rsplit(".", 1))
    loaders = _part("model_executor.model_loader", "_LOAD_FORMAT_TO_MODEL_LOADER")
    if loaders is not None and "tombolo" not in loaders:
        with contextlib.suppress(ImportError): # its base is elsewhere in this vLLM
            from .vllm_loader import Loader

            _part("model_executor.model_loader", "register_model_loader")("tombolo")(Loader)


def rank_of(config: Any) -> tuple[int, int]:
    """The rank, and how many there are."""
    parallel = getattr(config, "parallel_config", config)
    return int(getattr(parallel, "rank", 0)), int(getattr(parallel, "world_size", 1))


class Worker(replica.Engine):
    """One worker of vLLM, as a Replica sees it. direct: names of quantisation methods that compute nothing from loaded
    weights."""

    def __init__(self, model: Any, config: Any, direct: Iterable[str] | None) -> None:
        self.model, self.config = model, config
        self.rank, self.ranks = rank_of(config)
        mine = f"{getattr(config, 'instance_id', '')}-{getattr(getattr(config, 'parallel_config', config), 'data_parallel_index', 0)}"
        host = next(host for engine, host in self.gather((mine, os.uname().nodename)) if engine == mine) # of its first rank
        self.group = f"vllm-{host}-{mine}"
        on_gpu = model is not None and next(model.parameters()).is_cuda
        self._direct = set(direct if direct is not None else _PLAIN if on_gpu else ())

    def gather(self, mine: Any) -> list[Any]:
        if self.ranks == 1:
            return [mine]
        world = _part("distributed.parallel_state", "get_world_group")() # of all data-parallel engines, where they share experts
        said = [None] * world.world_size
        importlib.import_module("torch.distributed").all_gather_object(said, mine, group=world.cpu_group)
        return said

    def computes(self, module: Any) -> bool:
        method = getattr(module, "quant_method", None)
        return callable(getattr(module, "process_weights_after_loading", None)) or (
            method is not None and type(method).__name__ not in self._direct and next(module.parameters(recurse=False), None) is not None)

    def load(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self.model.load_weights(pairs)

    def begin_reload(self, modules: list[Any]) -> None:
        for module in modules:
            _part("model_executor.model_loader.reload", "initialize_layerwise_reload")(module)

    def end_reload(self, modules: list[Any]) -> None:
        for module in modules:
            _part("model_executor.model_loader.reload", "finalize_layerwise_reload")(module, self.config.model_config)

    def first_weights(self) -> Iterable[tuple[str, Any]]:
        made = _part("model_executor.model_loader", "get_model_loader")(self.config.load_config)
        pairs: Iterable[tuple[str, Any]] = made.get_all_weights(self.config.model_config, self.model)
        return pairs


class Calls:
    """What the engine and the worker extension have in common. replies: the last rank's alone may be an error."""

    tombolo: replica.Replica | None = None
    _made: tuple[Any, ...] = () # what the replica was made of

    def opened(self) -> replica.Replica:
        if self.tombolo is None:
            raise RuntimeError("tombolo: call init_weight_transfer_engine first, or tombolo_init")
        return self.tombolo

    def tombolo_call(self, config: Any, call: Callable[[], Any]) -> Any:
        """Errors behind which a rank knows of the others are Failed. All others come from what each rank was told,
        and are the same on each."""
        within = _part("config", "set_current_vllm_config") if hasattr(config, "parallel_config") else None
        try:
            with within(config) if within is not None else contextlib.nullcontext():
                return call()
        except replica.Failed as error:
            if error.is_last:
                raise
        except Exception as error:
            rank, ranks = rank_of(config)
            if rank == ranks - 1:
                raise
            log.warning("replica.failed rank=%d what=call why=%s", rank, error, exc_info=True)
        return None

    def tombolo_open(self, model: Any, config: Any, info: dict[str, Any]) -> None:
        self.tombolo_call(config, lambda: self._open(model, config, info))

    def _open(self, model: Any, config: Any, info: dict[str, Any]) -> None:
        """Asked for the same once more, the replica stays, with its version."""
        name, gateway, timeout_s = info.get("model", "policy"), info.get("gateway"), float(info.get("timeout_s", 60))
        session, direct = dict(info.get("session") or {}), info.get("direct")
        worker = Worker(model, config, direct)
        made = (name, gateway, info.get("group", worker.group), model, session, direct)
        if self.tombolo is None or self._made != made:
            if self.tombolo is not None:
                self.tombolo.together("close the one before", self.tombolo.close)
            self.tombolo = replica.Replica(name, model, worker, gateway=gateway, group=made[2], **session)
            self._made = made
        self.tombolo.timeout_s = timeout_s
        self.tombolo.open()


class Extension:
    """`--worker-extension-cls tombolo.integrations.vllm.Extension`: the same by collective_rpc, in each vLLM. It is also
    how a driver stages before the pause."""

    vllm_config: Any
    model_runner: Any

    def _tombolo(self) -> Calls:
        engine = getattr(self, "weight_transfer_engine", None)
        calls: Calls = engine if isinstance(engine, Calls) else self.__dict__.setdefault("_tombolo_calls", Calls())
        return calls

    def _tombolo_do(self, call: Callable[[replica.Replica], Any]) -> Any:
        calls = self._tombolo()
        return calls.tombolo_call(self.vllm_config, lambda: call(calls.opened()))

    def tombolo_init(self, info: dict[str, Any]) -> None:
        self._tombolo().tombolo_open(self.model_runner.model, self.vllm_config, info)

    def tombolo_stage(self, version: int) -> Any:
        """It does not wait, as the engine serves: true once the version is staged on all ranks."""
        return self._tombolo_do(lambda to: to.begin(int(version)))

    def tombolo_update(self, version: int) -> Any:
        """One call instead of start, update and finish."""
        return self._tombolo_do(lambda to: to.update(int(version)))

    def tombolo_version(self, model: str = "policy") -> int | None:
        held = self._tombolo().tombolo
        version = held.version() if held is not None else None
        return started.get(held.name if held is not None else model) if version is None else version
