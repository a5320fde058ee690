#!/usr/bin/env python3
"""Writes two tiny Qwen2 models and their golden values (../model_values.py says which).

  plain     a tied head, two key heads for four; biases of queries, keys and values, which Qwen2 always has
  windowed  a head of its own, layers from the second on see 5 keys, linear RoPE scaling; sizes that fill no vector

Provenance: torch 2.13.0+cpu, transformers 5.24.0, f32, one thread. Run: python tests/golden/qwen2/generate.py
"""

import pathlib
import sys

from transformers import Qwen2Config, Qwen2ForCausalLM

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import model_values as values  # noqa: E402

COMMON = dict(vocab_size=values.VOCAB, max_position_embeddings=values.POSITIONS, bos_token_id=66, eos_token_id=66, initializer_range=0.2)
MODELS = {
    "plain": dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
    "windowed": dict(
        hidden_size=30, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, intermediate_size=29,
        use_sliding_window=True, sliding_window=5, max_window_layers=1,
        rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0},
    ),
}  # fmt: skip

if __name__ == "__main__":
    for name, sizes in MODELS.items():
        (HERE / name).mkdir(exist_ok=True)
        values.write(HERE / name, Qwen2ForCausalLM, Qwen2Config(**COMMON, **sizes), 11)
