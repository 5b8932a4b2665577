"""SokobanWorld: rules, texts and tasks of Sokoban."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dyna_gym.envs.sokoban.generate import RoomConfig, RoomGenerationError, generate_room
from dyna_gym.envs.sokoban.levels import read_levels
from dyna_gym.envs.sokoban.room import (
    ACTIONS,
    Room,
    State,
    canonical_layout,
    cell_name,
    digest,
    layout_bucket,
    parse_board,
    render_board,
)
from dyna_gym.errors import ConfigError
from dyna_gym.task import SPLITS, LazyTasks, Task
from dyna_gym.world import ParsedAction, World

INSTRUCTION = "Push every box onto a target."
TASKS_PER_SPLIT = {"train": 10_000, "eval_id": 1_000, "eval_ood": 1_000}
# A room belongs to the split that the hash of its walls falls into, whatever its rotation or reflection.
# That makes the splits disjoint in layout by construction, however many rooms are ever made.
BUCKETS = {"train": range(0, 7), "eval_id": range(7, 9), "eval_ood": range(9, 10)}
STEPS_PER_BOX = 10
"""Step budget of generated rooms, a box. Ours [NF]."""
SPARE_STEPS = 2
"""Steps of the budget that the shortest solution of a small room leaves over."""
SMALL_CELLS, SMALL_BOXES = 36, 2
"""Inner cells and boxes up to which the shortest solution is cheap enough to choose rooms by it."""
MAX_ACTION_CHARS = 1_000
_WORD = re.compile(r"[^\W_]+")


class SokobanWorld(World):
    """Sokoban as text.

    Args:
        size: Side of a square room, or (height, width), walls included.
        boxes: Boxes, and targets, a room.
        ood_size: The same for `eval_ood`; default one more than ``size``.
        ood_boxes: The same for `eval_ood`; default one more than ``boxes``.
        min_moves: Least number of moves of the shortest solution of a generated room. Default: 2, for a
            room one push from solved needs no looking ahead; 1 where rooms are too large to check.
        levels: A level file (all its levels are `train` tasks), or a mapping from split to file.
    """

    name = "sokoban"
    rules = (
        "You are P on a grid. `#` is a wall, `_` floor, `O` a target, `X` a box, `√` a box on a target, "
        "`S` you on a target. You move one cell at a time and push a box by walking into it, if the cell "
        "behind it is free. You cannot pull, and cannot push two boxes at once: a box in a corner that is "
        "no target is lost. The task is solved when every box is on a target. In short form cells are named "
        "by row letter (a is the top row) and column number (0 is the leftmost): `P b2 X c3` says that you "
        "are in b2 and a box is in c3."
    )
    action_help = "up, down, left or right"

    def __init__(
        self,
        size: int | Sequence[int] = 6,
        boxes: int = 1,
        ood_size: int | Sequence[int] | None = None,
        ood_boxes: int | None = None,
        min_moves: int | None = None,
        levels: str | Mapping[str, str] | None = None,
    ) -> None:
        height, width = _sides("size", size)
        near = _room_config(height, width, boxes, min_moves)
        if ood_size is None:
            ood_size = (height + 1, width + 1)
        far_height, far_width = _sides("ood_size", ood_size)
        far_boxes = boxes + 1 if ood_boxes is None else ood_boxes
        far = _room_config(far_height, far_width, far_boxes, min_moves)
        self.configs = {"train": near, "eval_id": near, "eval_ood": far}
        self.levels = _read_levels(levels)
        boards = [t.params["board"] for tasks in (self.levels or {}).values() for t in tasks]
        rows = [far_height, *(b.count("\n") + 1 for b in boards)]
        columns = [far_width, *(max(map(len, b.split("\n"))) for b in boards)]
        self.max_rows, self.max_columns = max(rows), max(columns)

    @classmethod
    def settings_key(cls, settings: Mapping[str, Any]) -> str:
        """Settings and, of level files, their versions."""
        levels = settings.get("levels")
        files = list(levels.values()) if isinstance(levels, Mapping) else [levels]
        versions = [_version(file) for file in files if isinstance(file, (str, Path))]
        return super().settings_key({**settings, "versions": versions})

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split: generated rooms, or the levels of the file."""
        if split not in SPLITS:
            raise ConfigError(f"split: got {split!r}, expected one of {', '.join(SPLITS)}")
        if self.levels is not None:
            return self.levels.get(split, [])
        rooms = _GeneratedTasks(split, self.configs[split])
        return LazyTasks(TASKS_PER_SPLIT[split], rooms.build, rooms.index)

    def initial_abstract(self, task: Task) -> str:
        """The board at the start of the task."""
        return render_board(*start_of(task))

    def parse_action(self, text: str) -> ParsedAction:
        """Exactly one of the words up, down, left and right, whatever else is written."""
        if not isinstance(text, str) or len(text) > MAX_ACTION_CHARS:
            return ParsedAction(None, "unknown_action")
        return _parse_action(text)

    def admissible(self, state: str) -> tuple[str, ...]:
        """All four directions; walking into a wall is allowed and changes nothing."""
        return ACTIONS

    def digest(self, state: str) -> str:
        """Player and boxes by cell name: ``P b2 X c3``, and ``solved`` at the end when it is."""
        return _digest(state)

    def compact(self, state: str) -> str:
        """Player, boxes, targets and inner walls by cell name, without the outer walls."""
        return _compact(state)

    def vocabulary(self) -> tuple[str, ...]:
        """A token for each thing in each cell, for actions and their arrows; see `World.vocabulary`.

        One token says both what and where: a small model finds the wall, or the box, of a cell by looking
        for that one token.
        """
        cells = [_name(r, c) for r in range(self.max_rows) for c in range(self.max_columns)]
        things = ("P ", " P ", " X ", " O ", " #", " ")
        return (
            *(f"{thing}{cell}" for thing in things for cell in cells),
            " #",
            " solved",
            *ACTIONS,
            *(f" {action} ->" for action in ACTIONS),
            *(f"{action}\n" for action in ACTIONS),
        )


