"""The forwards of a pre-norm decoder such as Llama, with Tegula's ops.

Each factory here makes one replacement from the original, the applied ops and the modelling file. A replacement calls its
submodules as the original does, so that hooks, adapters and quantised layers keep working. A module that a fused op
includes is bypassed only if nobody sees what it takes or gives (`listeners.why_heard`).

Layers pass a pair (delta, residual) instead of their sum, which the next norm computes. The model's own loop does not
inspect it; `residual_pairs` makes a layer return one."""

import contextlib
import functools
import sys
import types

import torch
from torch import nn
from transformers import masking_utils
from transformers.activations import SiLUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ... import ops, sharding
from ...autograd import kept_attention
from ...autograd.table_entry import run_stock
from .. import attention as attentions
from .. import attention_masks, hub, listeners, replacing
from ..cache_name import CACHE, given_cache
from ..listeners import kind, why_heard
from ..replacing import ABSENT

SDPA_MASK = masking_utils.sdpa_mask
# The classes that `ops.swiglu` replaces, and the forwards that they may have: their own, or the kernels package's.
SILU = {cls: (cls.forward, hub.SiLU.forward) for cls in (nn.SiLU, SiLUActivation)}


# ---- norms ----


def promoted(x, *others):
    """All in their promoted dtype, which is the stock norm's result dtype if dtypes differ."""
    if all(other.dtype == x.dtype for other in others):
        return x, *others
    dtype = x.dtype
    for other in others:
        dtype = torch.promote_types(dtype, other.dtype)
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def why_called(norm, x=None):
    """Why the norm must be called, or None if its weight may be read instead: only Tegula's norm would run, and the
    weight is on the device of `x`."""
    reason = why_heard(norm, "rms_norm")
    if reason or "_hf_hook" not in norm.__dict__:
        return reason
    hook = sharding.placement(norm)
    if hook is None or hook.offload or x is not None and x.device != norm.weight.device:
        return "has its weight moved by accelerate"
    return None


def norm_of(norm, x, weight, stock, policy):
    dtype = x.dtype
    if run_stock(x):
        return stock(norm, x)
    x, weight = promoted(x, weight)
    y = ops.rms_norm(x, weight, norm.variance_epsilon, policy=policy)
    return y.to(dtype) if policy == "gpt_oss" else y


def add_norm_of(norm, x, residual):
    """(norm(residual + x), residual + x)."""
    x, residual = promoted(x, residual)
    weight, function = norm.weight, listeners.function_of(norm)
    if torch.promote_types(residual.dtype, weight.dtype) != residual.dtype or run_stock(residual):
        total = residual + x
        return norm_of(norm, total, weight, function.__wrapped__, function.policy), total
    return ops.add_rms_norm(x, residual, weight.to(residual.dtype), norm.variance_epsilon, policy=function.policy)


def add_then(norm, x, residual):
    if why_called(norm, x) is None:
        return add_norm_of(norm, x, residual)
    total = residual + x
    return norm(total), total


def rms_norm(stock, parts, modelling, policy="llama"):
    def forward(self, hidden_states):
        if isinstance(hidden_states, tuple):  # after the last layer
            return add_norm_of(self, *hidden_states)[0]
        if listeners.sees_last_function(self):
            return stock(self, hidden_states)
        return norm_of(self, hidden_states, self.weight, stock, policy)

    forward.policy = policy  # of `ops.rms_norm`: where the class rounds
    return forward


# ---- MLP and attention ----


def why_no_swiglu(module):
    """Why the MLP runs the original forward, or None."""
    act_fn = module.act_fn
    cls = type(act_fn)
    if cls not in SILU or cls is nn.SiLU and act_fn.inplace:
        return f"its activation is {cls.__name__}"
    reason = why_heard(act_fn, SILU[cls])
    return reason and f"act_fn {reason}"


def mlp(stock, parts, modelling):
    def forward(self, x):
        if why_no_swiglu(self) is not None:
            return stock(self, x)
        gate, up = self.gate_proj(x), self.up_proj(x)
        if run_stock(gate, up):
            return self.down_proj(self.act_fn(gate) * up)
        return self.down_proj(ops.swiglu(gate, up))

    return forward


def is_normed(module):
    return "q_norm" in module._modules


def own_rotation(modelling):
    """The function of the modelling file, or None if another is in its place."""
    function = modelling.apply_rotary_pos_emb
    return function if getattr(function, "__globals__", None) is vars(modelling) else None


def why_rope_called(modelling, own):
    """Why the rotation is left to the function in the modelling file, or None. Beside certain versions of the `kernels`
    package it is a module, whose forward is replaced all the same."""
    function = modelling.apply_rotary_pos_emb
    if function is own:
        return None
    reason = why_heard(function) if isinstance(function, nn.Module) else "is another function"
    return reason and f"apply_rotary_pos_emb {reason}"


