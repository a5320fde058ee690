"""tegula.Model: logits, arrays of any library, parameters, files, and calls that are wrong."""

import json
import os
import pickle
import subprocess
import sys

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
numpy = pytest.importorskip("numpy")

GPT = dict(n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=50)
QWEN = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    max_position_embeddings=64, vocab_size=50, rope_theta=1e4, tie_word_embeddings=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return tegula.Model(tegula.ModelConfig(**GPT), seed=7)


@pytest.fixture
def ids():
    return numpy.random.default_rng(3).integers(0, 50, (3, 9))


# ---- against transformers ----


def live_models():
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: no live models")
    transformers = pytest.importorskip("transformers")
    return {
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT)),
        "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**QWEN)),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**QWEN, "num_key_value_heads": 4})),
    }


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "llama"])
def test_logits_of_transformers(tmp_path, ids, family):
    makers = live_models()
    import torch

    torch.manual_seed(1)
    theirs = makers[family]().eval()
    theirs.save_pretrained(tmp_path)
    ours = tegula.Model.from_pretrained(tmp_path)
    tokens = torch.from_numpy(ids)
    with torch.no_grad():
        want = theirs(tokens).logits
    for got in (ours(tokens), torch.from_dlpack(ours(ids)), torch.from_dlpack(ours(ids.tolist()))):
        assert got.shape == want.shape and got.dtype == torch.float32
        assert (got - want).abs().max() <= 1e-5 * want.abs().max()
    last = ours(tokens, last_only=True)
    assert last.shape == (3, 50) and (last - want[:, -1]).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes_of_weights(tmp_path, model, ids, dtype):
    model.save_pretrained(tmp_path, dtype=dtype)
    narrow = tegula.Model.from_pretrained(tmp_path)
    assert narrow.dtype == dtype and tegula.Model.from_pretrained(tmp_path, dtype="float32").dtype == "float32"
    want = model(ids)
    assert 0 < abs(narrow(ids) - want).max() < 0.05 * abs(want).max()


# ---- arrays ----


def test_dtypes_of_logits(tmp_path, model, ids):
    torch = pytest.importorskip("torch")
    for name in ("bfloat16", "float16"):
        model.save_pretrained(tmp_path / name, dtype=name)
        narrow = tegula.Model.from_pretrained(tmp_path / name)
        rows = torch.from_numpy(ids)
        wide, got = narrow(rows), narrow(rows, dtype=name)
        assert wide.dtype == torch.float32 and got.dtype == getattr(torch, name) and (wide.to(got.dtype) == got).all()
        assert (narrow(rows, dtype="float32") == wide).all() and narrow(rows, last_only=True, dtype=name).shape == wide[:, -1].shape
        out = torch.empty_like(got)
        assert narrow(rows, out=out) is out and (out == got).all()
        assert narrow(rows, out=out, dtype=name) is out
        for given, asked in ((out, "float32"), (torch.empty_like(wide), name)):
            with pytest.raises(TypeError, match=r"out: expected \w+ \(dtype\), got"):
                narrow(rows, out=given, dtype=asked)
        other = "float16" if name == "bfloat16" else "bfloat16"
        with pytest.raises(ValueError, match="dtype: expected float32 or that of the weights"):
            narrow(rows, dtype=other)
        kind = type(narrow(ids, dtype=name))
        assert kind is (tegula.Array if name == "bfloat16" else numpy.ndarray)  # NumPy has no bfloat16
    assert model(ids, dtype="float32").dtype == numpy.float32
    with pytest.raises(ValueError, match="dtype: expected a name such as"):
        model(ids, dtype="f99")
    with pytest.raises(TypeError, match="model: dtype: expected a name such as"):
        model(ids, dtype=torch.float32)


