"""What a model looks like: the keys of a config.json, as transformers has them."""

from __future__ import annotations

import difflib
import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from .. import _runtime
from .argument_checks import I32_MAX, whole_number

# GPT2Config's own sizes, and other words for its keys.
_GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257}
_GPT2_WORDS = {
    "block_size": "n_positions",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}
# What the constructor and replace take: the keys that the runtime reads, and those that transformers writes and it ignores.
_EVERY = frozenset(
    "architectures attention_dropout bos_token_id dtype eos_token_id initializer_range pad_token_id tie_word_embeddings "
    "torch_dtype transformers_version use_cache vocab_size".split()
)
_GPT2_KEYS = _EVERY | frozenset(
    "activation_function add_cross_attention attn_pdrop embd_pdrop layer_norm_epsilon n_ctx n_embd n_head n_inner n_layer "
    "n_positions reorder_and_upcast_attn resid_pdrop scale_attn_by_inverse_layer_idx scale_attn_weights summary_activation summary_first_dropout "
    "summary_proj_to_labels summary_type summary_use_proj".split()
)
_LLAMA_KEYS = _EVERY | frozenset(
    "attention_bias head_dim hidden_act hidden_size intermediate_size max_position_embeddings mlp_bias num_attention_heads "
    "num_hidden_layers num_key_value_heads pretraining_tp rms_norm_eps rope_parameters rope_scaling rope_theta".split()
)
_WINDOW_KEYS = frozenset("layer_types max_window_layers sliding_window use_sliding_window".split())
_EXPERT_KEYS = frozenset(
    "num_experts num_experts_per_tok num_local_experts output_router_logits router_aux_loss_coef sliding_window".split()
)
_KEYS = {
    "gpt2": _GPT2_KEYS,
    "llama": _LLAMA_KEYS,
    "qwen2": _LLAMA_KEYS | _WINDOW_KEYS,
    "qwen3": _LLAMA_KEYS | _WINDOW_KEYS,
    "qwen3_moe": _LLAMA_KEYS | _WINDOW_KEYS | _EXPERT_KEYS
    | frozenset("decoder_sparse_step mlp_only_layers moe_intermediate_size norm_topk_prob".split()),
    "mixtral": _LLAMA_KEYS | _EXPERT_KEYS | {"router_jitter_noise"},
    "gpt_oss": _LLAMA_KEYS | _WINDOW_KEYS | _EXPERT_KEYS | {"experts_per_token", "swiglu_alpha", "swiglu_limit"},
}  # fmt: skip


def _check_keys(model_type: str, keys: Iterable[str], also: Iterable[str] = ()) -> None:
    """A misspelt key would be a model of the default size. The model itself refuses other families."""
    known = _KEYS.get(model_type)
    unknown = [] if known is None else [key for key in keys if key not in known and key not in also]
    if known is not None and unknown:
        near = difflib.get_close_matches(unknown[0], [*known, *(_GPT2_WORDS if model_type == "gpt2" else ())], 1)
        hint = f" such as {near[0]}" if near else ""
        raise ValueError(f"ModelConfig: expected keys of {model_type}{hint}, got {unknown[0]}")


def presets() -> list[dict[str, Any]]:
    """The models known by name: name, model_type, sizes and num_parameters of each."""
    return _runtime.presets()


class _NamedPresets(type):
    """ModelConfig.gpt_tile_small() is ModelConfig.preset("gpt_tile_small")."""

    def __getattr__(cls, name: str) -> Callable[..., "ModelConfig"]:
        known = {preset["name"].replace("-", "_").replace(".", "_"): preset["name"] for preset in presets()}
        if name not in known:
            raise AttributeError(f"type object 'ModelConfig' has no attribute or preset '{name}'")

        def make(vocab_size: int | None = None, **keys: Any) -> ModelConfig:
            return ModelConfig.preset(known[name], vocab_size, **keys)

        return make


class ModelConfig(metaclass=_NamedPresets):
    """The keys of a config.json: `ModelConfig(n_layer=4, n_head=4, n_embd=64, n_positions=128, vocab_size=100)` is a GPT,
    `ModelConfig("qwen3", hidden_size=128, ...)` a model of another family. Absent optional keys have transformers'
    defaults, but no id ends generation unless eos_token_id says so. Keys are attributes. An unknown one is a ValueError,
    but in a config.json that is read."""

    _keys: dict[str, Any]

    def __init__(self, model_type: str = "gpt2", **keys: Any) -> None:
        if model_type == "gpt2":
            keys = {_GPT2_WORDS.get(key, key): value for key, value in keys.items()}
            keys = {**_GPT2, **keys}
        _check_keys(model_type, keys)
        ends = {"bos_token_id": None, "eos_token_id": None}
        self.__dict__["_keys"] = {"model_type": model_type, **ends, **keys}

    @classmethod
    def preset(cls, name: str, vocab_size: int | None = None, **keys: Any) -> "ModelConfig":
        """That of a name in presets(), with other values of some keys."""
        size = 0 if vocab_size is None else whole_number("config: vocab_size", vocab_size, 1, I32_MAX)
        made = cls.from_dict(json.loads(_runtime.preset_config(name, size)))
        return made.replace(**keys) if keys else made

    @classmethod
    def from_dict(cls, keys: dict[str, Any]) -> "ModelConfig":
        """Exactly these keys, whatever they are."""
        made = cls.__new__(cls)
        made.__dict__["_keys"] = dict(keys)
        return made

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike[str]) -> "ModelConfig":
        """The config.json of a directory, or of a model's name in the cache of Hugging Face's hub."""
        directory = _runtime.find_model(os.fspath(directory))
        return cls.from_dict(json.loads((pathlib.Path(directory) / "config.json").read_text(encoding="utf-8")))

    def replace(self, **keys: Any) -> "ModelConfig":
        """A copy with other values of some keys."""
        family = keys.get("model_type", self._keys.get("model_type", ""))
        words = _GPT2_WORDS if family == "gpt2" else {}
        changed = {words.get(key, key): value for key, value in keys.items()}
        _check_keys(family, changed, {"model_type", *self._keys})
        return self.from_dict({**self._keys, **changed})

    def to_dict(self) -> dict[str, Any]:
        return dict(self._keys)

    def to_json(self) -> str:
        return json.dumps(self._keys)

    def __getattr__(self, name: str) -> Any:
        keys = self.__dict__.get("_keys", {})
        word = _GPT2_WORDS.get(name, name) if keys.get("model_type") == "gpt2" else name
        if word in keys:
            return keys[word]
        raise AttributeError(f"ModelConfig has no key '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ModelConfig: {name}: expected replace({name}=...), which makes another one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelConfig) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"ModelConfig({', '.join(f'{key}={value!r}' for key, value in self._keys.items())})"
