"""Qwen3 against live transformers models in f32: logits, loss, every gradient, greedy tokens, a loss curve, and
checkpoints in both directions."""

import json
import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VARIANTS = {
    "untied": dict(),
    "tied": dict(tie_word_embeddings=True),
    "biased": dict(attention_bias=True, head_dim=10, hidden_size=27, intermediate_size=33),  # packed at odd places
    "all heads": dict(num_key_value_heads=4),
    "one key head": dict(num_key_value_heads=1, head_dim=6, hidden_size=40),
    "wide heads": dict(head_dim=64),
    "window": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1, num_hidden_layers=3),
    "window by layer": dict(
        use_sliding_window=True, sliding_window=3, num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "eps and theta": dict(rms_norm_eps=1e-2, rope_parameters={"rope_type": "default", "rope_theta": 77.0}),
    **live.ROPE_VARIANTS,
}  # fmt: skip


def make(seed=0, **sizes):
    return live.make_llama(Qwen3ForCausalLM, seed, **sizes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient(tmp_path, variant):
    live.compare_gradients(make(**VARIANTS[variant]), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_tokens(tmp_path, variant):
    live.compare_greedy(make(seed=3, **VARIANTS[variant]), tmp_path)


@pytest.mark.parametrize("variant", ["tied", "biased", "window", "yarn_all"])
def test_loss_curve(tmp_path, variant):
    """What is trained is written as Qwen3Config reads it: the model that comes back is the same."""
    theirs = make(seed=5, **VARIANTS[variant])
    live.compare_curve(theirs, tmp_path)
    back = Qwen3Config.from_pretrained(tmp_path / "trained")
    for key in [*live.SIZES, "tie_word_embeddings", "attention_bias", "layer_types", "sliding_window", "rms_norm_eps"]:
        assert getattr(back, key) == getattr(theirs.config, key), key
    defaults = {"beta_fast": 32, "beta_slow": 1, "truncate": True}
    wanted = rope(theirs.config)
    for key, value in rope(back).items():
        assert value == wanted.get(key, defaults.get(key)), key


def rope(config):
    if live.NEWER:
        return config.rope_parameters
    return {"rope_theta": config.rope_theta, **(config.rope_scaling or {"rope_type": "default"})}


def old_spelling(config):
    """As transformers before 5 wrote it: 4 does, but for two keys that came late."""
    if live.NEWER:
        config = live.older(config)
    config["torch_dtype"] = config.pop("dtype")
    del config["layer_types"]
    return config


@pytest.mark.parametrize("variant", ["eps and theta", "window", "linear", "llama3", "yarn_all"])
def test_old_config(tmp_path, variant):
    theirs = make(seed=9, **VARIANTS[variant])
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(old_spelling(json.loads(path.read_text()))))
    ids, _ = live.batch(97, (1, 40))
    with torch.no_grad():
        want = theirs(ids).logits[0, -1].numpy()
    ours = live.Model(tmp_path)
    session = live.Session(ours, 97)
    assert live.distance(session.feed(ids[0]), want) <= 1e-5
    session.close()
    ours.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_logits_of_16_bit_weights(tmp_path, dtype):
    sizes = dict(vocab_size=5000, hidden_size=256, intermediate_size=640, num_hidden_layers=6, head_dim=64, max_position_embeddings=64)
    live.compare_last_logits(make(seed=7, tie_word_embeddings=True, **sizes), tmp_path, dtype)
