"""AbstractStateWrapper: observations become the short states that dreams are made of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.spaces import UnicodeText
from dyna_gym.wrappers.base import LayerWrapper, whole_number


class AbstractStateWrapper(LayerWrapper):
    """Replace each observation by the world's abstract state, ``info["state"]``.

    The abstract state holds nothing that the agent could not know. The identity on a dream.

    Args:
        env: The env to wrap.
        max_length: Longest state, in characters.
    """

    def __init__(self, env: gym.Env[Any, Any], max_length: int = 100_000) -> None:
        whole_number("max_length", max_length, 1)
        super().__init__(env, max_length=max_length)
        self.observation_space = UnicodeText(max_length)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        _, info = self.env.reset(seed=seed, options=options)
        return info["state"], info

    def step(self, action: Any) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Step and show the state."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return info["state"], reward, terminated, truncated, info
