"""Small worlds for tests, registered as ``tests.worlds:DynaTest-...-v0``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from dyna_gym.env import Judgement, Outcome, WorldEnv
from dyna_gym.errors import MachineryError
from dyna_gym.registration import register_world
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import Task
from dyna_gym.world import Oracle, ParsedAction, World

ACTIONS = ("inc", "dec", "wait")
STATE = re.compile(r"n=(-?\d+) goal=(\d+)")
TO_TWO = {"task": "counter/train/0"}
"""Options of reset: goal 2, at most 12 steps."""
TO_FOUR = {"task": "counter/train/2"}


def answer(action: str, *plan: str) -> str:
    """A response."""
    lines = "".join(f"{a}\n" for a in plan)
    return f"<think>x</think><plan>\n{lines}</plan><action>{action}</action>"


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
        return ACTIONS

    def digest(self, state: str) -> str:
        found = STATE.search(state)
        assert found, f"not a state: {state!r}"
        return f"n {found[1]}"


class CounterOracle(Oracle):
    score_floor = 1.0

    def expert(self, env: gym.Env[Any, Any]) -> Callable[[Any, dict[str, Any]], str]:
        def act(observation: Any, info: dict[str, Any]) -> str:
            found = STATE.search(str(observation))
            assert found
            return "inc" if int(found[1]) < int(found[2]) else "dec"

        return act

    def value(self, task: Task, state: str) -> float:
        found = STATE.search(state)
        assert found
        return 0.5 ** abs(int(found[1]) - int(found[2]))


class CounterEnv(WorldEnv[str, str]):
    """Deterministic, with snapshots."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}
    branching = "snapshot"
    oracle = CounterOracle()
    world_class: type[World] = CounterWorld
    noise = 1
    """Largest step of ``inc``."""

    def __init__(
        self,
        *,
        split: str = "train",
        tasks: Sequence[str | Task] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
        retries: int = 2,
    ) -> None:
        super().__init__(
            self.world_class(),
            split=split,
            tasks=tasks,
            max_steps=max_steps,
            render_mode=render_mode,
            retries=retries,
        )
        self.observation_space = UnicodeText(100)
        self.action_space = UnicodeText(1_000)
        self.n = 0

    def _start(self, task: Task) -> str:
        self.n = task.params["start"]
        return self._text()

    def _text(self) -> str:
        assert self.task is not None
        return f"n={self.n} goal={self.task.params['goal']}"

    def _apply(self, action: str) -> Outcome[str]:
        assert self.task is not None
        parsed = self.world.parse_action(action)
        if parsed.action == "inc":
            self.n += int(self.np_random.integers(1, self.noise + 1))
        elif parsed.action == "dec":
            self.n -= 1
        return self._outcome(parsed.reason)

    def _outcome(self, reason: str | None) -> Outcome[str]:
        assert self.task is not None
        solved = self.n == self.task.params["goal"]
        return Outcome(self._text(), float(solved), solved, solved, float(solved), reason)

    def _admissible(self) -> tuple[str, ...] | None:
        return self.world.admissible(self._text())

    def _get_state(self) -> Any:
        return self.n

    def _set_state(self, state: Any) -> None:
        self.n = state

    def render(self) -> str | None:  # type: ignore[override]
        return self._text() if self.render_mode == "ansi" and self.task else None


class NoisyEnv(CounterEnv):
    """``inc`` adds 1 or 2, by the env's own generator."""

    noise = 2


class ReplayEnv(NoisyEnv):
    """Cannot copy its state: branches by re-running the actions."""

    branching = "replay"

    def _get_state(self) -> Any:
        raise AssertionError("a replay world must not be asked for its state")

    _set_state = _get_state  # type: ignore[assignment]


class DriftingEnv(ReplayEnv):
    """Says that it can be replayed, and cannot: each start is another."""

    starts = 0

    def _start(self, task: Task) -> str:
        super()._start(task)
        DriftingEnv.starts += 1
        self.n = -DriftingEnv.starts
        return self._text()


class PostingEnv(CounterEnv):
    """Acting has effects outside: cannot be branched."""

    branching = "none"


class JudgedEnv(CounterEnv):
    """Judged at the end only, as worlds with a `stop` action are."""

    def _outcome(self, reason: str | None) -> Outcome[str]:
        return Outcome(self._text(), invalid_reason=reason)

    def _finalize(self) -> Judgement | None:
        assert self.task is not None
        solved = self.n == self.task.params["goal"]
        return Judgement(5.0 * solved, solved, 1.0 if solved else 0.25)


class FlakyEnv(CounterEnv):
    """Fails at the calls of its machinery whose numbers (from 0, since it was made) are given."""

    def __init__(self, *, fail_at: Sequence[int] = (), **settings: Any) -> None:
        super().__init__(**settings)
        self.backoff_s = 0.0
        self.fail_at = frozenset(fail_at)
        self.calls = 0

    def _work(self) -> None:
        self.calls += 1
        if self.calls - 1 in self.fail_at:
            raise MachineryError(f"call {self.calls - 1} failed", retry=True)

    def _start(self, task: Task) -> str:
        self._work()
        return super()._start(task)

    def _apply(self, action: str) -> Outcome[str]:
        self._work()
        return super()._apply(action)


for _name in ("Counter", "Noisy", "Replay", "Drifting", "Posting", "Judged", "Flaky"):
    register_world(f"DynaTest-{_name}-v0", f"tests.worlds:{_name}Env")
