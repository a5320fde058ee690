"""The forward of a causal language model: in training, the loss is computed from the hidden states without logits. In
evaluation without gradients, logits stay in their dtype while their loss is computed in f32.

Keywords beside those of transformers:
  skip_logits             True: no logits outside of training either, nor for hooks of the model; False: logits in
                          training too
  return_log_probs        the output has log_probs: that of each target given the tokens before it, 0 if ignored
  return_token_accuracy   the output has token_accuracy: the share of targets that are the most likely token
"""

import functools
import inspect
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_outputs import CausalLMOutputWithPast, MoeCausalLMOutputWithPast
from transformers.utils import can_return_tuple

from ... import _core, ops, sharding
from ...autograd.table_entry import run_stock
from ..cache_name import CACHE, given_cache
from ..listeners import why_heard

PLAIN = (torch.Tensor, nn.Parameter)
LINEAR = (nn.Linear.forward,)
STOCK_TENSORS = "tensors of their dtype and device run in PyTorch"
PER_ROW = 1  # TG_REDUCTION_NONE


@dataclass
class ScoredOutput(CausalLMOutputWithPast):
    """The output with the requested values for each token."""

    log_probs: torch.FloatTensor | None = None
    token_accuracy: torch.FloatTensor | None = None
    aux_loss: torch.FloatTensor | None = None
    router_logits: tuple[torch.FloatTensor] | None = None


def why_no_fused_loss(model, running=True):
    """Why the loss of this model needs logits, or None. `running`: the model's forward has begun, so FSDP has gathered
    the parameters of the model's own unit."""
    head = model.lm_head
    cls = sharding.class_of(head)
    if cls is not nn.Linear:
        return f"lm_head is a {cls.__module__}.{cls.__qualname__}"
    weight = head.weight
    for name, parameter in (("weight", weight), ("bias", head.bias)):
        if parameter is not None and type(parameter) not in PLAIN:
            gathers = sharding.is_unit(head) or not running
            if not (gathers and sharding.comes_whole(head, name)):
                return f"lm_head.{name} is a {type(parameter).__qualname__}"
    reason = why_heard(head, LINEAR, around=True)
    if reason is None and "_hf_hook" in head.__dict__ and sharding.placement(head) is None:
        reason = "has its weight moved by accelerate"
    if reason:
        return f"lm_head {reason}"
    if run_stock(weight):
        return STOCK_TENSORS
    if model.loss_function is not ForCausalLMLoss:
        return "the model has a loss function of its own"
    return None


def kept(hidden, logits_to_keep):
    if isinstance(logits_to_keep, int):
        return hidden if logits_to_keep == 0 else hidden[:, -logits_to_keep:]
    return hidden[:, logits_to_keep]


def targets_of(labels, shift_labels, ignore_index, hidden):
    """The target of each row of hidden: token t + 1 for row t. As in the original, which flattens them, another shape
    with as many targets will do."""
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    if shift_labels.numel() == hidden.shape[:-1].numel():
        shift_labels = shift_labels.reshape(hidden.shape[:-1])
    if shift_labels.shape != hidden.shape[:-1]:
        raise ValueError(
            f"fused_linear_cross_entropy: labels: expected {list(hidden.shape[:-1])}, got {list(shift_labels.shape)}; "
            "with logits_to_keep, shift_labels names the targets of the tokens that are kept"
        )
    return shift_labels.to(hidden.device, torch.long)


def items_of(count, device):
    """num_items_in_batch for the op: None, a number >= 1, or a tensor of rank 0 on the device."""
    if isinstance(count, torch.Tensor):
        count = count.reshape(()).to(device)
        return count if count.dtype in (torch.int32, torch.int64, torch.float32) else count.float()
    if count is None or (isinstance(count, int) and count > 0):
        return count
    return torch.tensor(float(count), device=device)


def operands(hidden, head):
    """The tensors as a linear layer would use them: in the dtype of autocast if it is on."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return hidden, head.weight, head.bias
    dtype = torch.get_autocast_dtype(device)

    def cast(tensor):
        return tensor if tensor is None or tensor.dtype == torch.float64 else tensor.to(dtype)  # f64 stays, as in stock

    return cast(hidden), cast(head.weight), cast(head.bias)


@torch.compiler.disable
@torch.no_grad()
def accuracy(hidden, weight, bias, targets, ignore_index):
    """A second pass over the head, run only on request."""
    hidden, targets = hidden.flatten(0, -2).contiguous(), targets.flatten().contiguous()
    rows = hidden.shape[0]
    loss, best = hidden.new_empty(rows, dtype=torch.float32), torch.empty_like(targets)
    scratch = []

    def allocate(count):
        scratch.append(hidden.new_empty(count, dtype=torch.uint8))
        return scratch[-1]

    _core.run(
        "linear_cross_entropy_fwd", hidden=hidden, weight=weight, bias=bias, targets=targets, loss=loss, argmax=best,
        ignore_index=ignore_index, has_ignore_index=True, reduction=PER_ROW, workspace=allocate,
    )  # fmt: skip
    counted = targets != ignore_index
    return (best == targets).logical_and(counted).sum() / counted.sum()


def loss_of(hidden, head, targets, count, ignore_index, want_log_probs, want_accuracy):
    """(loss, log_probs or None, share of hits or None)."""
    hidden, weight, bias = operands(hidden, head)
    targets, count = targets.to(hidden.device), items_of(count, hidden.device)
    share = accuracy(hidden, weight, bias, targets, ignore_index) if want_accuracy else None
    if not want_log_probs:
        loss = ops.linear_cross_entropy(
            hidden, weight, targets, bias, ignore_index=ignore_index, num_items_in_batch=count
        )
        return loss.clone(), None, share  # not a view: a change in place would remove FSDP's hooks from one
    each = ops.linear_cross_entropy(hidden, weight, targets, bias, ignore_index=ignore_index, reduction="none")
    return each.sum() / ((targets != ignore_index).sum() if count is None else count), -each, share


def with_balance(loss, model, outputs, attention_mask, modelling):
    """(loss + the auxiliary loss of the routers, that loss), as the model's own forward computes it."""
    aux = modelling.load_balancing_loss_func(
        outputs.router_logits, model.num_experts, model.num_experts_per_tok, attention_mask
    )
    return loss + model.router_aux_loss_coef * aux.to(loss.device), aux