@dataclass(frozen=True)
class _GeneratedTasks:
    # Not closures: an env must be picklable.
    split: str
    config: RoomConfig

    @property
    def prefix(self) -> str:
        config = self.config
        size = f"{config.height}x{config.width}x{config.boxes}"
        if config != _room_config(config.height, config.width, config.boxes, None):
            size += f"m{config.min_moves}"
        return f"sokoban/{size}/{self.split}/"

    def build(self, i: int) -> Task:
        config = self.config
        params = {
            "height": config.height,
            "width": config.width,
            "boxes": config.boxes,
            "min_moves": config.min_moves,
            "max_moves": config.max_moves,
            "max_steps": STEPS_PER_BOX * config.boxes,
            "index": i,
        }
        return Task(f"{self.prefix}{i:06d}", INSTRUCTION, self.split, "sokoban", params)

    def index(self, task_id: str) -> int | None:
        number = task_id.removeprefix(self.prefix)
        return int(number) if number != task_id and re.fullmatch(r"[0-9]{6}", number) else None


# Searches ask for the same few hundred states of a room over and over.
_CACHE = 2**15


@lru_cache(maxsize=_CACHE)
def _parse_action(text: str) -> ParsedAction:
    if not text.strip():
        return ParsedAction(None, "empty_action")
    named = [word for word in _WORD.findall(text.lower()) if word in ACTIONS]
    if len(named) == 1:
        return ParsedAction(named[0], None)
    return ParsedAction(None, "ambiguous" if named else "unknown_action")


@lru_cache(maxsize=_CACHE)
def _digest(board: str) -> str:
    return digest(*parse_board(board))


@lru_cache(maxsize=_CACHE)
def _compact(board: str) -> str:
    room, now = parse_board(board)
    inner = [
        cell
        for cell in sorted(room.walls)
        if 0 < cell // room.width < room.height - 1 and 0 < cell % room.width < room.width - 1
    ]
    targets = "".join(f" {cell_name(room, c)}" for c in sorted(room.targets))
    walls = "".join(f" #{cell_name(room, c)}" for c in inner)
    dynamic = digest(room, now).removesuffix(" solved")
    return f"{dynamic} O{targets}{walls}"


