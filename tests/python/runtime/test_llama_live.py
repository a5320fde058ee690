"""Llama and Qwen2 against live transformers models in f32: logits, loss, every gradient, greedy tokens, a loss curve,
and checkpoints in both directions. What they share with Qwen3, test_qwen3_live.py has too."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import torch
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

LLAMA = {
    "untied": dict(),
    "tied": dict(tie_word_embeddings=True),
    "attention_bias": dict(attention_bias=True, head_dim=10, hidden_size=28, intermediate_size=33),
    "mlp_bias": dict(mlp_bias=True, intermediate_size=33),
    "every bias": dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "all heads": dict(num_key_value_heads=4),
    "one key head": dict(num_key_value_heads=1, head_dim=6, hidden_size=40),
    **live.ROPE_VARIANTS,
}
QWEN2 = {
    "untied": dict(),
    "tied": dict(tie_word_embeddings=True),
    "odd": dict(hidden_size=40, intermediate_size=33, head_dim=10),
    "one key head": dict(num_key_value_heads=1),
    "window": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1, num_hidden_layers=3),
    "yarn": live.ROPE_VARIANTS["yarn"],
}
VARIANTS = [(LlamaForCausalLM, LLAMA, name) for name in LLAMA] + [(Qwen2ForCausalLM, QWEN2, name) for name in QWEN2]


def make(model_class, table, name, seed=0):
    # Files of Qwen2 have no such key.
    usual = {"head_dim": live.ABSENT} if model_class is Qwen2ForCausalLM else {}
    return live.make_llama(model_class, seed, **{**usual, **table[name]})


every = pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v[0].config_class.model_type}-{v[2]}")


@every
def test_loss_and_every_gradient(tmp_path, variant):
    live.compare_gradients(make(*variant), tmp_path)


@every
def test_greedy_tokens(tmp_path, variant):
    live.compare_greedy(make(*variant, seed=3), tmp_path)


@pytest.mark.parametrize(
    "variant",
    [
        (LlamaForCausalLM, LLAMA, "every bias"),
        (LlamaForCausalLM, LLAMA, "llama3"),
        (Qwen2ForCausalLM, QWEN2, "tied"),
        (Qwen2ForCausalLM, QWEN2, "window"),
    ],
    ids=lambda v: f"{v[0].config_class.model_type}-{v[2]}",
)
def test_loss_curve(tmp_path, variant):
    """What is trained is written as the family's class reads it: the model that comes back is the same."""
    theirs = make(*variant, seed=5)
    live.compare_curve(theirs, tmp_path)
    back = type(theirs.config).from_pretrained(tmp_path / "trained")
    for key, value in theirs.config.to_dict().items():
        if key not in ("_name_or_path", "dtype", "transformers_version", "rope_parameters", "max_window_layers", "initializer_range"):
            assert getattr(back, key) == value, key


@pytest.mark.parametrize("model_class", [LlamaForCausalLM, Qwen2ForCausalLM], ids=["llama", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_logits_of_16_bit_weights(tmp_path, model_class, dtype):
    sizes = dict(vocab_size=5000, hidden_size=256, intermediate_size=640, num_hidden_layers=6, head_dim=64, max_position_embeddings=64)
    theirs = live.make_llama(model_class, 7, tie_word_embeddings=True, **sizes)
    live.compare_last_logits(theirs, tmp_path, dtype)
