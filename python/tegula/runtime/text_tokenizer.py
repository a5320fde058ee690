"""Tokenizers: text to ids and back, and conversations to text."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, overload

from .. import _runtime
from .argument_checks import name_like

_PLAIN, _SKIP_SPECIAL, _ADD_SPECIAL = 1, 2, 4
_UNTRUSTED_BYTES = Sequence[tuple[int, int]]


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


class Tokenizer:
    """The tokenizer of a Hugging Face directory: `Tokenizer.from_pretrained(directory)`. Any number of threads may use one.
    `Tokenizer.of_bytes()` is the one of models without files: the 256 bytes, and `<|endoftext|>` (256)."""

    __slots__ = ("_directory", "_handle", "_template")
    _directory: str | None
    _handle: _runtime.TokenizerHandle
    _template: _runtime.ChatTemplateHandle | None

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self._directory = None if directory is None else os.fspath(directory)
        self._handle = _runtime.open_tokenizer(self._directory)
        self._template = None

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike[str]) -> "Tokenizer":
        """The tokenizer that lies in a directory, or of a model's name in the cache of Hugging Face's hub."""
        return cls(_runtime.find_model(os.fspath(directory)))

    @classmethod
    def of_bytes(cls) -> "Tokenizer":
        """Each byte is a token."""
        return cls(None)

    def __len__(self) -> int:
        """One more than the largest id."""
        return self._handle.vocab_size()

    @property
    def vocab_size(self) -> int:
        return self._handle.vocab_size()

    def _special(self, name: str) -> int | None:
        number = self._handle.special(name)
        return None if number < 0 else number

    @property
    def bos_token_id(self) -> int | None:
        return self._special("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        return self._special("eos_token")

    @property
    def pad_token_id(self) -> int | None:
        return self._special("pad_token")

    def encode(self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False) -> list[int]:
        """Ids of a text. add_special_tokens: with those that the tokenizer puts around it. split_special_tokens: the text
        of added tokens is ordinary text."""
        if not isinstance(text, (str, bytes)):  # bytes need not be UTF-8
            raise TypeError(f"encode: text: expected a str, got {type(text)}")
        flags = (_ADD_SPECIAL if add_special_tokens else 0) | (_PLAIN if split_special_tokens else 0)
        return self._handle.encode(text, flags, None)

    def decode_bytes(self, ids: Any, *, skip_special_tokens: bool = False) -> bytes:
        """The bytes of ids; a single id may be part of a character."""
        numbers = [ids] if isinstance(ids, int) else ids if isinstance(ids, list) else _runtime.list_ids(ids)
        return self._handle.decode(numbers, _SKIP_SPECIAL if skip_special_tokens else 0)

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """The text of ids: an int, a list or an array of one row. Broken characters become U+FFFD."""
        return self.decode_bytes(ids, skip_special_tokens=skip_special_tokens).decode("utf-8", "replace")

    def token(self, number: int) -> tuple[bytes, str]:
        """A token's bytes, and what it is: "ordinary", "added", "special" or "none"."""
        return self._handle.piece(number)

    @overload
    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: Literal[False] = False, add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None, documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None, name: str | None = None, **variables: Any,
    ) -> str: ...  # fmt: skip

    @overload
    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: Literal[True], add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None, documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None, name: str | None = None, **variables: Any,
    ) -> list[int]: ...  # fmt: skip

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: bool = False, add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None, documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None, name: str | None = None, **variables: Any,
    ) -> str | list[int]:  # fmt: skip
        """The text of a conversation, or its ids. chat_template: "chatml", "llama3" or a file, in the place of the
        directory's. variables are the template's, such as enable_thinking=False. In the ids, what users and tools wrote
        holds no special tokens, whatever its text."""
        name_like("chatml", "apply_chat_template: chat_template", chat_template)
        template = self._template
        if template is None or chat_template is not None:
            template = _runtime.open_chat_template(self._directory, chat_template)
            self._template = template if chat_template is None else self._template
        text, untrusted = template.render(
            json.dumps(list(messages), ensure_ascii=False), _json(tools), _json(documents), _json(variables or None), name,
            add_generation_prompt,
        )  # fmt: skip
        return self._handle.encode(text, 0, untrusted) if tokenize else text

    def _chat_end(self, **template: Any) -> int | str | None:
        """What the template writes behind an answer, up to the first white space: the id where it begins with an added
        token, else the text; None: nothing. template holds keyword arguments of apply_chat_template."""
        answer = "4711 answered"
        asked = [{"role": "user", "content": "asked"}, {"role": "assistant", "content": answer}]
        try:
            text = self.apply_chat_template(asked, **{**template, "add_generation_prompt": False, "tokenize": False})
        except (RuntimeError, ValueError):  # a template that refuses this says nothing about its ends
            return None
        behind = text.rpartition(answer)[2].split(maxsplit=1) if answer in text else []
        ids = self._handle.encode(behind[0], 0, None) if behind else []
        if not ids:
            return None
        return ids[0] if self.token(ids[0])[1] in ("added", "special") else behind[0]

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Writes the files as they came."""
        self._handle.save(os.fspath(directory))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tokenizer cannot be pickled: pass the directory, and call Tokenizer.from_pretrained there")