def why_head_norms_called(module, q=None):
    """Why the head norms cannot be fused with the rotation, or None."""
    for name in ("q_norm", "k_norm"):
        reason = why_called(getattr(module, name), q)
        if reason:
            return f"{name} {reason}"
    return None if module.q_norm.variance_epsilon == module.k_norm.variance_epsilon else "their eps differ"


def heads(module, hidden_states, cos, sin, parts, modelling, rotation):
    """q, k and v, heads first; q and k normed, if the model does so, and rotated. Without fusion, modules are called in
    the order of the original."""
    shape = (*hidden_states.shape[:-1], -1, module.head_dim)
    q = module.q_proj(hidden_states).view(shape)
    rotates = "rope" in parts and not run_stock(q, cos) and why_rope_called(modelling, rotation) is None
    normed = is_normed(module)
    fuses = normed and rotates and "rms_norm" in parts and why_head_norms_called(module, q) is None
    apart = normed and not fuses
    if apart:
        q = module.q_norm(q)
    k = module.k_proj(hidden_states).view(shape)
    if apart:
        k = module.k_norm(k)
    v = module.v_proj(hidden_states).view(shape).transpose(1, 2)
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    if not rotates:
        return *modelling.apply_rotary_pos_emb(q, k, cos, sin), v
    if not fuses:
        return *ops.rope(*promoted(q, k, cos, sin)), v
    q, k, q_weight, k_weight, cos, sin = promoted(q, k, module.q_norm.weight, module.k_norm.weight, cos, sin)
    return *ops.qk_norm_rope(q, k, q_weight, k_weight, cos, sin, module.q_norm.variance_epsilon), v


def stored(cache, k, v, layer_idx, kwargs):
    """Stores keys and values in the cache and returns its contents; earlier versions of transformers pass the position
    in a buffer of fixed length."""
    place = kwargs.get("cache_position")
    return cache.update(k, v, layer_idx, *(() if place is None else ({"cache_position": place},)))


def is_stock_sdpa():
    """Whether "sdpa" names transformers' own function: others may be registered by that name."""
    return ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward


def has_sinks(attention):
    return "sinks" in attention._parameters


def own_implementation(attention):
    """The implementation that transformers selects by itself, whose place Tegula's attention takes."""
    return "eager" if has_sinks(attention) else "sdpa"


def interface_of(modelling, implementation):
    functions = modelling.ALL_ATTENTION_FUNCTIONS
    if hasattr(functions, "get_interface"):
        return functions.get_interface(implementation, modelling.eager_attention_forward)
    return modelling.eager_attention_forward if implementation == "eager" else functions[implementation]


def own_window(attention):
    return attention.sliding_window if "sliding_window" in attention.__dict__ else ABSENT


def attention(stock, parts, modelling, window_of=own_window):
    """`window_of(attention)`: what the original passes on as sliding_window; ABSENT: nothing."""
    rotation = own_rotation(modelling)

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
        cache = given_cache(cache, kwargs, stock, self)
        tokens = hidden_states.shape[:-1]
        q, k, v = heads(self, hidden_states, *position_embeddings, parts, modelling, rotation)
        if cache is not None:
            k, v = stored(cache, k, v, self.layer_idx, kwargs)
        implementation = self.config._attn_implementation
        if has_sinks(self):
            kwargs["s_aux"] = self.sinks
            # "eager" attention has a dense mask wherever Tegula's would not compute the same.
            replaces = implementation == "eager" and attention_masks.is_encoded(attention_mask)
        else:
            replaces = implementation == "sdpa" and is_stock_sdpa()
        if "attention" in parts and replaces:
            attend = attentions.attention_forward
        else:
            attend = interface_of(modelling, implementation)
        window = window_of(self)
        if window is not ABSENT:
            kwargs["sliding_window"] = window
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
    delta = (layer.mlp if "mlp" in layer._modules else layer.block_sparse_moe)(h)  # Mixtral's, in transformers 4
    if isinstance(delta, tuple):  # with the scores of a router
        delta = delta[0]
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
        self, hidden_states, attention_mask=None, position_ids=None, cache=None, use_cache=False,
        position_embeddings=None, residual_pairs=False, **kwargs,
    ):  # fmt: skip
        x, residual = hidden_states if isinstance(hidden_states, tuple) else (hidden_states, None)
        kwargs[CACHE] = given_cache(cache, kwargs, stock, self)
        kwargs.update(
            attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache,
            position_embeddings=position_embeddings,
        )  # fmt: skip
        # Without gradients there is no backward, and generate in training mode needs its cache.
        if not in_call and self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            # A subclass made later has a forward that checkpoints this one.
            if "forward" in vars(self) or type(self).forward is forward:
                run = functools.partial(both_halves, self, pair=residual_pairs, **without_cache(kwargs))
                return self._gradient_checkpointing_func(run, x, residual)
        return both_halves(self, x, residual, pair=residual_pairs, **kwargs)

    return forward


