"""GPT-OSS, Qwen3-MoE and Mixtral against live transformers models in f32: logits, loss, every gradient, greedy tokens, loss
curves, more tokens than the window, both spellings of files, and checkpoints in both directions."""

import json
import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import torch
from safetensors.torch import load_file, save_file

if not live.NEWER:
    pytest.skip("transformers 4 names the tensors of experts otherwise", allow_module_level=True)

from transformers import GptOssConfig, GptOssForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

OSS = dict(num_local_experts=6, num_experts_per_tok=2, intermediate_size=40, sliding_window=6, **live.ROPE_VARIANTS["yarn_all"])
MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True)
VARIANTS = {
    "oss": dict(),
    "oss square": dict(intermediate_size=64, hidden_size=64),  # a turned matrix would have the right shape
    "oss clamped": dict(swiglu_limit=0.5, swiglu_alpha=0.9, tie_word_embeddings=True),
    "oss unbiased": dict(attention_bias=False, num_experts_per_tok=3, head_dim=10, hidden_size=27, intermediate_size=33),
    "oss all experts": dict(num_experts_per_tok=6, layer_types=["full_attention", "sliding_attention"]),
    "moe": dict(),
    "moe softmax": dict(norm_topk_prob=False, num_experts_per_tok=3),
    "moe biased": dict(attention_bias=True, tie_word_embeddings=True, head_dim=10, hidden_size=27, moe_intermediate_size=33),
    "moe window": dict(use_sliding_window=True, sliding_window=5),
    "mixtral": dict(sliding_window=7),
}
CLASSES = {"oss": (GptOssForCausalLM, GptOssConfig), "moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig), "mixtral": (MixtralForCausalLM, MixtralConfig)}
SIZES = {"oss": OSS, "moe": MOE, "mixtral": dict(num_local_experts=5, num_experts_per_tok=2)}


def make(variant, seed=0, **sizes):
    family = variant.split()[0]
    return live.make_llama(CLASSES[family][0], seed, **{**SIZES[family], **VARIANTS[variant], **sizes})


def file_name(variant):
    """Files of Mixtral keep the name that its blocks had before transformers 5."""
    return lambda name: name.replace(".mlp.", ".block_sparse_moe.") if variant == "mixtral" else name


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient(tmp_path, variant):
    live.compare_gradients(make(variant), tmp_path, file_name=file_name(variant))


@pytest.mark.parametrize("variant", ["oss", "moe softmax", "mixtral"])
def test_greedy_tokens(tmp_path, variant):
    live.compare_greedy(make(variant, seed=3), tmp_path)


@pytest.mark.parametrize("variant", ["oss clamped", "moe biased", "mixtral"])
def test_loss_curve(tmp_path, variant):
    """What is trained is written as transformers reads it: the model that comes back is the same."""
    theirs = make(variant, seed=5)
    live.compare_curve(theirs, tmp_path, steps=6)
    family = variant.split()[0]
    back = CLASSES[family][1].from_pretrained(tmp_path / "trained")
    own = {
        "oss": ["num_local_experts", "attention_bias", "layer_types", "swiglu_limit", "swiglu_alpha"],
        "moe": ["num_experts", "attention_bias", "moe_intermediate_size", "norm_topk_prob"],
        "mixtral": ["num_local_experts", "intermediate_size"],
    }
    keys = ["num_experts_per_tok", "hidden_size", "head_dim", "tie_word_embeddings", "sliding_window", "rms_norm_eps", "router_aux_loss_coef"]
    for key in keys + own[family]:
        assert getattr(back, key) == getattr(theirs.config, key), key
    assert {key: value for key, value in back.rope_parameters.items() if key in theirs.config.rope_parameters} == theirs.config.rope_parameters
    names = [set(load_file(tmp_path / folder / "model.safetensors")) for folder in (".", "trained")]
    assert names[0] == names[1]  # experts are split as transformers splits them


@pytest.mark.parametrize("tokens", [129, 400])
def test_more_tokens_than_the_window(tmp_path, tokens):
    """Prefill and decoding, beyond a window of 128 and YaRN's original positions."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 32.0, "original_max_position_embeddings": 64, "truncate": False}
    theirs = make("oss", seed=2, sliding_window=128, max_position_embeddings=512, rope_parameters=rope)
    theirs.save_pretrained(tmp_path)
    ids, _ = live.batch(97, (1, tokens))
    with torch.no_grad():
        want = theirs(ids).logits[0].numpy()
    ours = live.Model(tmp_path)
    session = live.Session(ours, 97)
    assert live.distance(session.feed(ids[0, : tokens - 3]), want[tokens - 4]) <= 1e-5
    for i in range(tokens - 3, tokens):
        assert live.distance(session.feed(ids[0, i : i + 1]), want[i]) <= 1e-5
    session.close()
    ours.close()


@pytest.mark.nightly
def test_more_tokens_than_yarn_was_made_for(tmp_path):
    """GPT-OSS's own RoPE, beyond its 4096 original positions, where a wrong factor or bound shows."""
    rope = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096, "truncate": False}
    theirs = make("oss", seed=2, sliding_window=128, max_position_embeddings=8192, rope_parameters=rope, head_dim=64, num_attention_heads=2, num_key_value_heads=1)
    theirs.save_pretrained(tmp_path)
    ids, _ = live.batch(97, (1, 4200))
    with torch.no_grad():
        want = theirs(ids, logits_to_keep=1).logits[0, -1].numpy()
    assert live.distance(last_logits(tmp_path, ids[0]), want) <= 1e-5


