"""TaskTimeLimit: the step budget of the task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.wrappers.base import LayerWrapper, whole_number


class TaskTimeLimit(LayerWrapper):
    """Truncate an episode when the task's step budget is spent.

    The budget is the env's ``max_steps`` setting, else the task's own, else ``default``. Before it
    truncates, worlds that are judged at their end are judged (`WorldEnv.finalize`). Invalid actions
    count; drafts of `SimRolloutWrapper` are taken in a branch and do not.

    Args:
        env: The env to wrap.
        default: Steps where neither env nor task has a budget; None for no limit.

    Examples:
        >>> import gymnasium as gym, dyna_gym
        >>> env = gym.make("DynaGym-Sokoban-v0", max_steps=2)
        >>> _ = env.reset(seed=0)
        >>> [env.step("nonsense")[3] for _ in range(2)]
        [False, True]
    """

    _changing = ("_steps",)

    def __init__(self, env: gym.Env[Any, Any], default: int | None = None) -> None:
        if default is not None:
            whole_number("default", default, 1)
        super().__init__(env, default=default)
        self._default = default
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode with a full budget."""
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate when the budget is spent."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        budget = self.world_env.step_budget() or self._default
        if budget is not None and self._steps >= budget and not (terminated or truncated):
            truncated = True
            # Once: who steps on after the end is not judged again.
            judgement = self.world_env.finalize() if self._steps == budget else None
            if judgement is not None:
                reward = float(reward) + judgement.reward
                info = {**info, "success": judgement.success, "score": judgement.score}
        return observation, reward, terminated, truncated, info
