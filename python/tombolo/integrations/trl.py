"""TRL: a callback for GRPOTrainer, and a weight_transfer for AsyncGRPOTrainer. docs/integrations/trl.md is the guide.

    GRPOTrainer(..., callbacks=[PublishCallback("policy")])
    AsyncGRPOTrainer(..., weight_transfer=WeightTransfer("policy", sites=["west"], switch=servers.Vllm(urls)))"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transformers import TrainerCallback

from ..core import Core
from ..publishing import Publisher
from ..versions import Version


class PublishCallback(TrainerCallback):
    """Publishes the model when training begins, every so many steps, and when it ends. The version's number is the
    trainer's global step. tensors: gives what is published of a model (an adapter's tensors, for example); else it is
    the state_dict. options are those of Publisher: gateway, run, dtype. It suits each trainer of transformers."""

    def __init__(self, model: str = "policy", *, every: int = 1, tensors: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self.model, self.every, self._tensors, self._options = model, every, tensors or (lambda model: model.state_dict()), options
        self._publisher: Publisher | None = None
        self.version: Version | None = None

    def _publish(self, state: Any, model: Any) -> None:
        if self.version is not None and state.global_step <= self.version.number:
            return
        model = getattr(model, "module", model) # of DDP
        if any(hasattr(parameter, "ds_tensor") for parameter in model.parameters()):
            raise ValueError(f"{self.model}: ZeRO-3 keeps parts of parameters, which have no boxes: train with FSDP2, or gather them by tensors=")
        tensors = self._tensors(model)
        parts = any(hasattr(tensor, "placements") for tensor in tensors.values())
        if not parts and not state.is_world_process_zero:
            return
        if self._publisher is None:
            self._publisher = Publisher(self.model, **self._options)
        self.version = self._publisher.publish(state.global_step, tensors)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._publish(state, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step % self.every == 0:
            self._publish(state, model)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._publish(state, model)

    def close(self) -> None:
        """Returns when the gateway owns the last version. Readers go on."""
        if self._publisher is not None:
            if self.version is not None:
                self.version.wait_held(timeout=600)
            self._publisher.close()
            self._publisher = None


class WeightTransfer:
    """TRL pauses first and sends then; here the engines serve on until the version is at their sites. switch(step) takes
    them there: servers.Vllm(urls), or a callable of yours; without one they follow by themselves.

    first: the number of the first version, which TRL counts as its model_version; a trainer that resumes gives the one
    after its checkpoint's. options are those of Core."""

    def __init__(self, model: str = "policy", *, switch: Callable[[int], Any] | None = None, sites: Sequence[str] = (), first: int = 1,
                 wait_s: float = 600, **options: Any) -> None:
        self.model, self._switch, self._sites, self._next, self._wait_s = model, switch, sites, first, wait_s
        self._core = Core(model, **options)
        self.version: Version | None = None

    def init_weight_transfer(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """Returns when the version is at each of the sites."""
        self.version = self._core.publish_named(self._next, iterator)
        self._next += 1 # sealed: whatever fails behind it, other weights get another number
        for site in (None, *self._sites): # None: this one
            self.version.wait_held(site, self._wait_s)

    def resume(self) -> None:
        if self._switch is not None and self.version is not None:
            self._switch(self.version.number)

    def destroy(self) -> None:
        self._core.close()
