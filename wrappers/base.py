"""What all wrappers of dyna_gym share."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.env import WorldEnv
from dyna_gym.errors import ConfigError
from dyna_gym.layers import BranchableLayer
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
        if not isinstance(env, gym.Env):
            raise ConfigError(
                f"{type(self).__name__}: got the env {env!r}, expected a Gymnasium env"
            )
        gym.utils.RecordConstructorArgs.__init__(self, **recorded)
        gym.Wrapper.__init__(self, env)
        _ = self.world_env  # says now what would otherwise fail at the first step

    @property
    def world_env(self) -> WorldEnv[Any, Any]:
        """The env at the bottom of the stack."""
        base = self.unwrapped
        if not isinstance(base, WorldEnv):
            raise ConfigError(
                f"{type(self).__name__} wraps {type(base).__name__}, expected a dyna_gym WorldEnv "
                "(see `dyna-gym envs` for the registered ids)"
            )
        return base

    @property
    def world(self) -> World:
        """The world of the env at the bottom of the stack."""
        return self.world_env.world


def whole_number(name: str, value: Any, least: int) -> int:
    """Check a setting that must be a whole number.

    Raises:
        ConfigError: It is not, or it is less than ``least``.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(f"{name}: got {value!r}, expected a whole number >= {least}")
    return int(value)
