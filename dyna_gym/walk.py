"""Rollouts of a search: real steps from the present states of envs, which are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from dyna_gym.batching import ask, world_action
from dyna_gym.branching import StackState, clone, fresh_rng, lookahead, restore
from dyna_gym.errors import MachineryError
from dyna_gym.model_env import ModelEnv

Env = gym.Env[Any, Any]


@dataclass
class Rollout:
    """One course of action that was really taken."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    """(action, digest of the real state after it); detours left out."""
    end: str = ""
    """Last state."""
    value: float = 0.0
    success: bool = False
    done: bool = False


@dataclass
class SearchTree:
    """What a search from one state found."""

    rollouts: list[Rollout]
    """All distinct rollouts, in the order found."""
    best: int
    """Index of the one with the highest value; among equals the shortest."""
    shown: list[int]
    """Indices that a response is made of: the best and ``keep - 1`` random others, shuffled."""
    env_steps: int = 0
    tokens: int = 0
    error: str | None = None
    """The machinery failed during the search; nothing of it can be used."""

    def shown_as_dicts(self) -> list[dict[str, Any]]:
        """The shown rollouts, as prompts and reports take them."""
        return [
            {
                "steps": self.rollouts[i].steps,
                "value": self.rollouts[i].value,
                "best": i == self.best,
            }
            for i in self.shown
        ]


class Walk:
    """Rollouts from the present states of some envs; each env serves all of its own, in turn.

    A context: what happens inside is no part of the episodes, and on leaving all envs are as before.

    Args:
        envs: What is stepped: agent envs or the layers below.
        breadth: Rollouts an env.
        trees: Where steps and failures are counted.
    """

    def __init__(self, envs: Sequence[Env], breadth: int, trees: list[SearchTree]) -> None:
        self._envs, self._trees = envs, trees
        self._roots = [clone(env) for env in envs]
        # Where each rollout stands. Its noise is its own: the env's would show the future's.
        self._at = [[fresh_rng(root, k) for k in range(breadth)] for root in self._roots]
        self.rollouts = [[Rollout() for _ in range(breadth)] for _ in envs]
        self._open = ExitStack()

    def __enter__(self) -> Walk:
        for env in self._envs:
            self._open.enter_context(lookahead(env))
        return self

    def __exit__(self, *error: Any) -> None:
        with self._open:
            for i, root in enumerate(self._roots):
                self._restore(i, root)

    def live(self) -> list[tuple[int, int]]:
        """(env, rollout) of those that go on."""
        return [
            (i, k)
            for i, found in enumerate(self.rollouts)
            for k, rollout in enumerate(found)
            if not rollout.done and self._trees[i].error is None
        ]

    def advance(
        self, rows: Sequence[tuple[int, int]], actions: Sequence[str]
    ) -> Iterator[tuple[int, int]]:
        """One step of some rollouts; yields each while its env stands there."""
        self._ask(rows, actions)
        for (i, k), action in zip(rows, actions, strict=True):
            if self._trees[i].error is None and self._restore(i, self._at[i][k]):
                _take(self._envs[i], action, self.rollouts[i][k], self._trees[i])
                self._at[i][k] = clone(self._envs[i])
                yield i, k

    def _ask(self, rows: Sequence[tuple[int, int]], actions: Sequence[str]) -> None:
        asked = []
        for (i, k), action in zip(rows, actions, strict=True):
            base = self._envs[i].unwrapped
            if isinstance(base, ModelEnv) and self._restore(i, self._at[i][k]):
                asked.append((base, base.request(world_action(self._envs[i], action))))
        ask(asked)

    def follow(self, plans: Sequence[Sequence[Sequence[str]]]) -> None:
        """Take whole plans, one rollout after the other: no state has to be kept on the way."""
        for i, env in enumerate(self._envs):
            tree = self._trees[i]
            for k, plan in enumerate(plans[i]):
                if tree.error is not None or not self._restore(i, self._at[i][k]):
                    break
                for action in plan:
                    if self.rollouts[i][k].done or tree.error is not None:
                        break
                    _take(env, action, self.rollouts[i][k], tree)

    def _restore(self, i: int, state: StackState) -> bool:
        try:
            restore(self._envs[i], state)
        except MachineryError as error:  # a replay that diverged
            self._trees[i].error = f"{type(error).__name__}: {error}"
            return False
        return True


def _take(env: Env, action: str, rollout: Rollout, tree: SearchTree) -> None:
    """One step of a rollout: a response into an agent env, or a world action below it."""
    world = env.unwrapped.world  # type: ignore[attr-defined]
    _, _, terminated, truncated, info = env.step(action)
    tree.env_steps += 1
    if info.get("error"):
        tree.error = info["error"]
        return
    rollout.end = info["state"]
    rollout.success, rollout.done = bool(info["success"]), terminated or truncated
    named = info["action"] if "action" in info else world.parse_action(action).action
    if named is not None:  # a response without an action is no course of action
        rollout.steps.append((named, world.digest(rollout.end)))
