"""Writes what the classes of Hugging Face transformers give: rope_values.h, qk_norm_rope_values.h,
rope_table_values.h and rope_yarn_values.h.

    pip install torch==2.13.0 transformers==5.17.0
    python3 tests/golden/rope/generate.py

rope_values.h, in bf16: apply_rotary_pos_emb of Qwen3 (full tables) and GPT-OSS (half tables), which
give the same bits, and of GPT-J (interleaved, part of the head). qk_norm_rope_values.h, in bf16:
query and key as Qwen3Attention hands them to its attention function, with the projections before
the norm. The others, in f32: inv_freq and rows of cos and sin of the rotary embedding classes for
each rope_type. On a CPU with AVX-512.
"""

import pathlib
import textwrap

import torch
from transformers import GptOssConfig, Qwen3Config
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.gptj import modeling_gptj
from transformers.models.qwen3 import modeling_qwen3

BATCH, SEQ, HEADS, KV_HEADS, DIM, ROTARY = 2, 3, 4, 2, 32, 20
POSITIONS = [0, 1, 3, 100, 1000, 4095]
HERE = pathlib.Path(__file__).parent


def array(name, kind, values, lines):
    body = textwrap.fill(", ".join(values), 100, initial_indent="    ", subsequent_indent="    ")
    lines += [f"static const {kind} {name}[] = {{", body, "};"]


def bf16(t):
    return [f"0x{v & 0xffff:04x}" for v in t.detach().contiguous().view(torch.int16).flatten().tolist()]


def f32(t):
    bits = t.detach().float().contiguous().view(torch.int32).flatten().tolist()
    return [f"0x{v & 0xffffffff:08x}" for v in bits]


