"""Directories of every family between transformers and the runtime: shards both ways, dtypes, logits at every position
with and without a cache, and training on in transformers from what the runtime saved."""

import json
import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import numpy
import tegula
import torch
from model_library import Trainer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

CLASSES = [GPT2LMHeadModel, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM]
MATRICES = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # [in, out] in GPT-2's files
BF16 = 3  # tg_dtype

family = pytest.mark.parametrize("model_class", CLASSES, ids=lambda c: c.config_class.model_type)
tied = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def make(model_class, tied, seed=0):
    if model_class is GPT2LMHeadModel:
        sizes = dict(vocab_size=97, n_embd=48, n_layer=2, n_head=3, n_positions=40, initializer_range=0.1, tie_word_embeddings=tied)
        return live.make(model_class, GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes), seed)
    llama3 = {"rope_type": "llama3", "rope_theta": 1e3, **live.ROPE["llama3"]}
    special = {LlamaForCausalLM: dict(rope_parameters=llama3), Qwen2ForCausalLM: dict(head_dim=live.ABSENT)}
    return live.make_llama(model_class, seed, tie_word_embeddings=tied, **special.get(model_class, {}))


@family
@tied
def test_every_position_with_and_without_a_cache(tmp_path, model_class, tied):
    theirs = make(model_class, tied)
    theirs.save_pretrained(tmp_path)
    ids, _ = live.batch(97, (1, 40))
    with torch.no_grad():
        want = theirs(ids, use_cache=False).logits[0].numpy()
    ours = live.Model(tmp_path)
    cached, pieces, fresh = (live.Session(ours, 97) for _ in range(3))
    end = 0
    for i in range(40):
        assert live.distance(cached.feed(ids[0, i : i + 1]), want[i]) <= 1e-5, i
        fresh.truncate(0)
        assert live.distance(fresh.feed(ids[0, : i + 1]), want[i]) <= 1e-5, i
        if i in (6, 7, 27, 39):
            assert live.distance(pieces.feed(ids[0, end : i + 1]), want[i]) <= 1e-5, i
            end = i + 1
    for session in (cached, pieces, fresh):
        session.close()
    ours.close()


def assert_equal(a, b):
    for (name, x), (other, y) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        assert name == other and torch.equal(x, y), name


@family
@tied
def test_shards_both_ways(tmp_path, model_class, tied):
    theirs = make(model_class, tied, 1)
    theirs.generation_config.do_sample, theirs.generation_config.top_k = True, 7
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="40KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    ours = live.Model(tmp_path / "theirs")
    for size, files in ((0, 1), (1, None), (40000, None)):
        ours.save(tmp_path / "ours", max_shard_bytes=size)
        names = [path.name for path in (tmp_path / "ours").glob("*.safetensors")]
        assert len(names) == files or (files is None and len(names) > 1)
        back = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
        assert type(back) is model_class and back.dtype == torch.float32
        assert (back.get_input_embeddings().weight is back.get_output_embeddings().weight) == tied
        assert_equal(back, theirs)
        assert back.generation_config.top_k == 7
    ours.close()


@family
def test_dtypes_are_rounded_as_in_pytorch(tmp_path, model_class):
    theirs = make(model_class, True, 2)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = live.Model(tmp_path / "theirs")
    ours.save(tmp_path / "ours", dtype=BF16)
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["dtype"] == "bfloat16"
    assert_equal(AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype="auto"), theirs.to(torch.bfloat16))
    ours.close()
    narrow = live.Model(tmp_path / "ours")
    narrow.save(tmp_path / "again")
    first, again = (tmp_path / name / "model.safetensors" for name in ("ours", "again"))
    assert first.read_bytes() == again.read_bytes()
    narrow.close()


@family
@tied
def test_training_goes_on_in_transformers(tmp_path, model_class, tied):
    """After a few steps here, transformers computes the same loss and gradients from the directory, and a step of its own
    optimiser lowers the loss."""
    make(model_class, tied, 3).save_pretrained(tmp_path / "start")
    ours = live.Model(tmp_path / "start")
    trainer = Trainer(ours, batch_size=3, sequence_length=29, **live.OPTIONS)
    ids, targets = live.batch(97, (3, 29))
    for _ in range(5):
        trainer.step(ids, targets)
    trainer.save(tmp_path / "trained")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "trained").eval()
    optimiser = torch.optim.AdamW(theirs.parameters(), lr=1e-3)
    want = live.loss_of(theirs, ids, targets)
    want.backward()
    assert abs(trainer.backward(ids, targets) - want.item()) <= 1e-6 * abs(want.item())
    grads = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    names = ours.names()
    assert set(names) == set(grads)
    for i, name in enumerate(names):
        turned = model_class is GPT2LMHeadModel and name.endswith(MATRICES)
        assert live.distance(trainer.gradient(i), grads[name].T if turned else grads[name]) <= 1e-4, name
    optimiser.step()
    with torch.no_grad():
        assert live.loss_of(theirs, ids, targets).item() < want.item()
    trainer.close()
    ours.close()


@family
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "other"])
def test_a_head_beside_tied_embeddings(tmp_path, model_class, equal):
    """Other values than the embedding's make the model untied, as in transformers; the same values do not."""
    make(model_class, False, 4).save_pretrained(tmp_path)
    path, weights = tmp_path / "config.json", load_file(tmp_path / "model.safetensors")
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": True}))
    if equal:
        weights["lm_head.weight"] = weights[next(n for n in weights if "embed_tokens" in n or "wte" in n)].clone()
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids, _ = live.batch(97, (1, 40))
    with torch.no_grad():
        want = AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits.numpy()
    model = tegula.Model.from_pretrained(tmp_path)
    assert model.config.tie_word_embeddings == equal
    assert live.distance(numpy.from_dlpack(model(ids.numpy())), want) <= 1e-5
    model.save_pretrained(tmp_path / "ours")
    assert ("lm_head.weight" in load_file(tmp_path / "ours" / "model.safetensors")) != equal