@pytest.mark.parametrize("variant", ["oss", "moe", "mixtral"])
def test_only_experts_of_a_token_are_computed(tmp_path, variant):
    """NaN in all others changes no bit of a pass over one token."""
    theirs = make(variant, seed=9)
    theirs.save_pretrained(tmp_path)
    routes = []
    for layer in theirs.model.layers:
        router = getattr(layer.mlp, "router", None) or layer.mlp.gate
        router.register_forward_hook(lambda module, inputs, out: routes.append(out[-1].flatten().tolist()))
    with torch.no_grad():
        theirs(torch.tensor([[5]]))
    want = last_logits(tmp_path, torch.tensor([5]))
    for layer, selected in zip(theirs.model.layers, routes, strict=True):
        for p in layer.mlp.experts.parameters():
            others = [e for e in range(p.shape[0]) if e not in selected]
            assert others and len(selected) == theirs.config.num_experts_per_tok
            p.data[others] = torch.nan
    theirs.save_pretrained(tmp_path)
    assert (last_logits(tmp_path, torch.tensor([5])) == want).all()


def last_logits(directory, ids):
    ours = live.Model(directory)
    session = live.Session(ours, 97)
    logits = session.feed(ids)
    session.close()
    ours.close()
    return logits


def test_stacked_experts_of_qwen3(tmp_path):
    """One tensor for all experts, as the model holds them, is the same model as one for each."""
    theirs = make("moe", seed=4)
    theirs.save_pretrained(tmp_path)
    ids, _ = live.batch(97, (30,))
    want = last_logits(tmp_path, ids)
    stacked = {name: p.detach().clone() for name, p in theirs.named_parameters()}
    assert "model.layers.0.mlp.experts.gate_up_proj" in stacked
    save_file(stacked, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert (last_logits(tmp_path, ids) == want).all()


def test_old_spelling_of_gpt_oss(tmp_path):
    """config.json as openai/gpt-oss-20b has it: rope_scaling, rope_theta, experts_per_token."""
    theirs = make("oss", seed=6)
    theirs.save_pretrained(tmp_path)
    ids, _ = live.batch(97, (30,))
    with torch.no_grad():
        want = theirs(ids[None]).logits[0, -1].numpy()
    path = tmp_path / "config.json"
    config = live.older(json.loads(path.read_text()))
    config["experts_per_token"] = config.pop("num_experts_per_tok")
    del config["dtype"], config["swiglu_alpha"]
    path.write_text(json.dumps(config))
    assert live.distance(last_logits(tmp_path, ids), want) <= 1e-5


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("model.layers.1.mlp.experts.3.up_proj.weight", None, "expected this tensor"),
        ("model.layers.0.mlp.experts.0.down_proj.weight", (64, 23), r"expected F32\|F16\|BF16 \[64, 24\], got F32 \[64, 23\]"),
        ("model.layers.0.mlp.gate.weight", (7, 64), r"expected F32\|F16\|BF16 \[6, 64\], got F32 \[7, 64\]"),
    ],
)
def test_wrong_tensors_are_named(tmp_path, name, shape, message):
    make("moe").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[name]
    if shape:
        tensors[name] = torch.zeros(shape)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match=f"{name}: {message}"):
        live.Model(tmp_path)


