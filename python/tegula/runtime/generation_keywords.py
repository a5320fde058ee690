"""The keyword arguments of generate, stream and chat, and what they are for the runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from .argument_checks import I32_MAX, I64_MAX, SEED_MAX, instance_of, real_number, whole_number
from .text_tokenizer import Tokenizer


class GenerationKeywords(TypedDict, total=False):
    """What None means is the directory's generation_config.json's, else what changes nothing."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    logit_bias: Mapping[int, float] | None
    stop: int | str | Iterable[int | str] | None
    logprobs: int | None


class TextKeywords(GenerationKeywords, total=False):
    """Those of calls that are given no tokenizer otherwise: for texts in `stop`."""

    tokenizer: Tokenizer | None


_DIRECTORYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_OWN = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "penalty_window": 0}
_BYTES = (bytes, bytearray, memoryview)  # iterable, but neither ids nor a text
_REAL = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_OTHERS = ("logit_bias", "stop", "tokenizer", "logprobs")


def split_stop(stop: Any) -> tuple[Any, list[str], bool]:
    """`stop`, which may be read once more, its texts, and whether it leaves the usual ends, as texts alone do; what it may
    not be, _stops refuses."""
    if isinstance(stop, str):
        stop = [stop]
    if isinstance(stop, Iterable) and not isinstance(stop, _BYTES):
        stop = list(stop)
        texts = [one for one in stop if isinstance(one, str)]
        return stop, texts, bool(texts) and len(texts) == len(stop)
    return stop, [], stop is None


def _stops(stop: object, tokenizer: Any, generation: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Ids and texts that end a row. Texts come beside the directory's ids; ids take their place."""
    ends = list(generation["eos_token_ids"])
    given = [stop] if isinstance(stop, (int, str)) else stop
    if stop is None:
        given = []
    if not isinstance(given, Iterable) or isinstance(given, _BYTES):
        raise TypeError(f"generate: stop: expected an id, a text, or several, got {stop!r}")
    all_given = list(given)
    texts = tuple(one for one in all_given if isinstance(one, str))
    ids = [whole_number("generate: stop", one, 0, vocab_size - 1) for one in all_given if isinstance(one, int)]
    if len(texts) + len(ids) != len(all_given):
        raise TypeError(f"generate: stop: expected an id, a text, or several, got {stop!r}")
    if texts and tokenizer is None:
        raise TypeError("generate: stop: expected tokenizer=, whose tokens' bytes make the text, beside a text")
    if tokenizer is not None:
        instance_of("generate: tokenizer", tokenizer, Tokenizer)
    keeps_ends = stop is None or (texts and not ids)
    return {
        "stop": ends if keeps_ends else ids,
        "stop_texts": texts,
        "tokenizer": None if tokenizer is None else tokenizer._handle,
    }


def _biases(bias: object) -> list[tuple[int, float]]:
    if not isinstance(bias, Mapping):
        raise TypeError(f"generate: logit_bias: expected a dict of ids and numbers, got {bias!r}")
    ids = {token: int(token) if isinstance(token, str) and token.isdecimal() else token for token in bias}
    return [(whole_number("generate: logit_bias", ids[token], -I32_MAX, I32_MAX), real_number("generate: logit_bias", bias[token])) for token in bias]


def settings_for(
    max_new_tokens: int | None, keywords: TextKeywords, generation: Mapping[str, Any], vocab_size: int
) -> dict[str, Any]:
    """The arguments of a handle's generate, without prompt and seed."""
    unknown = set(keywords) - {*_DIRECTORYS, *_OWN, *_OTHERS}
    if unknown:
        raise TypeError(f"generate: expected {', '.join(sorted({*_DIRECTORYS, *_OWN, *_OTHERS}))}, got {min(unknown)}")
    given: dict[str, Any] = {key: value for key, value in keywords.items() if value is not None}
    count = generation["max_new_tokens"] if max_new_tokens is None else max_new_tokens
    if max_new_tokens is not None:
        count = whole_number("generate: max_new_tokens", count, -I64_MAX, I64_MAX)
        if count < 1:
            raise ValueError(f"generate: max_new_tokens: expected 1 or more, got {count}")
    for key in ("top_k", "penalty_window", "logprobs"):
        if key in given:
            given[key] = whole_number(f"generate: {key}", given[key], 0, 20 if key == "logprobs" else I32_MAX)
    given.update((key, real_number(f"generate: {key}", given[key])) for key in _REAL if key in given)
    return {
        **{key: given.get(key, generation[key]) for key in _DIRECTORYS},
        **{key: given.get(key, value) for key, value in _OWN.items()},
        "max_new_tokens": count,
        **_stops(given.get("stop"), given.get("tokenizer"), generation, vocab_size),
        "bias": _biases(given.get("logit_bias", {})),
        "logprobs": given.get("logprobs", -1),
    }


def seeds_for(seed: int | Sequence[int], rows: int) -> list[int]:
    """Of each row: seed, seed + 1, ..., or the given ones."""
    if not isinstance(seed, (list, tuple)):
        first = whole_number("generate: seed", seed, 0, SEED_MAX)
        return [whole_number("generate: seed", first + row, 0, SEED_MAX) for row in range(rows)]
    if len(seed) != rows:
        raise ValueError(f"generate: seed: expected an int, or {rows} of them, got {len(seed)}")
    return [whole_number("generate: seed", one, 0, SEED_MAX) for one in seed]
