"""What all wrappers of dyna_gym share."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.env import WorldEnv
from dyna_gym.errors import ConfigError
from dyna_gym.layers import BranchableLayer
from dyna_gym.spaces import UnicodeText
from dyna_gym.world import World


class LayerWrapper(
    gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs, BranchableLayer
):
    """A wrapper over a `WorldEnv` that can be branched.

    Whatever a subclass keeps in attributes is copied when the stack is; see
    `dyna_gym.layers.BranchableLayer` for what can be declared. Constructor arguments are passed on as
    ``recorded``: they make the wrapper again in another instance, and a state is restored only where they
    are the same.

    Args:
        env: The env to wrap.
        recorded: The subclass's constructor arguments.
    """

    def __init__(self, env: gym.Env[Any, Any], **recorded: Any) -> None:
        world_env_of(type(self).__name__, env)  # says now what would otherwise fail at a step
        gym.utils.RecordConstructorArgs.__init__(self, **recorded)
        gym.Wrapper.__init__(self, env)

    @property
    def world_env(self) -> WorldEnv[Any, Any]:
        """The env at the bottom of the stack."""
        return world_env_of(type(self).__name__, self)

    @property
    def world(self) -> World:
        """The world of the env at the bottom of the stack."""
        return self.world_env.world


def world_env_of(name: str, env: Any, text: bool = False) -> WorldEnv[Any, Any]:
    """The env at the bottom of what a layer is given.

    Args:
        name: The layer, for the error.
        env: What it wraps.
        text: Whether the layer acts below in the text of the world's actions.

    Raises:
        ConfigError: It is no env, one of somebody else, or cannot be acted in this way.
    """
    if not isinstance(env, gym.Env):
        raise ConfigError(f"{name}: got the env {env!r}, expected a Gymnasium env")
    base = env.unwrapped
    if not isinstance(base, WorldEnv):
        raise ConfigError(
            f"{name} wraps {type(base).__name__}, expected a dyna_gym WorldEnv "
            "(see `dyna-gym envs` for the registered ids)"
        )
    if text and isinstance(env, gym.Wrapper) and env.has_wrapper_attr("world_layers"):
        raise ConfigError(
            f"{name} wraps {env}, which takes whole responses; expected a stack without a response layer, "
            "which takes the world's actions"
        )
    if text and not isinstance(env.action_space, UnicodeText):
        raise ConfigError(
            f"{name} wraps {type(base).__name__}, whose actions are of {env.action_space}; expected text "
            "(UnicodeText)"
        )
    return base


def whole_number(name: str, value: Any, least: int) -> int:
    """Check a setting that must be a whole number.

    Raises:
        ConfigError: It is not, or it is less than ``least``.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(f"{name}: got {value!r}, expected a whole number >= {least}")
    return int(value)
