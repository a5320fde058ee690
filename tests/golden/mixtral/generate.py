#!/usr/bin/env python3
"""Writes two tiny Mixtral models and their golden values (../model_values.py says which).

  plain     a head of its own, as the published models have
  windowed  layers that all see 5 keys, a tied head; sizes that fill no vector

Provenance: torch 2.13.0+cpu, transformers 5.24.0, f32, one thread. Run: python tests/golden/mixtral/generate.py
"""

import pathlib
import sys

from transformers import MixtralConfig, MixtralForCausalLM

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import model_values as values  # noqa: E402

COMMON = dict(vocab_size=values.VOCAB, max_position_embeddings=values.POSITIONS, bos_token_id=66, eos_token_id=66, initializer_range=0.2)
MODELS = {
    "plain": dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, num_local_experts=4,
        num_experts_per_tok=2, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    ),
    "windowed": dict(
        hidden_size=21, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=10, intermediate_size=13,
        num_local_experts=5, num_experts_per_tok=3, sliding_window=5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
}  # fmt: skip

if __name__ == "__main__":
    for name, sizes in MODELS.items():
        (HERE / name).mkdir(exist_ok=True)
        values.write(HERE / name, MixtralForCausalLM, MixtralConfig(**COMMON, **sizes), 11, (".mlp.", ".block_sparse_moe."))
