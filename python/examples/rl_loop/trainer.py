"""The trainer's process, at site east: a warm-up, then GRPO. Each step's weights are a version.

    python trainer.py SETTINGS.json

`run` starts it. Masters are FP32, and versions BF16. After each publish() the trainer goes on with
the next batch: it waits for no engine. It writes what it saw to the settings' `report`."""

import json
import queue
import random
import socket
import sys
import time
from typing import Any

import task
import torch
import weights
from messages import Messages
from settings import CONFIG
from transformers import LlamaConfig, LlamaForCausalLM

import tombolo

CLIP = 0.2  # of the ratio between the policy and the version that answered
HOME_S, ENGINE_S = 60, 900


class Gone(RuntimeError):
    """An engine ended before its time."""


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    made: torch.nn.Module = LlamaForCausalLM(LlamaConfig(**CONFIG)).float()
    return made


def logprobs(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Of each token of the answers."""
    logits = model(tokens[:, :-1]).logits[:, task.PROMPT - 1 :].float()
    return logits.log_softmax(-1).gather(-1, tokens[:, task.PROMPT :, None]).squeeze(-1)


def warm_up(model: torch.nn.Module, steps: int, rate: float, seed: int) -> None:
    """Supervised, and broken off early: GRPO needs a policy that is right now and then."""
    optimizer, deck = torch.optim.AdamW(model.parameters(), lr=rate), task.prompts(random.Random(seed))
    for _ in range(steps):
        prompts = [next(deck) for _ in range(16)]
        loss = -logprobs(
            model, torch.tensor([prompt + task.right_answer(prompt) for prompt in prompts])
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def advantages_of(groups: list[dict[str, Any]]) -> torch.Tensor:
    """Of each token: the reward that came from it on, against the other answers to the same prompt."""
    answers = [[(group["prompt"], sample["tokens"]) for sample in group["samples"]] for group in groups]
    rights = torch.tensor([[task.rights_of(*answer) for answer in group] for group in answers]).float()
    onward = rights.flip(2).cumsum(2).flip(2) / torch.arange(task.ANSWER, 0, -1)
    return ((onward - onward.mean(1, keepdim=True)) / (onward.std(1, keepdim=True) + 1e-2)).flatten(0, 1)


def grpo_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
    samples = [(group["prompt"], sample) for group in groups for sample in group["samples"]]
    tokens = torch.tensor([prompt + sample["tokens"] for prompt, sample in samples])
    before = torch.tensor([sample["logprobs"] for _, sample in samples])
    ratio, advantages = (logprobs(model, tokens) - before).exp(), advantages_of(groups)
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def ask(control: str, **request: Any) -> dict[str, Any]:
    """The gateway's control socket."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(20)
        asked.connect(control)
        asked.sendall(json.dumps({"schema": 1, **request}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(asked.makefile().readline())
    return answer


class Trainer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.model = settings, model_of(settings["seed"])
        self.publisher = tombolo.Publisher(
            "policy", gateway=settings["gateway"], run="rl-loop", dtype=torch.bfloat16
        )
        self.versions: list[dict[str, Any]] = []
        self.starts: list[dict[str, Any]] = []  # what each engine had of version 0
        self.switches: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self._last: dict[str, torch.Tensor] = {}  # what was published
        self._groups: list[dict[str, Any]] = []  # that no step took yet
        self._inbox: queue.Queue[tuple[Any, dict[str, Any] | None]] = queue.Queue()
        self._engines: list[Messages] = []

    # ---- versions ----

    def publish(self, number: int) -> None:
        """publish() has cast, copied and sealed; behind wait_held() the gateway has all of it."""
        begun = time.monotonic()
        version = self.publisher.publish(number, self.model)
        published = time.monotonic()
        version.wait_held(timeout=HOME_S)
        held = time.monotonic()
        for engine in self._engines:
            engine.send(kind="version", number=number)
        mine = {name: tensor.detach().to(torch.bfloat16) for name, tensor in self.model.state_dict().items()}
        changed = sum(int((mine[name] != old).sum()) for name, old in self._last.items()) / sum(
            tensor.numel() for tensor in mine.values()
        )
        self._last = mine
        self.versions.append(
            {
                "number": number,
                "begun": begun,
                "published": published,
                "held": held,
                "bytes": version.bytes,
                "changed": changed if number else None,
                "wire_bytes": None,
                "digest": weights.digest_of(mine),
            }
        )

    def note_wire(self) -> None:
        """How many bytes of each version have crossed. A gateway forgets it with the version."""
        for row in ask(self.settings["control"], cmd="versions", model="policy")["versions"]:
            if row["number"] < len(self.versions) and row["sent"] is not None:
                self.versions[row["number"]]["wire_bytes"] = row["sent"]["bytes"]

    # ---- engines ----

    def accept(self, listener: socket.socket) -> None:
        listener.settimeout(ENGINE_S)
        for _ in range(self.settings["engines"]):
            connection, _ = listener.accept()
            engine = Messages(connection, self._inbox)
            said = engine.first()
            engine.name = said["engine"]
            engine.read_on()
            self._engines.append(engine)
            self.starts.append(said)
            print(f"engine {engine.name} serves version 0, which it read from its own site", flush=True)
        self._engines.sort(key=lambda engine: engine.name)

    def hear(self) -> None:
        """One message of an engine."""
        try:
            name, message = self._inbox.get(timeout=ENGINE_S)
        except queue.Empty:
            raise Gone(f"no engine said anything for {ENGINE_S} s") from None
        if message is None:
            raise Gone(f"engine {name} ended")
        if message.pop("kind") == "group":
            self._groups.append({"engine": name, **message})
            return
        self.switches.append({"engine": name, **message})
        self.note_wire()
        crossed, pause = message["staged"] - message["told"], message["resumed"] - message["paused"]
        print(
            f"    engine {name} serves version {message['version']}: staged {crossed:.2f} s after it was "
            f"named, while {message['tokens']} tokens were made; pause {pause * 1000:.1f} ms",
            flush=True,
        )

    def batch(self) -> list[dict[str, Any]]:
        """The groups that came first. Their engines may make as many again."""
        size = self.settings["groups"]
        while len(self._groups) < size:
            self.hear()
        taken, self._groups = self._groups[:size], self._groups[size:]
        for engine in self._engines:
            engine.send(kind="more", groups=sum(group["engine"] == engine.name for group in taken))
        return taken

    # ---- the loop ----

    def step(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        groups = self.batch()
        for group in groups:
            for sample in group["samples"]:
                sample["reward"] = task.reward_of(group["prompt"], sample["tokens"])
                self.requests.append(
                    {
                        "engine": group["engine"],
                        "step": number,
                        "reward": sample["reward"],
                        "answered": sample["answered"],
                        "spans": sample["spans"],
                    }
                )
        mine = self.requests[-sum(len(group["samples"]) for group in groups) :]
        grpo_step(self.model, optimizer, groups)
        self.publish(number)
        reward = sum(request["reward"] for request in mine) / len(mine)
        self.steps.append({"number": number, "reward": reward, "ended": time.monotonic()})
        versions, now = sorted({span[2] for request in mine for span in request["spans"]}), self.versions[-1]
        print(
            f"step {number} of {self.settings['steps']}: reward {reward:.2f} of {len(mine)} answers, made by "
            f"version {', '.join(map(str, versions))}; version {number} is at the gateway after "
            f"{(now['held'] - now['begun']) * 1000:.0f} ms, {now['changed']:.0%} of it changed",
            flush=True,
        )

    def served(self, number: int) -> bool:
        return {switch["engine"] for switch in self.switches if switch["version"] == number} == set(
            range(self.settings["engines"])
        )

    def train(self, listener: socket.socket) -> None:
        settings = self.settings
        print(
            f"the trainer warms up: {settings['warm_up']} supervised steps of "
            f"{sum(p.numel() for p in self.model.parameters()) / 1e6:.1f} million parameters",
            flush=True,
        )
        warm_up(self.model, settings["warm_up"], settings["warm_rate"], settings["seed"])
        self.publish(0)
        print(
            f"version 0 is published; {settings['engines']} vLLM start from it at the other site", flush=True
        )
        self.accept(listener)
        self.began = time.monotonic()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings["rate"], weight_decay=0.0)
        for number in range(1, settings["steps"] + 1):
            self.step(number, optimizer)
        while not self.served(settings["steps"]):
            self.hear()
        self.note_wire()
        for engine in self._engines:
            engine.send(kind="end")

    def report(self) -> dict[str, Any]:
        return {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "began": self.began,
            "versions": self.versions,
            "starts": self.starts,
            "switches": self.switches,
            "steps": self.steps,
            "requests": self.requests,
        }


def main(path: str) -> int:
    with open(path, encoding="utf-8") as text:
        settings = json.load(text)
    with socket.create_server(tuple(settings["listen"])) as listener:
        trainer = Trainer(settings)
        try:
            trainer.train(listener)
        except Gone as gone:
            print(f"rl_loop: {gone}", file=sys.stderr, flush=True)
            return 1
        with open(settings["report"], "w", encoding="utf-8") as text:
            json.dump(trainer.report(), text)
        trainer.publisher.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
