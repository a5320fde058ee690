"""`tegula generate` beside transformers' generate: greedy tokens under penalties and biases, end tokens, defaults of the
directory, log-probabilities, stop strings in text."""

import json
import os
import subprocess

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)

import live_model as live
import tokenizer_graphs as graphs
import torch
from model_library import BUILD
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList, Qwen3ForCausalLM

PROGRAM = next(path for path in BUILD.rglob("tegula") if path.is_file() and os.access(path, os.X_OK))
PROMPT = [5, 17, 90, 5, 33, 2, 17]
COUNT = 16


def run(*arguments, env=None):
    command = [PROGRAM, "generate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, encoding="utf-8")


def ours(directory, *arguments, prompt=PROMPT):
    done = run(directory, "--tokens", ",".join(map(str, prompt)), "--json", "--quiet", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make(model_class):
    if model_class is GPT2LMHeadModel:
        sizes = dict(vocab_size=97, n_embd=48, n_layer=2, n_head=3, n_positions=64, initializer_range=0.2)
        model = live.make(model_class, GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=1, **sizes), 4)
    else:
        model = live.make_llama(model_class, 4, max_position_embeddings=64, initializer_range=0.2)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.config.eos_token_id = None
    return model


@pytest.fixture(scope="module", params=[GPT2LMHeadModel, Qwen3ForCausalLM], ids=["gpt2", "qwen3"])
def pair(request, tmp_path_factory):
    """A model and its directory."""
    theirs, directory = make(request.param), tmp_path_factory.mktemp("model")
    theirs.save_pretrained(directory)
    return theirs, directory


def generate(theirs, **options):
    ids = torch.tensor([PROMPT])
    options = {"max_new_tokens": COUNT, "do_sample": False, **options}
    return theirs.generate(ids, attention_mask=torch.ones_like(ids), **options)


def tokens(theirs, **options):
    return generate(theirs, **options)[0, len(PROMPT) :].tolist()


class Counted(LogitsProcessor):
    """OpenAI's presence and frequency penalties, of what was generated."""

    def __init__(self, presence, frequency):
        self.presence, self.frequency = presence, frequency

    def __call__(self, ids, scores):
        counts = torch.bincount(ids[0, len(PROMPT) :], minlength=scores.shape[1]).to(scores.dtype)
        return scores - self.frequency * counts - self.presence * (counts > 0)


def test_greedy(pair):
    theirs, directory = pair
    found = ours(directory, "--temp", 0, "-n", COUNT)
    assert found["ids"] == tokens(theirs)
    assert found["finish_reason"] == "length" and found["text"] is None
    timings = found["timings"]
    assert timings["prompt_n"] == len(PROMPT) and timings["predicted_n"] == COUNT and timings["cache_n"] == 0
    per_second = timings["predicted_per_second"] * timings["predicted_per_token_ms"]
    assert per_second == pytest.approx(1e3, rel=1e-6)
    assert timings["predicted_per_token_ms"] * COUNT == pytest.approx(timings["predicted_ms"], rel=1e-6)


@pytest.mark.parametrize("penalty", [0.8, 1.5])
def test_repetition_penalty(pair, penalty):
    theirs, directory = pair
    found = ours(directory, "--temp", 0, "-n", COUNT, "--repeat-penalty", penalty)
    assert found["ids"] == tokens(theirs, repetition_penalty=penalty)


@pytest.mark.parametrize("presence, frequency", [(1.5, 0), (-0.3, 0.4)])
def test_presence_and_frequency(pair, presence, frequency):
    theirs, directory = pair
    found = ours(directory, "--temp", 0, "-n", COUNT, "--presence-penalty", presence, "--frequency-penalty", frequency)
    assert found["ids"] == tokens(theirs, logits_processor=LogitsProcessorList([Counted(presence, frequency)]))


def test_logit_bias_before_penalties(pair):
    theirs, directory = pair
    bias = {3: 2.5, 40: -1.0, 41: 4.0}
    want = tokens(theirs, repetition_penalty=1.4, sequence_bias={(i,): value for i, value in bias.items()})
    text = ",".join(f"{i}={value}" for i, value in bias.items())
    assert ours(directory, "--temp", 0, "-n", COUNT, "--repetition-penalty", 1.4, "--logit-bias", text)["ids"] == want


def test_end_tokens(pair, tmp_path):
    theirs, directory = pair
    plain = tokens(theirs)
    ends = [plain[6], plain[11]]
    first = min(plain.index(i) for i in ends)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(directory / name)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    found = ours(tmp_path, "--temp", 0, "-n", COUNT)
    assert found["ids"] == plain[:first] and found["finish_reason"] == "stop"
    assert tokens(theirs, eos_token_id=ends) == plain[: first + 1]  # theirs has the end token too
    want = tokens(theirs, suppress_tokens=ends)
    assert ours(tmp_path, "--temp", 0, "-n", COUNT, "--ignore-eos")["ids"] == want


def test_defaults_of_the_directory(pair, tmp_path):
    theirs, directory = pair
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(directory / name)
    said = {"do_sample": False, "repetition_penalty": 1.3, "max_new_tokens": 7, "transformers_version": "5.0.0"}
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    want = tokens(theirs, repetition_penalty=1.3)
    assert ours(tmp_path)["ids"] == want[:7]
    assert ours(tmp_path, "-n", 12)["ids"] == want[:12]
    assert ours(tmp_path, "-n", 12, "--repeat-penalty", 1)["ids"] == tokens(theirs)[:12]


def test_logprobs(pair):
    """Those of the model, whatever changed the logits before the pick."""
    theirs, directory = pair
    told = generate(theirs, repetition_penalty=1.5, output_logits=True, return_dict_in_generate=True)
    want = torch.log_softmax(torch.cat(told.logits), -1)
    found = ours(directory, "--temp", 0, "-n", COUNT, "--repetition-penalty", 1.5, "--logprobs", 3)
    assert len(found["logprobs"]) == COUNT
    for i, one in enumerate(found["logprobs"]):
        assert one["id"] == found["ids"][i] and one["logprob"] == pytest.approx(want[i, one["id"]].item(), abs=1e-4)
        values, ids = want[i].topk(3)
        assert [top["id"] for top in one["top"]] == ids.tolist()
        assert [top["logprob"] for top in one["top"]] == pytest.approx(values.tolist(), abs=1e-4)


# ---- text ----


@pytest.fixture(scope="module")
def chatty(tmp_path_factory):
    """A model whose tokens are the 256 bytes, so that a character is up to four tokens."""
    directory = tmp_path_factory.mktemp("bytes")
    vocab = {graphs.ALPHABET[byte]: byte for byte in range(256)}
    graphs.write(directory, graphs.graph(vocab, [], graphs.byte_level(use_regex=True)))
    sizes = dict(vocab_size=256, n_embd=48, n_layer=1, n_head=3, n_positions=200)
    live.make(GPT2LMHeadModel, GPT2Config(bos_token_id=None, eos_token_id=None, **sizes), 2).save_pretrained(directory)
    return directory


def biased(text, step=-40):
    """Biases and a penalty by which a greedy model writes the bytes of `text`, no two of them equal, in their order."""
    data = text.encode()
    assert len(set(data)) == len(data)
    return ["--temp", 0, "--logit-bias", ",".join(f"{byte}={500 + step * i / 4}" for i, byte in enumerate(data)), "--presence-penalty", 900, "-n", len(data)]


def test_characters_cut_by_tokens(chatty):
    text = "grün日 ε🙂!"
    done = run(chatty, "x", "--quiet", *biased(text))
    assert done.stdout == text + "\n", done.stderr
    for stop, want in (("日", "grün"), ("🙂", "grün日 ε"), (" ε", "grün日"), ("n日", "grü"), ("🙃", text), ("!?", text)):
        assert run(chatty, "x", "--quiet", *biased(text), "--stop", stop).stdout == want + "\n"
    found = json.loads(run(chatty, "x", "--json", *biased(text), "--stop", "never", "--stop", "日 ").stdout)
    assert found["text"] == "grün" and found["finish_reason"] == "stop"
    assert bytes(found["ids"]) == "grün日 ".encode()  # the ids that were picked, those of the stop string too


def test_results_are_those_of_single_runs(chatty, tmp_path):
    prompts = [f"prompt {i} ü" for i in range(6)]
    path, out = tmp_path / "prompts.jsonl", tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "seed": i}) + "\n" for i, p in enumerate(prompts)), encoding="utf-8")
    done = run(chatty, "-f", path, "--out", out, "-n", 25, "--repeat-penalty", 1.1, "--temp", 1.5)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [r["index"] for r in results] == list(range(6))
    for i, prompt in enumerate(prompts):
        alone = json.loads(run(chatty, prompt, "--json", "--seed", i, "-n", 25, "--repeat-penalty", 1.1, "--temp", 1.5).stdout)
        assert {k: results[i][k] for k in ("text", "ids", "finish_reason")} == {k: alone[k] for k in ("text", "ids", "finish_reason")}
        assert results[i]["timings"]["predicted_n"] == 25


def test_hub_name_in_the_cache(chatty, tmp_path):
    """As the hub's library lays it out: files of a snapshot are links to blobs."""
    place = tmp_path / "hub" / "models--org--tiny"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("c0ffee")
    (place / "snapshots" / "c0ffee").mkdir(parents=True)
    (place / "blobs").mkdir()
    for file in chatty.iterdir():
        (place / "blobs" / f"blob-{file.name}").write_bytes(file.read_bytes())
        (place / "snapshots" / "c0ffee" / file.name).symlink_to(f"../../blobs/blob-{file.name}")
    env = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    found = run("org/tiny", "x", "--quiet", "-n", 9, env=env)
    assert found.returncode == 0, found.stderr
    assert found.stdout == run(chatty, "x", "--quiet", "-n", 9).stdout
    absent = run("org/other", "x", env=env)
    assert absent.returncode == 1 and "nothing is downloaded" in absent.stderr and str(tmp_path / "hub") in absent.stderr
