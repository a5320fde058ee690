"""GPT-2 against live transformers models in f32: logits, loss, every gradient, greedy tokens, a loss curve, and
checkpoints in both directions."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import torch
from transformers import GPT2Config, GPT2LMHeadModel

VARIANTS = {
    "plain": dict(vocab_size=211, n_embd=64, n_layer=2, n_head=4, n_positions=40),
    "erf_inner": dict(vocab_size=97, n_embd=48, n_layer=2, n_head=3, n_positions=40, activation_function="gelu", n_inner=100),
    # Eager, for sdpa of transformers 4 divides by the root of the head's width whatever the config says.
    "inverse_scale": dict(
        vocab_size=97, n_embd=32, n_layer=3, n_head=2, n_positions=40, scale_attn_by_inverse_layer_idx=True,
        attn_implementation="eager",
    ),
    "no_scale": dict(
        vocab_size=97, n_embd=32, n_layer=2, n_head=2, n_positions=40, scale_attn_weights=False, attn_implementation="eager",
    ),
    "untied": dict(vocab_size=97, n_embd=32, n_layer=2, n_head=2, n_positions=40, tie_word_embeddings=False),
}  # fmt: skip


def make(seed=0, **sizes):
    return live.make(GPT2LMHeadModel, GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes), seed)


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient(tmp_path, variant):
    live.compare_gradients(make(**VARIANTS[variant]), tmp_path, ("c_attn.weight", "c_proj.weight", "c_fc.weight"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_tokens(tmp_path, variant):
    live.compare_greedy(make(seed=3, initializer_range=0.2, **VARIANTS[variant]), tmp_path)


def test_loss_curve(tmp_path):
    live.compare_curve(make(seed=5, **VARIANTS["plain"]), tmp_path)


def test_logits_of_124m(tmp_path):
    live.compare_last_logits(make(seed=7), tmp_path, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_16_bit_weights(tmp_path, dtype):
    live.compare_last_logits(make(seed=7, vocab_size=5000, n_embd=256, n_layer=6, n_head=4, n_positions=64), tmp_path, dtype)
