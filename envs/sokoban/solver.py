"""Shortest solutions of Sokoban states by A*.

States that differ only in where the player stands within one connected region are one state. The
estimate of what remains is the cheapest matching of boxes to targets, at the number of pushes that
each box would need if it were alone in the room. It never overstates and never drops by more than one
a push, so the first solution that is found is a shortest one. Positions with boxes that are stuck for
good off target are cut.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from dyna_gym.envs.sokoban.bounds import Matching
from dyna_gym.envs.sokoban.corral import corral_boxes
from dyna_gym.envs.sokoban.grid import FAR, Grid, cells_of, flood, grid_of
from dyna_gym.envs.sokoban.retrograde import SolverLimit, distances
from dyna_gym.envs.sokoban.room import ACTIONS, Room, State, is_solved
from dyna_gym.errors import ConfigError

__all__ = ["Solution", "SolverLimit", "dead_squares", "distances", "solve"]

OBJECTIVES: Final = ("pushes", "moves")
CLOCK_EVERY = 256
"""Expansions between two looks at the clock."""


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
    """Find a solution with the fewest pushes, or with the fewest moves.

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
        >>> solve(*parse_board("######\\n#P_XO#\\n######")).actions
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
    limit = _Limit(max_expansions, time_limit_s)
    search = _fewest_pushes if objective == "pushes" else _fewest_moves
    path, expanded = search(grid, boxes & floor, grid.index(state.player), limit)
    if path is None:
        return None
    moves, pushes = _walk(grid, boxes & floor, grid.index(state.player), path)
    return Solution(tuple(moves), pushes, expanded)


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


class _Limit:
    """Counts expansions and watches the clock."""

    def __init__(self, expansions: int | None, seconds: float | None) -> None:
        self.expansions, self.seconds = expansions, seconds
        self.started = time.monotonic()
        self.next_look = CLOCK_EVERY if expansions is None else min(CLOCK_EVERY, expansions)

    def look(self, expanded: int) -> int:
        """Raise SolverLimit if a limit is reached, else return when to look again."""
        spent = time.monotonic() - self.started
        if self.expansions is not None and expanded >= self.expansions:
            raise SolverLimit(
                f"solve: got no answer in {expanded:,} expansions ({spent:.1f} s); raise max_expansions"
            )
        if self.seconds is not None and spent >= self.seconds:
            raise SolverLimit(
                f"solve: got no answer in {spent:.1f} s ({expanded:,} expansions); raise time_limit_s"
            )
        following = expanded + CLOCK_EVERY
        return following if self.expansions is None else min(following, self.expansions)


# A node is (boxes, player, cost so far, number of the expanded node before it). With the boxes before it
# that tells the push: it left the player where the box had been.
Node = tuple[int, int, int, int]
Path = list[tuple[int, int]]


