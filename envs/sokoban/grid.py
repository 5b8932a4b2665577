"""A room as bit sets: what the solver knows before it searches.

A set of cells is one whole number with a bit a cell; moving a whole set one cell is a shift. Rows are
one bit longer than the room is wide, and that bit is never floor, so that no shift runs over into the
next row.
"""

from __future__ import annotations

from functools import lru_cache

from dyna_gym.envs.sokoban.room import Room

Rows = dict[int, tuple[int, ...] | dict[int, tuple[int, ...]]]
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
        # Two steps a look: looking costs as much as half a step.
        grown = start | (start << 1 | start >> 1 | start << stride | start >> stride) & free
        start = grown | (grown << 1 | grown >> 1 | grown << stride | grown >> stride) & free
        if grown == start:
            return start


class Grid:
    """The part of a room in which the player can get about, with the distances of single boxes.

    Args:
        room: The room.
        player: Any cell of that part.

    Attributes:
        stride: Bits a row.
        floor: Cells of that part.
        targets: Targets in that part.
        sides: For each cell, the parts of the floor on the sides of a box that stands there.
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
        self.sides = self._sides()
        self.rows = self.distances(self.target_list)
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

    def _sides(self) -> dict[int, list[int]]:
        """For each cell, the parts of the floor that a box in it can be touched from."""
        floor, stride = self.floor, self.stride
        sides: dict[int, list[int]] = {}
        for box in cells_of(floor):
            rest, parts = floor & ~(1 << box), []
            around = rest & (1 << box + 1 | 1 << box >> 1 | 1 << box + stride | 1 << box >> stride)
            while around:
                part = flood(around & -around, rest, stride)
                parts.append(part)
                around &= ~part
            sides[box] = parts
        return sides

    def distances(self, ends: list[int], player: int | None = None) -> Rows:
        """Pushes between each cell and each of some ends, for a box that is alone in the room.

        Args:
            ends: Where the box is to come to; with ``player``, where it comes from.
            player: Where the player is while the box is still at the end it comes from.
        """
        floor, sides = self.floor, self.sides
        pushes = {(box, k): [FAR] * len(ends) for box in sides for k in range(len(sides[box]))}
        for number, end in enumerate(ends):
            frontier = [
                (end, k)
                for k, part in enumerate(sides[end])
                if player is None or part >> player & 1
            ]
            for place in frontier:
                pushes[place][number] = 0
            done = 0
            while frontier:
                done += 1
                reached = []
                for box, k in frontier:
                    part = sides[box][k]
                    for way in self.steps:
                        # Behind the box: the player, who has just pushed or is about to push.
                        behind = box - way
                        if behind < 0 or not part >> behind & 1:
                            continue
                        if player is None:
                            other, now = behind, behind - way
                            on_floor = now >= 0 and floor >> now & 1
                        else:
                            other, now = box + way, box
                            on_floor = other >= 0 and floor >> other & 1
                        if not on_floor:
                            continue
                        for j, beside in enumerate(sides[other]):
                            if beside >> now & 1 and pushes[other, j][number] == FAR:
                                pushes[other, j][number] = done
                                reached.append((other, j))
                frontier = reached
        rows: Rows = {}
        for box, parts in sides.items():
            options = [tuple(pushes[box, k]) for k in range(len(parts))]
            if len(set(options)) > 1:
                rows[box] = {
                    cell: options[k] for k, part in enumerate(parts) for cell in cells_of(part)
                }
            else:
                rows[box] = options[0] if options else (FAR,) * len(ends)
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
