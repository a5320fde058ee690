"""What the op table does not say of the ops: shapes and dtypes of outputs, and the usual values of scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..enumerations import (
    ACTIVATION, APPROXIMATION, GATED, GRANULARITY, MODE, PACKING, PAIRING, POLICY, REDUCTION, ROUNDING, SCORING,
)  # fmt: skip

Shape = tuple[int, ...]


class Rule(NamedTuple):
    """An output: its shape from the shapes of inputs and the scalars; its dtype, that of an input or a name; the input whose
    leading axes its rows have; and whether it is computed unless asked for otherwise."""

    shape: Callable[[Any], Shape | None]
    dtype: str
    rows_of: str | None = None
    usual: bool = True


def like(name: str, *, usual: bool = True) -> Rule:
    """Of shape and dtype of an input; none if that is absent."""
    return Rule(lambda a: a[name], f"={name}", name, usual)


def parameter(name: str) -> Rule:
    """The gradient of a parameter."""
    return Rule(lambda a: a[name], f"={name}")


def statistic(name: str, axes: int = 1) -> Rule:
    """One number for each row, for a backward."""
    return Rule(lambda a: a[name][:axes], "statistic", name if axes == 1 else None, usual=False)


def of(dtype: str, shape: Callable[[Any], Shape | None], rows_of: str | None = None, *, usual: bool = True) -> Rule:
    return Rule(shape, dtype, rows_of, usual)


def given(dtype: str, *, usual: bool = True) -> Rule:
    """Its shape does not follow from the inputs: the caller gives the array."""
    return Rule(lambda a: None, dtype, None, usual)


def _loss(logits: str) -> dict[str, Rule]:
    row = lambda a: a[logits][:1]  # noqa: E731
    return {
        "loss": of("statistic", lambda a: a[logits][:1] if a["reduction"] == REDUCTION["none"] else (1,)),
        "token_loss": of("statistic", row, logits, usual=False), "log_prob": of("statistic", row, logits, usual=False),
        "lse": of("statistic", row, logits, usual=False), "argmax": of("int64", row, logits, usual=False),
    }  # fmt: skip


def _half(a: Any) -> Shape | None:
    """Of a gated activation: gate's shape, or half of gate_up's columns."""
    gate: Shape | None = a["gate"]
    both: Shape | None = a["gate_up"]
    return gate if both is None else (both[0], both[1] // 2)


def _scales(a: Any) -> Shape:
    shapes: dict[int, Shape] = {1: (1,), 2: a["x"][:1], 3: a["x"][1:]}
    return shapes[a["granularity"]]


def _groups(a: Any) -> Shape:
    return (a["x"][0], -(-a["x"][1] // max(1, a["group_size"])))


def _slots(a: Any) -> int:
    rows: int = (a["slot"] or a["x"])[0]
    return rows


def _out(a: Any) -> int:
    columns: int = a["weight"][2 if a["in_first"] else 1]
    return columns


def _wide(a: Any) -> int:
    columns: int = a["gate_up"][2 if a["in_first"] else 1]
    return columns


_GATED_FWD = {"y": of("=first", _half, "first")}
_GATED_BWD = {"dgate": like("gate"), "dup": like("up"), "dgate_up": like("gate_up")}
_LCE_BWD = {"dhidden": like("hidden"), "dweight": parameter("weight"), "dbias": parameter("bias")}
_HEADS = {"dq": like("q"), "dk": like("k"), "dv": like("v")}

RULES: dict[str, dict[str, Rule]] = {
    "rms_norm_fwd": {"y": like("x"), "rstd": statistic("x")},
    "rms_norm_bwd": {"dx": like("x"), "dweight": parameter("weight")},
    "add_rms_norm_fwd": {"sum": like("x"), "y": like("x"), "rstd": statistic("x")},
    "add_rms_norm_bwd": {"dx": like("sum"), "dweight": parameter("weight")},
    "layer_norm_fwd": {"y": like("x"), "mean": statistic("x"), "rstd": statistic("x")},
    "layer_norm_bwd": {"dx": like("x"), "dweight": parameter("weight"), "dbias": parameter("weight")},
    "rms_norm_swiglu_fwd": {"y": like("x"), "rstd": statistic("x")},
    "rms_norm_swiglu_bwd": {"dx": like("x"), "dgate": like("gate"), "dweight": parameter("weight")},
    "gelu_fwd": {"y": like("x")},
    "gelu_bwd": {"dx": like("x")},
    "silu_fwd": {"y": like("x")},
    "silu_bwd": {"dx": like("x")},
    "softmax_fwd": {"y": like("x")},
    "softmax_bwd": {"dx": like("y")},
    **{f"{op}_fwd": _GATED_FWD for op in ("swiglu", "geglu", "swiglu_clamped")},
    **{f"{op}_bwd": _GATED_BWD for op in ("swiglu", "geglu", "swiglu_clamped")},
    "rope_fwd": {"q_out": like("q"), "k_out": like("k")},
    "rope_bwd": {"dq": like("dq_out"), "dk": like("dk_out")},
    "qk_norm_rope_fwd": {"q_out": like("q"), "k_out": like("k"), "q_rstd": statistic("q", 3), "k_rstd": statistic("k", 3)},
    "qk_norm_rope_bwd": {
        "dq": like("q"), "dk": like("k"), "dq_weight": parameter("q_weight"), "dk_weight": parameter("k_weight"),
    },
    "embedding_fwd": {"y": of("=table", lambda a: (a["ids"][0], a["table"][1]), "ids")},
    "embedding_bwd": {"dtable": given("=dy"), "dpositions": given("=dy", usual=False)},
    "linear_fwd": {
        "y": of("=x", lambda a: (a["x"][0], a["weight"][0]), "x"),
        "preactivation": of("=x", lambda a: (a["x"][0], a["weight"][0]), "x", usual=False),
    },
    "linear_bwd": {
        "dx": like("x"), "dweight": parameter("weight"), "dbias": of("=weight", lambda a: a["weight"][:1], usual=False),
    },
    "linear_swiglu_fwd": {
        name: of("=x", lambda a: (a["x"][0], a["gate_weight"][0]), "x", usual=name == "y") for name in ("y", "gate", "up")
    },
    "attention_fwd": {
        "out": of("=q", lambda a: (*a["q"][:3], a["v"][3])),
        "lse": of("statistic", lambda a: (a["q"][0], a["q"][2], a["q"][1]), usual=False),
    },
    "attention_bwd": {**_HEADS, "dsinks": parameter("sinks")},
    "attention_naive_fwd": {
        "out": of("=q", lambda a: (*a["q"][:3], a["v"][3])),
        "probabilities": of("=q", lambda a: (a["q"][0], a["q"][2], a["q"][1], a["k"][1]), usual=False),
    },
    "attention_naive_bwd": _HEADS,
    "cross_entropy_fwd": _loss("logits"),
    "cross_entropy_bwd": {"dlogits": like("logits")},
    "cross_entropy_fwdbwd": {**_loss("logits"), "dlogits": like("logits")},
    "linear_cross_entropy_fwd": _loss("hidden"),
    "linear_cross_entropy_bwd": _LCE_BWD,
    "linear_cross_entropy_fwdbwd": {**_loss("hidden"), **_LCE_BWD},
    "global_norm_fwd": {"norm": of("statistic", lambda a: (1,)), "clip": of("statistic", lambda a: (1,), usual=False)},
    "adamw_step": {},
    "quantize_int8_fwd": {
        "q": of("int8", lambda a: a["x"], "x"), "scale": of("float32", _scales), "zero_point": of("int8", _scales, usual=False),
    },
    "dequantize_int8_fwd": {"x": of("float32", lambda a: a["q"], "q")},
    "quantize_int4_fwd": {
        "q": of("uint8", lambda a: (a["x"][0], (a["x"][1] + 1) // 2)), "scale": of("float32", _groups),
        "zero_point": of("uint8", _groups, usual=False),
    },
    "dequantize_int4_fwd": {"x": of("float32", lambda a: (a["q"][0], 2 * a["q"][1]))},
    "dequantize_mxfp4_fwd": {"x": of("float32", lambda a: (a["scales"][0], 32 * a["scales"][1]))},
    **{f"{op}_fwd": {"y": given("=x")} for op in ("linear_int8", "linear_int4", "linear_fp8")},
    "linear_fp8_fp8_fwd": {"y": of("wide=x", lambda a: (a["x"][0], a["weight"][0]), "x")},
    "sample_fwd": {
        "ids": of("int64", lambda a: a["logits"][:1], "logits"), "log_prob": of("float32", lambda a: a["logits"][:1], "logits", usual=False),
    },
    "topk_router_fwd": {
        "indices": of("int64", lambda a: (a["logits"][0], a["k"]), "logits"),
        "weights": of("=logits", lambda a: (a["logits"][0], a["k"]), "logits"),
        "counts": of("int32", lambda a: a["logits"][1:], usual=False),
        "prob_sum": of("float32", lambda a: a["logits"][1:], usual=False),
    },
    "topk_router_bwd": {"dlogits": like("logits")},
    "moe_plan_fwd": {
        "offsets": of("int32", lambda a: (a["experts"] + 1,)),
        "slot": of("int32", lambda a: (a["indices"][0] * a["indices"][1],)),
        "row": of("int32", lambda a: a["indices"], "indices"),
    },
    "grouped_linear_fwd": {
        "y": of("=x", lambda a: (_slots(a), _out(a) // (2 if a["activation"] else 1))),
        "preactivation": of("=x", lambda a: (_slots(a), _out(a)), usual=False),
    },
    "grouped_linear_bwd": {
        "dx": of("=x", lambda a: (a["dy"][0], a["x"][1])), "dweight": parameter("weight"),
        "dbias": of("=weight", lambda a: (a["weight"][0], _out(a)), usual=False),
    },
    # The packed weight's columns are in its header alone.
    "grouped_linear_mxfp4_fwd": {
        "y": of("=x", lambda a: a["bias"] and (_slots(a), a["bias"][1] // (2 if a["activation"] else 1))),
        "preactivation": of("=x", lambda a: a["bias"] and (_slots(a), a["bias"][1]), usual=False),
    },
    "grouped_linear_mxfp4_bwd": {"dx": given("=dy"), "dbias": given("=dy", usual=False)},
    "moe_combine_fwd": {"out": of("=y", lambda a: (a["row"][0], a["y"][1]), "row")},
    "moe_combine_bwd": {
        "dy": of("=dout", lambda a: a["slot"] and (a["slot"][0], a["dout"][1])),
        "dweights": of("=weights", lambda a: a["weights"] and a["y"] and a["weights"]),
    },
    "moe_mlp_fwd": {"y": like("x"), "preactivation": of("=x", lambda a: (a["slot"][0], _wide(a)), usual=False)},
    "moe_mlp_bwd": {
        "dx": like("x"), "dweights": like("weights"), "dgate_up": parameter("gate_up"), "ddown": parameter("down"),
        "dgate_up_bias": of("=gate_up", lambda a: (a["gate_up"][0], _wide(a)), usual=False),
        "ddown_bias": parameter("down_bias"),
        "dpreactivation": like("preactivation", usual=False),
    },
}  # fmt: skip

# Of an enumerated argument: its values and the usual one; by op where ops differ.
CHOICES: dict[str, tuple[dict[str, int], str]] = {
    "policy": (POLICY, "llama"), "rounding": (ROUNDING, "hf"), "approximation": (APPROXIMATION, "tanh"),
    "packing": (PACKING, "halves"), "pairing": (PAIRING, "halves"), "reduction": (REDUCTION, "mean"),
    "scoring": (SCORING, "selected"), "granularity": (GRANULARITY, "row"), "mode": (MODE, "weight_only"),
    "gelu.approximation": (APPROXIMATION, "none"), "geglu.approximation": (APPROXIMATION, "none"),
    "swiglu_clamped.packing": (PACKING, "interleaved"), "activation": (ACTIVATION, "none"), "grouped_linear.activation": (GATED, "none"), "moe_mlp.activation": (GATED, "swiglu"),
    "grouped_linear_mxfp4.activation": (GATED, "none"),
}  # fmt: skip

# Usual values of other scalars; those without one are 0. "required": the caller must say.
SCALARS: dict[str, Any] = {
    "eps": 1e-6, "layer_norm.eps": 1e-5, "adamw.eps": 1e-8, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "step": "required", "lr": "required",
    "softmax.scale": 1.0, "alpha": 1.702, "limit": 7.0, "ignore_index": -100, "grad_scale": None, "temperature": 1.0,
    "group_size": 32, "allow_zero": True,
}  # fmt: skip

# Arguments that only shapes need.
EXTRA = {"topk_router_fwd": ("k",), "moe_plan_fwd": ("experts",)}