class _Estimates:
    """What remains, at least, for a set of boxes; None where they are deadlocked."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.matching = Matching(len(grid.target_list))
        self.rows = grid.rows
        # Cells in which a box parts the floor, so that it matters on which side the player is.
        self.parting = sum(1 << cell for cell, row in self.rows.items() if isinstance(row, dict))

    def of(self, boxes: int, player: int) -> int:
        """Pushes that remain at least; `FAR` or more where it cannot be solved."""
        if boxes & self.parting:
            rows = self.rows
            picked = []
            for box in cells_of(boxes):
                row = rows[box]
                picked.append(row[player] if type(row) is dict else row)
            return self.matching.cost(tuple(picked))  # type: ignore[arg-type]
        return self.matching.cost(tuple([self.rows[box] for box in cells_of(boxes)]))  # type: ignore[misc]


def _fewest_pushes(
    grid: Grid, boxes: int, player: int, limit: _Limit
) -> tuple[Path | None, int]:
    stride, floor, alive, targets = grid.stride, grid.floor, grid.alive, grid.targets
    estimates = _Estimates(grid)
    parting, estimate = estimates.parting, estimates.of
    frozen = grid.frozen
    # For each set of boxes: None if it is deadlocked, else [what remains, or -1 where that depends on the player;
    # the regions from which it was expanded ...].
    known: dict[int, list[int] | None] = {}
    first = estimate(boxes, player)
    if first >= FAR or frozen(boxes) & ~targets:
        return None, 0
    known[boxes] = [-1 if boxes & parting else first]
    buckets: dict[int, list[Node]] = {first: [(boxes, player, 0, -1)]}
    expanded_nodes: list[Node] = []
    expanded, look = 0, limit.next_look
    while buckets:
        total = min(buckets)
        bucket = buckets[total]
        while bucket:
            node = bucket.pop()
            boxes, player, cost, _ = node
            record = known[boxes]
            assert record is not None
            bit = 1 << player
            for region in record[1:]:
                if region & bit:
                    break
            else:
                if boxes == targets:
                    expanded_nodes.append(node)
                    return _path(expanded_nodes), expanded
                number = len(expanded_nodes)
                expanded_nodes.append(node)
                expanded += 1
                if expanded >= look:
                    look = limit.look(expanded)
                free = floor & ~boxes
                reach = flood(bit, free, stride)
                record.append(reach)
                room_left = alive & ~boxes
                movable = boxes
                if free != reach:
                    movable = corral_boxes(grid, boxes, reach)
                for way, pushable in (
                    (1, movable & reach << 1 & room_left >> 1),
                    (-1, movable & reach >> 1 & room_left << 1),
                    (stride, movable & reach << stride & room_left >> stride),
                    (-stride, movable & reach >> stride & room_left << stride),
                ):
                    while pushable:
                        box = pushable & -pushable
                        pushable ^= box
                        after = boxes ^ box ^ (box << way if way > 0 else box >> -way)
                        place = box.bit_length() - 1
                        if after in known:
                            entry = known[after]
                            if entry is None:
                                continue
                            for region in entry[1:]:
                                if region & box:
                                    break
                            else:
                                rest = entry[0]
                                if rest < 0:
                                    rest = estimate(after, place)
                                    if rest >= FAR:
                                        continue
                                new_total = cost + 1 + rest
                                if new_total in buckets:
                                    buckets[new_total].append((after, place, cost + 1, number))
                                else:
                                    buckets[new_total] = [(after, place, cost + 1, number)]
                            continue
                        if frozen(after) & ~targets:
                            known[after] = None
                            continue
                        rest = estimate(after, place)
                        if after & parting:
                            known[after] = [-1]
                            if rest >= FAR:
                                continue
                        elif rest >= FAR:
                            known[after] = None
                            continue
                        else:
                            known[after] = [rest]
                        new_total = cost + 1 + rest
                        if new_total in buckets:
                            buckets[new_total].append((after, place, cost + 1, number))
                        else:
                            buckets[new_total] = [(after, place, cost + 1, number)]
        del buckets[total]
    return None, expanded


def _path(nodes: list[Node]) -> Path:
    """Boxes and player after each push, from the expanded nodes, the last of which is solved."""
    path = []
    node = nodes[-1]
    while node[3] >= 0:
        path.append((node[0], node[1]))
        node = nodes[node[3]]
    return path[::-1]


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


def _fewest_moves(
    grid: Grid, boxes: int, player: int, limit: _Limit
) -> tuple[Path | None, int]:
    stride, floor, alive, targets = grid.stride, grid.floor, grid.alive, grid.targets
    estimates = _Estimates(grid)
    estimate, frozen = estimates.of, grid.frozen
    dead: dict[int, bool] = {boxes: bool(frozen(boxes) & ~targets)}
    first = estimate(boxes, player)
    if first >= FAR or dead[boxes]:
        return None, 0
    best: dict[tuple[int, int], int] = {(boxes, player): 0}
    buckets: dict[int, list[Node]] = {first: [(boxes, player, 0, -1)]}
    expanded_nodes: list[Node] = []
    expanded, look = 0, limit.next_look
    while buckets:
        total = min(buckets)
        bucket = buckets[total]
        while bucket:
            node = bucket.pop()
            boxes, player, cost, _ = node
            if cost > best[boxes, player]:
                continue
            number = len(expanded_nodes)
            expanded_nodes.append(node)
            if boxes == targets:
                return _path(expanded_nodes), expanded
            expanded += 1
            if expanded >= look:
                look = limit.look(expanded)
            free = floor & ~boxes
            room_left = alive & ~boxes
            # Where the player must stand to push right, left, down and up.
            stands = (
                (1, boxes >> 1 & room_left >> 2 & free),
                (-1, boxes << 1 & room_left << 2 & free),
                (stride, boxes >> stride & room_left >> 2 * stride & free),
                (-stride, boxes << stride & room_left << 2 * stride & free),
            )
            reach = edge = 1 << player
            walked = cost
            while edge:
                walked += 1
                for way, stand in stands:
                    ready = stand & edge
                    while ready:
                        place = (ready & -ready).bit_length() - 1 + way
                        ready &= ready - 1
                        after = boxes ^ 1 << place ^ 1 << place + way
                        if after not in dead:
                            dead[after] = bool(frozen(after) & ~targets)
                        if dead[after]:
                            continue
                        key = (after, place)
                        if best.get(key, FAR) <= walked:
                            continue
                        best[key] = walked
                        rest = estimate(after, place)
                        if rest < FAR:
                            buckets.setdefault(walked + rest, []).append(
                                (after, place, walked, number)
                            )
                edge = (
                    edge << 1 | edge >> 1 | edge << stride | edge >> stride
                ) & free & ~reach
                reach |= edge
        del buckets[total]
    return None, expanded
