"""GPT-OSS: the norms, both residual additions, rotary positions, attention with sinks and windows, router and experts, and
the loss."""

from . import Family, causal_lm, decoder, experts


def rms_norm(stock, parts, modelling):
    """The weight is multiplied in f32, before the result is rounded."""
    return decoder.rms_norm(stock, parts, modelling, policy="gpt_oss")


FAMILY = Family("gpt_oss", "transformers.models.gpt_oss.modeling_gpt_oss", {
    "rms_norm": {
        "GptOssRMSNorm.forward": rms_norm,
        "GptOssDecoderLayer.forward": decoder.layer,
        "GptOssModel.forward": decoder.model,
    },
    "rope": {"GptOssAttention.forward": decoder.attention},
    "fused_linear_cross_entropy": {"GptOssForCausalLM.forward": causal_lm.causal_lm},
    "attention": {
        "GptOssAttention.forward": decoder.attention,
        "GptOssModel.forward": decoder.model,
        "GptOssForCausalLM.create_masks_for_generate": decoder.masks_for_generate,
    },
    **experts.patches("GptOss", experts.router),
})  # fmt: skip
