"""Tiny models of every family of transformers, built from the defaults of its configuration with every size made small."""

import pathlib
import warnings

import placed
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import configuration_auto, modeling_auto

# PyTorch's threads and Tegula's would wait for each other busily: these models take several times as long with both.
torch.set_num_threads(1)

SMALL = dict(
    vocab_size=97, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    # widths
    hidden_size=64, d_model=64, n_embd=64, dim=64, embed_dim=64, embedding_size=64, word_embed_proj_dim=64,
    emb_dim=64, model_dim=64, intermediate_size=96, ffn_dim=96, d_ff=96, n_inner=96, decoder_ffn_dim=96,
    encoder_ffn_dim=96, moe_intermediate_size=48, shared_expert_intermediate_size=48, ffn_hidden_size=96,
    head_dim=16, d_kv=16, rotary_dim=16, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16,
    v_head_dim=16, hidden_size_per_layer_input=16,
    # numbers
    num_hidden_layers=4, n_layer=4, num_layers=4, n_layers=4, encoder_layers=2, decoder_layers=2,
    num_decoder_layers=2, num_encoder_layers=2, num_attention_heads=4, n_head=4, num_heads=4, n_heads=4,
    encoder_attention_heads=4, decoder_attention_heads=4, num_key_value_heads=2, num_kv_heads=2, num_experts=4,
    num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, moe_topk=2, n_group=1, topk_group=1,
    # lengths
    max_position_embeddings=64, n_positions=64, n_ctx=64, max_source_positions=64, max_target_positions=64,
    sliding_window=5, attention_chunk_size=6, image_size=16, patch_size=4,
)  # fmt: skip


def sections(*sizes):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=list(sizes)))


# What families ask of their sizes beyond that, and what makes them use what attention can do.
ASKED = {
    "bailing_hybrid": dict(layer_types=["linear_attention", "full_attention"] * 2),
    "bamba": dict(attn_layer_indices=[1, 3]),
    "codegen": dict(rotary_dim=8),
    "deepseek_v2": dict(num_experts_per_tok=2),
    "dots1": dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2),
    "esm": dict(vocab_size=97, mask_token_id=96),
    "esmc": dict(num_key_value_heads=4),
    "gemma2": dict(attn_logit_softcapping=2.0, query_pre_attn_scalar=16),
    "gemma3_text": dict(query_pre_attn_scalar=16, layer_types=["sliding_attention", "full_attention"] * 2),
    "gemma4_text": dict(vocab_size_per_layer_input=97),
    "glm4v_moe_text": sections(1, 1, 2),
    "glm4v_text": sections(2, 3, 3),
    "glm_image_text": sections(2, 3, 3),
    "glm_ocr_text": sections(2, 3, 3),
    "gptj": dict(rotary_dim=8),
    "granitemoehybrid": dict(layer_types=["mamba", "attention"] * 2),
    "hunyuan_v1_dense": dict(head_dim=16),
    "hunyuan_v1_moe": dict(head_dim=16),
    "hunyuan_vl_text": dict(head_dim=16, **sections(2, 3, 3)),
    "hy_v4_vl_text": sections(2, 3, 3),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1),
    "layoutlmv3": dict(coordinate_size=8, shape_size=16),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"] * 2),
    "ministral": dict(head_dim=16),
    "modernbert": dict(local_attention=6),
    "nemotron": dict(num_key_value_heads=2),
    "paddleocr_vl_text": sections(2, 3, 3),
    "phi3": dict(sliding_window=5),
    "qwen2_5_omni_text": sections(2, 3, 3),
    "qwen2_5_vl_text": sections(2, 3, 3),
    "qwen2_vl_text": sections(2, 3, 3),
    "roc_bert": dict(shape_vocab_size=97, pronunciation_vocab_size=97),
    "starcoder2": dict(sliding_window=5),
    "vaultgemma": dict(attn_logit_softcapping=2.0, query_pre_attn_scalar=16),
    "xmod": dict(default_language="en_XX"),
    "zaya": dict(num_experts_per_tok=1),
}
MAPPINGS = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES,
)  # fmt: skip
MODELS = pathlib.Path(transformers.__file__).parent / "models"


def class_name(model_type):
    names = next((mapping[model_type] for mapping in MAPPINGS if model_type in mapping), None)
    return names if names is None or isinstance(names, str) else names[0]


def has_interface(model_type):
    """Whether the family's modelling files call attention functions by name."""
    folder = MODELS / configuration_auto.model_type_to_module_name(model_type)
    return any("ALL_ATTENTION_FUNCTIONS" in file.read_text() for file in folder.glob("modeling_*.py"))


def families(interface=True):
    """The model types with a class for a task or for none, by whether they have the interface."""
    names = sorted(configuration_auto.CONFIG_MAPPING_NAMES)
    return [name for name in names if class_name(name) and has_interface(name) == interface]


def read(config, name):
    """An attribute; None where it is absent or, in newer versions an error, differs from layer to layer."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def tiny_config(config_class):
    base = config_class()
    sizes = {name: size for name, size in SMALL.items() if type(read(base, name)) is int}
    if type(read(base, "initializer_range")) is float:
        sizes["initializer_range"] = 0.1  # scores that differ
    if "kv_lora_rank" in sizes and "num_key_value_heads" in sizes:
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]  # keys of all heads come from one latent
    for name, sub in getattr(config_class, "sub_configs", {}).items():
        if read(base, name) is not None:
            sizes[name] = tiny_config(type(getattr(base, name)) if sub is transformers.AutoConfig else sub)
    return config_class(**{**sizes, **ASKED.get(config_class.model_type, {})})


def make(model_type, seed=0, attn_implementation="eager"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cls = getattr(transformers, class_name(model_type))
        config = tiny_config(cls.config_class or CONFIG_MAPPING[model_type])
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in cls(config).parameters())
        if count > 20_000_000:
            raise ValueError(f"{count} parameters, even with small sizes")
        torch.manual_seed(seed)
        model = cls._from_config(tiny_config(type(config)), attn_implementation=attn_implementation)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1 and parameter.is_floating_point():  # norms, biases and sinks away from 1 and 0
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return placed.to_device(model).eval()


def ids_of(shape=(2, 17), padding=None, seed=1):
    """input_ids, and an attention_mask unless `padding`, the pads of each row, is None; negative ones stand at the end."""
    ids = placed.randint(3, SMALL["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))
    if padding is None:
        return dict(input_ids=ids)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, slice(None, count) if count > 0 else slice(shape[1] + count, None)] = 0
    return dict(input_ids=ids, attention_mask=mask)


def distance(ours, theirs):
    return ((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max()).item()
