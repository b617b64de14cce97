"""The process of a rollout engine, at site west: vLLM on the CPU. Its updates alone make it pause.

    python rollouts.py SETTINGS.json ENGINE

`run` starts it. It starts from version 0, by Tombolo. The trainer names the version that it wants.
Between two steps of the engine a call that does not wait stages it. The pause begins once the
version is whole here."""

import contextlib
import json
import os
import queue
import random
import socket
import sys
import time
from typing import Any

import task
import weights
from messages import Messages
from settings import CONFIG

from tombolo.integrations.replica import Failed

DIRECT = ["UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"]
VLLM = dict(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="WARNING",
    HF_HUB_OFFLINE="1",
    DO_NOT_TRACK="1",
)
IDLE_S = 0.005


def as_on_a_gpu() -> None:
    """vLLM keeps its weights in the layouts of a GPU: versions go into live parameters."""
    import torch
    import vllm._custom_ops as ops
    import vllm.model_executor.layers.utils as utils

    with contextlib.suppress(
        AttributeError
    ):  # not in each torch; a worker's first product in bfloat16 is killed by SIGILL else
        torch.cpu._init_amx()
    utils.check_cpu_sgl_kernel = lambda *_, **__: False
    ops._supports_onednn = False


def engine_of(settings: dict[str, Any]) -> Any:
    """vLLM, once its own site has given it version 0."""
    from vllm import LLM
    from vllm.config import WeightTransferConfig

    from tombolo.integrations import vllm

    vllm.register()
    as_on_a_gpu()
    llm = LLM(
        model=settings["model"],
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=CONFIG["max_position_embeddings"],
        max_num_seqs=settings["at_once"],
        num_gpu_blocks_override=2 * settings["at_once"],
        enable_prefix_caching=False,
        async_scheduling=False,
        generation_config="vllm",
        load_format="tombolo",
        model_loader_extra_config={"model": "policy", "version": 0},
        weight_transfer_config=WeightTransferConfig(backend="tombolo"),
        worker_extension_cls="tombolo.integrations.vllm.Extension",
    )
    llm.init_weight_transfer_engine({"init_info": {"model": "policy", "direct": DIRECT}})
    llm.llm_engine.set_weight_version("0")
    return llm


class Rollouts:
    def __init__(self, llm: Any, settings: dict[str, Any], index: int) -> None:
        from vllm import SamplingParams

        self.llm, self.engine, self.settings, self.index = llm, llm.llm_engine, settings, index
        self.worker = self.engine.model_executor.driver_worker.worker
        self._inbox: queue.Queue[tuple[Any, dict[str, Any] | None]] = queue.Queue()
        self.trainer = Messages(socket.create_connection(tuple(settings["listen"]), timeout=60), self._inbox)
        self._params = SamplingParams(
            temperature=1.0, max_tokens=task.ANSWER, ignore_eos=True, detokenize=False, logprobs=0
        )
        self._prompts = task.prompts(random.Random(f"{settings['seed']} {index}"))
        self._allowed = settings["ahead"]  # groups that the trainer lets this engine make
        self._open: dict[str, dict[str, Any]] = {}
        self._wanted, self._told = 0, 0.0
        self._target: dict[str, Any] | None = None
        self._made, self._tokens, self._served = 0, 0, 0

    # ---- the next version ----

    def live(self) -> dict[str, Any]:
        """The tensors of the checkpoint, as vLLM's live parameters have them."""
        import torch

        whole: dict[str, Any] = {}
        for box in self.worker.weight_transfer_engine.tombolo.ways.boxes:
            tensor = whole.setdefault(box.name, torch.empty(box.shape, dtype=box.tensor.dtype))
            tensor[
                tuple(slice(first, first + count) for first, count in zip(box.first, box.count, strict=True))
            ] = box.tensor.detach()
        return whole

    def stage(self) -> None:
        """Between two steps: of the newest version that was named, once the one before serves."""
        if self._target is None and self._wanted > self._served:
            self._target = {"version": self._wanted, "told": self._told, "tokens": self._tokens}
        if self._target is None:
            return
        try:
            staged = all(self.llm.collective_rpc("tombolo_stage", args=(self._target["version"],)))
        except Failed:
            if self._wanted == self._target["version"]:
                raise
            self._target = None  # it ended, and a newer one is named
            return
        if staged:
            self.switch(
                {**self._target, "staged": time.monotonic(), "tokens": self._tokens - self._target["tokens"]}
            )
            self._target = None

    def switch(self, about: dict[str, Any]) -> None:
        """The pause: requests in flight keep their place, and go on with the new weights."""
        version = about["version"]
        about["paused"], about["in_flight"] = time.monotonic(), self.engine.get_num_unfinished_requests()
        self.llm.start_weight_update()
        self.llm.update_weights({"update_info": {"version": version}})
        self.llm.finish_weight_update(weight_version=str(version))
        about["resumed"], self._served = time.monotonic(), version
        self.trainer.send(kind="switched", digest=weights.digest_of(self.live()), **about)

    # ---- answers ----

    def ask(self) -> None:
        """As many groups as find a place."""
        samples = self.settings["samples"]
        while (
            self._allowed and self.engine.get_num_unfinished_requests() + samples <= self.settings["at_once"]
        ):
            self._allowed -= 1
            self._made += 1
            name = f"{self.index}.{self._made}"
            self._open[name] = {"prompt": next(self._prompts), "samples": []}
            for i in range(samples):
                self.engine.add_request(
                    f"{name}.{i}", {"prompt_token_ids": self._open[name]["prompt"]}, self._params
                )

    def advance(self) -> None:
        """One step of the engine: a token of each request."""
        self._tokens += self.engine.get_num_unfinished_requests()
        for done in self.engine.step():
            if done.finished:
                self.answered(done)

    def answered(self, done: Any) -> None:
        """vLLM itself says which version made which tokens."""
        name, said = done.request_id.rpartition(".")[0], done.outputs[0]
        tokens = [int(token) for token in said.token_ids]
        group = self._open[name]
        group["samples"].append(
            {
                "tokens": tokens,
                "logprobs": [at[token].logprob for at, token in zip(said.logprobs, tokens, strict=True)],
                "spans": [[span.start, span.end, int(span.version)] for span in said.weight_versions],
                "answered": time.monotonic(),
            }
        )
        if len(group["samples"]) == self.settings["samples"]:
            self.trainer.send(kind="group", **self._open.pop(name))

    def hear(self, wait_s: float) -> bool:
        """False: it is over."""
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._inbox.get(timeout=wait_s)[1] if wait_s else self._inbox.get_nowait()[1]
                if message is None or message["kind"] == "end":
                    return False
                if message["kind"] == "version":
                    self._wanted, self._told = message["number"], time.monotonic()
                else:
                    self._allowed += message["groups"]
                wait_s = 0.0
        return True

    def run(self) -> None:
        self.trainer.send(engine=self.index, digest=weights.digest_of(self.live()))
        self.trainer.read_on()
        while self.hear(0.0 if self.engine.has_unfinished_requests() else IDLE_S):
            self.stage()
            self.ask()
            if self.engine.has_unfinished_requests():
                self.advance()


def main(path: str, index: str) -> None:
    with open(path, encoding="utf-8") as text:
        settings = json.load(text)
    os.environ.update(VLLM, TOMBOLO_GATEWAY=settings["engine_gateway"])
    Rollouts(engine_of(settings), settings, int(index)).run()
    sys.stdout.flush()
    os._exit(0)  # whatever threads vLLM has left


if __name__ == "__main__":
    main(*sys.argv[1:])
