"""TaskTimeLimit: the step budget of the task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.batching import layers
from dyna_gym.wrappers.base import LayerWrapper, whole_number


class TaskTimeLimit(LayerWrapper):
    """Truncate an episode when the task's step budget is spent.

    The budget is the env's ``max_steps`` setting, else the task's own, else ``default``. Worlds that are
    judged at their end are judged (`WorldEnv.finalize`) when an episode is truncated, be it here or by a
    limit below, such as Gymnasium's for ``max_episode_steps``. Invalid actions count; drafts of
    `SimRolloutWrapper` are taken in a branch and do not.

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

    _changing = ("_steps", "_judged")

    def __init__(self, env: gym.Env[Any, Any], default: int | None = None) -> None:
        if default is not None:
            whole_number("default", default, 1)
        super().__init__(env, default=default)
        self._default = default
        self._steps = 0
        self._judged = False

    @property
    def remaining(self) -> int | None:
        """Steps that are left of the budget; None where there is none."""
        budget = self.world_env.step_budget() or self._default
        return None if budget is None else max(0, budget - self._steps)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode with a full budget."""
        self._steps, self._judged = 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate when the budget is spent."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        truncated = truncated or (self.remaining == 0 and not terminated)
        # Once: who steps on after the end is not judged again.
        if truncated and not (terminated or self._judged or info.get("error")):
            self._judged = True
            judgement = self.world_env.finalize()
            info = {**info, **self.world_env.observe()[1]}
            if info.get("error"):
                reward = 0.0
            elif judgement is not None:
                reward = float(reward) + judgement.reward
        return observation, reward, terminated, truncated, info


def remaining_steps(env: gym.Env[Any, Any]) -> int | None:
    """Steps that the limits of a stack leave to the episode; None where it has none."""
    left = [layer.remaining for layer in layers(env) if isinstance(layer, TaskTimeLimit)]
    left += [
        layer._max_episode_steps - (layer._elapsed_steps or 0)
        for layer in layers(env)
        if isinstance(layer, gym.wrappers.TimeLimit)
    ]
    return min((steps for steps in left if steps is not None), default=None)
