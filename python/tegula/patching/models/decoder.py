"""The forwards of a pre-norm decoder such as Llama, with Tegula's ops.

Each factory here makes one replacement from the original, the applied ops and the modelling file. A replacement calls its
submodules as the original does, so that hooks, adapters and quantised layers keep working. Only a norm that a fused op
includes is read directly, and only if no hook or other forward is attached to it.

Layers pass a pair (delta, residual) instead of their sum, which the next norm computes. The model's own loop does not
inspect it; `residual_pairs` makes a layer return one."""

import dataclasses
import functools
import types

import torch
from torch import nn
from transformers import masking_utils
from transformers.modeling_outputs import BaseModelOutputWithPast

from ... import ops, sharding
from ...autograd import kept_attention
from .. import attention as attentions
from .. import attention_masks

# The name of the key-value cache in models, layers and outputs: "cache" since transformers 5.24.
CACHE = "cache" if "cache" in {field.name for field in dataclasses.fields(BaseModelOutputWithPast)} else "past_key_values"


def given_cache(past_key_values, kwargs):
    """The cache of a call under either name, removed from kwargs."""
    return kwargs.pop(CACHE, None) if past_key_values is None else past_key_values


def behind(module):
    """The function that runs as module.forward, inside accelerate's hooks and torch.compile(module)."""
    module = getattr(module, "_orig_mod", module)
    forward = getattr(module, "_old_forward", module.forward)
    return getattr(forward, "__func__", forward)


def kind(function):
    """The name of the replacement that `function` is, or None."""
    return getattr(function, "tegula_kind", None)


def runs_own(norm):
    """Whether only Tegula's norm runs as the forward, at most moved by accelerate, and there is no backward hook."""
    forward = vars(norm)["_old_forward"] if sharding.placement(norm) else norm.forward
    if not isinstance(forward, types.MethodType) or kind(forward.__func__) != "rms_norm":
        return False
    return not (norm._backward_hooks or norm._backward_pre_hooks)


def may_bypass(norm, x=None):
    """Whether only Tegula's norm would run, without hooks, and its weight is on the device of `x`."""
    if not runs_own(norm) or norm._forward_hooks or norm._forward_pre_hooks:
        return False
    hook = sharding.placement(norm)
    return hook is None or not hook.offload and (x is None or x.device == norm.weight.device)


def overheard(module):
    """Whether the module has forward hooks other than those of FSDP and of transformers' recorder of outputs."""
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for hook in hooks.values():
            home = getattr(hook, "__module__", None) or ""
            if not home.startswith("transformers.utils.output_capturing") and not sharding.is_from_fsdp(hook):
                return True
    return False


# ---- norms ----


def promoted(x, *others):
    """All in their promoted dtype, which is the stock norm's result dtype if dtypes differ."""
    if all(other.dtype == x.dtype for other in others):
        return x, *others
    dtype = x.dtype
    for other in others:
        dtype = torch.promote_types(dtype, other.dtype)
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def norm_of(norm, x):
    x, weight = promoted(x, norm.weight)
    return ops.rms_norm(x, weight, norm.variance_epsilon)


def add_norm_of(norm, x, residual):
    """(norm(residual + x), residual + x)."""
    x, residual = promoted(x, residual)
    if torch.promote_types(residual.dtype, norm.weight.dtype) != residual.dtype:
        total = residual + x
        return norm_of(norm, total), total
    return ops.add_rms_norm(x, residual, norm.weight.to(residual.dtype), norm.variance_epsilon)


def add_then(norm, x, residual):
    if may_bypass(norm, x):
        return add_norm_of(norm, x, residual)
    total = residual + x
    return norm(total), total


def rms_norm(stock, parts, modelling):
    def forward(self, hidden_states):
        if isinstance(hidden_states, tuple):  # after the last layer
            return add_norm_of(self, *hidden_states)[0]
        return norm_of(self, hidden_states)

    return forward


# ---- MLP and attention ----


def is_silu(act_fn):
    return isinstance(act_fn, nn.SiLU) or type(act_fn).__name__ == "SiLUActivation"


