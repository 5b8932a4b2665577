"""Policies without a model: random, expert, and ReSim's template aggregator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.policies.base import Message, Policy
from dyna_gym.responses import Response, format_response
from dyna_gym.world import Oracle, World


class RandomPolicy(Policy):
    """A plan of random admissible actions, without thinking.

    Args:
        seed: Seed of its generator.
        plan_length: Actions of a plan.
        vary: Draw the length of each plan from 1 to ``plan_length``.
        world: Whose `World.candidates` are drawn from where the admissible set is unbounded.
    """

    def __init__(
        self,
        seed: int = 0,
        plan_length: int = 1,
        vary: bool = False,
        world: World | None = None,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._plan_length, self._vary = plan_length, vary
        self._world = world

    def seed(self, seed: int) -> None:
        """Start the generator anew."""
        self._rng = np.random.default_rng(seed)

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        """Draw from ``info["admissible_actions"]``, or from the world's candidates."""
        return [self._one(info) for info in infos]

    def _one(self, info: dict[str, Any]) -> Response:
        actions = info["admissible_actions"]
        if actions is None and not info.get("error"):
            if self._world is None:
                raise ConfigError(
                    "RandomPolicy: the world's actions are unbounded, so it must know the world: "
                    "RandomPolicy(world=env.unwrapped.world)"
                )
            actions = self._world.candidates(info["state"])
        if not actions:
            return Response("<action></action>")
        length = self._plan_length
        if self._vary:
            length = int(self._rng.integers(1, length + 1))
        plan = [actions[i] for i in self._rng.integers(len(actions), size=length)]
        return Response(format_response(None, plan, plan[0]))


class ExpertPolicy(Policy):
    """A world's expert, as a policy.

    Args:
        oracle: The world's oracle.
        envs: The envs that are acted in; ``info["slot"]`` (set by collectors) says which of them a row
            is of, and may be missing if there is one env only.
    """

    def __init__(self, oracle: Oracle, envs: Sequence[gym.Env[Any, Any]]) -> None:
        self._oracle, self._envs = oracle, list(envs)
        self._experts: dict[tuple[int, str], Callable[[Any, dict[str, Any]], str]] = {}

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        """Ask the expert of each row's env."""
        return [Response(format_response(None, [a], a)) for a in map(self._action, infos)]

    def _action(self, info: dict[str, Any]) -> str:
        slot = info.get("slot", 0)
        if slot >= len(self._envs):
            raise ConfigError(f"ExpertPolicy has {len(self._envs)} envs, got a row of env {slot}")
        key = (slot, info["task"].id)
        if key not in self._experts:
            self._experts[key] = self._oracle.expert(self._envs[slot])
        return self._experts[key](info.get("observation"), info)


class AggregatorPolicy(Policy):
    """Writes the response that a search tree stands for: ReSim at inference, with the template aggregator.

    For envs with ``response="resim"``. Its imagined futures are real ones, so that its simulation score is
    1 by construction.
    """

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        """Aggregate ``info["search"]`` of each row."""
        from dyna_gym.search import aggregate  # which imports this package

        for info in infos:
            if info.get("search") is None and not info.get("error"):
                raise ConfigError(
                    "AggregatorPolicy found no info['search']: make the env with "
                    'make_agent_env(id, response="resim")'
                )
        return [Response(aggregate(info["search"]) if info.get("search") else "") for info in infos]
