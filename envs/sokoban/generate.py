"""Rooms by seeded reverse play: whatever they look like, they can be solved.

A room is carved, its boxes are put on the targets and pulled away from them. Which room comes out is
decided by the generator that is passed in and nothing else: no global random numbers, no `hash`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dyna_gym.envs.sokoban.retrograde import SolverLimit, distances
from dyna_gym.envs.sokoban.room import Room, State
from dyna_gym.envs.sokoban.solver import solve
from dyna_gym.errors import ConfigError, DynaGymError

TABLE_CELLS = 50
"""Up to so many floor cells, the start of a one-box room is drawn from the table of all states."""
FAILURES_A_LEVEL = 8
"""After so many failed tries the next level of ease begins."""
EASE_SOME_STAY = 2
SOLVE_EXPANSIONS = 20_000


class RoomGenerationError(DynaGymError, ValueError):
    """No room that fits was found in the number of tries that was allowed."""


@dataclass(frozen=True)
class RoomConfig:
    """What a generated room is like.

    Args:
        height: Rows, outer walls included.
        width: Columns, outer walls included.
        boxes: Boxes, and as many targets.
        min_moves: Least number of moves of a shortest solution.
        max_moves: Largest number of moves of a shortest solution; None for no limit.
        wall_density: Largest share of the inner cells that become walls; each room draws its own share
            between half of that and all of it. Inner walls are what makes dead ends.
    """

    height: int = 6
    width: int = 6
    boxes: int = 1
    min_moves: int = 1
    max_moves: int | None = None
    wall_density: float = 0.3

    def __post_init__(self) -> None:
        for name in ("height", "width", "boxes", "min_moves"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ConfigError(f"{name}: got {value!r}, expected a whole number of at least 1")
        if self.max_moves is not None and self.max_moves < self.min_moves:
            raise ConfigError(
                f"max_moves: got {self.max_moves}, expected None or at least min_moves = "
                f"{self.min_moves}; raise max_moves or lower min_moves"
            )
        if not 0 <= self.wall_density < 1:
            raise ConfigError(
                f"wall_density: got {self.wall_density!r}, expected a share from 0 to below 1"
            )
        rows, columns = self.height - 2, self.width - 2
        # A push needs player, box and a free cell in line; every other box may stand on its target.
        if min(rows, columns) < 1 or max(rows, columns) < 3 or rows * columns < self.boxes + 2:
            raise ConfigError(
                f"a {self.height}x{self.width} room with {self.boxes} box(es): got {rows}x{columns} "
                f"cells inside the outer walls, expected at least 3 in a line and boxes + 2 = "
                f"{self.boxes + 2} in all; make the room larger or take fewer boxes"
            )


def generate_room(
    config: RoomConfig,
    rng: np.random.Generator,
    accept: Callable[[Room, State], bool] | None = None,
    max_tries: int = 1_000,
) -> tuple[Room, State]:
    """Make a room that can be solved and is not solved yet.

    Args:
        config: What the room is like.
        rng: Decides the room; a fixed small amount is drawn from it, however many tries are needed.
        accept: Says whether a room will do; a further one is made where it does not.
        max_tries: Number of rooms to try before giving up.

    Returns:
        The room and its first state.

    Raises:
        RoomGenerationError: No try gave a room of the wanted length that ``accept`` agreed to.
    """
    # The tries' generators grow out of numbers drawn from rng, not out of rng.spawn: spawning
    # depends on a counter that a copy of rng's state does not carry.
    entropy = rng.integers(0, 2**32, size=4, dtype=np.uint32).tolist()
    failed = refused = wrong_length = 0
    for number in range(max_tries):
        seed = np.random.SeedSequence(entropy, spawn_key=(number,))
        draw = _draws(np.random.Generator(np.random.PCG64(seed)))
        made = _make(config, failed // FAILURES_A_LEVEL, draw)
        if made is None:
            failed += 1
        elif accept is not None and not accept(*made):
            refused += 1
        elif not _right_length(config, *made):
            wrong_length += 1
        else:
            return made
    raise RoomGenerationError(
        f"generate_room: got no room for {config} in {max_tries} tries ({failed} could not be played backwards, "
        f"{refused} were refused by accept, {wrong_length} had the wrong number of moves); make the "
        "room larger, loosen min_moves, max_moves or accept, or raise max_tries"
    )


def _draws(rng: np.random.Generator) -> Iterator[float]:
    """Numbers in [0, 1); drawn in bulk, which is many times faster than one by one."""
    while True:
        yield from rng.random(64).tolist()


def _pick(items: list[int], draw: Iterator[float]) -> int:
    return items[int(next(draw) * len(items))]


def _make(config: RoomConfig, ease: int, draw: Iterator[float]) -> tuple[Room, State] | None:
    """One try: carve, place targets, play backwards. None where that did not work out.

    With each level of ``ease`` there are half as many inner walls; from `EASE_SOME_STAY` on, boxes may
    be left on their targets, down to one that is not.
    """
    walls, floor = _carve(config, config.wall_density / 2**ease, draw)
    if len(floor) < config.boxes + 2:
        return None
    targets = _targets(config, floor, draw)
    if targets is None:
        return None
    room = Room(config.height, config.width, walls, targets)
    if config.boxes == 1 and len(floor) <= TABLE_CELLS:
        state = _from_table(config, room, draw)
    else:
        state = _pull(room, ease < EASE_SOME_STAY, draw)
    return None if state is None else (room, state)


def _shuffle(items: list[int], draw: Iterator[float]) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = int(next(draw) * (last + 1))
        items[last], items[other] = items[other], items[last]


def _targets(config: RoomConfig, floor: list[int], draw: Iterator[float]) -> list[int] | None:
    """Random cells that a box can be pulled away from, as far as there are enough of them."""
    free = set(floor)
    ways = (-config.width, config.width, -1, 1)
    pullable = [c for c in floor if any(c + way in free and c + 2 * way in free for way in ways)]
    if not pullable:
        return None
    _shuffle(pullable, draw)
    targets = pullable[: config.boxes]
    if len(targets) < config.boxes:
        others = [cell for cell in floor if cell not in pullable]
        _shuffle(others, draw)
        targets += others[: config.boxes - len(targets)]
    return targets


def _carve(
    config: RoomConfig, wall_density: float, draw: Iterator[float]
) -> tuple[set[int], list[int]]:
    """Outer walls, and inner walls one by one wherever they leave the floor in one piece."""
    height, width = config.height, config.width
    inside = [r * width + c for r in range(1, height - 1) for c in range(1, width - 1)]
    walls = set(range(height * width)).difference(inside)
    wanted = int(len(inside) * wall_density * (0.5 + next(draw) / 2) + next(draw))
    floor = 0
    for cell in inside:
        floor |= 1 << cell
    order = list(inside)
    _shuffle(order, draw)
    for cell in order:
        if wanted <= 0:
            break
        rest = floor & ~(1 << cell)
        if rest and _reach(rest & -rest, rest, width) == rest:
            floor = rest
            walls.add(cell)
            wanted -= 1
    return walls, [cell for cell in inside if floor >> cell & 1]


def _reach(start: int, free: int, width: int) -> int:
    """The free cells that are connected with ``start``; sets are bits of a whole number.

    The outer walls are never free, so a shift by one cannot run over into the next row.
    """
    while True:
        grown = start | (start << 1 | start >> 1 | start << width | start >> width) & free
        if grown == start:
            return start
        start = grown


def _from_table(config: RoomConfig, room: Room, draw: Iterator[float]) -> State | None:
    """Any state of a wanted length. All lengths are equally likely: most states are close ones."""
    table = distances(room)
    longest = max(table.values())
    last = longest if config.max_moves is None else min(config.max_moves, longest)
    if last < config.min_moves:
        return None
    # Each state has one before it that is a move nearer, so no length is missing.
    length = config.min_moves + int(next(draw) * (last - config.min_moves + 1))
    fitting = [state for state, moves in table.items() if moves == length]
    return fitting[int(next(draw) * len(fitting))]


def _pull(room: Room, all_away: bool, draw: Iterator[float]) -> State | None:
    """Walk backwards by random pulls; the state on the way that is farthest from solved.

    Farthest means most boxes off target, then most cells between boxes and the targets they came from.
    """
    width, targets = room.width, room.targets
    floor = [cell for cell in range(room.height * width) if cell not in room.walls]
    open_floor = sum(1 << cell for cell in floor)
    # The box in each cell, by the target that it came from.
    boxes = {cell: cell for cell in sorted(targets)}
    # The player may end in any of the regions that the boxes leave.
    player = _pick([cell for cell in floor if cell not in boxes], draw)
    best: tuple[tuple[int, int], frozenset[int], int] = ((0, 0), targets, player)
    for _ in range(int(len(boxes) * (4 + 12 * next(draw)))):
        taken = sum(1 << box for box in boxes)
        reach = _reach(1 << player, open_floor & ~taken, width)
        choices = []
        for box in boxes:
            for ahead in room.ahead:
                stand = ahead[box]
                if stand >= 0 and reach >> stand & 1:
                    behind = ahead[stand]
                    if behind >= 0 and behind not in boxes:
                        choices.append((box, stand, behind))
        if not choices:
            break
        # The better of two: purely random pulls mostly undo each other.
        first, second = (choices[int(next(draw) * len(choices))] for _ in range(2))
        gain = [
            _apart(to, boxes[box], width) - _apart(box, boxes[box], width)
            for box, to, _ in (first, second)
        ]
        box, stand, player = second if gain[1] > gain[0] else first
        boxes[stand] = boxes.pop(box)
        away = sum(cell not in targets for cell in boxes)
        ways = sum(_apart(cell, home, width) for cell, home in boxes.items())
        if away and (away, ways) >= best[0]:
            best = ((away, ways), frozenset(boxes), player)
    (away, _), placed, player = best
    if not away or (all_away and away < len(boxes)):
        return None
    reach = _reach(1 << player, open_floor & ~sum(1 << box for box in placed), width)
    return State(_pick([cell for cell in floor if reach >> cell & 1], draw), placed)


def _apart(cell: int, other: int, width: int) -> int:
    return abs(cell // width - other // width) + abs(cell % width - other % width)


def _right_length(config: RoomConfig, room: Room, state: State) -> bool:
    # A state from the table has the right length already; that solving takes a move holds for all.
    if config.boxes == 1 and room.height * room.width - len(room.walls) <= TABLE_CELLS:
        return True
    if config.min_moves <= 1 and config.max_moves is None:
        return True
    try:
        solution = solve(room, state, objective="moves", max_expansions=SOLVE_EXPANSIONS)
    except SolverLimit:
        return False
    assert solution is not None  # it was made by playing backwards
    moves = len(solution.moves)
    return config.min_moves <= moves and (config.max_moves is None or moves <= config.max_moves)