def mlp(stock, parts, modelling):
    def forward(self, x):
        if not is_silu(self.act_fn):
            return stock(self, x)
        return self.down_proj(ops.swiglu(self.gate_proj(x), self.up_proj(x)))

    return forward


def is_normed(module):
    return hasattr(module, "q_norm")


def norms_with_rope(module, q=None, k=None):
    """Whether both head norms can be fused with the rotation."""
    q_norm, k_norm = module.q_norm, module.k_norm
    return may_bypass(q_norm, q) and may_bypass(k_norm, k) and q_norm.variance_epsilon == k_norm.variance_epsilon


def positioned(module, q, k, cos, sin, parts, modelling):
    """q and k, [batch, tokens, heads, head_dim], normed if the model does so, rotated, and returned heads first."""
    if is_normed(module):
        if "rope" in parts and "rms_norm" in parts and norms_with_rope(module, q, k):
            weights = module.q_norm.weight, module.k_norm.weight
            q, k, q_weight, k_weight, cos, sin = promoted(q, k, *weights, cos, sin)
            eps = module.q_norm.variance_epsilon
            return ops.qk_norm_rope(q.transpose(1, 2), k.transpose(1, 2), q_weight, k_weight, cos, sin, eps)
        q, k = module.q_norm(q), module.k_norm(k)
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    if "rope" not in parts:
        return modelling.apply_rotary_pos_emb(q, k, cos, sin)
    return ops.rope(*promoted(q, k, cos, sin))


def stored(cache, k, v, layer_idx, kwargs):
    """Stores keys and values in the cache and returns its contents; earlier versions of transformers pass the position
    in a buffer of fixed length."""
    place = kwargs.get("cache_position")
    return cache.update(k, v, layer_idx, *(() if place is None else ({"cache_position": place},)))


def interface_of(modelling, implementation):
    functions = modelling.ALL_ATTENTION_FUNCTIONS
    if hasattr(functions, "get_interface"):
        return functions.get_interface(implementation, modelling.eager_attention_forward)
    return modelling.eager_attention_forward if implementation == "eager" else functions[implementation]


def attention(stock, parts, modelling):
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        cache = given_cache(past_key_values, kwargs)
        tokens = hidden_states.shape[:-1]
        shape = (*tokens, -1, self.head_dim)
        q, k = self.q_proj(hidden_states).view(shape), self.k_proj(hidden_states).view(shape)
        v = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        q, k = positioned(self, q, k, *position_embeddings, parts, modelling)
        if cache is not None:
            k, v = stored(cache, k, v, self.layer_idx, kwargs)
        implementation = self.config._attn_implementation
        if "attention" in parts and implementation == "sdpa":
            attend = attentions.attention_forward
        else:
            attend = interface_of(modelling, implementation)
        if hasattr(self, "sliding_window"):
            kwargs["sliding_window"] = self.sliding_window
        dropout = self.attention_dropout if self.training else 0.0
        y, weights = attend(self, q, k, v, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs)
        return self.o_proj(y.reshape(*tokens, -1).contiguous()), weights

    return forward


# ---- layers and their loop ----


def both_halves(layer, x, residual, *, pair, **kwargs):
    if residual is None:
        h, residual = layer.input_layernorm(x), x
    else:
        h, residual = add_then(layer.input_layernorm, x, residual)
    delta, _ = layer.self_attn(hidden_states=h, **kwargs)
    h, residual = add_then(layer.post_attention_layernorm, delta, residual)
    delta = layer.mlp(h)
    return (delta, residual) if pair else residual + delta


