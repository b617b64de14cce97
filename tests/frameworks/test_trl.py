"""TRL's real package: each step of its trainer is a version, and its asynchronous trainer names versions to engines.

Covers: python/tombolo/integrations/trl.py python/tombolo/integrations/servers.py
"""

import http.server
import json
import os
import pathlib
import queue
import sys
import threading
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python")]
import packages  # noqa: E402

packages.run_in("trl")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")

import numpy  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from harness import PATIENCE_S, expect, main, scenario  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

import tombolo  # noqa: E402
from tombolo.integrations import servers  # noqa: E402
from tombolo.integrations.trl import PublishCallback, WeightTransfer  # noqa: E402

WORDS = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(252))]


def tokenizer():
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", padding_side="left")
    made.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    return made


def network(seed=0):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2))


def sites(lab):
    east, west, _ = lab.east_west(keep=4)
    east.start()
    west.start()
    return f"unix:{east.session_socket}", f"unix:{west.session_socket}"


class Seen(TrainerCallback):
    """Behind the one that publishes: what the trainer had, and what a reader at the other site gets."""

    def __init__(self, gateway):
        self.model, self.steps = network(1), []
        self.reader = tombolo.follow("policy", into=self.model, gateway=gateway)

    def look(self, state, model):
        self.reader.stage(state.global_step, timeout=PATIENCE_S)
        self.reader.apply(timeout=PATIENCE_S)
        self.steps.append(state.global_step)
        for name, tensor in model.state_dict().items():
            expect(f"{name} of step {state.global_step}", torch.equal(tensor, self.model.state_dict()[name]), True)

    def on_train_begin(self, args, state, control, model=None, **_):
        self.look(state, model)

    def on_step_end(self, args, state, control, model=None, **_):
        self.look(state, model)


@scenario
def each_step_of_a_grpo_trainer_is_a_version(lab):
    """P1 P2: the real trainer, two steps, and a reader at another site that has each of them bit for bit."""
    east, west = sites(lab)
    publish, seen = PublishCallback("policy", gateway=east, run="key"), Seen(west)
    trainer = GRPOTrainer(model=network(), args=GRPOConfig(
        output_dir=str(lab.dir / "trl"), per_device_train_batch_size=4, num_generations=4, max_completion_length=8, max_steps=2, logging_steps=1,
        report_to=[], use_cpu=True, bf16=False, save_strategy="no", learning_rate=1e-3, disable_tqdm=True),
        train_dataset=Dataset.from_dict({"prompt": [f"w{i} w{i + 1} w{i + 2}" for i in range(16)]}), processing_class=tokenizer(),
        reward_funcs=lambda completions, **_: [float(len(set(text.split()))) + 0.1 * i for i, text in enumerate(completions)],
        callbacks=[publish, seen])
    trainer.train()
    expect("steps", (seen.steps, publish.version.number), ([0, 1, 2], 2))
    changed = any(not torch.equal(mine, first) for mine, first in zip(seen.model.parameters(), network().parameters()))
    expect("the steps changed the model", changed, True)
    publish.close()
    seen.reader.close()


class Engine(http.server.BaseHTTPRequestHandler):
    """The stand-in for a server of vLLM: it notes what it is told, and by then which version its site has."""

    told = []
    follower, asked = None, set()

    def do_GET(self):
        self.answer(200, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"null")
        said = {}
        if self.path == "/collective_rpc":
            step = body["args"][0]
            is_staged = step in self.asked and Engine.follower.begin(step) is not None # never at once
            self.asked.add(step)
            said = {"results": [str(is_staged)]} # as vLLM, which makes texts of them
        else:
            self.told.append((self.path, body))
        if self.path == "/update_weights":
            Engine.follower.apply(timeout=PATIENCE_S)
        self.answer(200, said)

    def answer(self, code, said):
        text = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Rollouts:
    """Makes samples of a policy that it does not ask, of the version that the trainer told."""

    def __init__(self):
        self.rollout_buffer, self.metrics_queue, self.version, self.seen = queue.Queue(), queue.Queue(), 0, []

    def start(self):
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        for group in range(8):
            for i in range(4):
                ids = numpy.array([4 + group, 5 + group, 20 + i, 30 + i, 2], dtype=numpy.int64)
                self.rollout_buffer.put(RolloutSample(
                    prompt=[{"role": "user", "content": "w1"}], completion=[{"role": "assistant", "content": "w2"}], input_ids=ids,
                    completion_mask=numpy.array([0, 0, 1, 1, 1]), old_log_probs=numpy.full(5, -5.5, dtype=numpy.float32),
                    advantage=float(i - 1.5), model_version=self.version, group_id=group + 100 * self.version, metrics={"reward": float(i)},
                    enqueued_at=time.time()))

    def stop(self):
        pass

    def update_model_version(self, version):
        self.version = version
        self.seen.append(version)
        if version > 1:
            self.start()

    def check_health(self, stale_after_s):
        pass


