"""A small GPT-OSS directory as OpenAI's is, made without PyTorch: experts in random blocks of MXFP4, the rest in bf16,
config.json in the older spelling, Harmony's tokens, a template, three ids that end a text, and ids without names.

    python tests/python/runtime/tiny_gpt_oss.py DIR
"""

import json
import pathlib
import struct
import sys

import numpy as np
from chat_model import byte_name

SPECIAL = ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"]
IDS = {name: 256 + i for i, name in enumerate(SPECIAL)}
ENDS = [IDS["<|return|>"], IDS["<|endoftext|>"], IDS["<|call|>"]]
VOCAB = 256 + len(SPECIAL) + 11  # the last ids have logits and no names
TEMPLATE = """\
{%- set effort = reasoning_effort if reasoning_effort is defined else "medium" -%}
<|start|>system<|message|>You are a model.\nReasoning: {{ effort }}\n# Valid channels: analysis, commentary, final.<|end|>
{%- for m in messages -%}
{%- if m.role == "assistant" -%}
<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- else -%}
<|start|>{{ "developer" if m.role == "system" else m.role }}<|message|>{{ m.content }}<|end|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""
SIZES = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=24,
    num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=512, sliding_window=16,
)  # fmt: skip
CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
CODES = np.concatenate([CODES, -CODES])


def values(blocks, scales):
    """[experts, out, in / 32, 16] and [experts, out, in / 32] as f32 [experts, in, out]: what transformers makes of them."""
    two = np.stack([CODES[blocks & 15], CODES[blocks >> 4]], -1).reshape(*scales.shape, 32)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(two, scales.astype(np.int32)[..., None] - 127)
    return scaled.reshape(*scales.shape[:2], -1).swapaxes(1, 2)


def bf16(array):
    """The upper halves of f32, rounded half up: (bits, f32 values of them)."""
    bits = ((np.asarray(array, np.float32).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
    return bits


def random_blocks(rng, experts, out, width, low=121, high=124):
    return rng.integers(0, 256, (experts, out, width // 32, 16), np.uint8), rng.integers(low, high, (experts, out, width // 32), np.uint8)


def make_tensors(rng, c):
    q, kv, hidden, inner, experts = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"], c["hidden_size"], c["intermediate_size"], c["num_local_experts"]

    def normal(*shape, mean=0.0):
        return bf16(mean + 0.15 * rng.standard_normal(shape))

    tensors = {"model.embed_tokens.weight": normal(c["vocab_size"], hidden), "model.norm.weight": normal(hidden, mean=1), "lm_head.weight": normal(c["vocab_size"], hidden)}
    for i in range(c["num_hidden_layers"]):
        layer = {"input_layernorm.weight": normal(hidden, mean=1), "post_attention_layernorm.weight": normal(hidden, mean=1), "self_attn.sinks": normal(c["num_attention_heads"])}
        for name, rows, cols in (("self_attn.q_proj", q, hidden), ("self_attn.k_proj", kv, hidden), ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, q), ("mlp.router", experts, hidden)):
            layer[name + ".weight"], layer[name + ".bias"] = normal(rows, cols), normal(rows)
        for name, out, width in (("mlp.experts.gate_up_proj", 2 * inner, hidden), ("mlp.experts.down_proj", hidden, inner)):
            layer[name + "_blocks"], layer[name + "_scales"] = random_blocks(rng, experts, out, width)
            layer[name + "_bias"] = normal(experts, out)
        tensors |= {f"model.layers.{i}.{name}": t for name, t in layer.items()}
    return tensors


def write_safetensors(path, tensors):
    """u16 arrays are bf16."""
    names = {"uint16": "BF16", "uint8": "U8", "float32": "F32"}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": names[t.dtype.name], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))


def write_tokenizer(directory):
    added = [
        {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for text, i in IDS.items()
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {byte_name(b): b for b in range(256)}, "merges": []},
    }  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|return|>"}))
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def make(directory, seed=0, **changes):
    """Writes the directory; returns its tensors."""
    sizes = {**SIZES, **changes}
    rope = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16}
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 150000, "rope_scaling": rope, "tie_word_embeddings": False, "swiglu_limit": 7.0, "router_aux_loss_coef": 0.9,
        "experts_per_token": sizes["num_experts_per_tok"], "initial_context_length": 16, "eos_token_id": ENDS[0], "pad_token_id": ENDS[1],
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
        **sizes,
    }  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    tensors = make_tensors(np.random.default_rng(seed), sizes)
    write_safetensors(directory / "model.safetensors", tensors)
    write_tokenizer(directory)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").write_text(json.dumps({"bos_token_id": IDS["<|startoftext|>"], "do_sample": True, "eos_token_id": ENDS, "pad_token_id": ENDS[1]}))
    return tensors


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
