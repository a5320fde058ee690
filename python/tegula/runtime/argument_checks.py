"""Checks of arguments before they reach C, whose integers would wrap or whose names would be lost."""

from __future__ import annotations

import operator
from typing import Any

I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1
SEED_MAX = 2**64 - 1


def whole_number(what: str, value: Any, least: int, most: int) -> int:
    """value as an int from least to most. `what` is the beginning of the message: "generate: top_k"."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected an int, got {value!r}") from None
    if not least <= number <= most:
        bounds = "0 to 2**64 - 1" if (least, most) == (0, SEED_MAX) else f"{least} to {most}"
        raise ValueError(f"{what}: expected {bounds}, got {number}")
    return number


def real_number(what: str, value: Any) -> float:
    """value as a float, whatever the library that its type is of; not from a text."""
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{what}: expected a number, got {value!r}")


def name_like(example: str, what: str, value: Any, *, is_optional: bool = True) -> None:
    """Raises TypeError unless value is a str, as `example` is, or None where that is allowed."""
    if not isinstance(value, str) and not (is_optional and value is None):
        raise TypeError(f'{what}: expected a name such as "{example}", got {value!r}')


def instance_of(what: str, value: Any, kind: type) -> None:
    """Raises TypeError unless value is one of tegula's kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{what}: expected a tegula.{kind.__name__}, got {type(value)}")
