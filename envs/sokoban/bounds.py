"""The cheapest matching of boxes to targets: a lower bound on what remains to be pushed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from operator import add

from dyna_gym.envs.sokoban.grid import Rows, cells_of

Row = tuple[int, ...]
HALVES_UP_TO = 8
"""Up to so many boxes, matchings are put together from those of two halves of the boxes."""


class Estimate:
    """What remains to be pushed at least, for a set of boxes and a place of the player.

    Args:
        rows: What each target costs for a box in a cell; see `Grid.rows`.
        count: Number of boxes and of targets.
    """

    def __init__(self, rows: Rows, count: int) -> None:
        self.rows = rows
        self.matching = Matching(count)
        # Cells in which it matters on which side of the box the player is.
        self.parting = sum(1 << cell for cell, row in rows.items() if isinstance(row, dict))

    def __call__(self, boxes: int, player: int) -> int:
        """The estimate; at least `FAR` where boxes and targets cannot be matched."""
        rows = self.rows
        if boxes & self.parting:
            picked = []
            for box in cells_of(boxes):
                row = rows[box]
                picked.append(row[player] if type(row) is dict else row)
            return self.matching.cost(tuple(picked))  # type: ignore[arg-type]
        return self.matching.cost(tuple([rows[box] for box in cells_of(boxes)]))  # type: ignore[misc]


class Matching:
    """Costs of cheapest matchings, with a memory: boxes mostly stand still between two questions.

    Args:
        count: Number of boxes and of targets.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._costs: dict[tuple[Row, ...], int] = {}
        # Subsets of the targets by size, in rising order as bits. Then the complement of the first is
        # the last of the complements, and so on.
        self._groups: dict[tuple[Row, ...], Sequence[int]] = {}
        self._plans: dict[int, list[tuple[list[int], list[int]]]] = {}
        if 2 < count <= HALVES_UP_TO:
            sizes = [
                sorted(sum(1 << i for i in subset) for subset in combinations(range(count), size))
                for size in range(count + 1)
            ]
            for size in range(2, count - count // 2 + 1):
                first = size // 2
                where = {subset: i for i, subset in enumerate(sizes[size - first])}
                plan = []
                for subset in sizes[size]:
                    parts = [
                        (i, where[subset & ~part])
                        for i, part in enumerate(sizes[first])
                        if part & ~subset == 0
                    ]
                    plan.append(([i for i, _ in parts], [j for _, j in parts]))
                self._plans[size] = plan

    def cost(self, rows: tuple[Row, ...]) -> int:
        """The cost of the cheapest matching; at least `FAR` where there is none.

        Args:
            rows: For each box, what each target costs.
        """
        known = self._costs.get(rows)
        if known is not None:
            return known
        count = self.count
        if count == 1:
            cost = rows[0][0]
        elif count == 2:
            (a, b), (c, d) = rows
            cost = min(a + d, b + c)
        elif count <= HALVES_UP_TO:
            half = count // 2
            first, second = self._group(rows[:half]), self._group(rows[half:])
            cost = min(map(add, first, reversed(second)))
        else:
            cost = hungarian(rows)
        self._costs[rows] = cost
        return cost

    def _group(self, rows: tuple[Row, ...]) -> Sequence[int]:
        """Costs of matching some boxes to each set of as many targets."""
        if len(rows) == 1:
            return rows[0]
        known = self._groups.get(rows)
        if known is None:
            half = len(rows) // 2
            first, second = self._group(rows[:half]), self._group(rows[half:])
            known = self._groups[rows] = [
                min([first[i] + second[j] for i, j in zip(left, right, strict=True)])
                for left, right in self._plans[len(rows)]
            ]
        return known


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
