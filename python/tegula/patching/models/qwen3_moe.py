"""Qwen3-MoE: what Qwen3 has, in its attention and in dense layers; router and experts."""

from . import Family, causal_lm, decoder, experts


def router(stock, parts, modelling):
    return experts.router(stock, parts, modelling, scoring=experts.by_configuration)


FAMILY = Family("qwen3_moe", "transformers.models.qwen3_moe.modeling_qwen3_moe", {
    "rms_norm": {
        "Qwen3MoeRMSNorm.forward": decoder.rms_norm,
        "Qwen3MoeAttention.forward": decoder.attention,
        "Qwen3MoeDecoderLayer.forward": decoder.layer,
        "Qwen3MoeModel.forward": decoder.model,
    },
    "rope": {"Qwen3MoeAttention.forward": decoder.attention},
    "swiglu": {"Qwen3MoeMLP.forward": decoder.mlp},
    "fused_linear_cross_entropy": {"Qwen3MoeForCausalLM.forward": causal_lm.causal_lm},
    "attention": {
        "Qwen3MoeAttention.forward": decoder.attention,
        "Qwen3MoeModel.forward": decoder.model,
        "Qwen3MoeForCausalLM.create_masks_for_generate": decoder.masks_for_generate,
    },
    **experts.patches("Qwen3Moe", router),
})  # fmt: skip
