"""SokobanOracle: optimal play and exact values, from the solver."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.envs.sokoban.generate import RoomConfig, generate_room
from dyna_gym.envs.sokoban.room import Room, State, is_solved, parse_board, render_board
from dyna_gym.envs.sokoban.solver import SolverLimit, distances, solve
from dyna_gym.envs.sokoban.world import INSTRUCTION, STEPS_PER_BOX
from dyna_gym.task import Task
from dyna_gym.world import Oracle

GAMMA = 0.8
"""Discount of the exact value, a move; ours [NF]."""
TIME_LIMIT_S = 30.0
MAX_TABLE_CELLS = 100


class SokobanOracle(Oracle):
    """Expert and exact value. Reads boards, so it needs no access to an env's inside."""

    score_floor = 1.0

    def expert(self, env: gym.Env[Any, Any]) -> Callable[[Any, dict[str, Any]], str]:
        """Plays a shortest solution (in moves; in pushes where that is too costly)."""

        def act(observation: Any, info: dict[str, Any]) -> str:
            return self.best_action(str(info.get("observation", observation)))

        return act

    def best_action(self, board: str) -> str:
        """The first action of a shortest solution; ``up`` where there is none."""
        return _best_action(board)

    def value(self, task: Task, state: str) -> float:
        """``GAMMA ** moves`` to the end of the shortest solution; 0 where there is none."""
        moves = moves_to_go(state)
        return 0.0 if moves is None else GAMMA**moves

    def generate_tasks(self, count: int, rng: np.random.Generator) -> list[Task]:
        """New rooms like the default training rooms."""
        tasks = []
        for _ in range(count):
            number = int(rng.integers(2**62))
            room, state = generate_room(RoomConfig(), np.random.default_rng(number))
            params = {"board": render_board(room, state), "max_steps": STEPS_PER_BOX}
            tasks.append(
                Task(f"sokoban/generated/{number}", INSTRUCTION, "train", "sokoban", params)
            )
        return tasks


@lru_cache(maxsize=4_096)
def _table(room: Room) -> dict[State, int]:
    return distances(room)


@lru_cache(maxsize=200_000)
def moves_to_go(board: str) -> int | None:
    """Moves of the shortest solution from a board; None where there is none."""
    room, state = parse_board(board)
    if is_solved(room, state):
        return 0
    if len(state.boxes) == 1 and room.height * room.width <= MAX_TABLE_CELLS:
        return _table(room).get(state)
    try:
        solution = solve(room, state, objective="moves", time_limit_s=TIME_LIMIT_S)
    except SolverLimit:
        solution = solve(room, state, time_limit_s=TIME_LIMIT_S)
    return None if solution is None else len(solution.moves)


@lru_cache(maxsize=50_000)
def _best_action(board: str) -> str:
    room, state = parse_board(board)
    try:
        solution = solve(room, state, objective="moves", time_limit_s=TIME_LIMIT_S)
    except SolverLimit:
        solution = solve(room, state, time_limit_s=TIME_LIMIT_S)
    return solution.actions[0] if solution is not None and solution.moves else "up"
