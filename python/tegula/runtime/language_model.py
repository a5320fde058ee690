"""Language models on the C runtime."""

from __future__ import annotations

import codecs
import contextlib
import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core, _runtime
from ..caller_arrays import cuda_device, empty_like, ids_like, like
from .argument_checks import I32_MAX, I64_MAX, SEED_MAX, instance_of, name_like, whole_number
from .generation_keywords import GenerationKeywords, TextKeywords, seeds_for, settings_for, split_stop
from .mingpt_weights import read_weights
from .model_config import ModelConfig
from .text_tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from typing_extensions import Unpack


def _options_of(device: str, cache_dtype: str | None, num_threads: int) -> dict[str, Any]:
    """Where a model computes, for the runtime's open_model."""
    name_like("cpu", "model: device", device, is_optional=False)
    name_like("bfloat16", "model: cache_dtype", cache_dtype)
    whole_number("model: num_threads", num_threads, 0, I32_MAX)
    return {"device": device, "cache_dtype": cache_dtype, "num_threads": num_threads}


def _is_row(one: Any) -> bool:
    """A list, or an array with axes: one without is an id, though it may have a __len__ that raises."""
    return hasattr(one, "__len__") and bool(getattr(one, "ndim", 1) > 0)


def _before(stops: list[str], pieces: Generator[str, None, None]) -> Iterator[str]:
    """The text before the first of `stops`; what may be the beginning of one waits for what follows."""
    held = ""
    with contextlib.closing(pieces):
        for piece in pieces:
            held += piece
            found = [at for at in map(held.find, stops) if at >= 0]
            begun = [n for stop in stops for n in range(1, min(len(stop), len(held) + 1)) if held.endswith(stop[:n])]
            ready = min(found) if found else len(held) - max(begun, default=0)
            if ready:
                yield held[:ready]
            if found:
                return
            held = held[ready:]
    if held:
        yield held


