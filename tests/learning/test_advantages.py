"""Advantages: values worked by hand, a reference in plain Python, properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_gym.errors import ConfigError
from dyna_gym.learning.advantages import group_advantages, refine_advantages

RETURNS = st.lists(st.floats(-20, 20).map(lambda x: round(x, 3)), min_size=1, max_size=9)


def naive(returns: list[float], kind: str) -> list[float]:
    """The formulas, in loops."""
    n = len(returns)
    if n < 2 or max(returns) == min(returns):
        return [0.0] * n
    if kind == "rloo":
        return [
            returns[i] - sum(returns[j] for j in range(n) if j != i) / (n - 1) for i in range(n)
        ]
    mean = sum(returns) / n
    std = math.sqrt(sum((r - mean) ** 2 for r in returns) / n)
    return [(r - mean) / std for r in returns]


# -- groups -----------------------------------------------------------------------------------------


def test_grpo_by_hand() -> None:
    # mean 4, deviations -2, 0, 2, variance 8/3
    expected = [-2 / math.sqrt(8 / 3), 0.0, 2 / math.sqrt(8 / 3)]
    assert group_advantages([2.0, 4.0, 6.0]) == pytest.approx(expected)


def test_rloo_by_hand() -> None:
    # 1 - (2+6)/2, 2 - (1+6)/2, 6 - (1+2)/2
    assert group_advantages([1.0, 2.0, 6.0], "rloo") == pytest.approx([-3.0, -1.5, 4.5])


def test_mostly_failed_groups() -> None:
    """COMPLAINTS 71: finite; the group without spread is 0."""
    assert group_advantages([0, 0, 0, 0]).tolist() == [0.0] * 4
    # mean 1/4, variance 3/16
    std = math.sqrt(3) / 4
    expected = [0.75 / std, -0.25 / std, -0.25 / std, -0.25 / std]
    assert group_advantages([1, 0, 0, 0]) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
@pytest.mark.parametrize("value", [0.0, -1.5, 9.6, 0.1 + 0.2, 1e9])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 7])
def test_no_spread_is_zero(kind: str, value: float, size: int) -> None:
    assert group_advantages([value] * size, kind).tolist() == [0.0] * size


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_rounding_is_no_spread(kind: str) -> None:
    """One return, summed in two orders, differs in its last bit; it must not become +-1."""
    steps = [-0.1] * 7
    a, b = sum([*steps, 10.0]), 10.0 + sum(steps)
    assert abs(a - b) < 1e-12
    assert group_advantages([a, b, a, a + 4e-15], kind).tolist() == [0.0] * 4


@given(RETURNS, st.sampled_from(["grpo", "rloo"]))
def test_groups_against_the_reference(returns: list[float], kind: str) -> None:
    found = group_advantages(returns, kind)
    assert np.isfinite(found).all()
    assert found == pytest.approx(naive(returns, kind), abs=1e-6)
    assert found.sum() == pytest.approx(0.0, abs=1e-6)


@given(RETURNS, st.floats(0.1, 10), st.floats(-5, 5))
def test_grpo_ignores_scale_and_shift(returns: list[float], scale: float, shift: float) -> None:
    moved = [scale * r + shift for r in returns]
    assert group_advantages(moved) == pytest.approx(group_advantages(returns), abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_returns_that_are_no_numbers(bad: float, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"returns: got .* expected finite"):
        group_advantages([1.0, bad], kind)


def test_unknown_kind() -> None:
    with pytest.raises(ConfigError, match="advantage: got 'ppo', expected one of grpo, rloo"):
        group_advantages([1.0, 2.0], "ppo")


# -- refine advantages ------------------------------------------------------------------------------


def test_refine_by_hand() -> None:
    # Means: refined (9.8+9.4+9.6+0)/4 = 7.2, standard (9.5+9.7)/2 = 9.6: above 9.6 is 9.8 only.
    found = refine_advantages([9.8, 9.4, 9.6, 0.0], [True, True, True, False], [9.5, 9.7])
    assert found.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_refine_is_strict() -> None:
    assert refine_advantages([9.6, 0.0], [True, False], [9.6]).tolist() == [0.0, 0.0]


def test_refine_of_equal_successes_is_zero() -> None:
    """All SimRollouts succeed with equal length: PAPERS A.4.3."""
    r = 10.0 - 0.1 - 0.1 - 0.1  # the mean of equal floats may be off in its last bit
    for n in range(1, 12):
        assert refine_advantages([r] * n, [True] * n, []).tolist() == [0.0] * n
        assert refine_advantages([r] * n, [True] * n, [r] * n).tolist() == [0.0] * n


def test_refine_needs_both_means_passed() -> None:
    assert refine_advantages([9.8, 9.8, 9.0], [True] * 3, [9.9]).tolist() == [0.0] * 3
    assert refine_advantages([9.8, 9.8, 9.0], [True] * 3, [0.0]).tolist() == [1.0, 1.0, 0.0]


def test_refine_needs_success() -> None:
    assert refine_advantages([5.0, -1.5], [False, False], [-1.5]).tolist() == [0.0, 0.0]


def test_refine_without_standard_rollouts_or_at_all() -> None:
    assert refine_advantages([9.8, 0.0], [True, False], []).tolist() == [1.0, 0.0]
    assert refine_advantages([], [], [1.0]).tolist() == []


@given(
    st.lists(st.tuples(st.integers(-15, 100), st.booleans()), min_size=1, max_size=8),
    st.lists(st.integers(-15, 100), max_size=8),
)
def test_refine_against_the_reference(refined: list[tuple[int, bool]], standard: list[int]) -> None:
    """Returns in tenths, as the outcome reward gives them; the reference counts in whole tenths."""
    found = refine_advantages(
        [r / 10 for r, _ in refined], [s for _, s in refined], [r / 10 for r in standard]
    )
    total = sum(r for r, _ in refined)
    expected = [
        float(
            success
            and r * len(refined) > total
            and (not standard or r * len(standard) > sum(standard))
        )
        for r, success in refined
    ]
    assert found.tolist() == expected
