"""What the searches have in common."""

from __future__ import annotations

import time

from dyna_gym.envs.sokoban.retrograde import SolverLimit

CLOCK_EVERY = 256
"""Expansions between two looks at the clock."""

Node = tuple[int, int, int, int]
"""Boxes, player, cost so far, and the number of the expanded node before it (-1 for none).

With the boxes before it that tells the push: it left the player where the box had been.
"""
Path = list[tuple[int, int]]
"""Boxes and player after each push."""


class Limit:
    """Counts expansions and stops the search at a limit.

    Args:
        expansions: Largest number of expansions; None for no limit.
        seconds: Longest time; None for no limit.
    """

    def __init__(self, expansions: int | None, seconds: float | None) -> None:
        self.expansions, self.seconds = expansions, seconds
        self.expanded = 0
        self._started = time.monotonic()
        self._next_look = 0

    def count(self) -> None:
        """Count one expansion; raise SolverLimit where that is one too many."""
        if self.expanded >= self._next_look:
            self._look()
        self.expanded += 1

    def _look(self) -> None:
        spent = time.monotonic() - self._started
        if self.expansions is not None and self.expanded >= self.expansions:
            raise SolverLimit(
                f"solve: got no answer in {self.expanded:,} expansions ({spent:.1f} s), expected one "
                f"within max_expansions={self.expansions:,}; raise max_expansions"
            )
        if self.seconds is not None and spent >= self.seconds:
            raise SolverLimit(
                f"solve: got no answer in {spent:.1f} s ({self.expanded:,} expansions), expected one "
                f"within time_limit_s={self.seconds}; raise time_limit_s"
            )
        self._next_look = self.expanded + CLOCK_EVERY
        if self.expansions is not None:
            self._next_look = min(self._next_look, self.expansions)
