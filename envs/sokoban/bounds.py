"""The cheapest matching of boxes to targets: a lower bound on what remains to be pushed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from operator import add
from typing import Any

import numpy as np

from dyna_gym.envs.sokoban.grid import Rows

HALVES_UP_TO = 12
"""Up to so many boxes, matchings are put together from those of two halves of the board."""
LISTS_UP_TO = 6
"""Up to so many boxes, lists of numbers are faster than arrays."""


class Estimate:
    """What remains to be pushed at least, for a set of boxes and a place of the player.

    Most boxes stand still between two questions. So the board is cut in two, and the cheapest ways to
    match the boxes of one half to each set of as many targets are kept: the answer is the cheapest sum
    of one half's way and the other half's way to the remaining targets.

    Args:
        rows: What each target costs for a box in a cell; see `Grid.rows`.
        boxes: Any set of as many boxes; the cut goes through its middle.
        count: Number of boxes and of targets.
    """

    def __init__(self, rows: Rows, boxes: int, count: int) -> None:
        self.count = count
        # A box whose row depends on where the player is gets one bit for each row it may have;
        # these bits stand above those of the cells.
        self._row_of: dict[int, tuple[int, ...]] = {}
        self._bit_of: dict[int, dict[int, int]] = {}
        self.parting = 0
        free_bit = 1 << max(rows) + 1
        cells = []
        for cell, row in rows.items():
            if isinstance(row, dict):
                self.parting |= 1 << cell
                bits: dict[tuple[int, ...], int] = {}
                for option in row.values():
                    if option not in bits:
                        bits[option] = free_bit
                        self._row_of[free_bit] = option
                        cells.append((cell, free_bit))
                        free_bit <<= 1
                self._bit_of[1 << cell] = {place: bits[option] for place, option in row.items()}
            else:
                self._row_of[1 << cell] = row
                cells.append((cell, 1 << cell))
        middle = _middle(boxes)
        self._upper = sum(bit for cell, bit in cells if cell >= middle)
        self._lower = sum(bit for cell, bit in cells if cell < middle)
        nothing = np.zeros(1, np.int32) if count > LISTS_UP_TO else [0]
        self._ways: dict[int, Sequence[int] | np.ndarray] = {0: nothing}
        self._plans: dict[int, Any] = {}

    def __call__(self, boxes: int, player: int) -> int:
        """The estimate; at least `FAR` where boxes and targets cannot be matched."""
        parting = boxes & self.parting
        if parting:
            boxes ^= parting
            while parting:
                box = parting & -parting
                parting ^= box
                boxes |= self._bit_of[box][player]
        if self.count > HALVES_UP_TO:
            return hungarian([self._row_of[1 << i] for i in _positions(boxes)])
        first, second = self._match(boxes & self._lower), self._match(boxes & self._upper)
        if self.count > LISTS_UP_TO:
            return int((first + second[::-1]).min())  # type: ignore[operator]
        return min(map(add, first, reversed(second)))

    def _match(self, boxes: int) -> Sequence[int] | np.ndarray:
        """The least costs of matching some boxes to each set of as many targets.

        The sets are in rising order as bits: the complement of the first is then the last of the
        complements, and so on.
        """
        known = self._ways.get(boxes)
        if known is None:
            box = boxes & -boxes
            row, others = self._row_of[box], self._match(boxes ^ box)
            size = boxes.bit_count()
            if size not in self._plans:
                plan = _plan(self.count, size)
                self._plans[size] = np.array(plan) if self.count > LISTS_UP_TO else plan
            plan = self._plans[size]
            if isinstance(others, np.ndarray):
                known = (np.asarray(row, np.int32)[plan[:, :, 0]] + others[plan[:, :, 1]]).min(
                    axis=1
                )
            else:
                known = [
                    min([row[target] + others[rest] for target, rest in choices])
                    for choices in plan
                ]
            self._ways[boxes] = known
        return known


def _positions(bits: int) -> list[int]:
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


def _middle(boxes: int) -> int:
    """A cell that has half of the boxes below it."""
    places = _positions(boxes)
    return places[len(places) // 2]


def _plan(count: int, size: int) -> list[list[tuple[int, int]]]:
    """For each set of targets of a size: each target in it, and the number of the set without it."""
    sizes = [
        sorted(sum(1 << i for i in subset) for subset in combinations(range(count), k))
        for k in (size - 1, size)
    ]
    number = {subset: i for i, subset in enumerate(sizes[0])}
    return [[(i, number[subset ^ 1 << i]) for i in _positions(subset)] for subset in sizes[1]]


def hungarian(rows: Sequence[Sequence[int]]) -> int:
    """The cost of a cheapest perfect matching, by shortest augmenting paths.

    Example:
        >>> hungarian([(4, 1, 3), (2, 0, 5), (3, 2, 2)])
        5
    """
    count = len(rows)
    # Everything counts from 1; column 0 stands for the row that is being placed.
    row_price, column_price = [0] * (count + 1), [0] * (count + 1)
    row_at = [0] * (count + 1)
    for row in range(1, count + 1):
        row_at[0] = row
        column = 0
        least = [float("inf")] * (count + 1)
        came_from = [0] * (count + 1)
        done = [False] * (count + 1)
        while row_at[column]:
            done[column] = True
            costs, price = rows[row_at[column] - 1], row_price[row_at[column]]
            step, following = float("inf"), 0
            for other in range(1, count + 1):
                if done[other]:
                    continue
                reduced = costs[other - 1] - price - column_price[other]
                if reduced < least[other]:
                    least[other], came_from[other] = reduced, column
                if least[other] < step:
                    step, following = least[other], other
            shift = int(step)
            for other in range(count + 1):
                if done[other]:
                    row_price[row_at[other]] += shift
                    column_price[other] -= shift
                else:
                    least[other] -= shift
            column = following
        while column:
            previous = came_from[column]
            row_at[column] = row_at[previous]
            column = previous
    return sum(rows[row_at[column] - 1][column - 1] for column in range(1, count + 1))
