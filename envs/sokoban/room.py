"""The rules of Sokoban: a room that never changes and an immutable state of it.

A cell is one number, ``row * width + column``. A state is a tuple of the player's cell and the set of
box cells, so copying one is free and it can be a key of a dict; all that a room needs for a step is
worked out once, when it is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

WALL, FLOOR, TARGET, BOX, PLAYER = "#", "_", "O", "X", "P"
BOX_ON_TARGET, PLAYER_ON_TARGET = "√", "S"
GLYPHS: Final = {
    WALL: "wall",
    FLOOR: "floor",
    TARGET: "target",
    BOX: "box",
    PLAYER: "player",
    BOX_ON_TARGET: "box on target",
    PLAYER_ON_TARGET: "player on target",
}
ACTIONS: Final = ("up", "down", "left", "right")
OPPOSITE: Final = (1, 0, 3, 2)
"""The direction that undoes a direction."""


class Room:
    """What of a board never changes. Immutable and hashable; equal rooms compare equal.

    Args:
        height: Number of rows, outer walls included.
        width: Number of columns.
        walls: Cells that are walls. What is outside the grid counts as a wall too.
        targets: Cells that boxes belong on.

    Attributes:
        ahead: ``ahead[direction][cell]`` is the next cell that way, or -1 where a wall is.
    """

    __slots__ = ("__weakref__", "_hash", "ahead", "height", "targets", "walls", "width")

    height: int
    width: int
    walls: frozenset[int]
    targets: frozenset[int]
    ahead: tuple[tuple[int, ...], ...]

    def __init__(
        self, height: int, width: int, walls: Iterable[int], targets: Iterable[int]
    ) -> None:
        fix = object.__setattr__
        # numpy numbers would overflow where cells become bits.
        walls, targets = frozenset(map(int, walls)), frozenset(map(int, targets))
        height, width = int(height), int(width)
        fix(self, "height", height)
        fix(self, "width", width)
        fix(self, "walls", walls)
        fix(self, "targets", targets)
        fix(self, "ahead", _neighbours(height, width, walls))
        fix(self, "_hash", hash((height, width, walls, targets)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Room cannot be changed (tried to set {name!r}); make a new one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Room cannot be changed (tried to delete {name!r}); make a new one")

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Room) and (
            (self.height, self.width, self.walls, self.targets)
            == (other.height, other.width, other.walls, other.targets)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt rather than copied: the neighbour table is shared, and a hash belongs to one
        # process.
        return Room, (self.height, self.width, self.walls, self.targets)

    def __copy__(self) -> Room:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Room:
        return self

    def __repr__(self) -> str:
        walls, targets = sorted(self.walls), sorted(self.targets)
        return f"Room({self.height}, {self.width}, walls={walls}, targets={targets})"


class State(NamedTuple):
    """What changes: the player's cell and the cells of the boxes."""

    player: int
    boxes: frozenset[int]


