"""What a model looks like: the keys of a config.json, as transformers has them."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from .. import _runtime

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
    `ModelConfig("qwen3", hidden_size=128, ...)` a model of another family. Absent keys have transformers' defaults, but
    that no id ends generation unless eos_token_id says so. Keys are attributes."""

    _keys: dict[str, Any]

    def __init__(self, model_type: str = "gpt2", **keys: Any) -> None:
        if model_type == "gpt2":
            keys = {_GPT2_WORDS.get(key, key): value for key, value in keys.items()}
            keys = {**_GPT2, **keys}
        ends = {"bos_token_id": None, "eos_token_id": None}
        self.__dict__["_keys"] = {"model_type": model_type, **ends, **keys}

    @classmethod
    def preset(cls, name: str, vocab_size: int | None = None, **keys: Any) -> "ModelConfig":
        """That of a name in presets(), with other values of some keys."""
        made = cls.from_dict(json.loads(_runtime.preset_config(name, vocab_size or 0)))
        return made.replace(**keys) if keys else made

    @classmethod
    def from_dict(cls, keys: dict[str, Any]) -> "ModelConfig":
        """Exactly these keys."""
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
        words = _GPT2_WORDS if self._keys.get("model_type") == "gpt2" else {}
        return self.from_dict({**self._keys, **{words.get(key, key): value for key, value in keys.items()}})

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
