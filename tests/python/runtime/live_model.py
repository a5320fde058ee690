"""What the tests of every family do with a live transformers model in f32 and its files."""

import copy
import math

import numpy as np
import torch
from model_library import Model, Session, Trainer
from transformers import LlamaConfig

OPTIONS = dict(
    num_threads=2, num_steps=50, warmup_steps=5, learning_rate=1e-3, min_learning_rate=1e-4, beta1=0.9, beta2=0.95,
    eps=1e-8, weight_decay=0.1, max_grad_norm=1.0,
)  # fmt: skip

# Sizes and scalings of RoPE that the families with Llama's keys are tried with.
SIZES = dict(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, max_position_embeddings=40,
)  # fmt: skip
ROPE = {
    "linear": dict(factor=2.0),
    "dynamic": dict(factor=3.0),
    "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    "yarn": dict(factor=4.0, original_max_position_embeddings=10),
    "yarn_all": dict(
        rope_type="yarn", factor=40.0, original_max_position_embeddings=12, beta_fast=16.0, beta_slow=2.0, mscale=1.0,
        mscale_all_dim=0.7, truncate=False,
    ),
    "yarn_factor": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=10, attention_factor=1.3),
}  # fmt: skip
ROPE_VARIANTS = {name: dict(rope_parameters={"rope_type": name, "rope_theta": 1e3, **values}) for name, values in ROPE.items()}
ABSENT = object()  # a size that the configuration is not given
NEWER = hasattr(LlamaConfig(), "rope_parameters")  # transformers 5


def older(config):
    """The dictionary with RoPE as transformers before 5 spells it."""
    parameters = config.pop("rope_parameters", {"rope_type": "default"})
    if "rope_theta" in parameters:
        config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    return config


def is_vector(name, p):
    """Biases and norms; biases of experts have two axes."""
    return p.ndim == 1 or name.endswith("_bias")


def make_llama(model_class, seed=0, **sizes):
    """A model of a family with Llama's keys: SIZES, and what differs from them."""
    # With deviations of 0.02 the halves of a layer would hardly move the logits.
    config = {key: copy.deepcopy(value) for key, value in {**SIZES, "initializer_range": 0.1, **sizes}.items() if value is not ABSENT}
    return make(model_class, model_class.config_class(**(config if NEWER else older(config))), seed)


def make(model_class, config, seed=0):
    """Random weights, with biases and norms away from 0 and 1."""
    torch.manual_seed(seed)
    model = model_class(config).eval()
    if hasattr(config, "num_experts_per_tok") and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # grouped_mm wants widths of whole 16 bytes
    with torch.no_grad():
        for name, p in model.named_parameters():
            if is_vector(name, p):
                p.add_(torch.randn_like(p) * 0.1)
    return model


def batch(vocab, shape, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, shape, generator=g), torch.randint(0, vocab, shape, generator=g)


def loss_of(model, ids, targets, **more):
    """With the auxiliary loss of routers where the config has it, as the model's own forward adds it."""
    out = model(ids, **more)
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), targets.flatten())
    return loss if getattr(out, "aux_loss", None) is None else loss + model.router_aux_loss_coef * out.aux_loss


def distance(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def compare_gradients(theirs, directory, transposed=(), file_name=lambda name: name):
    """Loss and every gradient; files hold the matrices whose names contain one of `transposed` as [in, out]."""
    theirs.save_pretrained(directory)
    ids, targets = batch(theirs.config.vocab_size, (3, 29))
    targets[0, 5:9] = -100
    want = loss_of(theirs, ids, targets)
    want.backward()
    ours = Model(directory)
    trainer = Trainer(ours, batch_size=3, sequence_length=29, **OPTIONS)
    for _ in range(2):  # a second backward gives the same
        loss = trainer.backward(ids, targets)
        assert abs(loss - want.item()) <= 1e-6 * abs(want.item())
        grads = {file_name(name): p.grad for name, p in theirs.named_parameters()}
        names = ours.names()
        assert set(names) == set(grads)
        for i, name in enumerate(names):
            got, grad = trainer.gradient(i), grads[name].numpy()
            if any(part in name for part in transposed):
                grad = grad.T
            assert got.shape == grad.shape and distance(got, grad) <= 1e-4, name
    trainer.close()
    ours.close()


def compare_greedy(theirs, directory):
    """Forty tokens, seven of them the prompt; ours one by one with a cache, theirs as generate does."""
    theirs.save_pretrained(directory)
    prompt, _ = batch(theirs.config.vocab_size, (1, 7))
    want = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=33, do_sample=False, eos_token_id=None, pad_token_id=0)[0].tolist()
    ours = Model(directory)
    session = Session(ours, theirs.config.vocab_size)
    tokens = want[:7]
    logits = session.feed(tokens)
    while len(tokens) < 40:
        tokens.append(int(logits.argmax()))
        logits = session.feed(tokens[-1:]) if len(tokens) < 40 else logits
    assert tokens == want
    session.close()
    ours.close()


def compare_curve(theirs, directory, steps=50):
    """Steps of AdamW, and the weights that come out, read back by transformers."""
    theirs.save_pretrained(directory)
    decayed = [p for name, p in theirs.named_parameters() if not is_vector(name, p)]
    others = [p for name, p in theirs.named_parameters() if is_vector(name, p)]
    o = OPTIONS
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": o["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
    )  # fmt: skip
    ours = Model(directory)
    trainer = Trainer(ours, batch_size=4, sequence_length=32, **o)
    for step in range(1, steps + 1):
        ids, targets = batch(theirs.config.vocab_size // 4, (4, 32), seed=step)
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
    trainer.save(directory / "trained")
    back = type(theirs).from_pretrained(directory / "trained").eval()
    for (name, a), (_, b) in zip(back.named_parameters(), theirs.named_parameters()):
        assert distance(a.detach().numpy(), b.detach().numpy()) <= 1e-3, name
    trainer.close()
    ours.close()


def compare_last_logits(theirs, directory, dtype):
    """Of a prompt of 48 tokens, where the files hold `dtype`, against the same weights in f32."""
    theirs.to(dtype).save_pretrained(directory)
    ids, _ = batch(theirs.config.vocab_size, (1, 48))
    with torch.no_grad():
        want = theirs.float()(ids).logits[0, -1].numpy()
    ours = Model(directory)
    session = Session(ours, theirs.config.vocab_size)
    got = session.feed(ids[0])
    assert distance(got, want) <= (1e-4 if dtype == torch.float32 else 5e-2)
    if dtype == torch.float32:
        assert got.argmax() == want.argmax()
    session.close()
    ours.close()
