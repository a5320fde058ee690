"""The forwards of routers and experts, with Tegula's ops.

A router computes its logits as the original does and returns them first: hooks and transformers' recorder see them."""

import inspect
import types

import torch
from torch.nn import functional as F

from ... import ops, sharding
from ...autograd.table_entry import PLAIN, run_stock
from .. import listeners, stacked_experts
from ..stacked_experts import STACKED


def selected(router):
    return "selected"


def by_configuration(router):
    return "renormalized" if router.norm_topk_prob else "all"


def renormalized(router):
    return "renormalized"


def returns_logits(stock):
    """Whether the original returns its logits first; some versions of transformers return probabilities in their place,
    of which the auxiliary loss then takes a softmax again."""
    logits = torch.tensor([[1.0, 3.0]], device="cpu")
    module = types.SimpleNamespace(
        weight=torch.eye(2, device="cpu"), bias=torch.zeros(2, device="cpu"), hidden_dim=2, top_k=1, num_experts=2, norm_topk_prob=True
    )
    try:
        return torch.equal(stock(module, logits)[0], logits)
    except AttributeError:  # it is another router
        return False


def why_sharded(router):
    """Why its weight is none that Tegula reads, or None. In a forward FSDP has gathered it."""
    weight = router._parameters.get("weight")
    return f"weight is a {type(weight).__qualname__}" if weight is not None and type(weight) not in PLAIN else None


def why_no_router(router):
    """Why the router runs the original forward, or None, as its weight lies outside of a call."""
    if not getattr(listeners.function_of(router), "logits_first", True):
        return "the router of this transformers returns no logits"
    return None if sharding.comes_whole(router, "weight") else why_sharded(router)


def router(stock, parts, modelling, scoring=selected, f32_weights=False):
    """`scoring(router)`: that of `ops.topk_router`. `f32_weights`: the original does not round its scores."""

    logits_first = returns_logits(stock)

    def forward(self, hidden_states):
        if not logits_first or run_stock(hidden_states) or why_sharded(self):
            return stock(self, hidden_states)
        hidden_states = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = F.linear(hidden_states, self.weight, getattr(self, "bias", None))
        scores, indices = ops.topk_router(logits, self.top_k, scoring=scoring(self), f32_weights=f32_weights)
        return logits, scores, indices

    forward.logits_first = logits_first
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