def test_wrong_number_of_experts_is_named(tmp_path):
    make("oss").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_local_experts": 5}))
    with pytest.raises(RuntimeError, match=r"mlp.router.weight: expected F32\|F16\|BF16 \[5, 64\], got F32 \[6, 64\]"):
        live.Model(tmp_path)


# ---- the auxiliary loss ----

BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.7)


@pytest.mark.parametrize("variant", ["oss", "moe softmax", "mixtral"])
def test_auxiliary_loss_and_every_gradient(tmp_path, variant):
    """A coefficient this large moves every gradient: without it they differ from the second digit on."""
    live.compare_gradients(make(variant, **BALANCED), tmp_path, file_name=file_name(variant))


def balanced(theirs, directory, ids, targets, starts=None, **options):
    """Ours after a backward: the trainer, its loss, and the model; the loss of an evaluation has no auxiliary part."""
    theirs.save_pretrained(directory)
    ours = live.Model(directory)
    trainer = live.Trainer(ours, batch_size=ids.shape[0], sequence_length=ids.shape[1], **live.OPTIONS, **options)
    with torch.no_grad():
        out = theirs(ids, attention_mask=(targets != -100).long() if starts is not None else None)
        plain = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), targets.flatten()).item()
    assert abs(trainer.loss(ids, targets, starts) - plain) <= 1e-6 * plain
    return ours, trainer, trainer.backward(ids, targets, starts)


def expect_gradients(theirs, ours, trainer):
    grads = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for i, name in enumerate(ours.names()):
        assert live.distance(trainer.gradient(i), grads[name]) <= 1e-4, name
    trainer.close()
    ours.close()


@pytest.mark.parametrize("micro", [2, 1])
def test_padding_is_not_balanced(tmp_path, micro):
    """The rest of a row is a document without targets: what an attention mask leaves out of the loss. Of micro-batches it
    is the mean by tokens."""
    theirs = make("oss", seed=7, **BALANCED)
    ids, targets = live.batch(97, (2, 24))
    lengths = [17, 24]
    targets[0, 17:] = -100
    mask = (targets != -100).long()
    parts = [(slice(None), 1.0)] if micro == 2 else [(slice(i, i + 1), n / sum(lengths)) for i, n in enumerate(lengths)]
    want = torch.nn.functional.cross_entropy(theirs(ids, attention_mask=mask).logits.flatten(0, 1), targets.flatten())
    for rows, share in parts:
        want = want + share * theirs.router_aux_loss_coef * theirs(ids[rows], attention_mask=mask[rows]).aux_loss
    want.backward()
    starts = [0, 17, 24, 48]
    ours, trainer, loss = balanced(theirs, tmp_path, ids, targets, starts, micro_batch_size=micro, max_documents=2)
    assert abs(loss - want.item()) <= 1e-6 * want.item()
    expect_gradients(theirs, ours, trainer)


@pytest.mark.parametrize("coefficient", [0.0, 0.3])
def test_coefficient_of_the_trainer(tmp_path, coefficient):
    """It wins over the config's; 0 is none."""
    theirs = make("moe", seed=8, **BALANCED)
    ids, targets = live.batch(97, (2, 24))
    theirs.router_aux_loss_coef = coefficient
    want = live.loss_of(theirs, ids, targets)
    want.backward()
    ours, trainer, loss = balanced(theirs, tmp_path, ids, targets, has_router_aux_loss_coef=True, router_aux_loss_coef=coefficient)
    assert abs(loss - want.item()) <= 1e-6 * want.item()
    expect_gradients(theirs, ours, trainer)
