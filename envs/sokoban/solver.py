"""Shortest solutions of Sokoban states by A*.

States that differ only in where the player stands within one connected region are one state. The
estimate of what remains is the cheapest matching of boxes to targets, at the number of pushes that
each box would need if it were alone in the room. It never overstates and never drops by more than one
a push, so the first solution that is found is a shortest one. Positions with boxes that are stuck for
good off target are cut, and where some boxes must be pushed before it matters what else is done, only
those are looked at. A search for fewest pushes that is not soon over is taken up from both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dyna_gym.envs.sokoban.astar import fewest_moves, fewest_pushes
from dyna_gym.envs.sokoban.grid import Grid, grid_of
from dyna_gym.envs.sokoban.limits import Limit, Path
from dyna_gym.envs.sokoban.retrograde import SolverLimit, distances
from dyna_gym.envs.sokoban.room import ACTIONS, Room, State, is_solved
from dyna_gym.errors import ConfigError

__all__ = ["Solution", "SolverLimit", "dead_squares", "distances", "solve"]

OBJECTIVES: Final = ("pushes", "moves")


@dataclass(frozen=True)
class Solution:
    """A way to solve a state.

    Args:
        moves: Directions, as indices into `ACTIONS`.
        pushes: How many of the moves push a box.
        expanded: How many states the search expanded.
    """

    moves: tuple[int, ...]
    pushes: int
    expanded: int

    @property
    def actions(self) -> tuple[str, ...]:
        """The moves by name."""
        return tuple(ACTIONS[move] for move in self.moves)


def solve(
    room: Room,
    state: State,
    *,
    objective: str = "pushes",
    max_expansions: int | None = None,
    time_limit_s: float | None = None,
) -> Solution | None:
    r"""Find a solution with the fewest pushes, or with the fewest moves.

    Fewest moves is a far larger search: the player's exact cell counts. It is meant for small rooms.

    Args:
        room: The room.
        state: Where player and boxes are.
        objective: ``pushes`` or ``moves``.
        max_expansions: Give up after so many expanded states.
        time_limit_s: Give up after so many seconds.

    Returns:
        A solution, or None where there is none.

    Raises:
        SolverLimit: A limit was hit before there was an answer.

    Example:
        >>> from dyna_gym.envs.sokoban.room import parse_board
        >>> solve(*parse_board("######\n#P_XO#\n######")).actions
        ('right', 'right')
    """
    if objective not in OBJECTIVES:
        raise ConfigError(f"objective: got {objective!r}, expected one of {', '.join(OBJECTIVES)}")
    if is_solved(room, state):
        return Solution((), 0, 0)
    grid = grid_of(room, state.player)
    floor = grid.floor
    boxes = grid.bits(state.boxes)
    # What lies outside the player's part never changes.
    if (boxes ^ grid.bits(room.targets)) & ~floor or (boxes & floor).bit_count() != len(
        grid.target_list
    ):
        return None
    limit = Limit(max_expansions, time_limit_s)
    search = fewest_pushes if objective == "pushes" else fewest_moves
    path = search(grid, boxes & floor, grid.index(state.player), limit)
    if path is None:
        return None
    moves, pushes = _walk(grid, boxes & floor, grid.index(state.player), path)
    return Solution(tuple(moves), pushes, limit.expanded)


def dead_squares(room: Room) -> frozenset[int]:
    """Floor cells from which a box can be brought to no target, even if it were alone in the room."""
    dead: set[int] = set()
    left = set(range(room.height * room.width)) - room.walls
    while left:
        grid = grid_of(room, min(left))
        part = {cell for cell in left if grid.floor >> grid.index(cell) & 1}
        dead |= {cell for cell in part if not grid.alive >> grid.index(cell) & 1}
        left -= part
    return frozenset(dead)


def _walk(grid: Grid, boxes: int, player: int, path: Path) -> tuple[list[int], int]:
    """All moves along a path of pushes, by the shortest ways between them."""
    moves: list[int] = []
    for after, place in path:
        pushed_to = (after & ~boxes).bit_length() - 1
        way = pushed_to - place
        moves += _way(grid, grid.floor & ~boxes, player, place - way)
        moves.append(grid.steps.index(way))
        boxes, player = after, place
    return moves, len(path)


def _way(grid: Grid, free: int, start: int, goal: int) -> list[int]:
    """Directions of a shortest way over free cells."""
    came: dict[int, tuple[int, int]] = {start: (-1, -1)}
    frontier = [start]
    while goal not in came:
        reached = []
        for cell in frontier:
            for direction, way in enumerate(grid.steps):
                beside = cell + way
                if beside >= 0 and free >> beside & 1 and beside not in came:
                    came[beside] = (cell, direction)
                    reached.append(beside)
        frontier = reached
    moves = []
    while goal != start:
        goal, direction = came[goal]
        moves.append(direction)
    return moves[::-1]
