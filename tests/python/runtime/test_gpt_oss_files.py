"""A GPT-OSS directory in MXFP4 from file to file and from question to answer: what the blocks stand for, what is saved,
what is refused, and the commands on it."""

import json
import os
import subprocess

import numpy as np
import pytest
import tiny_gpt_oss as tiny
from chat_model import CLI, SECONDS
from model_library import Model, Session, Trainer

UNNAMED = tiny.VOCAB - 3  # an id that no tokenizer has


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("oss") / "tiny"
    tiny.make(path)
    return path


def tegula(*words):
    return subprocess.run([CLI, *map(str, words)], capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)


def saved(directory):
    return saved_in(directory / "model.safetensors")


def saved_in(path):
    """Tensors of a file as (dtype, array); bf16 as the f32 of the same value."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    out = {}
    for name, t in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in t["data_offsets"])
            raw = np.frombuffer(data[begin:end], {"BF16": np.uint16, "F32": np.float32, "F16": np.float16, "U8": np.uint8}[t["dtype"]])
            raw = (raw.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else raw
            out[name] = (t["dtype"], raw.reshape(t["shape"]))
    return out


def test_every_code_and_scale(tmp_path):
    """16 codes by 256 scales, in f32 and in bf16: the powers of two below the normal numbers and above the largest, too."""
    tensors = tiny.make(tmp_path / "m", hidden_size=32, num_local_experts=4, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1)
    blocks, scales = "model.layers.0.mlp.experts.gate_up_proj_blocks", "model.layers.0.mlp.experts.gate_up_proj_scales"
    codes = np.arange(256, dtype=np.uint8)
    tensors[scales] = codes.reshape(4, 64, 1).copy()
    tensors[blocks] = np.broadcast_to((np.arange(16) | np.arange(16)[::-1] << 4).astype(np.uint8), (4, 64, 1, 16)).copy()
    tiny.write_safetensors(tmp_path / "m" / "model.safetensors", tensors)
    want = tiny.values(tensors[blocks], tensors[scales])
    assert np.isinf(want).any() and (np.abs(want[want != 0]) < 2e-38).any()
    for dtype, name in (("f32", "F32"), ("bf16", "BF16")):
        assert tegula("convert", tmp_path / "m", tmp_path / dtype, "--dtype", dtype).returncode == 0
        kind, got = saved(tmp_path / dtype)["model.layers.0.mlp.experts.gate_up_proj"]
        assert kind == name and got.shape == (4, 32, 64)
        assert (got == want).all() and (np.signbit(got) == np.signbit(want)).all()


def test_saved_as_transformers_reads_it(directory, tmp_path):
    """The saved directory, and the blocks themselves, are the same model to transformers, bit for bit."""
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: no live models")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    done = tegula("convert", directory, tmp_path / "bf16", "--dtype", "bf16")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "bf16" / "config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "bfloat16"
    model = transformers.GptOssForCausalLM.from_pretrained(tmp_path / "bf16", dtype=torch.bfloat16)
    blocks = json.loads((directory / "model.safetensors").read_bytes()[8:].split(b"}}")[0] + b"}}")
    assert "model.layers.1.mlp.experts.down_proj_blocks" in blocks
    state, ours = model.state_dict(), saved(tmp_path / "bf16")
    assert set(state) == set(ours)
    source = saved(directory)
    for name, p in state.items():
        want = source[name][1] if name in source else tiny.values(source[name + "_blocks"][1], source[name + "_scales"][1])
        assert (p.float().numpy() == want).all(), name
    assert_same_as_the_blocks(torch, transformers, directory, state)
    # Both in f32: the whole model, sinks and windows included, beyond the window.
    ids = np.random.default_rng(5).integers(0, tiny.VOCAB, 40)
    with torch.no_grad():
        want = model.float()(torch.tensor(ids)[None]).logits[0, -1].numpy()
    ours = Model(directory, dtype=1)
    session = Session(ours, tiny.VOCAB)
    got = session.feed(ids)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    session.close()
    ours.close()


def assert_same_as_the_blocks(torch, transformers, directory, state):
    """transformers' own dequantization, where it has one on a CPU."""
    try:
        quantized = transformers.GptOssForCausalLM.from_pretrained(
            directory, dtype=torch.bfloat16, quantization_config=transformers.Mxfp4Config(dequantize=True)
        )
    except ImportError:
        return
    for name, p in quantized.state_dict().items():
        assert p.dtype == state[name].dtype and torch.equal(p, state[name]), name


