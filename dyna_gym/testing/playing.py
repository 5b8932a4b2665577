"""How the checks make envs and act in them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np

from dyna_gym.env import WorldEnv
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import SPLITS, Task
from dyna_gym.testing.common import NONSENSE, NotApplicable, describe, require, steps_of

Env = gym.Env[Any, Any]
T = TypeVar("T")
MAX_STEPS = 200
"""Longest episode that a check plays where neither the env nor the task has a budget."""
SECONDS = 60.0
"""Time that a check which plays takes by default; what it has begun it ends."""


class Timed(Generic[T]):
    """Items as long as there is time; at least the first.

    Args:
        items: What to go through.
        seconds: Time that it may take; None for no limit.
    """

    def __init__(self, items: Iterable[T], seconds: float | None) -> None:
        self._items, self._seconds = list(items), seconds
        self.done = 0
        """Items that were given out."""

    def __iter__(self) -> Iterator[T]:
        started = time.monotonic()
        for item in self._items:
            late = self._seconds is not None and time.monotonic() - started >= self._seconds
            if self.done and late:
                return
            self.done += 1
            yield item

    def told(self, noun: str) -> str:
        """How many of them, for the result line."""
        if self.done == len(self._items):
            return f"{self.done} {noun}"
        return f"{self.done} of {len(self._items)} {noun} in {self._seconds:g} s"


@contextmanager
def made(env_id: str, **make_kwargs: Any) -> Iterator[Env]:
    """``gym.make`` that closes the env at the end and insists on a `WorldEnv`."""
    env = gym.make(env_id, **make_kwargs)
    try:
        require(
            isinstance(env.unwrapped, WorldEnv),
            f"{env_id} is a {type(env.unwrapped).__name__}",
            "a subclass of dyna_gym.env.WorldEnv",
            "derive the env class from WorldEnv",
        )
        yield env
    finally:
        env.close()


def world_env(env: Env) -> WorldEnv[Any, Any]:
    """The env at the bottom, typed."""
    base = env.unwrapped
    assert isinstance(base, WorldEnv)
    return base


def takes_text(env: Env) -> bool:
    """Whether the env is acted in by text; what it observes may be anything, for its state is text."""
    return isinstance(env.action_space, UnicodeText)


def require_text(env: Env) -> None:
    """Leave the check out for envs whose actions are no text."""
    if not takes_text(env):
        raise NotApplicable("the env's actions are not UnicodeText")


def deterministic(env: Env) -> bool:
    """Whether equal seeds must give equal episodes."""
    return not world_env(env).nondeterministic


def require_deterministic(env: Env) -> None:
    """Leave the check out for envs that say that equal seeds give unequal episodes."""
    if not deterministic(env):
        raise NotApplicable("the env declares itself nondeterministic")


def fixed(env: Env, observation: Any, info: Mapping[str, Any]) -> Any:
    """The part of a result that the seed decides, described: all, or of a nondeterministic env the task."""
    if deterministic(env):
        return describe((observation, info))
    return describe(info["task"])


def listed_actions(env: Env, info: Mapping[str, Any]) -> tuple[str, ...]:
    """The admissible actions, or the world's candidates where the set is unbounded."""
    actions = info["admissible_actions"]
    if actions is None:
        actions = world_env(env).world.candidates(info["state"])
    return tuple(actions)


def pick_action(env: Env, info: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """An action that depends on ``rng`` only: mostly a listed one, at times nonsense."""
    number = int(rng.integers(2**31))
    if not takes_text(env):
        env.action_space.seed(number)
        return env.action_space.sample()
    actions = listed_actions(env, info)
    if not actions or rng.random() < 0.15:
        return NONSENSE[number % len(NONSENSE)]
    return actions[number % len(actions)]


def play(env: Env, seed: int, steps: int, action_seed: int | None = None) -> list[dict[str, Any]]:
    """Reset with the seed and act; everything that came back, described.

    An episode that ends is followed by a reset without a seed, as training loops do.
    """
    rng = np.random.default_rng([seed if action_seed is None else action_seed, 1])
    observation, info = env.reset(seed=seed)
    rows: list[dict[str, Any]] = [{"observation": describe(observation), "info": describe(info)}]
    for _ in range(steps):
        action = pick_action(env, info, rng)
        result = env.step(action)
        rows.append({"action": describe(action), **steps_of(result)})
        info = result[4]
        if result[2] or result[3]:
            observation, info = env.reset()
            rows.append({"observation": describe(observation), "info": describe(info)})
    return rows


def go_on(env: Env, actions: Sequence[Any]) -> list[dict[str, Any]]:
    """Take the actions until they or the episode end."""
    rows = []
    for action in actions:
        rows.append(steps_of(env.step(action)))
        if rows[-1]["terminated"] or rows[-1]["truncated"]:
            break
    return rows


def sample_tasks(env: Env, split: str, count: int) -> list[Task]:
    """At most ``count`` tasks of a split, spread over it."""
    tasks = world_env(env).world.tasks(split)
    if not len(tasks):
        return []
    picks = np.unique(np.linspace(0, len(tasks) - 1, count).astype(int))
    return [tasks[int(i)] for i in picks]


def all_splits(env: Env) -> list[str]:
    """Names of the splits that have tasks."""
    return [split for split in SPLITS if len(world_env(env).world.tasks(split))]


def mixed_tasks(env: Env, count: int) -> list[Task]:
    """At most ``count`` tasks of each split, the splits in turn: who stops early has seen all of them."""
    columns = [sample_tasks(env, split, count) for split in all_splits(env)]
    return [column[i] for i in range(count) for column in columns if i < len(column)]


def episode_limit(env: Env, task: Task) -> int:
    """Steps after which an episode of the task must have ended."""
    base = world_env(env)
    budget = base.max_steps or task.params.get("max_steps")
    with suppress(AttributeError):
        budget = budget or env.get_wrapper_attr("_default")
    return int(budget or MAX_STEPS)
