"""What the checks share: errors, hostile texts, and a comparable form of what envs return."""

from __future__ import annotations

import dataclasses
import json
import unittest
from collections.abc import Mapping
from typing import Any

import numpy as np

from dyna_gym.task import Task

NONSENSE = ("", "zzz", "do the impossible now", "¿qué? 中文 🙂")
"""Texts that are no action of any world."""

HOSTILE_TEXTS: tuple[str, ...] = (
    *NONSENSE,
    "   \n\t ",
    "\x00",
    "\ud800",
    "\udfff text after a lone surrogate",
    "🙂" * 2_000,
    "\u202e\u200f שלום up",
    "İ" * 1_000,
    "x" * 300_000,
    " " * 100_000,
    "a" * 50_000 + "!",
    "(" * 20_000,
    "[" * 20_000 + "]" * 20_000,
    "type [12] [" + "x][" * 20_000,
    "1. " * 20_000,
    "%s %d {} {0} \\n \\",
    "'; DROP TABLE tasks; --",
    "<script>alert(1)</script>",
    "</action></plan></think>",
)
"""Strings that an agent may write as an action."""

HOSTILE_VALUES: tuple[Any, ...] = (None, 7, 1.5, float("nan"), b"up", ["up"], {"action": "up"}, ())
"""What a broken agent may pass instead of a string."""

HOSTILE_RESPONSES: tuple[str, ...] = (
    "<action>" * 100_000,
    "<action>" * 50_000 + "</action>" * 50_000,
    "<action><action>up</action></action>",
    "<action>up</action><action>",
    "<action>up</think></action>",
    "</think>",
    "<think><think></think><plan><plan>\nup\n</plan>",
    "<think>" * 50_000,
    "<plan>" + "up\n" * 50_000 + "</plan><action>up</action>",
    "<think>" + "<sim> up -> x | value nan </sim>" * 5_000 + "</think><plan>up</plan>",
    "<think>" + "<sim>" * 50_000 + "</think>",
    "<think>" + "| -> " * 50_000 + "</think>",
    "<ACTION>\ud800</ACTION>",
    "<action>\x00</action>",
    "x" * 1_500_000,
)
"""Whole responses that an agent may write."""


class ContractError(AssertionError):
    """An env breaks the contract; the message says what was got, what was expected, what to do."""


class NotApplicable(unittest.SkipTest):
    """The check says nothing about this env; pytest and unittest show it as skipped."""


def require(condition: bool, got: str, expected: str, fix: str) -> None:
    """Raise `ContractError` unless ``condition`` holds."""
    if not condition:
        raise ContractError(f"got: {got}; expected: {expected}; what to do: {fix}")


# -- comparing -------------------------------------------------------------------------------------


def describe(value: Any) -> Any:
    """A JSON-able form of an observation or ``info``, equal for equal values in any process."""
    if isinstance(value, Task):
        return json.loads(value.to_json())
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [describe(x) for x in value.ravel().tolist()]]
    if isinstance(value, np.generic):
        return describe(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, (list, tuple)):
        return [describe(x) for x in value]
    if isinstance(value, (set, frozenset)):
        return sorted((describe(x) for x in value), key=repr)
    if isinstance(value, float):
        return repr(value)  # nan equals nan, and nothing is rounded
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return repr(value)


def first_difference(a: Any, b: Any, path: str = "") -> str | None:
    """Where two described values first differ, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if key not in a or key not in b:
                return f"{path}[{key!r}] is there in only one of the two"
            found = first_difference(a[key], b[key], f"{path}[{key!r}]")
            if found:
                return found
        return None
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            found = first_difference(x, y, f"{path}[{i}]")
            if found:
                return found
        return None
    return None if a == b and type(a) is type(b) else f"{path}: {short(a)} against {short(b)}"


def require_equal(a: Any, b: Any, what: str, fix: str) -> None:
    """Raise `ContractError` naming the first difference of two described values."""
    found = first_difference(a, b)
    require(found is None, f"{what} differ at {found}", "equal values", fix)


def short(value: Any, limit: int = 160) -> str:
    """The repr of a value, cut."""
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def steps_of(result: tuple[Any, ...]) -> dict[str, Any]:
    """What `step` returned, described and named."""
    names = ("observation", "reward", "terminated", "truncated", "info")
    return {name: describe(x) for name, x in zip(names, result, strict=True)}
