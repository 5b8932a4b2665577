"""The world that the toy worlds of tests are variations of: count to a goal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from dyna_gym.env import Outcome, WorldEnv
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import Task
from dyna_gym.world import Oracle, ParsedAction, World

ACTIONS = ("inc", "dec", "wait")
STATE = re.compile(r"n=(-?\d+) goal=(\d+)")
TO_TWO = {"task": "counter/train/0"}
"""Options of reset: goal 2, at most 12 steps."""
TO_FOUR = {"task": "counter/train/2"}


def read(state: str) -> tuple[int, int]:
    """n and goal of a state; whatever is no state is a mistake of who asks."""
    found = STATE.match(state)
    assert found, f"not a state: {state!r}"
    return int(found[1]), int(found[2])


class CounterWorld(World):
    """Count to the goal. ``inc`` adds 1 (in noisy envs 1 or 2), ``dec`` takes 1 away."""

    name = "counter"
    rules = "A counter n must reach the goal."
    action_help = "inc, dec or wait"

    def tasks(self, split: str) -> Sequence[Task]:
        first = {"train": 2, "eval_id": 3, "eval_ood": 5}[split]
        return [
            Task(
                f"counter/{split}/{i}",
                f"Count to {first + i % 3}.",
                split,
                "counter",
                {"goal": first + i % 3, "start": 0, "max_steps": 12},
            )
            for i in range(12)
        ]

    def initial_abstract(self, task: Task) -> str:
        return f"n={task.params['start']} goal={task.params['goal']}"

    def parse_action(self, text: str) -> ParsedAction:
        if not isinstance(text, str):
            return ParsedAction(None, "unknown_action")
        if not text.strip():
            return ParsedAction(None, "empty_action")
        action = text.strip().lower()
        if action in ACTIONS:
            return ParsedAction(action, None)
        return ParsedAction(None, "unknown_action")

    def admissible(self, state: str) -> tuple[str, ...] | None:
        read(state)
        return ACTIONS

    def digest(self, state: str) -> str:
        return f"n {read(state)[0]}"


class CounterOracle(Oracle):
    score_floor = 1.0

    def expert(self, env: gym.Env[Any, Any]) -> Callable[[Any, dict[str, Any]], str]:
        def act(observation: Any, info: dict[str, Any]) -> str:
            n, goal = read(info["state"])
            return "inc" if n < goal else "dec" if n > goal else "wait"

        return act

    def value(self, task: Task, state: str) -> float:
        n, goal = read(state)
        return 0.5 ** abs(n - goal)


class CounterEnv(WorldEnv[Any, Any]):
    """Deterministic, with snapshots."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}
    branching = "snapshot"
    oracle: Oracle | None = CounterOracle()
    world_class: type[World] = CounterWorld
    noise = 1
    """Largest step of ``inc``."""

    def __init__(
        self,
        *,
        split: str = "train",
        tasks: Sequence[str | int | Task] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
        retries: int = 2,
        backoff_s: float = 0.0,
    ) -> None:
        super().__init__(
            self._make_world(),
            split=split,
            tasks=tasks,
            max_steps=max_steps,
            render_mode=render_mode,
            retries=retries,
            backoff_s=backoff_s,
        )
        self.observation_space = UnicodeText(100)
        self.action_space = UnicodeText(1_000)
        self.n = 0

    def _make_world(self) -> World:
        return self.world_class.shared()

    @property
    def goal(self) -> int:
        assert self.task is not None
        return int(self.task.params["goal"])

    def _start(self, task: Task) -> Any:
        self.n = task.params["start"]
        return self._observation()

    def _observation(self) -> Any:
        return f"n={self.n} goal={self.goal}"

    def _apply(self, action: Any) -> Outcome[Any]:
        parsed = self.world.parse_action(action)
        if parsed.action == "inc":
            self.n += int(self.np_random.integers(1, self.noise + 1))
        elif parsed.action == "dec":
            self.n -= 1
        return self._outcome(parsed.reason)

    def _outcome(self, reason: str | None) -> Outcome[Any]:
        solved = self.n == self.goal
        return Outcome(self._observation(), float(solved), solved, solved, float(solved), reason)

    def _admissible(self) -> tuple[str, ...] | None:
        return self.world.admissible(f"n={self.n} goal={self.goal}")

    def _get_state(self) -> Any:
        return self.n

    def _set_state(self, state: Any) -> None:
        self.n = state

    def render(self) -> str | None:  # type: ignore[override]
        return f"n={self.n}" if self.render_mode == "ansi" and self.task else None
