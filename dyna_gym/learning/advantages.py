"""Advantages of groups of episodes: GRPO, RLOO, and Dyna-GRPO's refine advantage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dyna_gym.errors import ConfigError

KINDS = ("grpo", "rloo")


def group_advantages(returns: Sequence[float], kind: str = "grpo") -> np.ndarray:
    """Advantage of each episode of a group that shares a task.

    ``grpo``: ``(R_i - mean_j R_j) / std_j R_j`` (Dyna-Mind, GRPO objective). The paper does not say which standard
    deviation [NF]: the population's, and no constant is added to it. ``rloo``: ``R_i`` minus the mean of
    the others, which is ``(R_i - mean) * n / (n - 1)``.

    Args:
        returns: Return of each of the G episodes. Episodes that failed for the machinery's reasons must
            have been left out.
        kind: `grpo` or `rloo`.

    Returns:
        Advantages [G]; zeros where all returns are equal or there is one episode only.

    Examples:
        >>> group_advantages([10.0, 0.0, 0.0, 10.0]).tolist()
        [1.0, -1.0, -1.0, 1.0]
        >>> group_advantages([9.0, 0.0, 0.0], "rloo").tolist()
        [9.0, -4.5, -4.5]
        >>> group_advantages([3.0, 3.0]).tolist()
        [0.0, 0.0]
    """
    if kind not in KINDS:
        raise ConfigError(f"advantage: got {kind!r}, expected one of {', '.join(KINDS)}")
    r = np.asarray(returns, dtype=np.float64)
    if not np.isfinite(r).all():
        raise ConfigError(f"returns: got {list(returns)}, expected finite numbers")
    n = len(r)
    if n < 2 or np.ptp(r) <= 1e-9 * max(1.0, float(np.abs(r).max())):
        return np.zeros(n)
    centred = r - r.mean()
    if kind == "rloo":
        return centred * (n / (n - 1))
    return centred / r.std()


def refine_advantages(
    refined_returns: Sequence[float],
    refined_success: Sequence[bool],
    standard_returns: Sequence[float],
) -> np.ndarray:
    """Dyna-GRPO's advantage of SimRollout episodes under the prompts with futures.

    ``1`` if the episode is correct and its return is strictly above both the mean of the standard rollouts
    and the mean of the SimRollout ones, else ``0``: ``R > max(Rbar, Rbar_refine)``. Never negative, not
    normalised.

    Args:
        refined_returns: Return of each SimRollout episode of the group.
        refined_success: Whether it solved the task.
        standard_returns: Return of each standard episode of the group; may be empty.

    Returns:
        Advantages, one for each SimRollout episode.

    Examples:
        >>> refine_advantages([9.8, 9.6, 0.0], [True, True, False], [9.7, 0.0]).tolist()
        [1.0, 1.0, 0.0]
        >>> refine_advantages([9.8, 9.8], [True, True], [9.8]).tolist()
        [0.0, 0.0]
    """
    refined = np.asarray(refined_returns, dtype=np.float64)
    if len(refined) == 0:
        return refined
    means = [refined.mean()]
    if len(standard_returns):
        means.append(np.mean(np.asarray(standard_returns, dtype=np.float64)))
    # The margin keeps rounding in the mean of equal returns from looking like an improvement.
    above = refined > max(means) + 1e-9
    return (np.asarray(refined_success, dtype=bool) & above).astype(np.float64)
