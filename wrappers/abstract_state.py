"""AbstractStateWrapper: observations become the short states that dreams are made of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.spaces import UnicodeText
from dyna_gym.wrappers.base import LayerWrapper


class AbstractStateWrapper(LayerWrapper):
    """Replace each observation by the world's abstract state (`World.abstract`).

    The abstract state holds nothing that the agent could not know. The identity on a dream.

    Args:
        env: The env to wrap, with text observations.
        max_length: Longest state, in characters.
    """

    _changing = ("_state",)

    def __init__(self, env: gym.Env[Any, Any], max_length: int = 100_000) -> None:
        super().__init__(env, max_length=max_length)
        self.observation_space = UnicodeText(max_length)
        self._state: str | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        failed = bool(info.get("error"))  # there is no observation to abstract
        self._state = "" if failed else self.world.abstract(None, None, observation)
        return self._state, info

    def step(self, action: Any) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Step and abstract the observation."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not info.get("error"):
            self._state = self.world.abstract(self._state, action, observation)
        assert self._state is not None
        return self._state, reward, terminated, truncated, info
