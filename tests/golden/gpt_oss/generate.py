#!/usr/bin/env python3
"""Writes two tiny GPT-OSS models and their golden values (../model_values.py says which).

  plain   hidden and experts of different widths, YaRN without rounded bounds, every other layer sees 5 keys
  square  hidden and experts of one width, so that a matrix turned by mistake has the right shape; clamps that are
          reached, a tied head, no scaling of RoPE, layers that all see every key

Provenance: torch 2.13.0+cpu, transformers 5.24.0, f32, one thread. Run: python tests/golden/gpt_oss/generate.py
"""

import pathlib
import sys

from transformers import GptOssConfig, GptOssForCausalLM

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import model_values as values  # noqa: E402

COMMON = dict(vocab_size=values.VOCAB, max_position_embeddings=values.POSITIONS, bos_token_id=66, eos_token_id=66, initializer_range=0.2)
MODELS = {
    "plain": dict(
        hidden_size=21, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=10, intermediate_size=13,
        num_local_experts=6, num_experts_per_tok=3, sliding_window=5,
        rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, "factor": 3.0, "original_max_position_embeddings": 8, "truncate": False},
    ),
    "square": dict(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=8, intermediate_size=24,
        num_local_experts=5, num_experts_per_tok=2, swiglu_limit=0.7, swiglu_alpha=1.3, tie_word_embeddings=True,
        layer_types=["full_attention", "full_attention"], rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
}  # fmt: skip

if __name__ == "__main__":
    for name, sizes in MODELS.items():
        (HERE / name).mkdir(exist_ok=True)
        values.write(HERE / name, GptOssForCausalLM, GptOssConfig(**COMMON, **sizes), 11)
