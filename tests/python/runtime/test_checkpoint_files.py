"""config.json and the tokenizer's files, as transformers reads them."""

import json
import os
import pathlib
import subprocess

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("needs transformers", allow_module_level=True)
hypothesis = pytest.importorskip("hypothesis")
transformers = pytest.importorskip("transformers")
from hypothesis import given, settings, strategies as st  # noqa: E402
from model_library import Tokenizer  # noqa: E402

BUILD = pathlib.Path(os.environ.get("TEGULA_BUILD", pathlib.Path(__file__).resolve().parents[3] / "build"))
TOOL = BUILD / "tests" / "checkpoint_files_tool"

PRESETS = {
    "gpt_nano": (3, 3, 48, 128),
    "gpt_mini": (6, 6, 192, 256),
    "gpt2": (12, 12, 768, 1024),
    "gpt2-xl": (48, 25, 1600, 1024),
    "gpt_tile_large": (8, 8, 256, 512),
}
QWEN3_PRESETS = {  # layers, heads, key heads, head width, width, intermediate, positions, tied
    "qwen3_nano": (4, 4, 2, 32, 128, 384, 256, True),
    "qwen3-0.6b": (28, 16, 8, 128, 1024, 3072, 40960, True),
    "qwen3-8b": (36, 32, 8, 128, 4096, 12288, 40960, False),
}


def write(directory, preset, vocab_size):
    if not TOOL.exists():
        pytest.skip(f"{TOOL} is not built")
    subprocess.run([TOOL, directory, preset, str(vocab_size)], check=True)


@pytest.mark.parametrize("preset", PRESETS)
def test_config_is_read_as_it_was_meant(tmp_path, preset):
    write(tmp_path, preset, 257)
    config, unused = transformers.AutoConfig.from_pretrained(tmp_path, return_unused_kwargs=True)
    layers, heads, hidden, positions = PRESETS[preset]
    assert type(config) is transformers.GPT2Config and unused == {}
    assert (config.n_layer, config.n_head, config.n_embd, config.n_positions) == (layers, heads, hidden, positions)
    assert config.vocab_size == 257 and config.n_inner is None
    assert config.bos_token_id == config.eos_token_id == 256
    assert config.activation_function == "gelu_new" and config.layer_norm_epsilon == 1e-5
    assert config.attn_pdrop == config.embd_pdrop == config.resid_pdrop == 0
    assert config.tie_word_embeddings and config.scale_attn_weights and not config.scale_attn_by_inverse_layer_idx
    assert config.architectures == ["GPT2LMHeadModel"]


@pytest.mark.parametrize("preset", QWEN3_PRESETS)
def test_config_of_qwen3_is_read_as_it_was_meant(tmp_path, preset):
    write(tmp_path, preset, 257)
    config, unused = transformers.AutoConfig.from_pretrained(tmp_path, return_unused_kwargs=True)
    assert type(config) is transformers.Qwen3Config and unused == {}
    sizes = (
        config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.hidden_size,
        config.intermediate_size, config.max_position_embeddings, config.tie_word_embeddings,
    )  # fmt: skip
    assert sizes == QWEN3_PRESETS[preset]
    assert config.vocab_size == 257 and config.bos_token_id == config.eos_token_id == 256
    assert config.hidden_act == "silu" and config.rms_norm_eps == 1e-6
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 1e6}
    assert set(config.layer_types) == {"full_attention"} and config.sliding_window is None
    assert not config.attention_bias and config.attention_dropout == 0
    assert config.architectures == ["Qwen3ForCausalLM"]


SPARSE_PRESETS = {  # class, and the values that are neither its default nor shared
    "qwen3_moe_nano": ("Qwen3MoeConfig", dict(num_hidden_layers=4, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=192, norm_topk_prob=True)),
    "qwen3-30b-a3b": ("Qwen3MoeConfig", dict(num_hidden_layers=48, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True)),
    "mixtral-8x7b": ("MixtralConfig", dict(num_hidden_layers=32, num_local_experts=8, intermediate_size=14336, router_aux_loss_coef=0.02)),
    "gpt_oss_nano": ("GptOssConfig", dict(num_hidden_layers=4, num_local_experts=8, num_experts_per_tok=2, intermediate_size=192, sliding_window=128)),
    "gpt-oss-20b": ("GptOssConfig", dict(num_hidden_layers=24, num_local_experts=32, num_experts_per_tok=4, hidden_size=2880, router_aux_loss_coef=0.9)),
}