def _name(row: int, column: int) -> str:
    # cell_name needs a room; names of cells beyond any one room are made the same way.
    room = Room(row + 1, column + 1, frozenset(), frozenset())
    return cell_name(room, row * (column + 1) + column)


def _version(file: str | Path) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except (OSError, ValueError):
        return None  # reading it tells what is wrong
    return found.st_mtime_ns, found.st_size


def _sides(name: str, size: int | Sequence[int]) -> tuple[int, int]:
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or any(isinstance(s, bool) or not isinstance(s, int) for s in sides):
        raise ConfigError(f"{name}: got {size!r}, expected a whole number or (height, width)")
    return sides[0], sides[1]


def _room_config(height: int, width: int, boxes: int, min_moves: int | None) -> RoomConfig:
    small = (height - 2) * (width - 2) <= SMALL_CELLS and boxes <= SMALL_BOXES
    if min_moves is None:
        # Three cells in a row hold only rooms of one push.
        min_moves = 2 if small and min(height, width) > 3 else 1
    # A room that cannot be solved within its budget is lost for the best of agents.
    return RoomConfig(
        height=height,
        width=width,
        boxes=boxes,
        min_moves=min_moves,
        max_moves=max(min_moves, STEPS_PER_BOX * boxes - SPARE_STEPS) if small else None,
    )


def _read_levels(levels: str | Mapping[str, str] | None) -> dict[str, list[Task]] | None:
    if levels is None:
        return None
    files = {"train": levels} if isinstance(levels, (str, Path)) else dict(levels)
    tasks: dict[str, list[Task]] = {}
    seen: dict[bytes, tuple[str, str]] = {}
    for split, path in files.items():
        if split not in SPLITS:
            raise ConfigError(f"levels: got the split {split!r}, expected {', '.join(SPLITS)}")
        tasks[split] = []
        for number, level in enumerate(read_levels(path)):
            form = canonical_layout(level.room, level.state)
            other = seen.setdefault(form, (split, level.name))
            if other[0] != split:
                raise ConfigError(
                    f"levels: {level.name!r} of split {split!r} is, up to rotation and reflection, "
                    f"{other[1]!r} of split {other[0]!r}; splits must be disjoint: leave one out"
                )
            params: dict[str, Any] = {"board": render_board(level.room, level.state)}
            task_id = f"sokoban/{Path(path).stem}/{split}/{number:04d}"
            tasks[split].append(Task(task_id, INSTRUCTION, split, "sokoban", params))
    return tasks


def start_of(task: Task) -> tuple[Room, State]:
    """Room and first state of a task; equal for equal tasks in any process."""
    params = task.params
    if "board" in params:
        return parse_board(params["board"])
    return _generated(
        task.split,
        params["index"],
        params["height"],
        params["width"],
        params["boxes"],
        params["min_moves"],
        params["max_moves"],
    )


@lru_cache(maxsize=20_000)
def _generated(
    split: str,
    index: int,
    height: int,
    width: int,
    boxes: int,
    min_moves: int,
    max_moves: int | None,
) -> tuple[Room, State]:
    config = RoomConfig(
        height=height, width=width, boxes=boxes, min_moves=min_moves, max_moves=max_moves
    )
    key = [SPLITS.index(split), index, height, width, boxes, min_moves]
    rng = np.random.default_rng(np.random.SeedSequence(key))
    mine = BUCKETS[split]
    # Rooms of less than 4x4 inside have too few sets of walls to share out; there the whole layout,
    # boxes and player included, decides the split.
    small = (height - 2) * (width - 2) < 16

    def accept(room: Room, state: State) -> bool:
        return layout_bucket(room, 10, state if small else None) in mine

    try:
        return generate_room(config, rng, accept)
    except RoomGenerationError as error:
        raise ConfigError(
            f"no {height}x{width} room with {boxes} box(es) and at least {min_moves} moves found for "
            f"split {split!r} ({error}); make the room larger, or boxes or min_moves fewer"
        ) from error
