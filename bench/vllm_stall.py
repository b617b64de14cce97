"""vllm_stall.py GATEWAY FOLDER ROUNDS: how long vLLM stands still for a version that is staged, and
for the same weights from disk. A round is a line of JSON: [ours, theirs], in milliseconds. Layers
are as a GPU has them. It runs in the environment `vllm` of tests/frameworks, for
bench/python_keys.py.

Each element changes from version to version, and both ways find all of it in memory: the one in
its staging, the other in the page cache. The best of three turns counts."""

import json
import os
import pathlib
import sys
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/frameworks")]
import engines  # noqa: E402
import tiny  # noqa: E402

import tombolo  # noqa: E402

TURNS = 3
CHECKED = "model.norm.weight"


def timed(call):
    begin = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begin)


def main(numbers, gateway, folder, rounds):
    folder = pathlib.Path(folder)
    lab = types.SimpleNamespace(dir=folder, arena_dir=folder)
    engines.install(lab, VLLM_ENABLE_V1_MULTIPROCESSING=0, TOMBOLO_GATEWAY=gateway,
                    TB_NO_PREPACK=1)
    tiny.LAYERS, tiny.HIDDEN, tiny.INNER, tiny.VOCAB, tiny.HEADS, tiny.HEAD_DIM = 8, 1024, 4096, 32000, 16, 64
    weights = tiny.save(folder / "checkpoint", 1, kv_heads=4)
    on_disk = weights[CHECKED].clone()
    llm, step = engines.ours(folder / "checkpoint"), 0
    plain = ["UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"]
    tombolo.publish("policy", step, weights, run="bench").wait_held() # else it has no way yet
    llm.init_weight_transfer_engine({"init_info": {"timeout_s": 120, "direct": plain}})
    replica = engines.workers(llm).weight_transfer_engine.tombolo
    if replica.ways.named:
        raise ValueError(f"layers go these ways: {replica.ways.of}")
    disk = {"weights_path": str(folder / "checkpoint")}
    live = dict(replica.model.named_parameters())[CHECKED]
    for _ in range(int(rounds)):
        best = [1e9, 1e9]
        for _ in range(TURNS):
            step += 1
            for tensor in weights.values():
                tensor.neg_()
            tombolo.publish("policy", step, weights, run="bench")
            engines.staged(llm, step)
            best[0] = min(best[0], timed(lambda: engines.update(llm, step)))
            engines.expect("ours is live", live.equal(weights[CHECKED]), True)
            best[1] = min(best[1], timed(lambda: llm.collective_rpc("reload_weights", kwargs=disk)))
            engines.expect("the checkpoint is live", live.equal(on_disk), True)
        print(json.dumps(best), file=numbers, flush=True)
    tombolo.close_publishers()
    return 0


if __name__ == "__main__":
    numbers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1) # where vLLM may say what it likes
    engines.end(lambda: main(numbers, *sys.argv[1:]))