def why_no_pairs(model):
    """Why the addition at the end of layers is not fused with the next norm, or None."""
    for index, each in enumerate(model.layers):
        reason = why_heard(each, "layer", around=True)
        if reason:
            return f"layers.{index} {reason}"
    reason = why_heard(model.norm, "rms_norm", around=True)
    if reason:
        return f"norm {reason}"
    if listeners.sees_last_function(model):
        return "a backward hook of the old kind sees the last function of the model"
    if model.gradient_checkpointing and model.training and checkpoints_in_call():
        return "this transformers checkpoints layers by a way that loses pairs"
    return None


def why_eager(model):
    """Why attention with sinks is left to the model's "eager" function, or None: no other of transformers computes it.
    The layers run Tegula's attention."""
    modelling = sys.modules[sharding.class_of(model.layers[0].self_attn).__module__]
    function = modelling.eager_attention_forward
    if getattr(function, "__globals__", None) is not vars(modelling):
        return "another function is in the place of eager_attention_forward"
    if getattr(model.config, "output_attentions", False):
        return "output_attentions"
    for index, each in enumerate(model.layers):
        if each.self_attn.attention_dropout > 0 and model.training:
            return f"layers.{index}.self_attn has dropout"
        if run_stock(each.self_attn.sinks):
            return f"layers.{index}.self_attn has tensors that run in PyTorch"
    return None


def why_no_masks(model):
    """Why transformers makes the mask (a dense one if it is more than causal), or None."""
    implementation = model.config._attn_implementation
    own = own_implementation(model.layers[0].self_attn) if len(model.layers) else "sdpa"
    if implementation not in (own, "tegula"):
        return f"the model's attention is {implementation!r}"
    own_masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] is SDPA_MASK
    if implementation == "sdpa" and not (own_masks and is_stock_sdpa()):
        return "another function is registered as 'sdpa'"
    known = "attention" if implementation == own else None
    for index, each in enumerate(model.layers):
        reason = why_heard(each, "layer", keywords=True)
        if reason and not is_stock_layer(each):
            return f"layers.{index} {reason}"
        attention = each.self_attn
        reason = why_heard(attention, known, keywords=True)
        if reason is None and known and known not in listeners.function_of(attention).tegula_parts:
            reason = "runs another forward"
        if reason:
            return f"layers.{index}.self_attn {reason}"
    return why_eager(model) if implementation == "eager" else None


def is_stock_layer(layer):
    """Whether the layer runs transformers' own forward, as without rms_norm, and nobody sees its keywords."""
    cls = sharding.class_of(layer)
    if not cls.__module__.startswith("transformers.models."):
        return False
    stock = replacing.original_of(cls.__module__, f"{cls.__qualname__}.forward")
    return why_heard(layer, (stock,), keywords=True) is None


@contextlib.contextmanager
def stock_norm(norm):
    """With the norm's original forward, for whoever sees the last function of the model."""
    function = listeners.function_of(norm)
    if kind(function) is None:
        yield
        return
    attribute = "_old_forward" if "_old_forward" in norm.__dict__ else "forward"
    before = norm.__dict__.get(attribute)
    norm.__dict__[attribute] = types.MethodType(function.__wrapped__, norm)
    try:
        yield
    finally:
        if before is None:
            del norm.__dict__[attribute]
        else:
            norm.__dict__[attribute] = before


def model(stock, parts, modelling):
    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, cache=None, inputs_embeds=None, use_cache=None,
        **kwargs,
    ):  # fmt: skip
        cache = given_cache(cache, kwargs, stock, self)
        weights_asked = kwargs.get("output_attentions") and self.config._attn_implementation == "eager"
        if "attention" in parts and not weights_asked and why_no_masks(self) is None:
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
        kwargs.update(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            inputs_embeds=inputs_embeds, use_cache=use_cache,
        )  # fmt: skip
        if listeners.sees_last_function(self):
            with stock_norm(self.norm):
                return stock(self, **kwargs)
        return stock(self, **kwargs)

    return forward


def masks_for_generate(stock, parts, modelling):
    """generate makes the masks for a cache of fixed length itself, through this method of the model if it has one."""
    plain = stock or masking_utils.create_masks_for_generate

    def create_masks_for_generate(
        self, config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None, **kwargs
    ):  # fmt: skip
        name = "input_embeds" if inputs_embeds is None else "inputs_embeds"  # in transformers 4, and since
        kwargs.setdefault(name, inputs_embeds)
        cache = given_cache(cache, kwargs, plain, self)
        heard = why_heard(self, keywords=True) or why_heard(self.model, keywords=True)
        if heard is None and why_no_masks(self.model) is None:
            mask = attention_masks.encode(
                self.model, kwargs[name], attention_mask, position_ids, cache, True, kwargs
            )
            if attention_masks.is_encoded(mask):
                return mask
        make = functools.partial(stock, self) if stock else plain
        kwargs[CACHE] = cache
        return make(config=config, attention_mask=attention_mask, position_ids=position_ids, **kwargs)

    return create_masks_for_generate


# If the class has no such method, transformers calls this function.
masks_for_generate.adds = masking_utils.create_masks_for_generate