def header(name, guard, lines):
    text = ["/* Written by generate.py from torch 2.13.0 and transformers 5.17.0; do not edit. */",
            f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", "", *lines, "", "#endif", ""]
    (HERE / name).write_text("\n".join(text))


def heads_first(t):
    return t.transpose(1, 2)


def rotated(lines):
    """q, k are [batch, seq, heads, dim] in memory, as everywhere in Tegula."""
    q, k = (torch.randn(BATCH, SEQ, h, DIM, dtype=torch.bfloat16) for h in (HEADS, KV_HEADS))
    angles = torch.rand(BATCH, SEQ, DIM // 2) * 100
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    for name, t in dict(Q=q, K=k, Cos=cos, Sin=sin).items():
        array(f"kGolden{name}", "uint16_t", bf16(t), lines)
    twice = [torch.cat((t, t), -1) for t in (cos, sin)]
    qwen3 = modeling_qwen3.apply_rotary_pos_emb(heads_first(q), heads_first(k), *twice)
    gpt_oss = modeling_gpt_oss.apply_rotary_pos_emb(heads_first(q), heads_first(k), cos, sin)
    for side, t, other in zip("QK", qwen3, gpt_oss):
        assert torch.equal(t, other), "Qwen3 and GPT-OSS round alike"
        array(f"kGoldenHalves{side}", "uint16_t", bf16(heads_first(t)), lines)
    for side, t in dict(Q=q, K=k).items():
        part = [c[..., :ROTARY // 2] for c in (sin, cos)]
        turned = modeling_gptj.apply_rotary_pos_emb(t[..., :ROTARY], *part)
        array(f"kGoldenGptJ{side}", "uint16_t", bf16(torch.cat((turned, t[..., ROTARY:]), -1)), lines)


def normed(lines):
    config = Qwen3Config(hidden_size=64, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM,
                         num_hidden_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    seen = {}

    def capture(module, query, key, value, *rest, **options):
        seen.update(query=query, key=key)
        return value.new_zeros(BATCH, SEQ, HEADS, DIM), None

    ALL_ATTENTION_FUNCTIONS.register("capture", capture)
    config._attn_implementation = "capture"
    attention = modeling_qwen3.Qwen3Attention(config, 0).bfloat16()
    rotary = modeling_qwen3.Qwen3RotaryEmbedding(config)
    for norm in (attention.q_norm, attention.k_norm):
        torch.nn.init.normal_(norm.weight, 1, 0.3)
    for name in ("q", "k"):
        getattr(attention, f"{name}_proj").register_forward_hook(
            lambda m, i, out, name=name: seen.update({name: out}))
    x = torch.randn(BATCH, SEQ, 64, dtype=torch.bfloat16) * 3
    cos, sin = rotary(x, torch.arange(SEQ)[None] + 5)
    attention(x, (cos, sin), None)
    for name, t in dict(Cos=cos, Sin=sin, QWeight=attention.q_norm.weight, KWeight=attention.k_norm.weight,
                        Q=seen["q"], K=seen["k"], QueryOut=heads_first(seen["query"]),
                        KeyOut=heads_first(seen["key"])).items():
        array(f"kGoldenNorm{name}", "uint16_t", bf16(t), lines)
    for name in ("q", "k"):
        t = seen[name].view(BATCH, SEQ, -1, DIM).float()
        rstd = torch.rsqrt(t.pow(2).mean(-1) + config.rms_norm_eps)
        array(f"kGoldenNorm{name.upper()}Rstd", "uint32_t", f32(rstd), lines)


QWEN3 = dict(head_dim=128, num_attention_heads=2, hidden_size=256)
TABLES = {
    "Default": ("Qwen3", QWEN3, dict(rope_type="default", rope_theta=1e6), 40960),
    "Linear": ("Qwen3", QWEN3, dict(rope_type="linear", rope_theta=1e4, factor=3.3), 4096),
    "DynamicShort": ("Qwen3", QWEN3, dict(rope_type="dynamic", rope_theta=1e4, factor=2.5), 8192),
    "DynamicLong": ("Qwen3", QWEN3, dict(rope_type="dynamic", rope_theta=1e4, factor=2.5), 1500),
    "Llama31": ("Qwen3", QWEN3, dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0,
                                     high_freq_factor=4.0, original_max_position_embeddings=8192), 131072),
    "Yarn": ("Qwen3", QWEN3, dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
                                  original_max_position_embeddings=32768), 131072),
    "YarnMscale": ("Qwen3", dict(QWEN3, head_dim=64),
                   dict(rope_type="yarn", rope_theta=1e4, factor=40.0, original_max_position_embeddings=4096,
                        mscale=1.0, mscale_all_dim=0.707, beta_fast=24.0, beta_slow=2.0), 163840),
    "YarnFactor": ("Qwen3", dict(QWEN3, head_dim=64),
                   dict(rope_type="yarn", rope_theta=1e4, factor=2.0, original_max_position_embeddings=4096,
                        attention_factor=1.25), 8192),
    "GptOss": ("GptOss", dict(head_dim=64, num_attention_heads=2, hidden_size=128),
               dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0,
                    original_max_position_embeddings=4096, truncate=False), 131072),
}


def tables(kinds, lines):
    for name, table_of in TABLES.items():
        if table_of[2]["rope_type"] in kinds:
            table(name, lines)


def table(name, lines):
    family, sizes, rope, most = TABLES[name]
    config_class, module = dict(Qwen3=(Qwen3Config, modeling_qwen3),
                                GptOss=(GptOssConfig, modeling_gpt_oss))[family]
    config = config_class(rope_parameters=dict(rope), max_position_embeddings=most, **sizes)
    rotary = getattr(module, f"{family}RotaryEmbedding")(config)
    cos, sin = rotary(torch.zeros(1), torch.tensor([POSITIONS]))
    half = sizes["head_dim"] // 2
    what = f"{rope}, max_position_embeddings {most}, attention_scaling {rotary.attention_scaling!r}"
    lines += ["", textwrap.fill(f"/* {what} */", 100, subsequent_indent=" * ")]
    array(f"kGolden{name}InvFreq", "uint32_t", f32(rotary.inv_freq), lines)
    array(f"kGolden{name}Cos", "uint32_t", f32(cos[0, :, :half]), lines)
    array(f"kGolden{name}Sin", "uint32_t", f32(sin[0, :, :half]), lines)


def main():
    torch.manual_seed(2104)
    torch.set_grad_enabled(False)
    lines = [f"enum {{ kGoldenBatch = {BATCH}, kGoldenSeq = {SEQ}, kGoldenHeads = {HEADS}, "
             f"kGoldenKvHeads = {KV_HEADS}, kGoldenDim = {DIM}, kGoldenRotary = {ROTARY} }};", ""]
    rotated(lines)
    header("rope_values.h", "TGI_TESTS_ROPE_VALUES_H", lines)
    lines = []
    normed(lines)
    header("qk_norm_rope_values.h", "TGI_TESTS_QK_NORM_ROPE_VALUES_H", lines)
    lines = [f"enum {{ kGoldenPositions = {len(POSITIONS)} }};",
             f"static const int64_t kGoldenPosition[] = {{{', '.join(map(str, POSITIONS))}}};"]
    tables({"default", "linear", "llama3"}, lines)
    header("rope_table_values.h", "TGI_TESTS_ROPE_TABLE_VALUES_H", lines)
    for kind in ("dynamic", "yarn"):
        lines = []
        tables({kind}, lines)
        header(f"rope_{kind}_values.h", f"TGI_TESTS_ROPE_{kind.upper()}_VALUES_H", lines)


if __name__ == "__main__":
    main()