def loss_of_logits(stock, model, labels, shift_labels, count, ignore_index, **kwargs):
    """The output of the original, its loss by cross_entropy: the original copies all logits to f32 twice."""
    out = stock(model, labels=None, return_dict=True, **kwargs)
    targets = targets_of(labels, shift_labels, ignore_index, out.logits)
    logits = out.logits.contiguous()
    loss = ops.cross_entropy(logits, targets, ignore_index=ignore_index, num_items_in_batch=items_of(count, logits.device))
    if out.get("aux_loss") is not None:
        loss = loss + model.router_aux_loss_coef * out.aux_loss.to(loss.device)
    return type(out)(**{**out, "loss": loss})


def causal_lm(stock, parts, modelling):
    routed = hasattr(modelling, "load_balancing_loss_func")
    plain_output = MoeCausalLMOutputWithPast if routed else CausalLMOutputWithPast
    # An argument of earlier versions, which the original always passes on to the trunk.
    passed = {name: None for name in ("cache_position",) if name in inspect.signature(stock).parameters}

    @can_return_tuple
    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, cache=None, inputs_embeds=None,
        labels=None, use_cache=None, logits_to_keep=0, skip_logits=None, return_log_probs=False,
        return_token_accuracy=False, **kwargs,
    ):  # fmt: skip
        kwargs[CACHE] = given_cache(cache, kwargs, stock, self)
        kwargs.update(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            inputs_embeds=inputs_embeds, use_cache=use_cache,
        )  # fmt: skip
        scores = return_log_probs or return_token_accuracy
        reason = why_no_fused_loss(self)
        if scores and (labels is None or skip_logits is False or reason):
            reason = reason or ("there are no labels" if labels is None else "logits are asked for")
            raise ValueError(f"fused_linear_cross_entropy: log_probs, token_accuracy: expected its loss, but {reason}")
        wanted = scores or self.training and why_heard(self, around=True) is None if skip_logits is None else skip_logits
        if labels is not None and not wanted and not reason and not torch.is_grad_enabled():
            loss_words = {name: kwargs.pop(name, None) for name in ("shift_labels", "num_items_in_batch")}
            return loss_of_logits(
                stock, self, labels, loss_words["shift_labels"], loss_words["num_items_in_batch"],
                kwargs.pop("ignore_index", -100), logits_to_keep=logits_to_keep, **kwargs,
            )  # fmt: skip
        if labels is None or not wanted or reason:
            return stock(self, labels=labels, logits_to_keep=logits_to_keep, **kwargs)
        balanced = False
        if routed:
            asked = kwargs.get("output_router_logits")
            balanced = kwargs["output_router_logits"] = self.config.output_router_logits if asked is None else asked
        outputs = self.model(**{**passed, **kwargs})
        hidden = kept(outputs.last_hidden_state, logits_to_keep)
        ignore_index = kwargs.get("ignore_index", -100)
        targets = targets_of(labels, kwargs.get("shift_labels"), ignore_index, hidden)
        run = functools.partial(
            loss_of, head=self.lm_head, targets=targets, count=kwargs.get("num_items_in_batch"),
            ignore_index=ignore_index, want_log_probs=return_log_probs, want_accuracy=return_token_accuracy,
        )  # fmt: skip
        if sharding.runs_around(self.lm_head):
            loss, log_probs, share = sharding.call_as_forward(run, self.lm_head, hidden)
        else:
            loss, log_probs, share = run(hidden)
        result = dict(loss=loss, hidden_states=outputs.hidden_states, attentions=outputs.attentions)
        result[CACHE] = outputs.get(CACHE)
        if routed:
            result["router_logits"] = outputs.router_logits
        if balanced:
            result["loss"], result["aux_loss"] = with_balance(loss, self, outputs, attention_mask, modelling)
        if not scores:
            return plain_output(**result)
        return ScoredOutput(**result, log_probs=log_probs, token_accuracy=share)

    return forward
