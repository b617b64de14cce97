"""A worker with tensors in host memory or on a GPU, which takes orders as lines of JSON: a trainer or
a rollout of end_to_end.py.

The content of each version follows from the tensor's index and the version's number. So every
process can make it again, and compares what it got where its tensors stand. Weights are BF16. A step
changes one element in fifty by one unit.

usage: tensor_worker.py host|cuda|cpu; cpu: tensors of torch in host memory"""

import json
import math
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import tombolo  # noqa: E402

UPDATES = {"copy": tombolo.COPY, "gpu": tombolo.COPY, "switch": tombolo.SWITCH, "patch": tombolo.PATCH}
PLUS_ONE = bytes((i + 1) & 0xFF for i in range(256))
FLOOR_BYTES = 1 << 30
TIMEOUT_MS = 60000


def rate(count, copy, wait, rounds=3):
    """GB/s of the fastest round; the first round is not counted."""
    times = []
    for _ in range(rounds + 1):
        began = time.monotonic()
        copy()
        wait()
        times.append(time.monotonic() - began)
    return count / min(times[1:]) / 1e9


class HostMemory:
    """Tensors are bytearrays. Nothing but Python is needed."""

    device = "host memory"

    def __init__(self):
        self.kept = {}  # tensor's index -> number and content of the version that was made last

    def wait(self):
        pass

    def truth(self, tensor, index, number):
        at, content = self.kept.get(index) or (1, self.begun(tensor, index))
        for step in range(at + 1, number + 1):
            self.step(content, index, step)
        self.kept[index] = number, content
        return content

    def begun(self, tensor, index):
        content = bytearray(len(tensor))
        self.begin(content, index)
        return content

    def new(self, shape):
        return bytearray(2 * math.prod(shape))

    def begin(self, tensor, index):
        tensor[:] = random.Random(index).randbytes(len(tensor))

    def step(self, tensor, index, number):
        first = 2 * ((7 * index + 13 * number) % 50)
        tensor[first::100] = tensor[first::100].translate(PLUS_ONE)

    def differ(self, one, other):
        return 0 if one == other else sum(a != b for a, b in zip(one, other))

    def floors(self):
        one, other = bytearray(FLOOR_BYTES // 8), bytearray(FLOOR_BYTES // 8)

        def copy():
            one[:] = other
        return {"floor.in_memory": rate(len(one), copy, self.wait)}


class TorchMemory:
    """Tensors are torch's, on the first GPU ("cuda") or in host memory ("cpu")."""

    def __init__(self, where):
        import torch
        self.torch, self.where = torch, where
        self.device = torch.cuda.get_device_name(0) if where == "cuda" else "host memory, by torch"
        self.words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

    def wait(self):
        if self.where == "cuda":
            self.torch.cuda.synchronize()

    def truth(self, tensor, index, number):
        """Made anew each time: nothing of the GPU's memory is kept."""
        content = self.torch.empty_like(tensor)
        self.begin(content, index)
        for step in range(2, number + 1):
            self.step(content, index, step)
        return content

    def new(self, shape):
        return self.torch.zeros(tuple(shape), dtype=self.torch.bfloat16, device=self.where)

    def generator(self, *seed):
        return self.torch.Generator(self.where).manual_seed(random.Random(repr(seed)).getrandbits(48))

    def bits(self, tensor):
        return tensor.view(self.words[tensor.element_size()])

    def begin(self, tensor, index):
        tensor.normal_(0, 0.02, generator=self.generator(index))

    def step(self, tensor, index, number):
        bits = self.bits(tensor)
        coins = self.torch.empty(bits.shape, dtype=self.torch.int16, device=self.where)
        coins.random_(0, 100, generator=self.generator(index, number))
        bits.add_((coins == 0).to(bits.dtype)).sub_((coins == 1).to(bits.dtype))

    def differ(self, one, other):
        return int((self.bits(one) != self.bits(other)).sum())

    def floors(self):
        """Of a GPU."""
        torch = self.torch
        host = torch.empty(FLOOR_BYTES, dtype=torch.uint8, pin_memory=True)
        one, other = (torch.empty(FLOOR_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
        pairs = {"floor.to_device": (one, host), "floor.to_host": (host, one), "floor.in_device": (one, other)}
        rates = {name: rate(FLOOR_BYTES, lambda to=to, of=of: to.copy_(of, non_blocking=True), self.wait)
                 for name, (to, of) in pairs.items()}
        del host, one, other, pairs
        torch.cuda.empty_cache()
        return rates


class Member:
    """The state of one worker; each method beginning with `do_` is an order."""

    def __init__(self, memory):
        self.memory = memory
        self.sets = []  # {name: tensor}: two for a switch
        self.registrations = []
        self.session = self.subscription = self.run = self.engine = None

    def do_open(self, **options):
        self.session = tombolo.Session(**options)
        return {"device": self.memory.device}

    def do_register(self, rows, sets=1):
        """rows: name and shape of each tensor."""
        began = time.monotonic()
        for _ in range(sets):
            self.sets.append({name: self.memory.new(shape) for name, shape in rows})
            self.memory.wait()
            self.registrations.append(self.session.register(
                {name: ("BF16", tuple(shape), self.sets[-1][name]) for name, shape in rows}))
        return {"seconds": time.monotonic() - began}

    def do_engine(self, folder):
        """Loads a vLLM engine in this process; names, shapes and dtypes of its parameters."""
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        import vllm
        found = {}

        def keep(model):
            found.update(model.named_parameters())
        self.engine = vllm.LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
                               max_model_len=256, gpu_memory_utilization=0.1)
        self.engine.apply_model(keep)
        self.sets = [{name: parameter.data for name, parameter in found.items()}]
        return {"rows": [(name, list(t.shape), str(t.dtype)) for name, t in self.sets[0].items()]}

    def do_register_engine(self):
        self.registrations = [self.session.register({name: (t.dtype, tuple(t.shape), t) for name, t in self.sets[0].items()})]
        return {}

    def do_generate(self, tokens):
        import vllm
        how = vllm.SamplingParams(max_tokens=tokens, min_tokens=tokens, temperature=0, detokenize=False)
        answers = self.engine.generate([{"prompt_token_ids": [1, 2, 3]}], how)
        return {"tokens": len(answers[0].outputs[0].token_ids)}

    def do_run(self, model, key):
        self.run = self.session.run_open(model, key)
        return {}

    def do_make(self, number):
        """The tensors become version `number`; they are the one before it."""
        for index, tensor in enumerate(self.sets[0].values()):
            if number == 1:
                self.memory.begin(tensor, index)
            else:
                self.memory.step(tensor, index, number)
        self.memory.wait()
        return {}

    def do_prepare(self, model):
        self.session.prepare(model, self.registrations[0])
        return {}

    def do_publish(self, model, number, in_place):
        mode = tombolo.IN_PLACE if in_place else tombolo.SHADOW
        began = time.monotonic()
        info = self.session.publish(model, self.run, number, registration=self.registrations[0], mode=mode)
        return {"seconds": time.monotonic() - began, "uid": str(info.uid), "bytes": info.bytes, "hold_ms": info.hold_ns / 1e6,
                "encoded_bytes": info.encoded_bytes}

    def do_unpublish(self, uid):
        self.session.unpublish(tombolo.Uid.parse(uid))
        return {}

    def do_subscribe(self, model, group, mode):
        more = {"second": self.registrations[1]} if mode == "switch" else {}
        self.subscription = self.session.subscribe(model, group=group, registration=self.registrations[0],
                                                   update=UPDATES[mode], stage_on_gpu=mode == "gpu", **more)
        return {}

    def do_stage(self, uid):
        began = time.monotonic()
        self.subscription.stage(tombolo.Uid.parse(uid), timeout_ms=TIMEOUT_MS)
        seconds = time.monotonic() - began
        staged = next(s for s in json.loads(self.session.status())["staged"] if s["uid"] == uid)
        return {"seconds": seconds, **{k: staged[k] for k in ("staged_bytes", "gpu_bytes", "read_bytes", "encoded_chunks")}}

    def do_activate(self, uid):
        self.memory.wait()
        info = self.subscription.activate(tombolo.Uid.parse(uid))
        return {"stall_ms": info.stall_ns / 1e6, "buffer": info.buffer, "copied_bytes": info.copied_bytes,
                "patched_bytes": info.patched_bytes, "fetched_chunks": info.fetched_chunks}

    def do_compare(self, number, buffer=0):
        """Elements that are not those of version `number`, found where the tensors stand."""
        differ = 0
        for index, tensor in enumerate(self.sets[buffer].values()):
            differ += self.memory.differ(tensor, self.memory.truth(tensor, index, number))
        return {"differ": differ}

    def do_release(self, uid):
        self.subscription.release(tombolo.Uid.parse(uid))
        return {}

    def do_floors(self):
        return {"floors": self.memory.floors()}

    def do_status(self):
        return {"json": json.loads(self.session.status())}

    def do_close(self):
        self.session.close()
        return {}


def answer(member, order):
    try:
        return {"status": "ok", **getattr(member, "do_" + order.pop("cmd"))(**order)}
    except tombolo.Error as error:
        return {"status": error.name, "error": str(error)}


def main():
    """Answers go to the descriptor that was standard output; what libraries print goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    member = Member(HostMemory() if sys.argv[1] == "host" else TorchMemory(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(answer(member, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
