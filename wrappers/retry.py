"""RetryFailedEpisodes: shields trainers that do not read ``info`` from failing machinery."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym

from dyna_gym.errors import DynaGymWarning, MachineryError
from dyna_gym.wrappers.base import LayerWrapper, whole_number


class RetryFailedEpisodes(LayerWrapper):
    """Start an episode again, on the same task, when the machinery fails in it.

    Trainers such as SB3's or CleanRL's do not read ``info["error"]`` and would learn from the truncated
    episode. Here it never ends in front of them: when a step fails, the env is reset to the same task and
    the step returns the new first observation with reward 0, not truncated. The trainer sees one odd
    transition of reward 0 instead of a scored failure; ``info["retried"]`` counts them. Our own trainers
    drop such episodes instead.

    Args:
        env: The env to shield.
        retries: How often an episode is started again before `MachineryError` is raised.

    Raises:
        MachineryError: The machinery failed ``retries + 1`` times in one episode.
    """

    _refusal = (
        "it starts episodes again, so that failing machinery in a branch would end the real one"
    )

    def __init__(self, env: gym.Env[Any, Any], retries: int = 3) -> None:
        whole_number("retries", retries, 0)
        super().__init__(env, retries=retries)
        self._retries = retries
        self._failures = 0
        self.retried = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, again if the machinery fails."""
        self._failures = 0
        observation, info = self.env.reset(seed=seed, options=options)
        return self._until_up(observation, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; a failure of the machinery restarts the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not info.get("error"):
            return observation, reward, terminated, truncated, {**info, "retried": self.retried}
        observation, info = self._until_up(observation, info)
        return observation, 0.0, False, False, info

    def _until_up(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        while info.get("error"):
            self._failures += 1
            if self._failures > self._retries:
                raise MachineryError(
                    f"the machinery failed {self._failures} times in one episode "
                    f"(task {info['task'].id}); last: {info['error']}. Check the service or device; "
                    "`retries` bounds how often an episode is started again"
                )
            self.retried += 1
            warnings.warn(
                f"episode of task {info['task'].id} started again: {info['error']}",
                DynaGymWarning,
                stacklevel=3,
            )
            observation, info = self.env.reset(options={"task": info["task"]})
        return observation, {**info, "retried": self.retried}
