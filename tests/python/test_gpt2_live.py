"""GPT-2 against live transformers models in f32: logits, loss, every gradient, greedy tokens, a loss curve, and
checkpoints in both directions."""

import math
import os

import numpy as np
import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import torch
from runtime import Model, Session, Trainer
from transformers import GPT2Config, GPT2LMHeadModel

OPTIONS = dict(
    num_threads=2, num_steps=50, warmup_steps=5, learning_rate=1e-3, min_learning_rate=1e-4, beta1=0.9, beta2=0.95,
    eps=1e-8, weight_decay=0.1, max_grad_norm=1.0,
)  # fmt: skip


def make(seed=0, **sizes):
    torch.manual_seed(seed)
    config = GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
    return model


def batch(vocab, shape, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, shape, generator=g), torch.randint(0, vocab, shape, generator=g)


def loss_of(model, ids, targets):
    return torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), targets.flatten())


def distance(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


VARIANTS = {
    "plain": dict(vocab_size=211, n_embd=64, n_layer=2, n_head=4, n_positions=40),
    "erf_inner": dict(vocab_size=97, n_embd=48, n_layer=2, n_head=3, n_positions=40, activation_function="gelu", n_inner=100),
    "inverse_scale": dict(vocab_size=97, n_embd=32, n_layer=3, n_head=2, n_positions=40, scale_attn_by_inverse_layer_idx=True),
    "no_scale": dict(vocab_size=97, n_embd=32, n_layer=2, n_head=2, n_positions=40, scale_attn_weights=False),
    "untied": dict(vocab_size=97, n_embd=32, n_layer=2, n_head=2, n_positions=40, tie_word_embeddings=False),
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient(tmp_path, variant):
    theirs = make(**VARIANTS[variant])
    theirs.save_pretrained(tmp_path)
    ids, targets = batch(VARIANTS[variant]["vocab_size"], (3, 29))
    targets[0, 5:9] = -100
    want = loss_of(theirs, ids, targets)
    want.backward()
    ours = Model(tmp_path)
    trainer = Trainer(ours, batch_size=3, sequence_length=29, **OPTIONS)
    for _ in range(2):  # a second backward gives the same
        loss = trainer.backward(ids, targets)
        assert abs(loss - want.item()) <= 1e-6 * abs(want.item())
        grads = {name: p.grad for name, p in theirs.named_parameters()}
        names = ours.names()
        assert set(names) == set(grads)
        for i, name in enumerate(names):
            got, grad = trainer.gradient(i), grads[name].numpy()
            if any(part in name for part in ("c_attn.weight", "c_proj.weight", "c_fc.weight")):
                grad = grad.T
            assert distance(got, grad) <= 1e-4, name
    trainer.close()
    ours.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_tokens(tmp_path, variant):
    theirs = make(seed=3, initializer_range=0.2, **VARIANTS[variant])
    theirs.save_pretrained(tmp_path)
    prompt, _ = batch(VARIANTS[variant]["vocab_size"], (1, 7))
    want = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=33, do_sample=False, eos_token_id=None, pad_token_id=0)[0].tolist()
    ours = Model(tmp_path)
    session = Session(ours, VARIANTS[variant]["vocab_size"])
    tokens = want[:7]
    logits = session.feed(tokens)
    while len(tokens) < 40:
        tokens.append(int(logits.argmax()))
        logits = session.feed(tokens[-1:]) if len(tokens) < 40 else logits
    assert tokens == want
    session.close()
    ours.close()


def test_loss_curve(tmp_path):
    sizes = VARIANTS["plain"]
    theirs = make(seed=5, **sizes)
    theirs.save_pretrained(tmp_path)
    decayed = [p for p in theirs.parameters() if p.ndim > 1]
    others = [p for p in theirs.parameters() if p.ndim == 1]
    o = OPTIONS
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": o["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
    )  # fmt: skip
    ours = Model(tmp_path)
    trainer = Trainer(ours, batch_size=4, sequence_length=32, **o)
    for step in range(1, 51):
        ids, targets = batch(sizes["vocab_size"] // 4, (4, 32), seed=step)
        lr = o["learning_rate"] * step / 5
        if step > 5:
            cosine = 0.5 * (1 + math.cos(math.pi * (step - 5) / 45))
            lr = o["min_learning_rate"] + (o["learning_rate"] - o["min_learning_rate"]) * cosine
        for group in optimiser.param_groups:
            group["lr"] = lr
        optimiser.zero_grad()
        want = loss_of(theirs, ids, targets)
        want.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), o["max_grad_norm"])
        optimiser.step()
        assert abs(trainer.step(ids, targets) - want.item()) <= 1e-3, step
    trainer.save(tmp_path / "trained")
    back = GPT2LMHeadModel.from_pretrained(tmp_path / "trained").eval()
    for (name, a), (_, b) in zip(back.named_parameters(), theirs.named_parameters()):
        assert distance(a.detach().numpy(), b.detach().numpy()) <= 1e-3, name
    trainer.close()
    ours.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_logits_of_124m(tmp_path, dtype):
    theirs = make(seed=7).to(dtype)
    theirs.save_pretrained(tmp_path)
    ids, _ = batch(50257, (1, 48))
    with torch.no_grad():
        want = theirs.float()(ids).logits[0, -1].numpy()
    ours = Model(tmp_path)
    session = Session(ours, 50257)
    got = session.feed(ids[0])
    assert distance(got, want) <= (1e-4 if dtype == torch.float32 else 5e-2)
    if dtype == torch.float32:
        assert got.argmax() == want.argmax()
    session.close()
    ours.close()
