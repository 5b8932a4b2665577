"""Checks of what a user gives to wrappers and stacks: one clear error instead of one from deep inside."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from dyna_gym.env import WorldEnv
from dyna_gym.errors import ConfigError
from dyna_gym.wrappers.base import whole_number


def finite_number(name: str, value: Any) -> float:
    """Check a setting that must be a finite number.

    Raises:
        ConfigError: It is not.
    """
    number = isinstance(value, (int, float, np.integer, np.floating))
    number = number and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise ConfigError(f"{name}: got {value!r}, expected a finite number")
    return float(value)


def check_mapping(name: str, value: Any) -> dict[str, Any]:
    """Check settings that must be a dict with names as keys.

    Raises:
        ConfigError: They are not.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise ConfigError(f"{name}: got {value!r}, expected a dict of arguments by name, or None")
    return dict(value)


def arguments(function: Callable[..., Any]) -> list[str] | None:
    """Names that a function or class takes; None if it takes any."""
    if isinstance(function, type):
        function = function.__init__  # type: ignore[misc]  # Generic and Env have a __new__ of their own
    found = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return [p.name for p in found if p.kind is not p.VAR_POSITIONAL]


def check_names(name: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse misspelt names of arguments.

    Raises:
        ConfigError: One is not allowed; says the nearest that is.
    """
    allowed = list(allowed)
    for word in given:
        if word not in allowed:
            near = difflib.get_close_matches(word, allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(allowed)}"
            raise ConfigError(f"{name}: got the unknown name {word!r}; {hint}")


def make_world_env(
    name: str, env_id: Any, settings: Mapping[str, Any], **make: Any
) -> gym.Env[Any, Any]:
    """``gymnasium.make`` of an env of dyna_gym.

    Args:
        name: What the id is called in errors.
        env_id: A registered id.
        settings: Arguments of the world.
        make: Further arguments of ``gymnasium.make``.

    Raises:
        ConfigError: There is no such id, it is of no `WorldEnv`, or the world has no such argument.
    """
    if not isinstance(env_id, str):
        raise ConfigError(f"{name}: got {env_id!r}, expected a registered id (`dyna-gym envs`)")
    module, _, registered = env_id.rpartition(":")
    try:
        if module:
            import_module(module)
        spec = gym.spec(registered)
    except (gym.error.Error, ModuleNotFoundError) as error:
        told = " ".join(str(error).split())
        raise ConfigError(f"{name}: got {env_id!r}, expected a registered id ({told})") from None
    assert spec.entry_point is not None
    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else None
    allowed = None if creator is None else arguments(creator)
    if allowed is not None:
        check_names("settings", settings, [*allowed, "max_episode_steps", "disable_env_checker"])
    if settings.get("max_episode_steps") is not None:
        whole_number("max_episode_steps", settings["max_episode_steps"], 1)
    try:
        env = gym.make(spec, **{**make, **settings})
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        told = str(error).partition(" was raised from")[0]
        raise ConfigError(f"settings: got {sorted(settings)}; {told}") from None
    if not isinstance(env.unwrapped, WorldEnv):
        env.close()
        raise ConfigError(
            f"{name}: {env_id!r} is a {type(env.unwrapped).__name__}, expected an env of dyna_gym "
            "(`dyna-gym envs` lists the ids)"
        )
    return env
