"""Qwen3: all five norms, both residual additions, rotary positions of normed heads, the gate, attention and the loss."""

from . import Family, causal_lm, decoder

FAMILY = Family("qwen3", "transformers.models.qwen3.modeling_qwen3", {
    "rms_norm": {
        "Qwen3RMSNorm.forward": decoder.rms_norm,
        "Qwen3Attention.forward": decoder.attention,
        "Qwen3DecoderLayer.forward": decoder.layer,
        "Qwen3Model.forward": decoder.model,
    },
    "rope": {"Qwen3Attention.forward": decoder.attention},
    "swiglu": {"Qwen3MLP.forward": decoder.mlp},
    "fused_linear_cross_entropy": {"Qwen3ForCausalLM.forward": causal_lm.causal_lm},
    "attention": {
        "Qwen3Attention.forward": decoder.attention,
        "Qwen3Model.forward": decoder.model,
        "Qwen3ForCausalLM.create_masks_for_generate": decoder.masks_for_generate,
    },
})  # fmt: skip
