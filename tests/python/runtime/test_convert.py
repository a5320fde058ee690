"""Checkpoints of PyTorch as directories: minGPT, nanoGPT, and pytorch_model.bin of every family."""

import json
import os
import pickle
import subprocess
import sys

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no checkpoints to convert", allow_module_level=True)

import live_model as live
import torch
from tegula import convert
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM


class Attention(nn.Module):
    def __init__(self, width, heads, positions, bias):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.register_buffer("bias", torch.tril(torch.ones(positions, positions)).view(1, 1, positions, positions))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Norm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 0.1 + 1)
        self.bias = nn.Parameter(torch.randn(width) * 0.1) if bias else None

    def forward(self, x):
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    def __init__(self, width, heads, positions, bias, act):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = Norm(width, bias), Attention(width, heads, positions, bias), Norm(width, bias)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width, bias=bias), c_proj=nn.Linear(4 * width, width, bias=bias)))
        self.act = act

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(self.act(self.mlp.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    """A model with minGPT's and nanoGPT's names and shapes."""

    def __init__(self, vocab=61, width=48, layers=3, heads=3, positions=32, bias=True, tied=True, exact=True):
        super().__init__()
        act = nn.GELU() if exact else nn.GELU(approximate="tanh")
        blocks = [Block(width, heads, positions, bias, act) for _ in range(layers)]
        self.transformer = nn.ModuleDict(
            dict(wte=nn.Embedding(vocab, width), wpe=nn.Embedding(positions, width), h=nn.ModuleList(blocks), ln_f=Norm(width, bias))
        )
        self.lm_head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.lm_head.weight = self.transformer.wte.weight

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


def make(seed=0, **sizes):
    torch.manual_seed(seed)
    return Gpt(**sizes).eval()


def nanogpt(model, **args):
    """What nanoGPT's train.py saves, of a compiled model."""
    state = {f"_orig_mod.{name}": tensor for name, tensor in model.state_dict().items() if not name.endswith(".attn.bias")}
    defaults = dict(n_layer=3, n_head=3, n_embd=48, block_size=32, bias=True, vocab_size=61, dropout=0.0)
    return {"model": state, "model_args": {**defaults, **args}, "iter_num": 7, "best_val_loss": torch.tensor(1.5), "config": {"x": "y"}}


def compare(model, directory):
    """Logits of transformers and ours beside those of the model that was saved."""
    ids, _ = live.batch(61, (1, 20))
    with torch.no_grad():
        want = model(ids)
        theirs = AutoModelForCausalLM.from_pretrained(directory).eval()
        assert live.distance(theirs(ids).logits.numpy(), want.numpy()) <= 1e-5
    ours = live.Model(directory)
    session = live.Session(ours, 61)
    assert live.distance(session.feed(ids[0]), want[0, -1].numpy()) <= 1e-5
    session.close()
    ours.close()
    return theirs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_nanogpt(tmp_path, bias, tied):
    model = make(bias=bias, tied=tied)
    torch.save(nanogpt(model, bias=bias), tmp_path / "ckpt.pt")
    config = convert.convert(tmp_path / "ckpt.pt", tmp_path / "out")
    assert config["activation_function"] == "gelu" and config["tie_word_embeddings"] == tied
    theirs = compare(model, tmp_path / "out")
    assert (theirs.lm_head.weight is theirs.transformer.wte.weight) == tied


@pytest.mark.parametrize("tied", [True, False])
def test_mingpt(tmp_path, tied):
    model = make(tied=tied, exact=False)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    config = convert.convert(tmp_path / "model.pt", tmp_path / "out")
    assert config["n_head"] == 3 and config["activation_function"] == "gelu_new"
    compare(model, tmp_path / "out")


def test_heads_and_activation_are_said(tmp_path):
    model = make(width=40, heads=5, exact=True)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(convert.ConversionError, match="expected --heads N, as a state dict of 3 layers and width 40 does not tell"):
        convert.convert(tmp_path / "model.pt", tmp_path / "out")
    with pytest.raises(convert.ConversionError, match="a number of heads that divides the width 40, got 7"):
        convert.convert(tmp_path / "model.pt", tmp_path / "out", heads=7)
    convert.convert(tmp_path / "model.pt", tmp_path / "out", heads=5, activation="gelu")
    compare(model, tmp_path / "out")


def test_state_dict_of_transformers(tmp_path):
    config = GPT2Config(vocab_size=61, n_embd=48, n_layer=3, n_head=3, n_positions=32)
    theirs = live.make(GPT2LMHeadModel, config, 2)
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    convert.convert(tmp_path / "state.pt", tmp_path / "out")
    compare(lambda ids: theirs(ids).logits, tmp_path / "out")


@pytest.mark.parametrize("model_class", [GPT2LMHeadModel, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM])
@pytest.mark.parametrize("tied, shards", [(True, 1), (False, 1), (True, 3)])
def test_pytorch_model_bin(tmp_path, model_class, tied, shards):
    """As transformers before 4.38 saved it: config.json beside one file, or an index and its shards."""
    source, out = tmp_path / "old", tmp_path / "new"
    if model_class is GPT2LMHeadModel:
        config = GPT2Config(vocab_size=61, n_embd=48, n_layer=2, n_head=3, n_positions=32, tie_word_embeddings=tied)
        theirs = live.make(model_class, config, 3)
    else:
        theirs = live.make_llama(model_class, 3, vocab_size=61, tie_word_embeddings=tied)
    theirs.config.save_pretrained(source)
    theirs.generation_config.do_sample, theirs.generation_config.top_k = True, 7
    theirs.generation_config.save_pretrained(source)
    state = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}  # the head beside the table, too
    names = list(state)
    parts = [names[i::shards] for i in range(shards)]
    files = {i: "pytorch_model.bin" if shards == 1 else f"pytorch_model-{i + 1:05d}-of-{shards:05d}.bin" for i in range(shards)}
    for i, part in enumerate(parts):
        torch.save({name: state[name] for name in part}, source / files[i])
    if shards > 1:
        index = {"metadata": {}, "weight_map": {name: files[i] for i, part in enumerate(parts) for name in part}}
        (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    config = convert.convert(source, out)
    assert config["tie_word_embeddings"] == tied
    compare(lambda ids: theirs(ids).logits, out)
    assert json.loads((out / "generation_config.json").read_text())["top_k"] == 7


def test_a_head_of_its_own_unties(tmp_path):
    config = GPT2Config(vocab_size=61, n_embd=48, n_layer=3, n_head=3, n_positions=32)
    theirs = live.make(GPT2LMHeadModel, config, 2)
    state = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    state["lm_head.weight"][5, 5] += 1
    source = tmp_path / "old"
    theirs.config.save_pretrained(source)
    torch.save(state, source / "pytorch_model.bin")
    assert not convert.convert(source / "pytorch_model.bin", tmp_path / "new")["tie_word_embeddings"]
    back = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    assert torch.equal(back.lm_head.weight, state["lm_head.weight"]) and torch.equal(back.transformer.wte.weight, state["transformer.wte.weight"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes_and_shards(tmp_path, dtype):
    model = make()
    torch.save(nanogpt(model.to(dtype)), tmp_path / "ckpt.pt")
    assert convert.convert(tmp_path / "ckpt.pt", tmp_path / "out", max_shard_bytes=20000)["dtype"] == str(dtype).removeprefix("torch.")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len([name for name in names if name.endswith(".safetensors")]) > 2 and "model.safetensors.index.json" in names
    back = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert back.dtype == dtype and torch.equal(back.transformer.wte.weight, model.transformer.wte.weight)
    convert.convert(tmp_path / "ckpt.pt", tmp_path / "out", dtype=torch.float32, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    compare(model.float(), tmp_path / "out")


def refuse(tmp_path, loaded, match, **options):
    torch.save(loaded, tmp_path / "wrong.pt")
    with pytest.raises(convert.ConversionError, match=match):
        convert.convert(tmp_path / "wrong.pt", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_wrong_checkpoints_are_named(tmp_path):
    state = dict(make().state_dict())
    refuse(tmp_path, [1], "wrong.pt: expected a state dict, got list")
    refuse(tmp_path, {}, "expected a state dict, got no tensors")
    refuse(tmp_path, {"a": 1}, "a: expected a tensor, got int")
    refuse(tmp_path, {"a": torch.zeros(2)}, r"transformer.wte.weight: expected a matrix of minGPT, nanoGPT or GPT-2 .*, got none")
    less = {name: tensor for name, tensor in state.items() if name != "transformer.h.1.ln_2.weight"}
    refuse(tmp_path, less, r"transformer.h.1.ln_2.weight: expected \[48\], got no such tensor")
    other = {**state, "transformer.h.2.mlp.c_proj.weight": torch.zeros(48, 191)}
    refuse(tmp_path, other, r"transformer.h.2.mlp.c_proj.weight: expected floats \[192, 48\], got torch.float32 \[191, 48\]")
    refuse(tmp_path, {**state, "transformer.ln_f.weight": torch.zeros(48, dtype=torch.int64)}, r"expected floats \[48\], got torch.int64")
    refuse(tmp_path, {**state, "lm_head.weight": torch.zeros(60, 48)}, r"lm_head.weight: expected floats \[61, 48\]")
    refuse(tmp_path, {**state, "score.weight": torch.zeros(2, 48)}, "score.weight: expected no such tensor in a model of gpt2")


class Evil:
    def __reduce__(self):
        return (print, ("this ran",))


def test_no_code_of_a_checkpoint_runs(tmp_path, capsys):
    torch.save({"model": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Evil(), protocol=2))
    (tmp_path / "text.pt").write_bytes(b"no checkpoint")
    for name in ("evil.pt", "raw.pt", "text.pt", "absent.pt"):
        with pytest.raises(convert.ConversionError, match=f"{name}: expected"):
            convert.convert(tmp_path / name, tmp_path / "out")
    assert "this ran" not in capsys.readouterr().out


def test_wrong_directories_are_named(tmp_path):
    source = tmp_path / "old"
    source.mkdir()
    with pytest.raises(convert.ConversionError, match="old/pytorch_model.bin: expected to read it, got No such file"):
        convert.convert(source, tmp_path / "out")
    (source / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "../a.bin"}}')
    with pytest.raises(convert.ConversionError, match="weight_map: expected files in the directory itself, got ../a.bin"):
        convert.convert(source, tmp_path / "out")
    (source / "pytorch_model.bin.index.json").write_text("{")
    with pytest.raises(convert.ConversionError, match="expected JSON"):
        convert.convert(source, tmp_path / "out")
    torch.save(make().state_dict() | {"transformer.h.0.attn.c_attn.weight": torch.zeros(48, 144)}, source / "pytorch_model.bin")
    (source / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(convert.ConversionError, match="model_type: expected one of gpt2, llama, qwen2, qwen3, got bert"):
        convert.convert(source, tmp_path / "out")
    (source / "config.json").write_text('{"model_type": "gpt2", "n_embd": 48}')
    with pytest.raises(convert.ConversionError, match="config.json: expected the key n_ctx, got none"):
        convert.convert(source, tmp_path / "out")


def test_command(tmp_path, capsys):
    torch.save(nanogpt(make()), tmp_path / "ckpt.pt")

    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "tegula.convert", *map(str, arguments)], text=True, capture_output=True)

    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "tokenizer.json").write_text("{}")
    done = run(tmp_path / "ckpt.pt", tmp_path / "out", "--dtype", "bf16", "--max-shard-size", "1GB", "--tokenizer", tmp_path / "words")
    assert done.returncode == 0 and done.stderr.strip().endswith("out: gpt2, 3 layers, 3 heads, head tied, bfloat16")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]

    def code(*arguments):
        """Of the same command in this process: the import of PyTorch takes most of its time."""
        try:
            return convert.main([*map(str, arguments)])
        except SystemExit as done:
            return done.code

    capsys.readouterr()
    assert code(tmp_path / "ckpt.pt", tmp_path / "out") == 1
    assert "expected a directory without a model (or --overwrite), got the model in it" in capsys.readouterr().err
    assert code(tmp_path / "ckpt.pt", tmp_path / "out", "--max-shard-size", "5XB") == 2
    assert code(tmp_path / "none.pt", tmp_path / "other") == 1
