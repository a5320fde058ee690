"""Tiny decoders of transformers in every family that Tegula patches, on the device of placed.py, and what tests of them
compare."""

import warnings

import placed
import torch
from transformers import (
    GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config,
    Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
)  # fmt: skip

from tegula.patching.attention import served_by

# PyTorch's threads and Tegula's would wait for each other busily: these models take several times as long with both.
torch.set_num_threads(1)

SIZES = dict(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, initializer_range=0.1, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
WINDOW = dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)
EXPERTS = dict(
    head_dim=16, num_hidden_layers=4, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, sliding_window=5,
    rope_parameters=dict(
        rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
        original_max_position_embeddings=16,
    ),
)  # fmt: skip
FAMILIES = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=16)),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
}
# Whose experts are slow and whose routes flip in 16 bits: tests of every family leave them out.
SPARSE = {
    "gpt_oss": (GptOssConfig, GptOssForCausalLM, EXPERTS),
    # The first layer is dense.
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, dict(
        head_dim=16, moe_intermediate_size=48, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[0],
        router_aux_loss_coef=0.1,
    )),
    "mixtral": (MixtralConfig, MixtralForCausalLM, dict(
        intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, router_aux_loss_coef=0.1,
    )),
}  # fmt: skip
VARIANTS = {
    "qwen3": ("qwen3", {}),
    "qwen3 window": ("qwen3", WINDOW),
    "qwen3 tied": ("qwen3", dict(tie_word_embeddings=True, attention_bias=True, head_dim=10)),
    "qwen2": ("qwen2", {}),
    "qwen2 window": ("qwen2", WINDOW),
    "llama": ("llama", {}),
    "llama biases": ("llama", dict(attention_bias=True, mlp_bias=True, num_key_value_heads=4)),
}


def make(variant="qwen3", dtype=torch.float32, seed=0, **sizes):
    family, own = (variant, {}) if variant in SPARSE else VARIANTS[variant]
    config_class, model_class, base = {**FAMILIES, **SPARSE}[family]
    torch.manual_seed(seed)
    config = config_class(**{**SIZES, **base, **own, **sizes})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases away from 1 and 0
                parameter.add_(torch.randn_like(parameter) * 0.1)
    if hasattr(model, "set_experts_implementation") and family in SPARSE:
        model.set_experts_implementation("eager")  # PyTorch's grouped product takes no f64
    return placed.to_device(model.to(dtype)).train()


def batch(shape=(2, 17), seed=1, padding=None):
    """`padding`: None, or the number of pads of each row; negative ones stand at the end."""
    generator = torch.Generator().manual_seed(seed)
    ids = placed.randint(2, SIZES["vocab_size"], shape, generator=generator)
    labels = ids.clone()
    labels[0, 3:6] = -100
    if padding is None:
        return dict(input_ids=ids, labels=labels)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
        if count < 0:
            mask[row, count:] = 0
            mask[row, :count] = 1
    labels[mask == 0] = -100
    return dict(input_ids=ids, labels=labels, attention_mask=mask)


def loss_and_gradients(model, inputs):
    model.zero_grad()
    out = model(**inputs)
    out.loss.backward()
    return out.loss.detach().clone(), {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }


def logits(model, inputs):
    was, inputs = model.training, {key: value for key, value in inputs.items() if key != "labels"}
    with torch.no_grad():
        result = model.eval()(**inputs).logits
    model.train(was)
    return result


def served(model):
    """Who computed the last attention of its layers."""
    return {served_by(layer.self_attn) for layer in model.model.layers}


def distance(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def assert_close(ours, theirs, bound):
    """(loss, gradients) of the patched model against those of the stock one."""
    assert abs(ours[0] - theirs[0]) <= bound * abs(theirs[0]), (ours[0], theirs[0])
    assert ours[1].keys() == theirs[1].keys()
    for name in theirs[1]:
        assert distance(ours[1][name], theirs[1][name]) <= bound, (name, distance(ours[1][name], theirs[1][name]))
