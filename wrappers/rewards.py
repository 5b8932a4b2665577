"""Rewards by outcome: the ones that the two papers train on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.wrappers.base import LayerWrapper
from dyna_gym.wrappers.settings import finite_number


class OutcomeReward(LayerWrapper):
    """Dyna-Mind's reward (section on reward design): a step costs, success pays at the end.

    -0.1 on every step that does not end the episode; at the last step 10.0 if the task is solved and
    0.0 if not. The paper does not say what a step limit does [NF]: here a truncated step is the last
    step, so an unsolved one pays 0.0. A step on which the machinery failed pays 0.0.

    Args:
        env: The env to wrap, with ``success`` in its ``info``.
        step: Reward of a step that does not end the episode.
        success: Reward of the last step of a solved episode.
        failure: Reward of the last step of an unsolved episode.

    Examples:
        >>> import gymnasium as gym, dyna_gym
        >>> env = OutcomeReward(gym.make("DynaGym-Sokoban-v0", max_steps=2))
        >>> _ = env.reset(seed=0)
        >>> [env.step("nonsense")[1] for _ in range(2)]
        [-0.1, 0.0]
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        step: float = -0.1,
        success: float = 10.0,
        failure: float = 0.0,
    ) -> None:
        self._step = finite_number("step", step)
        self._success = finite_number("success", success)
        self._failure = finite_number("failure", failure)
        super().__init__(env, step=self._step, success=self._success, failure=self._failure)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and replace the reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        if info.get("error"):
            reward = 0.0
        elif terminated or truncated:
            reward = self._success if info["success"] else self._failure
        else:
            reward = self._step
        return observation, reward, terminated, truncated, info


class SuccessReward(LayerWrapper):
    """DreamGym's reward (section 4): 1 at the final step of a solved task, else 0.

    The identity on a dream, whose own reward this is.

    Args:
        env: The env to wrap, with ``success`` in its ``info``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and replace the reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        solved = (terminated or truncated) and info["success"] and not info.get("error")
        return observation, float(solved), terminated, truncated, info
