"""Llama: the norms, both residual additions, rotary positions, the gate, attention and the loss."""

from . import Family, causal_lm, decoder

FAMILY = Family("llama", "transformers.models.llama.modeling_llama", {
    "rms_norm": {
        "LlamaRMSNorm.forward": decoder.rms_norm,
        "LlamaDecoderLayer.forward": decoder.layer,
        "LlamaModel.forward": decoder.model,
    },
    "rope": {"LlamaAttention.forward": decoder.attention},
    "swiglu": {"LlamaMLP.forward": decoder.mlp},
    "fused_linear_cross_entropy": {"LlamaForCausalLM.forward": causal_lm.causal_lm},
    "attention": {
        "LlamaAttention.forward": decoder.attention,
        "LlamaModel.forward": decoder.model,
        "LlamaForCausalLM.create_masks_for_generate": decoder.masks_for_generate,
    },
})  # fmt: skip
