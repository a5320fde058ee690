"""Documents packed into rows, and micro-batches, against live transformers models in f32 that see every document
alone: loss and every gradient."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

ROWS, LENGTH = 4, 32
STARTS = [0, 5, 6, 32, 64, 71, 80, 96, 107, 128]  # one document of a token, one of a row, padding at the end
WINDOW = dict(use_sliding_window=True, sliding_window=6, max_window_layers=1, num_hidden_layers=3)


def gpt2():
    config = GPT2Config(vocab_size=97, n_embd=48, n_layer=2, n_head=3, n_positions=40, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return live.make(GPT2LMHeadModel, config)


MODELS = {
    "gpt2": gpt2,
    "llama": lambda: live.make_llama(LlamaForCausalLM, **live.ROPE_VARIANTS["llama3"]),
    "qwen2": lambda: live.make_llama(Qwen2ForCausalLM, head_dim=live.ABSENT, **WINDOW),
    "qwen3": lambda: live.make_llama(Qwen3ForCausalLM, **WINDOW),
}
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def rows():
    ids, targets = live.batch(97, (ROWS * LENGTH,))
    targets[::7] = -100
    targets[STARTS[-2] :] = -100
    return ids, targets


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_loss_and_every_gradient(tmp_path, family, micro_batch):
    theirs = MODELS[family]()
    theirs.save_pretrained(tmp_path)
    ids, targets = rows()
    total = 0
    for first, end in zip(STARTS, STARTS[1:]):
        logits = theirs(ids[None, first:end]).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits, targets[first:end], reduction="sum")
    want = total / (targets != -100).sum()
    want.backward()
    ours = live.Model(tmp_path)
    sizes = dict(batch_size=ROWS, sequence_length=LENGTH, micro_batch_size=micro_batch, max_documents=3)
    trainer = live.Trainer(ours, **sizes, **live.OPTIONS)
    loss = trainer.backward(ids, targets, STARTS)
    assert abs(loss - want.item()) <= 1e-6 * want.item()
    assert abs(trainer.loss(ids, targets, STARTS) - want.item()) <= 1e-6 * want.item()
    grads = {name: p.grad for name, p in theirs.named_parameters()}
    for i, name in enumerate(ours.names()):
        grad = grads[name].numpy()
        if family == "gpt2" and any(part in name for part in TRANSPOSED):
            grad = grad.T
        assert live.distance(trainer.gradient(i), grad) <= 1e-4, name
    # Rows that are not cut have another loss.
    assert abs(trainer.loss(ids, targets) - want.item()) > 1e-3
    trainer.close()
    ours.close()
