"""Level files: XSB text, as most collections use it, and Boxoban's.

``#`` wall, ``$`` box, ``.`` target, ``@`` player, ``*`` box on target, ``+`` player on target; a blank,
``-`` or ``_`` is floor. Run-length digits (``3#2-.#``) and ``|`` as the end of a row are understood.
Levels are parted by blank lines or by ``;`` lines, which name the level below them. Other text, such as
``Author: x``, is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from dyna_gym.envs.sokoban.room import Room, State, check_counts

FLOOR_LETTERS = " -_"
LETTERS = "#$.@*+" + FLOOR_LETTERS
_ROW = re.compile(rf"(?:[0-9]*[{re.escape(LETTERS)}|])+")
_RUN = re.compile(r"([0-9]+)(.)")


@dataclass(frozen=True)
class Level:
    """One level of a file.

    Args:
        name: The text of its ``;`` line, else the file's name and the level's number from 1.
        room: Its room.
        state: Its first state.
    """

    name: str
    room: Room
    state: State


def read_levels(path: str | PathLike[str]) -> list[Level]:
    """Read all levels of a file, in its order.

    Floor that the player could not get to if there were no boxes becomes wall.

    Raises:
        ValueError: The file has no level or a bad one; names file, line, what was got and expected.
    """
    path = Path(path)
    levels: list[Level] = []
    title = ""
    rows: list[str] = []
    first = 0

    def close() -> None:
        nonlocal title, rows
        if rows:
            name = title or f"{path.stem} {len(levels) + 1}"
            levels.append(_level(f"{path}, line {first}, level {name!r}", name, rows))
            title, rows = "", []

    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.rstrip()
        if text.startswith(";"):
            close()
            title = text[1:].strip()
        elif not text:
            close()
        elif _ROW.fullmatch(text) and (rows or "#" in text):
            if not rows:
                first = number
            rows += _RUN.sub(lambda run: int(run[1]) * run[2], text).split("|")
        elif text.lstrip().startswith("#"):
            bad = next(letter for letter in text if letter not in LETTERS + "|0123456789")
            raise ValueError(
                f"{path}, line {number}: got the letter {bad!r} in a row of a level, expected one of "
                f"{LETTERS!r}; correct the row, or start a line of text with ';'"
            )
        else:
            close()
    close()
    if not levels:
        raise ValueError(
            f"{path}: got no level, expected rows of {LETTERS!r} with '#' for walls; is it a level file?"
        )
    return levels


def _level(where: str, name: str, rows: list[str]) -> Level:
    height, width = len(rows), max(map(len, rows))
    board = "".join(row.ljust(width) for row in rows)
    cells = range(height * width)
    walls = {cell for cell in cells if board[cell] == "#"}
    targets = [cell for cell in cells if board[cell] in ".*+"]
    boxes = [cell for cell in cells if board[cell] in "$*"]
    players = [cell for cell in cells if board[cell] in "@+"]
    check_counts(where, players, boxes, targets)
    reached, waiting = {players[0]}, [players[0]]
    while waiting:
        row, column = divmod(waiting.pop(), width)
        if row in (0, height - 1) or column in (0, width - 1):
            raise ValueError(
                f"{where}: got an open board, expected walls all around the player; the player can leave "
                f"it at row {row}, column {column}: close the gap"
            )
        for beside in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            cell = beside[0] * width + beside[1]
            if cell not in walls and cell not in reached:
                reached.add(cell)
                waiting.append(cell)
    # Boxes and targets that are shut in stay what they are: without them the counts would not be
    # those of the level.
    outside = {cell for cell in cells if board[cell] in FLOOR_LETTERS and cell not in reached}
    return Level(
        name, Room(height, width, walls | outside, targets), State(players[0], frozenset(boxes))
    )
