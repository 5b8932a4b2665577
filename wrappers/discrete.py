"""DiscreteActions: a number picks one of the listed actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.wrappers.base import LayerWrapper, whole_number, world_env_of


class DiscreteActions(LayerWrapper):
    """Take the index of an admissible action (or of a candidate, where the set is unbounded).

    For RL libraries that want `gymnasium.spaces.Discrete`. `action_masks` is what SB3-contrib's
    MaskablePPO asks for. An index beyond the present list is an invalid action, not an error.
    ``info["action"]`` is the world action that was executed, None if there was none or it was refused.

    Args:
        env: An env that takes the world's text actions.
        max_actions: Size of the action space.

    Examples:
        >>> import gymnasium as gym, dyna_gym
        >>> env = DiscreteActions(gym.make("DynaGym-Sokoban-v0"), max_actions=6)
        >>> _ = env.reset(seed=0)
        >>> env.action_space, env.action_masks().tolist()
        (Discrete(6), [True, True, True, True, False, False])
        >>> env.step(5)[4]["invalid_reason"]
        'not_admissible'
    """

    _changing = ("_actions",)

    def __init__(self, env: gym.Env[Any, Any], max_actions: int = 64) -> None:
        whole_number("max_actions", max_actions, 1)
        world_env_of(type(self).__name__, env, text=True)
        super().__init__(env, max_actions=max_actions)
        self.action_space = gym.spaces.Discrete(max_actions)
        self._max_actions = max_actions
        self._actions: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[str, ...]:
        """The world actions that the indices stand for now."""
        return self._actions

    def action_masks(self) -> np.ndarray:
        """Which indices stand for an action now: bool [max_actions]."""
        mask = np.zeros(self._max_actions, dtype=bool)
        mask[: len(self._actions)] = True
        return mask

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._list(info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take the action of that index."""
        text = self.passes_on(action)
        observation, reward, terminated, truncated, info = self.env.step(text)
        if not text and not info.get("error"):
            info = {**info, "invalid_reason": "not_admissible"}
        info = {**info, "action": None if info["invalid_reason"] else text}
        self._list(info, ended=terminated)
        return observation, reward, terminated, truncated, info

    def passes_on(self, action: Any) -> str:
        """The world action that an index stands for now; "" where it stands for none."""
        # SB3's predict() returns an array of no dimensions.
        if isinstance(action, np.ndarray) and action.shape == ():
            action = action[()]
        if not isinstance(action, (int, np.integer)) or isinstance(action, bool):
            raise ConfigError(
                f"got the action {action!r}, expected an index in {self.action_space}; "
                "leave DiscreteActions out to act with text"
            )
        return self._actions[int(action)] if 0 <= action < len(self._actions) else ""

    def _list(self, info: dict[str, Any], ended: bool = False) -> None:
        actions = info["admissible_actions"]
        if actions is None:
            none = ended or bool(info.get("error"))
            actions = () if none else self.world.candidates(info["state"])
        self._actions = tuple(actions)[: self._max_actions]
