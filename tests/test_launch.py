"""How programs start and stop: settings, exit codes, signals, processes that end together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dyna_gym.errors import ConfigError
from dyna_gym.launch import check_numbers, json_settings

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("text", ["{", "[1]", "7", "", "null", "NaN"])
def test_bad_settings_say_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"settings: got .*expected"):
        json_settings(text)


@pytest.mark.parametrize(
    ("kind", "bad", "good"),
    [
        ("counts", (0, -1, 1.0, NAN, INF, "3", None, True), (1, 10**9)),
        ("from_zero", (-1, 0.5, NAN, INF, "0", False), (0, 7)),
        ("positive", (0, 0.0, -1e-9, NAN, INF, -INF, "1", None, True), (1e-300, 1, 3e-4)),
        ("not_negative", (-1e-9, NAN, INF, "1"), (0, 0.0, 5)),
        ("shares", (-0.1, 1.1, NAN, INF, "0"), (0, 0.5, 1)),
    ],
)
def test_numbers_are_checked(kind: str, bad: tuple[Any, ...], good: tuple[Any, ...]) -> None:
    rules: Any = {kind: ("x",)}
    for value in bad:
        with pytest.raises(ConfigError, match=r"x: got .*expected a"):
            check_numbers(SimpleNamespace(x=value), **rules)
    for value in good:
        check_numbers(SimpleNamespace(x=value), **rules)


def test_a_seed_has_an_upper_end() -> None:
    check_numbers(SimpleNamespace(seed=2**32 - 1), from_zero=("seed",))
    with pytest.raises(ConfigError, match="seed: got"):
        check_numbers(SimpleNamespace(seed=2**32), from_zero=("seed",))
