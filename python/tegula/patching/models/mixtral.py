"""Mixtral: the norms, both residual additions, rotary positions, attention, router and experts, and the loss."""

from . import Family, causal_lm, decoder, experts


def attention(stock, parts, modelling):
    return decoder.attention(stock, parts, modelling, window_of=lambda module: getattr(module.config, "sliding_window", None))


def router(stock, parts, modelling):
    """Its scores stay in f32."""
    return experts.router(stock, parts, modelling, scoring=experts.renormalized, f32_weights=True)


FAMILY = Family("mixtral", "transformers.models.mixtral.modeling_mixtral", {
    "rms_norm": {
        "MixtralRMSNorm.forward": decoder.rms_norm,
        "MixtralDecoderLayer.forward": decoder.layer,
        "MixtralModel.forward": decoder.model,
    },
    "rope": {"MixtralAttention.forward": attention},
    "fused_linear_cross_entropy": {"MixtralForCausalLM.forward": causal_lm.causal_lm},
    "attention": {
        "MixtralAttention.forward": attention,
        "MixtralModel.forward": decoder.model,
        "MixtralForCausalLM.create_masks_for_generate": decoder.masks_for_generate,
    },
    **experts.patches("Mixtral", router),
})  # fmt: skip
