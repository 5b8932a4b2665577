"""The real Sokoban env."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dyna_gym.env import Outcome, WorldEnv
from dyna_gym.envs.sokoban.oracle import SokobanOracle
from dyna_gym.envs.sokoban.room import (
    ACTIONS,
    Room,
    State,
    is_solved,
    render_board,
    step,
)
from dyna_gym.envs.sokoban.world import SokobanWorld, start_of
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import Task

STEP_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0


class SokobanEnv(WorldEnv[str, str]):
    """Sokoban as text: push every box onto a target.

    ## Description

    A grid world of planning with dead ends: boxes can be pushed but not pulled, so that a wrong push can
    make a room unsolvable. Rooms are made by seeded reverse play (boxes are pulled away from their targets), so each
    is solvable; or read from level files.

    ## Task and splits

    `train` and `eval_id` are 6×6 rooms with one box, `eval_ood` 7×7 rooms with two; ``size``, ``boxes``,
    ``ood_size`` and ``ood_boxes`` change that. The Dyna-Mind paper does not give its sizes, nor what it
    calls in and out of distribution [NF]: this definition is ours. Which split a room belongs to is
    decided by a hash of its walls that is equal for all its rotations and reflections, so that no layout stands
    in two splits. With ``levels`` the tasks are the levels of XSB or Boxoban files.

    ## Observation Space

    `UnicodeText`: one row a line, `#` wall, `_` floor, `O` target, `X` box, `P` player, `√` box on a
    target, `S` player on a target. For instance

        ######
        #P__##
        #_X_O#
        #__###
        #____#
        ######

    ## Action Space

    `UnicodeText`: a text with exactly one of the words `up`, `down`, `left`, `right` in it, in any case.
    Anything else changes nothing, counts as a step and sets ``info["invalid_reason"]`` to
    `empty_action`, `unknown_action` or `ambiguous`. Walking into a wall, or pushing a box that cannot
    move, is a valid action without effect.

    ## Rewards

    -0.1 a step, +1 for a box pushed onto a target, -1 for one pushed off, +10 when all are on: the
    scheme that is usual for Sokoban. Dyna-Mind's reward, which has no ±1, is `OutcomeReward`.
    ``info["score"]`` is the share of boxes on targets.

    ## Starting State and seeding

    The seed decides the task, the task decides the room, in any process. The dynamics are deterministic.

    ## Episode End

    1. Termination: all boxes are on targets.
    2. Truncation: the task's step budget is spent, 10 steps a box (ours [NF]); levels from files have none
       unless ``max_steps`` is given. A room that has become unsolvable does not end by itself.

    ## Cloning

    ``branching = "snapshot"``: states are immutable, a copy costs microseconds.

    ## Arguments

    Args:
        size: Side of a square room, or (height, width), walls included.
        boxes: Boxes a room.
        ood_size: ``size`` of `eval_ood`; default one more.
        ood_boxes: ``boxes`` of `eval_ood`; default one more.
        min_moves: Least number of moves of the shortest solution of a generated room (default 2, where that
            can be checked cheaply; the most is then two less than the step budget).
        levels: A level file, all of whose levels are `train` tasks, or a mapping from split to file.
        split: Which tasks to draw from.
        tasks: Task ids to draw from instead.
        max_steps: Step budget that overrides the tasks' own.
        render_mode: `ansi` (the board as text) or `rgb_array` (uint8 [height * 24, width * 24, 3]).

    ## Registered ids

    `DynaGym-Sokoban-v0`

    ## Requirements

    None beyond the core.

    ## Version History

    * v0: first version.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
    branching = "snapshot"
    oracle = SokobanOracle()

    def __init__(
        self,
        *,
        size: int | Sequence[int] = 6,
        boxes: int = 1,
        ood_size: int | Sequence[int] | None = None,
        ood_boxes: int | None = None,
        min_moves: int | None = None,
        levels: str | Mapping[str, str] | None = None,
        split: str = "train",
        tasks: Sequence[str | Task] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        world = SokobanWorld.shared(
            size=size,
            boxes=boxes,
            ood_size=ood_size,
            ood_boxes=ood_boxes,
            min_moves=min_moves,
            levels=levels,
        )
        super().__init__(
            world, split=split, tasks=tasks, max_steps=max_steps, render_mode=render_mode
        )
        # Longer than any board, so that observations of all splits fit.
        self.observation_space = UnicodeText(10_000)
        self.action_space = UnicodeText(100_000)
        self._room: Room | None = None
        self._state: State | None = None

    def _start(self, task: Task) -> str:
        self._room, self._state = start_of(task)
        return _board(self._room, self._state)

    def _apply(self, action: str) -> Outcome[str]:
        room, before = self._room, self._state
        assert room is not None
        assert before is not None
        parsed = self.world.parse_action(action)
        after = before
        if parsed.action is not None:
            after = step(room, before, ACTIONS.index(parsed.action))[0]
        self._state = after
        solved = is_solved(room, after)
        change = _on_target(room, after) - _on_target(room, before)
        return Outcome(
            observation=_board(room, after),
            reward=STEP_REWARD + BOX_REWARD * change + SOLVED_REWARD * solved,
            terminated=solved,
            success=solved,
            score=_on_target(room, after) / len(room.targets),
            invalid_reason=parsed.reason,
        )

    def _admissible(self) -> tuple[str, ...]:
        return ACTIONS

    def _get_state(self) -> tuple[Room | None, State | None]:
        return self._room, self._state

    def _set_state(self, state: Any) -> None:
        self._room, self._state = state

    def render(self) -> str | np.ndarray | None:
        """The board as text, or as a picture."""
        if self.render_mode is None or self._room is None or self._state is None:
            return None
        if self.render_mode == "ansi":
            return render_board(self._room, self._state)
        from dyna_gym.envs.sokoban.render import render_rgb

        return render_rgb(self._room, self._state)


@lru_cache(maxsize=2**15)
def _board(room: Room, state: State) -> str:
    return render_board(room, state)


@lru_cache(maxsize=2**15)
def _on_target(room: Room, state: State) -> int:
    return sum(box in room.targets for box in state.boxes)