class Model:
    """A language model: `Model.from_pretrained(directory)`, `Model.from_preset("gpt_nano")`, or random weights of any shape
    with `Model(ModelConfig(...))`. Several threads may use one. Do not change its weights while another thread
    computes with it."""

    __slots__ = ("_config", "_handle", "_options", "_trainers")
    _config: ModelConfig
    _handle: _runtime.ModelHandle
    _options: dict[str, Any]
    _trainers: weakref.WeakSet[Any]  # those that are open

    def __init__(
        self, config: ModelConfig, *, seed: int = 0, device: str = "cpu", cache_dtype: str | None = None, num_threads: int = 0
    ) -> None:
        """f32 weights by the seed, initialised as in transformers. device: "cpu", "cuda", "cuda:N". cache_dtype: of keys and
        values, that of the weights unless given. num_threads: of a CPU; 0: one for each that the process may use."""
        instance_of("model: config", config, ModelConfig)
        self._open(config, {"config": config.to_json(), "seed": seed}, device, cache_dtype, num_threads)

    def _open(
        self, config: ModelConfig, source: dict[str, Any], device: str, cache_dtype: str | None, num_threads: int
    ) -> None:
        source["seed"] = whole_number("model: seed", source["seed"], 0, SEED_MAX)
        self._options = _options_of(device, cache_dtype, num_threads)
        self._handle = _runtime.open_model(**source, **self._options)
        self._config = config
        self._trainers = weakref.WeakSet()

    @classmethod
    def from_pretrained(
        cls, directory: str | os.PathLike[str], *, device: str = "cpu", dtype: str | None = None,
        cache_dtype: str | None = None, num_threads: int = 0,
    ) -> "Model":  # fmt: skip
        """A Hugging Face directory, or the name of a model that a program of Hugging Face has downloaded
        ("Qwen/Qwen3-0.6B"): nothing is downloaded here. dtype: of the weights in memory, "float32", "float16" or "bfloat16"; None keeps what
        the files hold."""
        model = cls.__new__(cls)
        directory = _runtime.find_model(os.fspath(directory))
        name_like("bfloat16", "model: dtype", dtype)
        source: dict[str, Any] = {"directory": directory, "dtype": dtype}
        model._options = _options_of(device, cache_dtype, num_threads)
        model._handle = _runtime.open_model(**source, **model._options)
        config = ModelConfig.from_pretrained(directory)
        tied = config.to_dict().get("tie_word_embeddings", config.model_type == "gpt2")
        if tied and "lm_head.weight" in model._handle.parameters(False):  # the files decide
            config = config.replace(tie_word_embeddings=False)
        model._config = config
        model._trainers = weakref.WeakSet()
        return model

    @classmethod
    def from_preset(
        cls, name: str, *, seed: int = 0, vocab_size: int | None = None, device: str = "cpu",
        cache_dtype: str | None = None, num_threads: int = 0,
    ) -> "Model":  # fmt: skip
        """Random weights of a size in presets(). With another vocab_size the last id ends generation."""
        model = cls.__new__(cls)
        config = ModelConfig.preset(name, vocab_size)
        source = {"preset": name, "vocab_size": vocab_size or 0, "seed": seed}
        model._open(config, source, device, cache_dtype, num_threads)
        return model

    # ---- what it is ----

    @property
    def config(self) -> ModelConfig:
        """The keys of its config.json."""
        return self._config

    @property
    def device(self) -> str:
        """Where it computes: "cpu", "cuda" or "cuda:N"."""
        device: str = self._options["device"]
        return device

    @property
    def info(self) -> dict[str, Any]:
        """Sizes: model_type, dtype, vocab_size, num_hidden_layers, ..., num_parameters, weight_bytes."""
        return self._handle.info()

    @property
    def generation_config(self) -> dict[str, Any]:
        """What generate does unless told otherwise; eos_token_ids end it."""
        return self._handle.generation()

    @property
    def dtype(self) -> str:
        """Of the weights in memory."""
        dtype: str = self._handle.info()["dtype"]
        return dtype

    def num_parameters(self) -> int:
        count: int = self._handle.info()["num_parameters"]
        return count

    def __repr__(self) -> str:
        info = self._handle.info()
        return (
            f"tegula.Model({info['model_type']}, {info['num_hidden_layers']} layers of {info['hidden_size']}, "
            f"{info['vocab_size']} ids, {info['num_parameters']} parameters, {info['dtype']}, {self.device})"
        )

    # ---- logits ----

    def __call__(self, ids: Any, *, last_only: bool = False, dtype: str | None = None, out: Any = None) -> Any:
        """Logits [batch, tokens, vocab_size] of ids [batch, tokens], in f32, or in the weights' dtype if `dtype` names it;
        [tokens, vocab_size] of [tokens]. last_only: those of each row's last token, without the axis of tokens. ids are an
        array of i32 or i64 of any library that speaks DLPack, on the CPU or on the model's GPU, or lists of ints. The logits
        are an array of the same library there (NumPy has no bfloat16: there a tegula.Array). `out` is the array to write to
        instead: f32 or of the weights' dtype, and of `dtype` if that is given."""
        if out is not None:
            return self._handle.forward(ids, last_only, out, dtype)
        if self._options["device"] != "cpu" and cuda_device(ids) is not None:
            shape = tuple(ids.shape)
            width = self._handle.info()["vocab_size"]
            made = empty_like(ids, (*(shape[:-1] if last_only else shape), width), self._handle.logits_dtype(dtype))
            self._handle.forward(ids, last_only, made, dtype)
            return like(ids, made) if type(made) is _core.Array else made
        return like(ids, self._handle.forward(ids, last_only, None, dtype))

    # ---- tokens ----

    def generate(
        self, ids: Any, max_new_tokens: int | None = None, *, seed: int | Sequence[int] = 0, pad_id: int | None = None,
        return_dict: bool = False, **keywords: Unpack[TextKeywords],
    ) -> Any:  # fmt: skip
        """ids, and the tokens after them: [batch, longest] for [batch, tokens], [tokens] for [tokens], of the library and
        dtype of ids. A list may hold rows of different lengths. A row ends after one of the ids of `stop` (None: the
        directory's), after max_new_tokens (None: the directory's, else as many as fit), or where the model's positions end,
        and is padded with pad_id (None: the directory's, else the first id that ends generation, else 0). `stop` may also be
        a text or hold texts, with tokenizer=: a row ends with the token that completes one.

        Temperature, top_k, top_p, min_p and repetition_penalty are the directory's unless given; presence_penalty,
        frequency_penalty, penalty_window and logit_bias are off. Row r draws by seed + r, or by seed[r]: the same seed
        gives the same tokens, alone or in a batch, at any number of threads.

        return_dict: {"sequences", "finish_reason", "logprobs", "timings"}, the last three with an entry for each row:
        "stop" or "length"; with logprobs=N (id, log-probability, N most probable pairs) of each token; seconds."""
        rows, is_one, dtype = self._read_rows(ids)
        generation = self._handle.generation()
        vocab_size = self._handle.info()["vocab_size"]
        settings = settings_for(max_new_tokens, keywords, generation, vocab_size)
        if settings["logprobs"] >= 0 and not return_dict:
            raise ValueError("generate: logprobs: expected return_dict=True beside it, which holds them, got return_dict=False")
        seeds = seeds_for(seed, len(rows))
        if pad_id is not None:
            pad_id = whole_number("generate: pad_id", pad_id, -I32_MAX, vocab_size - 1)
        done = self._generate_rows(rows, seeds, settings)
        ends = generation["eos_token_ids"]
        known = generation["pad_token_id"]
        pad = pad_id if pad_id is not None else known if known >= 0 else ends[0] if ends else 0
        sequences = ids_like(self._first_array(ids), [row + one[0] for row, one in zip(rows, done)], is_one, dtype, pad)
        if not return_dict:
            return sequences
        return {
            "sequences": sequences,
            "finish_reason": [one[1] for one in done],
            "logprobs": [one[2] for one in done],
            "timings": [{"prompt_seconds": one[3], "token_seconds": one[4], "tokens": len(one[0])} for one in done],
        }

    def _read_rows(self, ids: Any) -> tuple[list[list[int]], bool, str]:
        """Rows as lists, whether they are one row, and the dtype; also rows of different lengths, and arrays, in a list."""
        if not isinstance(ids, (list, tuple)) or not all(map(_is_row, ids)):
            return self._handle.read_ids(ids)
        lengths = {len(row) for row in ids}
        if len(lengths) < 2 and all(isinstance(row, (list, tuple)) for row in ids):
            return self._handle.read_ids(ids)
        read = []
        for number, row in enumerate(ids):
            try:
                rows, is_one, dtype = self._handle.read_ids(row)
            except (TypeError, ValueError) as error:  # which speaks of the row alone
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(str(error).replace("generate: ids", f"generate: ids[{number}]", 1)) from None
            if not is_one:
                raise ValueError(f"generate: ids[{number}]: expected one row, got {len(rows)}")
            read.append((rows[0], dtype))
        arrays = [dtype for row, (_, dtype) in zip(ids, read) if not isinstance(row, (list, tuple))]
        return [row for row, _ in read], False, (arrays or ["int64"])[0]

    @staticmethod
    def _first_array(ids: Any) -> Any:
        """Whose library and device the result has: ids, or the first array among a list's rows."""
        if not isinstance(ids, (list, tuple)):
            return ids
        return next((row for row in ids if hasattr(row, "__dlpack__") and _is_row(row)), ids)

    def _generate_rows(self, rows: list[list[int]], seeds: list[int], settings: dict[str, Any]) -> list[_runtime.Generated]:
        """Several rows of a CPU's model together, by an engine; its tokens are those of the rows alone. Without a limit the
        engine's memory would be that of all positions, and on a GPU rows are rounded otherwise together: one by one."""
        if len(rows) > 1 and settings["max_new_tokens"] > 0 and self._options["device"] == "cpu":
            lengths = [len(row) for row in rows]
            padded = [row + [0] * (max(lengths) - len(row)) for row in rows]
            return self._handle.generate_batch(padded, seeds, lengths, seed=0, **settings)
        return [self._handle.generate(row, seed=one, **settings) for row, one in zip(rows, seeds)]

    def stream(
        self, ids: Any, max_new_tokens: int | None = None, *, seed: int = 0, **keywords: Unpack[TextKeywords]
    ) -> _runtime.TokenStream:
        """An iterator over the tokens after one row of ids, each computed when it is asked for: those of generate. With
        logprobs=N its items are (id, log-probability, N most probable pairs). close(), or dropping the iterator, ends the
        generation; finish_reason then says why it ended."""
        rows, _, _ = self._handle.read_ids(ids)
        if len(rows) != 1:
            raise ValueError(f"stream: ids: expected one row, got {len(rows)}")
        settings = settings_for(max_new_tokens, keywords, self._handle.generation(), self._handle.info()["vocab_size"])
        return self._handle.stream(rows[0], seed=seeds_for(seed, 1)[0], **settings)

    def chat(
        self, tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], *, max_new_tokens: int | None = None,
        stream: bool = False, seed: int = 0, template: Mapping[str, Any] | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Any:  # fmt: skip
        """The answer to a conversation: {"role": "assistant", "content": text}; with stream=True an iterator over pieces of
        its text. template holds keyword arguments of Tokenizer.apply_chat_template, such as tools or enable_thinking.
        Special tokens are left out of the text. Without ids in `stop` it ends, as that of `tegula chat`, at the directory's
        ids, the tokenizer's eos_token, what the template writes behind an answer, and before a text of `stop`."""
        instance_of("chat: tokenizer", tokenizer, Tokenizer)
        if template is not None and not isinstance(template, Mapping):
            raise TypeError(f'chat: template: expected a dict such as {{"chat_template": "chatml"}}, got {template!r}')
        keywords["stop"], stops, keeps_ends = split_stop(keywords.get("stop"))
        if keeps_ends:
            ends = self._ends_of_answers(tokenizer, template or {})
            stops += [end for end in ends if isinstance(end, str)]
            keywords["stop"] = [*(end for end in ends if isinstance(end, int)), *stops]
        prompt = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, **(template or {}))
        tokens = self.stream(prompt, max_new_tokens, seed=seed, tokenizer=tokenizer, **keywords)
        pieces = _before(stops, self._say(tokenizer, tokens))
        return pieces if stream else {"role": "assistant", "content": "".join(pieces)}

    def _ends_of_answers(self, tokenizer: Tokenizer, template: Mapping[str, Any]) -> list[int | str]:
        ends = [*self._handle.generation()["eos_token_ids"], tokenizer.eos_token_id, tokenizer._chat_end(**template)]
        known = self._handle.info()["vocab_size"]
        return [end for end in ends if isinstance(end, str) or (end is not None and end < known)]

    @staticmethod
    def _say(tokenizer: Tokenizer, tokens: _runtime.TokenStream) -> Generator[str, None, None]:
        """Text as soon as its characters are whole."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            for token in tokens:
                number = token[0] if isinstance(token, tuple) else token
                text = decoder.decode(tokenizer.decode_bytes(number, skip_special_tokens=True))
                if text:
                    yield text
            rest = decoder.decode(b"", final=True)
            if rest:
                yield rest
        finally:
            tokens.close()

    # ---- weights ----

    def parameters(self, *, writable: bool = False) -> dict[str, _core.Array]:
        """The parameters by transformers' names, as views of the model's memory: numpy.from_dlpack and torch.from_dlpack
        take them without a copy. Matrices are [out, in]; those of experts that stay in MXFP4 are their packed bytes. Writing
        to them changes the model, which must be on the CPU."""
        if writable and self._options["device"] != "cpu":
            raise ValueError(f"model: parameters: expected a model on the CPU to write to, got one on {self.device}")
        return self._handle.parameters(writable)

    def set_parameter(self, name: str, array: Any) -> None:
        """Overwrites a parameter with an array of its shape: f32, f16 or bf16, of any library."""
        self._handle.set_parameter(name, array)

    def save_pretrained(
        self, directory: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None, dtype: str | None = None,
        max_shard_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Saves a directory that transformers loads, as a whole: config.json, generation_config.json if the model came with
        one, the weights, and the files of a tokenizer that is given. Of what was there, files of weights and
        generation_config.json go, all others stay. dtype: of the weights in the files. max_shard_bytes: of a file; 0: 5e9."""
        if tokenizer is not None:
            instance_of("model: tokenizer", tokenizer, Tokenizer)
        whole_number("model: max_shard_bytes", max_shard_bytes, 0, I64_MAX)
        handle = None if tokenizer is None else tokenizer._handle
        self._handle.save(os.fspath(directory), dtype, max_shard_bytes, handle)

    def load_from_mingpt(self, source: Any) -> "Model":
        """Takes the weights of minGPT or nanoGPT: a module, or its state dict with tensors of any library. Shapes are checked
        by name; absent biases are zero, and a head that differs from the embedding makes the model untied. The model then
        has f32 weights; views of the old ones stay as they were. RuntimeError while a Trainer of the model is open: it
        would go on with the old weights. On an error the model stays as it was. nanoGPT's GELU is
        ModelConfig(activation_function="gelu")."""
        if self._config.model_type != "gpt2":
            raise ValueError(f"load_from_mingpt: expected a model of the family gpt2, got {self._config.model_type}")
        if self._trainers:
            raise RuntimeError(f"load_from_mingpt: expected a model without an open Trainer, got one with {len(self._trainers)}")
        weights = read_weights(source, self._config.n_layer)
        config = self._config.replace(tie_word_embeddings=weights.is_tied)
        handle = _runtime.open_model(config=config.to_json(), **self._options)
        names = handle.parameters(False)
        missing = sorted(name for name in names if name not in weights.arrays and not name.endswith(".bias"))
        if missing:
            raise ValueError(f"load_from_mingpt: expected {missing[0]}, got a state dict without it")
        for name, view in names.items():
            if name in weights.arrays:
                handle.set_parameter(name, weights.arrays[name])
            else:
                handle.set_parameter(name, _core.array([0.0] * view.shape[0], view.shape, "float32"))
        unknown = sorted(set(weights.arrays) - set(names))
        if unknown:
            raise ValueError(f"load_from_mingpt: expected parameters of {len(names)} known names, got {unknown[0]} too")
        self._handle, self._config = handle, config
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Model cannot be pickled: save_pretrained writes a directory, from_pretrained reads it there")
