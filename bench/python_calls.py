"""python_calls.py GATEWAY FOLDER MB ROUNDS: what the Python package needs, beside the same work without it. A round is a line
of JSON: {key: [ours, theirs]}. It runs in the environment `torch` of tests/frameworks, for bench/python_keys.py.

Each thing is done both ways in turn, three times; the best of each way counts."""

import ctypes
import json
import os
import pathlib
import sys
import threading
import time

import torch

import tombolo
from tombolo import library

TURNS = 3
TENSORS = 64


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def parameters(count):
    """bfloat16, in memory that was written once."""
    return torch.nn.ParameterDict({f"layer{i}": torch.nn.Parameter(torch.ones(count // 2 // TENSORS, dtype=torch.bfloat16)) for i in range(TENSORS)})


def written(folder, module):
    """A safetensors file of the module."""
    header, at, path = {}, 0, pathlib.Path(folder, "weights.safetensors")
    for name, tensor in module.items():
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + 2 * tensor.numel()]}
        at += 2 * tensor.numel()
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in module.values():
            file.write(tensor.detach().view(torch.uint8).numpy())
    return path, 8 + len(text)


def read_plainly(path, base, module):
    """readinto the parameters' own memory, by as many threads as there are cores."""
    rows = [(tensor.data_ptr(), 2 * tensor.numel(), base + 2 * i * tensor.numel()) for i, tensor in enumerate(module.values())]
    cores = os.cpu_count() or 1

    def read(mine):
        with open(path, "rb", buffering=0) as file:
            for address, count, at in mine:
                file.seek(at)
                view = memoryview((ctypes.c_char * count).from_address(address)).cast("B")
                while view:
                    view = view[file.readinto(view):]
    threads = [threading.Thread(target=read, args=(rows[i::cores],)) for i in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def publish_plainly(session, run, registration, step):
    """tb_publish alone, as a C program calls it."""
    options = library.PublishOptions(model=b"policy", run=ctypes.pointer(run.run), number=step, shard_count=1, registration=registration._handle)
    library.check(library.lib.tb_publish(session._handle, ctypes.byref(options), ctypes.byref(tombolo.PublishInfo())))


def main(gateway, folder, megabytes, rounds):
    count = int(megabytes) * 1_000_000 // (2 * TENSORS) * (2 * TENSORS)
    module, replica, step = parameters(count), parameters(count), 0
    path, base = written(folder, module)
    with tombolo.Publisher("policy", gateway=gateway, run="bench", host="here") as publisher, \
            tombolo.Follower("policy", replica, gateway=gateway, host="here") as reader:
        publisher.publish(step, module)
        reader.next()
        session, run, sealed, subscription = publisher._session, publisher._run, publisher._registration, reader._subscription
        for _ in range(int(rounds)):
            best = {key: [1e9, 1e9] for key in ("python.publish", "python.activate", "python.files")}
            for turn in range(2 * TURNS):
                step, ours = step + 1, turn % 2 == 0
                with torch.no_grad():
                    for tensor in module.values():
                        tensor[step] = step # each chunk changes
                took = {"python.publish": timed((lambda: publisher.publish(step, module)) if ours else
                                                (lambda: publish_plainly(session, run, sealed, step)))}
                uid = reader.stage(step).uid
                took["python.activate"] = timed(reader.apply if ours else lambda: subscription.activate(uid))
                if not ours:
                    reader.apply() # what it notes; the tensors are as they are
                took["python.files"] = timed((lambda: tombolo.load_files(path, replica)) if ours else (lambda: read_plainly(path, base, replica)))
                for key, seconds in took.items():
                    best[key][not ours] = min(best[key][not ours], seconds)
            best["python.publish"] = [1000 * s for s in best["python.publish"]]
            best["python.activate"] = [1000 * s for s in best["python.activate"]]
            best["python.files"] = [count / 1e9 / s for s in best["python.files"]]
            print(json.dumps(best), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
