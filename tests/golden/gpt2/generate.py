#!/usr/bin/env python3
"""Writes a tiny GPT-2 and its golden values (../model_values.py says which).

Provenance: torch 2.13.0+cpu, transformers 5.17.0, f32, one thread. Run: python tests/golden/gpt2/generate.py
"""

import pathlib
import sys

from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import model_values as values  # noqa: E402

if __name__ == "__main__":
    config = GPT2Config(
        vocab_size=values.VOCAB, n_embd=24, n_layer=2, n_head=2, n_positions=values.POSITIONS, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=66, eos_token_id=66, initializer_range=0.2,
    )  # fmt: skip
    values.write(HERE, GPT2LMHeadModel, config, 11)
