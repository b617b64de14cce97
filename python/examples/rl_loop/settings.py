"""The model that is trained, and how. Neither torch nor vLLM is needed to read it."""

from typing import Any

import task

CONFIG: dict[str, Any] = {  # of a checkpoint: 3.2 million parameters
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": task.VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": task.BEGIN,
    "eos_token_id": task.END,
    "torch_dtype": "bfloat16",
}

TRAINING: dict[str, Any] = {
    "warm_up": 25,
    "warm_rate": 1e-3,  # supervised steps, and their learning rate
    "rate": 2e-4,  # of the policy's steps
    "groups": 16,
    "samples": 8,  # of a step: prompts, and answers to each
    "at_once": 32,  # requests that an engine computes at a time
}
