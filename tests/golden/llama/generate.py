#!/usr/bin/env python3
"""Writes two tiny Llama models and their golden values (../model_values.py says which).

  scaled  a tied head, two key heads for four, Llama 3's RoPE scaling with all three bands of frequencies
  biased  a head of its own, biases of attention and MLP, as many key heads as queries; sizes that fill no vector

Provenance: torch 2.13.0+cpu, transformers 5.24.0, f32, one thread. Run: python tests/golden/llama/generate.py
"""

import pathlib
import sys

from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import model_values as values  # noqa: E402

COMMON = dict(vocab_size=values.VOCAB, max_position_embeddings=values.POSITIONS, bos_token_id=65, eos_token_id=[66, 64], initializer_range=0.2)
MODELS = {
    "scaled": dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "llama3", "rope_theta": 20.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 3.0, "original_max_position_embeddings": 20},
    ),
    "biased": dict(
        hidden_size=21, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, head_dim=10, intermediate_size=29,
        attention_bias=True, mlp_bias=True, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
}  # fmt: skip

if __name__ == "__main__":
    for name, sizes in MODELS.items():
        (HERE / name).mkdir(exist_ok=True)
        values.write(HERE / name, LlamaForCausalLM, LlamaConfig(**COMMON, **sizes), 11)