def attend(q, k, v, q_ends, k_ends, *_, softmax_scale=None, **__):
    """Stands for flash attention, which is a kernel of a GPU: of sequences that lie one behind another."""
    groups = q.shape[1] // k.shape[1]
    k, v, out = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), torch.zeros_like(q)
    for i in range(len(q_ends) - 1):
        rows, columns = slice(int(q_ends[i]), int(q_ends[i + 1])), slice(int(k_ends[i]), int(k_ends[i + 1]))
        n, m = rows.stop - rows.start, columns.stop - columns.start
        if n:
            mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
            made = torch.nn.functional.scaled_dot_product_attention(q[rows].transpose(0, 1), k[columns].transpose(0, 1), v[columns].transpose(0, 1),
                                                                    attn_mask=mask, scale=softmax_scale)
            out = out.index_copy(0, torch.arange(rows.start, rows.stop), made.transpose(0, 1))
    return out


@scenario
def an_asynchronous_trainer_names_versions_to_its_engines(lab):
    """P1 P2: AsyncGRPOTrainer with this weight_transfer. The engine is told behind each version, which its
    site holds by then, and has the trainer's weights. A stand-in answers what the trainer asks of a GPU."""
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

    packing._flash_attn = lambda: types.SimpleNamespace(flash_attn_varlen_func=attend)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_, **__: 1.0
    east, west = sites(lab)
    folder = str(lab.dir / "model") # it takes a path alone
    network().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    replica = network(1)
    Engine.follower, Engine.told = tombolo.follow("policy", into=dict(replica.named_parameters()), gateway=west), []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    transfer = WeightTransfer("policy", gateway=east, run="key", sites=["west"], switch=servers.Vllm([url], timeout=PATIENCE_S, model="policy"), wait_s=PATIENCE_S)
    trainer = AsyncGRPOTrainer(
        model=folder, args=AsyncGRPOConfig(
            token_budget=0, vllm_server_base_url=url, output_dir=str(lab.dir / "out"), per_device_train_batch_size=1, gradient_accumulation_steps=4,
            num_generations=4, max_completion_length=8, max_steps=2, logging_steps=1, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
            weight_sync_steps=1, disable_tqdm=True),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": f"w{i}"}] for i in range(16)]}), processing_class=tokenizer(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions), rollout_worker=Rollouts(), weight_transfer=transfer)
    trainer.train()
    server.shutdown()
    versions = trainer.rollout_worker.seen
    expect("versions", versions, list(range(1, len(versions) + 1)))
    expect("once", Engine.told.pop(0), ("/init_weight_transfer_engine", {"init_info": {"model": "policy"}}))
    told = [("/pause?mode=keep", None), ("/start_weight_update", None), ("/update_weights", {"update_info": {"version": 0}}),
            ("/finish_weight_update", {"weight_version": "0"}), ("/resume", None)]
    for i, version in enumerate(versions):
        mine = json.loads(json.dumps(told).replace('"version": 0', f'"version": {version}').replace('"0"', f'"{version}"'))
        expect(f"told of {version}", [list(call) for call in Engine.told[5 * i:5 * i + 5]], mine)
    model = trainer.accelerator.unwrap_model(trainer.model)
    for name, tensor in model.named_parameters():
        expect(name, torch.equal(tensor.detach(), replica.get_parameter(name).detach()), True)
    Engine.follower.close()


if __name__ == "__main__":
    sys.exit(main())
