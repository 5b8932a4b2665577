"""A room as bit sets: what the solver knows before it searches.

A set of cells is one whole number with a bit a cell; moving a whole set one cell is a shift. Rows are
one bit longer than the room is wide, and that bit is never floor, so that no shift runs over into the
next row.
"""

from __future__ import annotations

from functools import lru_cache

from dyna_gym.envs.sokoban.room import Room

FAR = 1_000_000
"""Distance of a target that cannot be reached."""


def cells_of(cells: int) -> list[int]:
    """The positions of a set, in rising order."""
    found = []
    while cells:
        low = cells & -cells
        found.append(low.bit_length() - 1)
        cells ^= low
    return found


def flood(start: int, free: int, stride: int) -> int:
    """The free cells that are connected with ``start``, and ``start``."""
    while True:
        grown = start | (start << 1 | start >> 1 | start << stride | start >> stride) & free
        if grown == start:
            return start
        start = grown


class Grid:
    """The part of a room in which the player can get about, with the distances of single boxes.

    Args:
        room: The room.
        player: Any cell of that part.

    Attributes:
        stride: Bits a row.
        floor: Cells of that part.
        targets: Targets in that part.
        alive: Cells from which a box, alone in the room, can be brought to some target.
        rows: ``rows[box][player]``, or only ``rows[box]`` where the player's place makes no difference:
            the number of pushes to each target for a box that is alone in the room. This never
            overstates, as other boxes can only stand in the way.
        fixed_across: Cells in which a box is stuck sideways: a wall beside it, or dead cells on both
            sides. ``fixed_along`` is the same for up and down.
    """

    def __init__(self, room: Room, player: int) -> None:
        self.stride = room.width + 1
        self.width = room.width
        walls_free = 0
        for cell in range(room.height * room.width):
            if cell not in room.walls:
                walls_free |= 1 << self.index(cell)
        stride = self.stride
        self.floor = flood(1 << self.index(player), walls_free, stride)
        self.targets = self.bits(room.targets) & self.floor
        self.target_list = cells_of(self.targets)
        self.steps = (-stride, stride, -1, 1)
        self.rows = self._distances()
        self.alive = 0
        for box, row in self.rows.items():
            options = row.values() if isinstance(row, dict) else (row,)
            if any(min(option, default=FAR) < FAR for option in options):
                self.alive |= 1 << box
        dead = self.floor & ~self.alive
        wall = ~self.floor
        self.fixed_across = self.floor & (wall << 1 | wall >> 1 | dead << 1 & dead >> 1)
        self.fixed_along = self.floor & (
            wall << stride | wall >> stride | dead << stride & dead >> stride | (1 << stride) - 1
        )
        # Shifting in zeros at the lower end would hide that there is a wall before cell 0.
        self.fixed_across |= self.floor & 1

    def index(self, cell: int) -> int:
        """The bit of a cell of the room."""
        return int(cell + cell // self.width)

    def bits(self, cells: frozenset[int]) -> int:
        """A set of the room's cells as bits."""
        return sum(1 << self.index(cell) for cell in cells)

    def _distances(self) -> dict[int, tuple[int, ...] | dict[int, tuple[int, ...]]]:
        """Pushes to each target, by pulling one box backwards from it."""
        floor, stride = self.floor, self.stride
        cells = cells_of(floor)
        sides: dict[int, list[int]] = {}
        for box in cells:
            rest, parts = floor & ~(1 << box), []
            around = rest & (1 << box + 1 | 1 << box >> 1 | 1 << box + stride | 1 << box >> stride)
            while around:
                part = flood(around & -around, rest, stride)
                parts.append(part)
                around &= ~part
            sides[box] = parts
        count = len(self.target_list)
        pushes = {(box, k): [FAR] * count for box in cells for k in range(len(sides[box]))}
        for number, target in enumerate(self.target_list):
            frontier = [(target, k) for k in range(len(sides[target]))]
            for place in frontier:
                pushes[place][number] = 0
            done = 0
            while frontier:
                done += 1
                reached = []
                for box, k in frontier:
                    part = sides[box][k]
                    for way in self.steps:
                        # The last push left the player in `back`, where the box had been.
                        back = box - way
                        before = back - way
                        if back < 0 or before < 0 or not part >> back & 1 or not floor >> before & 1:
                            continue
                        for j, other in enumerate(sides[back]):
                            if other >> before & 1 and pushes[back, j][number] == FAR:
                                pushes[back, j][number] = done
                                reached.append((back, j))
                frontier = reached
        rows: dict[int, tuple[int, ...] | dict[int, tuple[int, ...]]] = {}
        for box in cells:
            options = [tuple(pushes[box, k]) for k in range(len(sides[box]))]
            if len(set(options)) == 1:
                rows[box] = options[0]
            elif not options:
                rows[box] = (FAR,) * count
            else:
                rows[box] = {
                    player: options[k]
                    for k, part in enumerate(sides[box])
                    for player in cells_of(part)
                }
        return rows

    def frozen(self, boxes: int) -> int:
        """The boxes that can never again be moved to any use, whatever the player does.

        All boxes are taken for stuck; those with a free axis are taken out until none is left to take
        out. What remains holds itself in place.
        """
        stride, across, along = self.stride, self.fixed_across, self.fixed_along
        stuck = boxes
        while True:
            less = (
                stuck
                & (across | stuck << 1 | stuck >> 1)
                & (along | stuck << stride | stuck >> stride)
            )
            if less == stuck:
                return stuck
            stuck = less


@lru_cache(maxsize=64)
def _grid(room: Room, corner: int) -> Grid:
    return Grid(room, corner)


def grid_of(room: Room, player: int) -> Grid:
    """The grid around the player; kept for the next search in the same room."""
    reached, waiting = {player}, [player]
    while waiting:
        cell = waiting.pop()
        for ahead in room.ahead:
            beside = ahead[cell]
            if beside >= 0 and beside not in reached:
                reached.add(beside)
                waiting.append(beside)
    return _grid(room, min(reached))