@lru_cache(maxsize=4_096)
def _neighbours(height: int, width: int, walls: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    table = []
    for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        cells = []
        for row in range(height):
            for column in range(width):
                inside = 0 <= row + down < height and 0 <= column + right < width
                cell = (row + down) * width + column + right
                cells.append(cell if inside and cell not in walls else -1)
        table.append(tuple(cells))
    return tuple(table)


def step(room: Room, state: State, direction: int) -> tuple[State, bool, bool]:
    r"""One move of the player.

    Args:
        room: The room.
        state: Where player and boxes are.
        direction: Index into `ACTIONS`.

    Returns:
        The next state, whether the player moved, and whether a box was pushed. A blocked move returns
        the same state object.

    Example:
        >>> room, state = parse_board("#####\n#PXO#\n#####")
        >>> state, moved, pushed = step(room, state, ACTIONS.index("right"))
        >>> print(render_board(room, state), moved, pushed, is_solved(room, state))
        #####
        #_P√#
        ##### True True True
    """
    player, boxes = state
    ahead = room.ahead[direction]
    cell = ahead[player]
    if cell < 0:
        return state, False, False
    if cell not in boxes:
        return State(cell, boxes), True, False
    beyond = ahead[cell]
    if beyond < 0 or beyond in boxes:
        return state, False, False
    return State(cell, boxes - {cell} | {beyond}), True, True


def is_solved(room: Room, state: State) -> bool:
    """Whether every box is on a target and every target has a box."""
    return state.boxes == room.targets


@lru_cache(maxsize=16_384)
def parse_board(text: str) -> tuple[Room, State]:
    """Read a board of our glyphs.

    Rows are lines; blanks and tabs between cells are ignored, and short rows are filled up with walls.

    Raises:
        ValueError: The text is not a board: it says what was got, what is expected and what to do.
    """
    rows = ["".join(line.split()) for line in text.strip().splitlines()]
    if not rows:
        raise ValueError("board: got an empty text, expected rows of glyphs, one row a line")
    height, width = len(rows), max(map(len, rows))
    walls, targets, boxes, players = [], [], [], []
    for number, row in enumerate(rows):
        if not row:
            raise ValueError(
                f"board: row {number} is empty, expected cells in every row; remove blank lines"
            )
        for column, glyph in enumerate(row.ljust(width, WALL)):
            cell = number * width + column
            if glyph == WALL:
                walls.append(cell)
            elif glyph not in GLYPHS:
                known = ", ".join(f"{key} ({name})" for key, name in GLYPHS.items())
                raise ValueError(
                    f"board: got the glyph {glyph!r} in row {number}, column {column}, expected one of "
                    f"{known}; files in XSB letters are read by read_levels"
                )
            if glyph in (TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET):
                targets.append(cell)
            if glyph in (BOX, BOX_ON_TARGET):
                boxes.append(cell)
            if glyph in (PLAYER, PLAYER_ON_TARGET):
                players.append(cell)
    check_counts("board", players, boxes, targets)
    return Room(height, width, walls, targets), State(players[0], frozenset(boxes))


def check_counts(
    where: str, players: Sequence[int], boxes: Sequence[int], targets: Sequence[int]
) -> None:
    """Raise ValueError unless there is one player and there are as many boxes as targets, at least one."""
    if len(players) != 1:
        raise ValueError(
            f"{where}: got {len(players)} players, expected exactly one; put one player on the board"
        )
    if len(boxes) != len(targets):
        few, what = (
            ("targets", "add targets") if len(boxes) > len(targets) else ("boxes", "add boxes")
        )
        raise ValueError(
            f"{where}: got {len(boxes)} boxes and {len(targets)} targets, expected as many of each; "
            f"there are too few {few}: {what} or take some of the others away"
        )
    if not boxes:
        raise ValueError(f"{where}: got no box, expected at least one box and its target; add both")


def render_board(room: Room, state: State) -> str:
    """The board in our glyphs, one character a cell, rows joined by newlines."""
    cells = [FLOOR] * (room.height * room.width)
    for cell in room.walls:
        cells[cell] = WALL
    for cell in room.targets:
        cells[cell] = TARGET
    for cell in state.boxes:
        cells[cell] = BOX_ON_TARGET if cell in room.targets else BOX
    cells[state.player] = PLAYER_ON_TARGET if state.player in room.targets else PLAYER
    text, width = "".join(cells), room.width
    return "\n".join([text[start : start + width] for start in range(0, len(text), width)])


@lru_cache(maxsize=256)
def _symmetries(height: int, width: int) -> tuple[tuple[bytes, itemgetter[Any]], ...]:
    """For each rotation and reflection: the shape that results and the cells in their new order."""
    forms = []
    for turned in (False, True):
        rows, columns = (width, height) if turned else (height, width)
        for flip in (False, True):
            for mirror in (False, True):
                order = []
                for row in range(rows):
                    for column in range(columns):
                        r = rows - 1 - row if flip else row
                        c = columns - 1 - column if mirror else column
                        order.append(c * width + r if turned else r * width + c)
                # A repeated first cell makes itemgetter return a tuple even for a 1x1 grid.
                forms.append((f"{rows}x{columns}:".encode(), itemgetter(order[0], *order)))
    return tuple(forms)


def _canonical(room: Room, cells: bytes) -> bytes:
    forms = _symmetries(room.height, room.width)
    return min(shape + bytes(reorder(cells)[1:]) for shape, reorder in forms)


def canonical_walls(room: Room) -> bytes:
    """Shape and walls as bytes, equal for all eight rotations and reflections of a room."""
    cells = bytearray(b"_" * (room.height * room.width))
    for cell in room.walls:
        cells[cell] = 35
    return _canonical(room, bytes(cells))


def canonical_layout(room: Room, state: State) -> bytes:
    """The whole board as bytes, equal for all its eight rotations and reflections."""
    board = render_board(room, state).replace("\n", "")
    # Latin-1 keeps one byte a cell; the one glyph outside of it is written `*`, as level files do.
    return _canonical(room, board.replace(BOX_ON_TARGET, "*").encode("latin-1"))


def layout_bucket(room: Room, buckets: int = 10, state: State | None = None) -> int:
    """A number below ``buckets`` that is equal for a room and its rotations and reflections.

    It comes from SHA-256, so that it is the same in every process. With ``state`` it depends on the
    whole board, else on the walls only.
    """
    form = canonical_walls(room) if state is None else canonical_layout(room, state)
    return int.from_bytes(hashlib.sha256(form).digest()[:8], "big") % buckets


def cell_name(room: Room, cell: int) -> str:
    """The row's letter (``a`` is the top row, ``aa`` follows ``z``) and the column's number from 0."""
    row, column = divmod(cell, room.width)
    letters = ""
    row += 1
    while row:
        row, letter = divmod(row - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return f"{letters}{column}"


def digest(room: Room, state: State) -> str:
    """A state in short: ``P b2 X c3 d4``, boxes in order of their cells, ``solved`` at the end if so."""
    boxes = "".join(f" {cell_name(room, cell)}" for cell in sorted(state.boxes))
    return (
        f"P {cell_name(room, state.player)} X{boxes}{' solved' if is_solved(room, state) else ''}"
    )
