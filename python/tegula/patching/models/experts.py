"""The forwards of routers and experts, with Tegula's ops.

A router computes its logits as the original does and returns them first: hooks and transformers' recorder see them."""

import inspect

import torch
from torch.nn import functional as F

from ... import ops
from ...autograd.table_entry import PLAIN, run_stock
from .. import stacked_experts
from ..stacked_experts import STACKED


def selected(router):
    return "selected"


def by_configuration(router):
    return "renormalized" if router.norm_topk_prob else "all"


def renormalized(router):
    return "renormalized"


def why_no_router(router):
    """Why the router runs the original forward, or None. Its parameters are read in forwards alone: FSDP gathers them."""
    weight = router._parameters.get("weight")
    if weight is not None and type(weight) not in PLAIN:
        return f"weight is a {type(weight).__qualname__}"
    return None


def router(stock, parts, modelling, scoring=selected, f32_weights=False):
    """`scoring(router)`: that of `ops.topk_router`. `f32_weights`: the original does not round its scores."""

    def forward(self, hidden_states):
        if run_stock(hidden_states) or why_no_router(self):
            return stock(self, hidden_states)
        hidden_states = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = F.linear(hidden_states, self.weight, getattr(self, "bias", None))
        scores, indices = ops.topk_router(logits, self.top_k, scoring=scoring(self), f32_weights=f32_weights)
        return logits, scores, indices

    return forward


def experts(stock, parts, modelling):
    names = list(inspect.signature(stock).parameters)[2:]  # of the indices and of the scores

    def forward(self, hidden_states, *routes, **named):
        def instead():
            return stock(self, hidden_states, *routes, **named)

        routing = (*routes, *(named.get(name) for name in names[len(routes) :]))
        if not all(isinstance(each, torch.Tensor) for each in routing):
            return instead()
        reason = stacked_experts.why_not_replaced(self)
        return stacked_experts.run(self, reason, instead, hidden_states, *routing)

    return forward


def patches(prefix, make_router):
    """The op of a family whose classes begin with `prefix`; nothing where transformers holds experts in another form."""
    if not STACKED:
        return {}
    return {"experts": {f"{prefix}TopKRouter.forward": make_router, f"{prefix}Experts.forward": experts}}
