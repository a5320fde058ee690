"""Qwen2: the norms, both residual additions, rotary positions, the gate, attention and the loss."""

from . import Family, causal_lm, decoder

FAMILY = Family("qwen2", "transformers.models.qwen2.modeling_qwen2", {
    "rms_norm": {
        "Qwen2RMSNorm.forward": decoder.rms_norm,
        "Qwen2DecoderLayer.forward": decoder.layer,
        "Qwen2Model.forward": decoder.model,
    },
    "rope": {"Qwen2Attention.forward": decoder.attention},
    "swiglu": {"Qwen2MLP.forward": decoder.mlp},
    "fused_linear_cross_entropy": {"Qwen2ForCausalLM.forward": causal_lm.causal_lm},
    "attention": {
        "Qwen2Attention.forward": decoder.attention,
        "Qwen2Model.forward": decoder.model,
        "Qwen2ForCausalLM.create_masks_for_generate": decoder.masks_for_generate,
    },
})  # fmt: skip