def checkpoints_in_call():
    """Earlier versions of transformers checkpoint in the layer's __call__. Later ones do so in its class's forward, which
    a replacement replaces: then the replacement must checkpoint."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return "__call__" in vars(GradientCheckpointingLayer)


def without_cache(kwargs):
    """The arguments without a cache: a recomputed layer would store its keys twice."""
    if kwargs["use_cache"] or kwargs[CACHE] is not None:
        from transformers.utils import logging

        logging.get_logger(__name__).warning_once("gradient checkpointing: the cache of keys is not used")
    return {**kwargs, "use_cache": False, CACHE: None}


def layer(stock, parts, modelling):
    in_call = checkpoints_in_call()

    def forward(
        self, hidden_states, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False,
        position_embeddings=None, residual_pairs=False, **kwargs,
    ):  # fmt: skip
        x, residual = hidden_states if isinstance(hidden_states, tuple) else (hidden_states, None)
        kwargs[CACHE] = given_cache(past_key_values, kwargs)
        kwargs.update(
            attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache,
            position_embeddings=position_embeddings,
        )  # fmt: skip
        if not in_call and self.gradient_checkpointing and self.training:
            # A subclass made later has a forward that checkpoints this one.
            if "forward" in vars(self) or type(self).forward is forward:
                run = functools.partial(both_halves, self, pair=residual_pairs, **without_cache(kwargs))
                return self._gradient_checkpointing_func(run, x, residual)
        return both_halves(self, x, residual, pair=residual_pairs, **kwargs)

    return forward


def why_no_pairs(model):
    """Why the addition at the end of layers is not fused with the next norm, or None."""
    for index, each in enumerate(model.layers):
        if kind(behind(each)) != "layer":
            return f"layers.{index} runs another forward"
        if overheard(each):
            return f"layers.{index} has hooks that expect a tensor"
    if not runs_own(model.norm) or overheard(model.norm):
        return "norm has hooks or runs another forward"
    if model.gradient_checkpointing and model.training and checkpoints_in_call():
        return "this transformers checkpoints layers by a way that loses pairs"
    return None


def why_no_masks(model):
    """Why transformers makes the mask (a dense one if it is more than causal), or None."""
    if model.config._attn_implementation not in ("sdpa", "tegula"):
        return f"the model's attention is {model.config._attn_implementation!r}"
    if model.config._attn_implementation == "sdpa":
        for index, each in enumerate(model.layers):
            function = behind(each.self_attn)
            if kind(function) != "attention" or "attention" not in function.tegula_parts:
                return f"layers.{index}.self_attn runs another forward"
    return None


def model(stock, parts, modelling):
    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
        use_cache=None, **kwargs,
    ):  # fmt: skip
        cache = given_cache(past_key_values, kwargs)
        if "attention" in parts and why_no_masks(self) is None:
            tokens = input_ids if inputs_embeds is None else inputs_embeds
            attention_mask = attention_masks.encode(
                self, tokens, attention_mask, position_ids, cache, use_cache, kwargs
            )
            kept = kept_attention.for_model(self)
            if kept:
                kwargs["kept_attention"] = kept
        if not torch.compiler.is_compiling():
            for each in self.layers:
                sharding.inherit_forward(type(each))
        asked = kwargs.get("output_hidden_states", getattr(self.config, "output_hidden_states", False))
        if "rms_norm" in parts and not asked and why_no_pairs(self) is None:
            kwargs["residual_pairs"] = True
        kwargs[CACHE] = cache
        return stock(
            self, input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            inputs_embeds=inputs_embeds, use_cache=use_cache, **kwargs,
        )  # fmt: skip

    return forward


def masks_for_generate(stock, parts, modelling):
    """generate makes the masks for a cache of fixed length itself, through this method of the model if it has one."""

    def create_masks_for_generate(
        self, config, inputs_embeds=None, attention_mask=None, past_key_values=None, position_ids=None, **kwargs
    ):  # fmt: skip
        name = "input_embeds" if inputs_embeds is None else "inputs_embeds"  # in transformers 4, and since
        kwargs.setdefault(name, inputs_embeds)
        cache = given_cache(past_key_values, kwargs)
        if why_no_masks(self.model) is None:
            mask = attention_masks.encode(
                self.model, kwargs[name], attention_mask, position_ids, cache, True, kwargs
            )
            if attention_masks.is_encoded(mask):
                return mask
        make = functools.partial(stock, self) if stock else masking_utils.create_masks_for_generate
        kwargs[CACHE] = cache
        return make(config=config, attention_mask=attention_mask, position_ids=position_ids, **kwargs)

    return create_masks_for_generate


# If the class has no such method, transformers calls this function.
masks_for_generate.adds = masking_utils.create_masks_for_generate
