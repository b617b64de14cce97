"""Tiny random checkpoints that vLLM loads: a dense Llama, and a Qwen3 with experts."""

import json
import pathlib

import torch
from safetensors.torch import save_file

LAYERS, HIDDEN, INNER, VOCAB, HEADS, HEAD_DIM, EXPERTS = 2, 64, 128, 512, 4, 32, 4


def tensors(seed, kv_heads=2, experts=False):
    made = torch.Generator().manual_seed(seed)

    def matrix(*shape):
        return (torch.randn(*shape, generator=made) * 0.2).bfloat16()

    def norm(size):
        return (1 + 0.1 * torch.randn(size, generator=made)).bfloat16()
    t = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN), "model.norm.weight": norm(HIDDEN), "lm_head.weight": matrix(VOCAB, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name, rows in (("q", HEADS), ("k", kv_heads), ("v", kv_heads)):
            t[f"{at}self_attn.{name}_proj.weight"] = matrix(rows * HEAD_DIM, HIDDEN)
        t[at + "self_attn.o_proj.weight"] = matrix(HIDDEN, HEADS * HEAD_DIM)
        t[at + "input_layernorm.weight"], t[at + "post_attention_layernorm.weight"] = norm(HIDDEN), norm(HIDDEN)
        if experts:
            t[at + "self_attn.q_norm.weight"], t[at + "self_attn.k_norm.weight"] = norm(HEAD_DIM), norm(HEAD_DIM)
            t[at + "mlp.gate.weight"] = matrix(EXPERTS, HIDDEN)
        for mlp in [f"{at}mlp.experts.{e}." for e in range(EXPERTS)] if experts else [at + "mlp."]:
            t[mlp + "gate_proj.weight"], t[mlp + "up_proj.weight"] = matrix(INNER, HIDDEN), matrix(INNER, HIDDEN)
            t[mlp + "down_proj.weight"] = matrix(HIDDEN, INNER)
    return t


def save(folder, seed, kv_heads=2, experts=False):
    """The tensors, which are also a checkpoint in that folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    t = tensors(seed, kv_heads, experts)
    save_file(t, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": kv_heads, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
              "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 10000.0,
              "torch_dtype": "bfloat16", "attention_bias": False, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False}
    if experts:
        del config["mlp_bias"]
        config |= {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "moe_intermediate_size": INNER, "num_experts": EXPERTS,
                   "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001}
    (folder / "config.json").write_text(json.dumps(config))
    return t
