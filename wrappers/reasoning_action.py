"""ReasoningActionWrapper: the plain response layer."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.responses import ParsedResponse, parse_response
from dyna_gym.spaces import UnicodeText
from dyna_gym.wrappers.base import LayerWrapper, world_env_of

MAX_RESPONSE = 1_000_000


class ReasoningActionWrapper(LayerWrapper):
    """Take whole responses; execute the action that they end with.

    A response without a readable action leaves the world unchanged, counts as a step and sets
    ``info["invalid_reason"]``. Adds to ``info``: ``observation`` (what the layer below observes),
    ``action`` (the world action executed, None if there was none or it was refused) and ``notes`` (see
    `dyna_gym.responses.ParsedResponse`).

    Args:
        env: The env to wrap, which takes world actions.

    Examples:
        >>> import gymnasium as gym, dyna_gym
        >>> env = ReasoningActionWrapper(gym.make("DynaGym-Sokoban-v0"))
        >>> _ = env.reset(seed=0)
        >>> info = env.step("<think>x</think><action>push left then up</action>")[4]
        >>> info["invalid_reason"], info["action"]
        ('ambiguous', None)
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        world_env_of(type(self).__name__, env, text=True)
        super().__init__(env)
        self.action_space = UnicodeText(MAX_RESPONSE)

    @property
    def world_layers(self) -> gym.Env[Any, Any]:
        """The env below, which takes world actions."""
        return self.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "observation": observation, "action": None, "notes": ()}

    def passes_on(self, response: Any) -> str:
        """The world action that a response leads to."""
        return parse_response(response).action or ""

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Parse the response and execute its action."""
        return execute_response(self, parse_response(action))


def execute_response(
    layer: LayerWrapper, parsed: ParsedResponse
) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Execute a parsed response's action in the env below ``layer``; shared by all response layers."""
    # The world gets what was written, "" where nothing was: it counts the step and changes nothing.
    text = parsed.action or ""
    observation, reward, terminated, truncated, info = layer.env.step(text)
    if parsed.reason is not None and not info.get("error"):
        info = {**info, "invalid_reason": parsed.reason}
    info = {
        **info,
        "observation": observation,
        "action": None if info["invalid_reason"] else layer.world.parse_action(text).action,
        "notes": parsed.notes,
    }
    return observation, reward, terminated, truncated, info