@pytest.mark.parametrize("preset", SPARSE_PRESETS)
def test_config_of_experts_is_read_as_it_was_meant(tmp_path, preset):
    write(tmp_path, preset, 257)
    config, unused = transformers.AutoConfig.from_pretrained(tmp_path, return_unused_kwargs=True)
    name, values = SPARSE_PRESETS[preset]
    assert type(config).__name__ == name and unused == {}
    assert {key: getattr(config, key) for key in values} == values
    assert config.vocab_size == 257 and config.bos_token_id == config.eos_token_id == 256 and not config.output_router_logits
    if name == "GptOssConfig":
        assert config.layer_types == ["sliding_attention", "full_attention"] * (config.num_hidden_layers // 2)
        assert config.attention_bias and config.rms_norm_eps == 1e-5
        if not transformers.__version__.startswith("4."):
            assert config.rope_parameters["truncate"] is False and config.rope_parameters["rope_theta"] == 150000


@pytest.mark.parametrize("preset", ["gpt_nano", "qwen3_nano"])
def test_config_of_our_own_survives_transformers(tmp_path, preset):
    """What transformers writes back differs in no key that ours has, but for the older spelling of rope; a key that
    transformers 4 does not write has the class's default."""
    write(tmp_path, preset, 257)
    ours = json.loads((tmp_path / "config.json").read_text())
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    config.save_pretrained(tmp_path / "again")
    theirs = json.loads((tmp_path / "again" / "config.json").read_text())
    if transformers.__version__.startswith("4."):
        theirs = {**type(config)().to_dict(), **theirs}
    elif "rope_theta" in ours:
        assert ours.pop("rope_theta") == theirs["rope_parameters"]["rope_theta"]
    assert {key: theirs.get(key) for key in ours} == ours


def test_config_makes_a_model(tmp_path):
    write(tmp_path, "gpt_nano", 257)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    assert type(model) is transformers.GPT2LMHeadModel
    assert sum(p.numel() for p in model.parameters()) == 257 * 48 + 128 * 48 + 3 * (12 * 48 * 48 + 13 * 48) + 2 * 48


def test_config_of_qwen3_makes_a_model(tmp_path):
    write(tmp_path, "qwen3_nano", 257)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    assert type(model) is transformers.Qwen3ForCausalLM
    attention, mlp = 2 * 128 * 128 + 2 * 64 * 128 + 2 * 32, 3 * 128 * 384
    assert sum(p.numel() for p in model.parameters()) == 257 * 128 + 4 * (attention + mlp + 2 * 128) + 128


@pytest.fixture(scope="module", params=["as written", "saved by transformers"])
def tokenizers(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    write(directory, "gpt_nano", 257)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    if request.param != "as written":
        theirs.save_pretrained(directory)
        theirs = transformers.AutoTokenizer.from_pretrained(directory)
    return Tokenizer(directory), theirs


def test_tokenizer_has_257_ids(tokenizers):
    _, theirs = tokenizers
    assert len(theirs) == 257 and theirs.eos_token_id == theirs.bos_token_id == 256


pieces = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["<|endoftext|>", "<|endoftext", " don't", "\n\n", "  ", "é", "e\u0301", "你好", "🙂", "\ufeff", "\x00", "\u00ad"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=6).map("".join))
def test_every_text_has_the_same_ids(tokenizers, text):
    ours, theirs = tokenizers
    ids = theirs(text)["input_ids"]
    assert ours.encode(text) == ids
    expected = []
    for i, part in enumerate(text.split("<|endoftext|>")):
        expected += [256] * (i > 0) + list(part.encode())
    assert ids == expected
    if ids:
        assert ours.decode(ids).decode() == text == theirs.decode(ids)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 256), min_size=1, max_size=12))
def test_every_list_of_ids_has_the_same_text(tokenizers, ids):
    ours, theirs = tokenizers
    assert ours.decode(ids).decode(errors="replace") == theirs.decode(ids)