def test_names_of_the_hub(tmp_path, monkeypatch, model, ids):
    """What a program of Hugging Face has downloaded; nothing is downloaded here."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--org--tiny"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("abc123")
    (place / "snapshots").mkdir()
    model.save_pretrained(place / "snapshots" / "abc123")
    found = tegula.Model.from_pretrained("org/tiny")
    assert (found(ids) == model(ids)).all() and found.config.n_layer == model.config.n_layer
    assert tegula.ModelConfig.from_pretrained("org/tiny").vocab_size == model.config.vocab_size
    with pytest.raises(RuntimeError, match=r"org/other: expected to find this directory, or models--org--other/refs/main in .*nothing is downloaded"):
        tegula.Model.from_pretrained("org/other")
    with pytest.raises(RuntimeError, match="models--org--other"):
        tegula.Tokenizer.from_pretrained("org/other")


def test_results_are_of_the_library_of_the_ids(model, ids):
    want = model(ids)
    assert type(want) is numpy.ndarray and want.dtype == numpy.float32 and want.shape == (3, 9, 50) and want.flags.writeable
    assert (model(ids[1]) == want[1]).all() and model(ids[1]).shape == (9, 50)
    assert (model(ids.astype(numpy.int32)) == want).all()
    assert (model(ids.tolist()) == want).all() and type(model(ids.tolist())) is numpy.ndarray
    assert (model(numpy.asfortranarray(ids)) == want).all() and (model(numpy.repeat(ids, 2, axis=1)[:, ::2]) == want).all()
    ours = tegula._core.array(ids.ravel().tolist(), ids.shape, "int64")
    assert type(model(ours)) is tegula.Array and (numpy.from_dlpack(model(ours)) == want).all()
    assert model(ids, last_only=True).shape == (3, 50) and model(ids[0], last_only=True).shape == (50,)
    assert abs(model(ids, last_only=True) - want[:, -1]).max() < 1e-6


def test_out_is_written(model, ids):
    out = numpy.full((3, 9, 50), numpy.nan, numpy.float32)
    assert model(ids, out=out) is out and (out == model(ids)).all()
    for wrong in (numpy.zeros((3, 9, 49), numpy.float32), numpy.zeros((3, 8, 50), numpy.float32), out[..., ::-1]):
        with pytest.raises(ValueError, match="out|logits"):
            model(ids, out=wrong)
    with pytest.raises(TypeError, match="expected f32, got f64"):
        model(ids, out=numpy.zeros((3, 9, 50)))


def test_array_is_a_view_for_everybody(model, ids):
    array = model(tegula._core.array(ids.ravel().tolist(), ids.shape, "int32"))
    assert array.shape == (3, 9, 50) and array.ndim == 3 and array.dtype == "float32" and len(array) == 3
    view = memoryview(array)
    assert view.shape == (3, 9, 50) and view.format == "f" and not view.readonly
    by_buffer, by_dlpack = numpy.asarray(view), numpy.from_dlpack(array)
    by_buffer[1, 2, 3] = 77
    assert by_dlpack[1, 2, 3] == 77 and array[1][2][3] == 77 and array.tolist() == by_dlpack.tolist()
    del array, view, by_buffer
    assert by_dlpack[1, 2, 3] == 77
    with pytest.raises(IndexError):
        tegula._core.array([1], (1,), "int32")[1]
    with pytest.raises(TypeError):
        tegula.Array()
    assert memoryview(tegula._core.array([1, 2], (2,), "int64")).tolist() == [1, 2]


def test_presets_and_configs():
    names = [preset["name"] for preset in tegula.presets()]
    assert names[:4] == ["gpt_nano", "gpt_micro", "gpt_mini", "gpt2"] and "qwen3-0.6b" in names
    assert tegula.presets()[3]["num_parameters"] == 124439808
    config = tegula.ModelConfig.gpt_tile_small(vocab_size=100)
    assert config == tegula.ModelConfig.preset("gpt_tile_small", 100) and config.n_layer == config.num_hidden_layers == 4
    assert tegula.ModelConfig.qwen3_0_6b().num_key_value_heads == 8
    assert tegula.ModelConfig.gpt_oss_20b().num_local_experts == 32 and tegula.ModelConfig.qwen3_30b_a3b().num_experts == 128
    shaped, named = tegula.Model(config, seed=5), tegula.Model.from_preset("gpt_tile_small", vocab_size=100, seed=5)
    assert (shaped([[1, 2]]) == named([[1, 2]])).all() and named.info["hidden_size"] == 64
    assert not (shaped([[1, 2]]) == tegula.Model(config, seed=6)([[1, 2]])).all()
    assert config.replace(n_layer=2).n_layer == 2 and config.n_layer == 4
    with pytest.raises(AttributeError, match="gpt3"):
        tegula.ModelConfig.gpt3()
    for wrong in (lambda: tegula.ModelConfig(n_layers=2), lambda: config.replace(nlayer=1), lambda: tegula.ModelConfig("qwen3", n_layer=2)):
        with pytest.raises(ValueError, match="ModelConfig: expected keys of .*, got n_?layers?$"):
            wrong()
    read = tegula.ModelConfig.from_dict({**config.to_dict(), "summary_type": "mean"})  # as config.json may have
    assert read.replace(summary_type="first", n_layer=1).n_layer == 1
    with pytest.raises(AttributeError, match="replace"):
        config.n_layer = 3
    with pytest.raises(ValueError, match="expected one of gpt_nano"):
        tegula.Model.from_preset("gpt3")
    with pytest.raises(ValueError, match="n_embd"):
        tegula.Model(tegula.ModelConfig(n_embd=0))
    with pytest.raises(NotImplementedError, match="bert"):
        tegula.Model(tegula.ModelConfig("bert"))
    assert tegula.Model(tegula.ModelConfig("qwen3", **QWEN)).config.head_dim == 16


# ---- parameters and files ----


def test_parameters_are_views(ids):
    model = tegula.Model(tegula.ModelConfig(**GPT), seed=7)
    before = model(ids)
    views = model.parameters()
    assert list(views)[0] == "transformer.wte.weight" and views["transformer.h.1.mlp.c_fc.weight"].shape == (128, 32)
    total = sum(numpy.from_dlpack(view).size for view in views.values())
    assert total == model.num_parameters()
    weight = numpy.from_dlpack(views["transformer.ln_f.weight"])
    assert not weight.flags.writeable and (weight == 1).all()
    written = numpy.from_dlpack(model.parameters(writable=True)["transformer.ln_f.weight"])
    written[:] = 2
    assert (weight == 2).all() and abs(model(ids) - 2 * before).max() < 1e-5
    model.set_parameter("transformer.ln_f.weight", numpy.ones(32, numpy.float16))
    assert (model(ids) == before).all()
    with pytest.raises(ValueError, match=r"ln_f.weight: expected \[32\], got \[31\]"):
        model.set_parameter("transformer.ln_f.weight", numpy.ones(31, numpy.float32))
    with pytest.raises(ValueError, match="such as transformer.wte.weight"):
        model.set_parameter("wte", numpy.ones(32, numpy.float32))
    del model
    assert (weight == 1).all()  # the memory is the views' too


def test_save_and_load(tmp_path, model, ids):
    tokenizer = tegula.Tokenizer.of_bytes()
    model.save_pretrained(tmp_path / "out", tokenizer=tokenizer)
    again = tegula.Model.from_pretrained(tmp_path / "out")
    assert (again(ids) == model(ids)).all() and again.config.n_embd == 32
    assert tegula.Tokenizer.from_pretrained(tmp_path / "out").encode("Hi") == [72, 105]


def damage(directory, how):
    config = directory / "config.json"
    weights = directory / "model.safetensors"
    if how == "no config":
        config.unlink()
    elif how == "config":
        config.write_text('{"model_type": "gpt2", "n_layer": ')
    elif how == "shape":
        config.write_text(json.dumps({**json.loads(config.read_text()), "n_embd": 34}))
    elif how == "weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    else:
        weights.unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [("no config", "config.json"), ("config", "config.json: byte"), ("shape", "expected"), ("weights", "model.safetensors"),
     ("no weights", "model.safetensors")],
)  # fmt: skip
def test_damaged_directories(tmp_path, model, how, message):
    model.save_pretrained(tmp_path / "out")
    damage(tmp_path / "out", how)
    with pytest.raises(RuntimeError, match=message):
        tegula.Model.from_pretrained(tmp_path / "out")


# ---- wrong calls ----


def test_wrong_ids(model, ids):
    before = model(ids)
    cases = [
        ([], ValueError, "an empty list"), ([[]], ValueError, "an empty row"), ([[1, 2], [3]], ValueError, r"ids\[1\]: expected a row of 2"),
        ([1, [2]], TypeError, "expected ints, got <class 'list'>"), ([1.5], TypeError, "expected ints, got <class 'float'>"),
        ([1, 50], ValueError, r"ids\[1\]: expected 0 to 49, got 50"), ([[0], [-1]], ValueError, r"ids\[1, 0\]: expected 0 to 49, got -1"),
        ([2**70], ValueError, "got 1180591620717411303424"), (numpy.array([[1, 2**40]]), ValueError, r"ids\[0, 1\]: expected 0 to 49, got 1099511627776"),
        (numpy.zeros((1, 17), int), ValueError, r"expected at most 16 tokens \(the model's positions\), got 17"),
        (numpy.zeros((2, 0), int), ValueError, r"got \[2, 0\]"), (numpy.zeros((1, 1, 1), int), ValueError, "got rank 3"),
        (numpy.zeros(3), TypeError, "expected i32 or i64, got f64"), (numpy.zeros(3, bool), TypeError, "got bool"),
        ("abc", TypeError, "expected a tensor, got <class 'str'>"), (None, TypeError, "NoneType"), (7, TypeError, "<class 'int'>"),
    ]  # fmt: skip
    for wrong, kind, message in cases:
        with pytest.raises(kind, match=message):
            model(wrong)
        if isinstance(wrong, list) and wrong == [[1, 2], [3]]:  # which generate takes
            continue
        with pytest.raises(kind, match=message):
            model.generate(wrong, 1)
    assert (model(ids) == before).all()
    assert model._handle.num_sessions()[0] == 0


def test_other_errors(model, tmp_path):
    with pytest.raises(ValueError, match="device: expected cpu, cuda or cuda:N, got tpu"):
        tegula.Model.from_preset("gpt_nano", device="tpu")
    with pytest.raises(ValueError, match="dtype: expected a name"):
        tegula.Model.from_pretrained(tmp_path, dtype="f8")
    for size in (0, -1, 2**40):
        for make in (tegula.ModelConfig.preset, lambda name, size: tegula.Model.from_preset(name, vocab_size=size)):
            with pytest.raises(ValueError, match=f"config: vocab_size: expected 1 to 2147483647, got {size}"):
                make("gpt_nano", size)
    for keywords in (dict(dtype=3), dict(cache_dtype=3), dict(device=None)):
        with pytest.raises(TypeError, match=f"model: {next(iter(keywords))}: expected a name such as .*, got "):
            tegula.Model.from_pretrained(tmp_path, **keywords)
    for seed in (-1, 2**64):  # 64 bits of any other number would be another model's
        with pytest.raises(ValueError, match="model: seed: expected 0 to 2\\*\\*64 - 1, got"):
            tegula.Model.from_preset("gpt_nano", seed=seed, vocab_size=50)
        with pytest.raises(ValueError, match="model: seed: expected"):
            tegula.Model(model.config, seed=seed)
    with pytest.raises(ValueError, match="model: num_threads: expected 0 to"):
        tegula.Model(model.config, num_threads=2**40)
    with pytest.raises(TypeError, match="model: config: expected a tegula.ModelConfig, got <class 'dict'>"):
        tegula.Model({"n_layer": 1})
    with pytest.raises(TypeError, match="model: tokenizer: expected a tegula.Tokenizer"):
        model.save_pretrained(tmp_path / "never", tokenizer="words")
    with pytest.raises(ValueError, match="model: max_shard_bytes: expected 0 to"):
        model.save_pretrained(tmp_path / "never", max_shard_bytes=2**70)
    assert not (tmp_path / "never").exists()
    with pytest.raises(ValueError, match="null character"):
        tegula.Tokenizer.from_pretrained(f"{tmp_path}\0/elsewhere")
    with pytest.raises(TypeError, match="save_pretrained"):
        pickle.dumps(model)
    with pytest.raises(TypeError, match="from_pretrained"):
        pickle.dumps(tegula.Tokenizer.of_bytes())
    if tegula.device_count() == 0:
        with pytest.raises((NotImplementedError, ValueError, RuntimeError)):
            tegula.Model.from_preset("gpt_nano", device="cuda")  # not at the first call


# ---- without other libraries ----

ALONE = """
import sys
import tegula
model = tegula.Model.from_preset("gpt_nano", vocab_size=257)
logits = model([[1, 2, 3]])
assert type(logits) is tegula.Array and logits.shape == (1, 3, 257), logits
out = model.generate([1, 2, 3], 4, stop=[])
assert type(out) is tegula.Array and len(out) == 7 and out.tolist()[:3] == [1, 2, 3]
with tegula.Trainer(model, batch_size=1, sequence_length=4, num_steps=2, learning_rate=1e-3) as trainer:
    assert trainer.step([[1, 2, 3, 4]], [[2, 3, 4, 5]]).step == 1
assert not {"numpy", "torch", "cupy", "transformers"} & set(sys.modules)
print("alone")
"""


def test_without_any_other_library():
    """-S: no site-packages, and so neither NumPy nor PyTorch."""
    done = subprocess.run([sys.executable, "-S", "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.stdout == "alone\n", done.stderr


def test_import_costs_no_more():
    program = "import sys, tegula; assert not [n for n in sys.modules if n.startswith('tegula.') and n not in ('tegula._core', 'tegula.settings')]"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)