@pytest.mark.parametrize(
    ("part", "shape", "message"),
    [
        ("gate_up_proj_scales", (5, 64, 3), r"expected U8 \[5, 64, 2\], got U8 \[5, 64, 3\]"),
        ("down_proj_scales", None, "expected this tensor"),
        ("down_proj_blocks", (5, 64, 1, 15), r"expected U8 \[5, 64, 1, 16\], got U8 \[5, 64, 1, 15\]"),
        ("gate_up_proj_blocks", (4, 64, 2, 16), r"expected U8 \[5, 64, 2, 16\], got U8 \[4, 64, 2, 16\]"),
        ("gate_up_proj_bias", (5, 63), r"expected F32\|F16\|BF16 \[5, 64\], got U8 \[5, 63\]"),
    ],
)
def test_wrong_blocks_are_named(tmp_path, part, shape, message):
    tensors = tiny.make(tmp_path)
    name = f"model.layers.1.mlp.experts.{part}"
    del tensors[name]
    if shape:
        tensors[name] = np.zeros(shape, np.uint8)
    tiny.write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(RuntimeError, match=f"{name}: {message}"):
        Model(tmp_path)


def test_widths_that_are_no_blocks_are_refused(tmp_path):
    tiny.make(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_size": 60}))
    with pytest.raises(RuntimeError, match=r"expected F32\|F16\|BF16|multiple of 32"):
        Model(tmp_path)


def test_info(directory):
    done = tegula("info", directory)
    assert "gpt_oss" in done.stdout and "5 in a layer, 2 for each token; MXFP4" in done.stdout
    assert "16 tokens in 1 of 2 layers" in done.stdout
    model = json.loads(tegula("info", directory, "--json").stdout)["model"]
    assert (model["num_experts"], model["experts_per_token"], model["sliding_window"], model["sliding_layers"]) == (5, 2, 16, 1)
    assert model["eos_token_ids"] == tiny.ENDS and model["mxfp4_experts"] is True


def test_every_end_ends_a_text(directory):
    for end in tiny.ENDS:
        done = tegula("generate", directory, "hi", "-n", 5, "--json", "--logit-bias", f"{end}=1e4", "--quiet")
        told = json.loads(done.stdout)
        assert (told["finish_reason"], told["ids"]) == ("stop", []), done.stderr


def test_ids_without_names_are_no_text(directory):
    done = tegula("generate", directory, "hi", "-n", 4, "--json", "--quiet", "--logit-bias", f"{UNNAMED}=1e4")
    told = json.loads(done.stdout)
    assert (told["ids"], told["text"], told["finish_reason"]) == ([UNNAMED] * 4, "", "length")


def test_caches_of_other_dtypes(directory):
    """Sinks take part in attention whatever the dtype of keys and values."""
    told = {}
    for cache in ("f32", "f16", "bf16"):
        done = tegula("generate", directory, "a tile on a roof", "-n", 1, "--temperature", 0, "--json", "--quiet", "--logprobs", 1, "--dtype", "f32", "--cache-dtype", cache)
        assert done.returncode == 0, done.stderr
        told[cache] = json.loads(done.stdout)["logprobs"][0]
    for cache, bound in (("f16", 2e-3), ("bf16", 2e-2)):
        assert told[cache]["id"] == told["f32"]["id"]
        assert abs(told[cache]["logprob"] - told["f32"]["logprob"]) <= bound


def test_chat(directory):
    """Harmony's turns by the directory's template; random weights, so any answer will do."""
    done = tegula("chat", directory, "-p", "hi", "--max-tokens", 6, "--seed", 3, "--stats", "--template-arg", 'reasoning_effort="low"')
    assert done.returncode == 0 and "tokens kept" in done.stderr, done.stderr
    done = tegula("chat", directory, "-p", "hi", "--max-tokens", 6, "--logit-bias", f"{tiny.ENDS[2]}=1e4", "--stats")
    assert done.returncode == 0 and "generated: 0 in" in done.stderr, done.stderr


@pytest.mark.parametrize("options", [[], ["--freeze-experts", "--dtype", "bf16", "--router-aux-loss", 0.5]])
def test_train(directory, tmp_path, options):
    """All but the experts, asked or not: these are saved as they were read, and a run goes on, with its auxiliary loss."""
    (tmp_path / "text").write_text("a tile on a tile on a roof. " * 60)
    done = tegula("train", "--model", directory, "--train-file", tmp_path / "text", "--out", tmp_path / "out", "--steps", 3, "--batch", 2, "--seq", 24, "--val-fraction", 0, *options)
    assert done.returncode == 0, done.stderr
    assert "MXFP4 experts, frozen" in done.stderr
    source, trained = saved(directory), saved(tmp_path / "out")
    assert set(source) == set(trained)
    for name, (kind, t) in source.items():
        assert (t == trained[name][1]).all() == (kind == "U8"), name
    assert json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["quant_method"] == "mxfp4"
    done = tegula("train", "--out", tmp_path / "out", "--resume", "--steps", 4)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    aux = [line.get("aux_loss") for line in steps if line["event"] == "step"]
    assert len(aux) == 4 and all((0 < loss < 10) if options else loss is None for loss in aux) and (" | aux " in done.stderr) == bool(options)
    assert tegula("generate", tmp_path / "out", "a", "-n", 3).returncode == 0


def test_train_dequantised(directory, tmp_path):
    """Elements train, experts too."""
    (tmp_path / "text").write_text("a tile on a tile on a roof. " * 60)
    assert tegula("convert", directory, tmp_path / "wide", "--dtype", "f32").returncode == 0
    done = tegula("train", "--model", tmp_path / "wide", "--train-file", tmp_path / "text", "--out", tmp_path / "out", "--steps", 2, "--batch", 2, "--seq", 24, "--val-fraction", 0)
    assert done.returncode == 0 and "frozen" not in done.stderr, done.stderr
    source, trained = saved(tmp_path / "wide"), saved(tmp_path / "out")
    assert all((t != trained[name][1]).any() for name, (_, t) in source.items())


def test_saved_as_read(directory, tmp_path):
    """Without a dtype every tensor is written as it was read, to the bit, in shards too."""
    assert tegula("convert", directory, tmp_path / "same", "--max-shard-size", "30KB").returncode == 0
    files = sorted((tmp_path / "same").glob("*.safetensors"))
    parts = [item for path in files for item in saved_in(path).items()]
    ours, source = dict(parts), saved(directory)
    assert len(files) > 3 and len(parts) == len(ours) and set(ours) == set(source)
    for name, (kind, t) in source.items():
        assert ours[name][0] == kind and (ours[name][1] == t).all(), name
    index = json.loads((tmp_path / "same" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.nbytes // (2 if kind == "BF16" else 1) for kind, t in source.values())
    told = [json.loads(tegula("info", path, "--json").stdout)["model"] for path in (directory, tmp_path / "same")]
    assert told[0]["weight_bytes"] == told[1]["weight_bytes"] < 0.75 * 2 * told[0]["parameters"]


def test_packed_is_dequantised(directory, tmp_path):
    """Logits, and the gradient of every parameter but the experts' matrices, are those of the elements."""
    assert tegula("convert", directory, tmp_path / "wide", "--dtype", "f32").returncode == 0
    ids = np.random.default_rng(7).integers(0, tiny.VOCAB, 48)
    logits, gradients = [], []
    for path in (directory, tmp_path / "wide"):
        model = Model(path, dtype=1)
        session, steps = Session(model, tiny.VOCAB), Session(model, tiny.VOCAB)
        logits.append(session.feed(ids))
        for t in ids:
            last = steps.feed([t])
        assert np.abs(last - logits[-1]).max() <= 1e-5 * np.abs(last).max()
        session.close()
        steps.close()
        trainer = Trainer(model, batch_size=1, sequence_length=24, num_steps=1, learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, freeze_experts=True)
        loss = trainer.backward(ids[:24], ids[1:25])
        frozen = [name.endswith(("gate_up_proj", "down_proj")) for name in model.names()]
        gradients.append([np.array(loss), *(trainer.gradient(i) for i, kept in enumerate(frozen) if not kept)])
        assert sum(frozen) == 4
        trainer.close()
        model.close()
    assert np.abs(logits[0] - logits[1]).max() <= 2e-6 * np.abs(logits[1]).max()
    for a, b in zip(*gradients, strict=True):
        assert np.abs(a - b).max() <= 2e-5 * np.abs(b).max()
