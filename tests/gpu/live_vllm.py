#!/usr/bin/env python3
"""The parameters of a live vLLM engine follow a trainer, patched where they stand.

A small engine with made weights is loaded in a worker's process. Its own parameters are registered,
and three versions are patched into them. Each version is compared where it stands, and the engine
then writes eight tokens. Skipped where vLLM is not installed. With --memory host it is vLLM's build
for CPUs, of tests/frameworks, so that this script stays alive where there is no GPU.

Covers: python/tombolo/sessions.py python/tombolo/library.py
"""

import argparse
import importlib.util
import json
import pathlib
import sys

import end_to_end
from end_to_end import MIB, MODEL, TensorWorker, bytes_of, harness
from harness import expect

START_S = {"cuda": 55, "host": None}  # the patience of all tests
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4096, "hidden_size": 1024, "intermediate_size": 2816,
          "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
          "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}


def follow(lab, folder, memory):
    """Three versions; what each took."""
    site = lab.site("east", arena_mib=512)
    site.models[MODEL] = {"home": "east"}
    trainer, rollout = (TensorWorker(lab, name, "cuda" if memory == "cuda" else "cpu") for name in ("trainer", "rollout"))
    rollout.send("engine", folder=str(folder))
    rows = rollout.receive(START_S[memory])
    expect(f"the engine starts ({rows.get('error')})", rows["status"], "ok")
    expect("parameters are BF16", {dtype for *_, dtype in rows["rows"]}, {"torch.bfloat16"})
    rows = [(name, shape) for name, shape, _ in rows["rows"]]
    site.arena_mib = 3 * bytes_of(rows) // MIB + 64
    harness.up(site)
    for w in (trainer, rollout):
        w.begin(site)
        w.done()
    trainer.ok("run", model=MODEL, key="live")
    trainer.ok("register", rows=rows)
    rollout.ok("register_engine")
    rollout.ok("subscribe", model=MODEL, group="engine", mode="patch")
    took, before = [], None
    for number in (1, 2, 3):
        trainer.ok("make", number=number)
        published = trainer.ok("publish", model=MODEL, number=number, in_place=False)
        uid = published["uid"]
        site.wait_holds(uid)
        staged, active = rollout.ok("stage", uid=uid), rollout.ok("activate", uid=uid)
        expect(f"elements that differ in version {number}", rollout.ok("compare", number=number)["differ"], 0)
        expect("tokens that the engine writes", rollout.ok("generate", tokens=8)["tokens"], 8)
        if before:
            rollout.ok("release", uid=before)
        before = uid
        took.append({"number": number, "hold_ms": published["hold_ms"], "stage_s": staged["seconds"], **active})
    return {"bytes": bytes_of(rows), "tensors": len(rows), "versions": took}


def print_result(result):
    print(f"vLLM: {result['bytes'] / 1e6:.0f} MB in {result['tensors']} parameters")
    for v in result["versions"]:
        print(f"  version {v['number']}: hold {v['hold_ms']:.1f} ms, stage {v['stage_s']:.3f} s, stall {v['stall_ms']:.1f} ms, "
              f"{v['patched_bytes'] / 1e6:.0f} MB patched")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda", help="where the engine computes (default cuda)")
    parser.add_argument("--json", type=pathlib.Path, help="write the result here too")
    options = parser.parse_args()
    if options.memory == "host":
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "frameworks"))
        import engines  # which goes on in its environment, or skips
    why = end_to_end.why_not(options.memory) or (None if importlib.util.find_spec("vllm") else "vLLM is not installed")
    if why is not None:
        print(f"skipped: {why}")
        return 77

    @harness.scenario
    def live_vllm(lab):
        folder = lab.dir / "engine"
        folder.mkdir()
        if options.memory == "host":
            engines.install(lab, TB_NO_PREPACK=1)  # layers in the layouts of a GPU
        (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        result = follow(lab, folder, options.memory)
        print_result(result)
        if options.json is not None:
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return harness.run("live_vllm")


if __name__ == "__main__":
    sys.exit(main())
