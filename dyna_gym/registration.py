"""The ids of dyna_gym. Entry points are strings: registering imports no world."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec

from dyna_gym.errors import ConfigError


class WorldId(NamedTuple):
    """How an id is registered."""

    entry_point: str
    """``module:Class`` of the env."""
    budget: int | None = None
    """Default step budget for tasks that have none of their own."""
    batched: bool = False
    """Whether ``gymnasium.make_vec`` makes a `LockstepVectorEnv`: for `ModelEnv`, whose vector env asks its
    model once for all."""


IDS: dict[str, WorldId] = {
    "DynaGym-Sokoban-v0": WorldId("dyna_gym.envs.sokoban.env:SokobanEnv"),
}


def register_all() -> None:
    """Register every id; done when `dyna_gym` is imported, harmless when done again."""
    for env_id, world_id in IDS.items():
        register_world(env_id, *world_id)


def register_world(
    env_id: str, entry_point: str, budget: int | None = None, batched: bool = False
) -> None:
    """Register an env class of dyna_gym's kind, with `TaskTimeLimit` around it; again does nothing.

    Args:
        env_id: The id.
        entry_point: ``module:Class``.
        budget: Default step budget for tasks that have none of their own.
        batched: For a `ModelEnv`: let ``gymnasium.make_vec`` ask its model once for all sub-envs.
    """
    if env_id in gym.registry:
        return
    # All that a creator needs stands in the string of its entry point, which any process can load.
    name = f"{__name__}:{entry_point.replace(':', '.')}"
    if not batched:
        limit = WrapperSpec(
            name="TaskTimeLimit",
            entry_point="dyna_gym.wrappers.time_limit:TaskTimeLimit",
            kwargs={"default": budget},
        )
        gym.register(id=env_id, entry_point=name, additional_wrappers=(limit,))
        return
    # Gymnasium has no vector entry point for ids with additional wrappers, so the creator puts the limit on.
    gym.register(
        id=env_id,
        entry_point=f"{name}@{'' if budget is None else budget}",
        vector_entry_point=f"dyna_gym.vector:{env_id}",
    )


class _RenderModes(list[str]):
    """What `gymnasium.make` asks for a mode, before the env is asked and where a wrong one trips it."""

    def __contains__(self, mode: object) -> bool:
        if mode in tuple(self):
            return True
        expected = f"expected one of {list(self)} or None"
        if mode == "human" and "rgb_array" in tuple(self):  # Gymnasium opens a window for it
            if find_spec("pygame") is None:
                raise ConfigError(
                    "render_mode: got 'human', which opens a window with the package 'pygame', which is not "
                    f"installed; {expected}, or install it with: pip install pygame"
                )
        elif not isinstance(mode, str) or not mode.endswith("_list"):
            raise ConfigError(f"render_mode: got {mode!r}, {expected}")
        return False


class _Creator:
    """Makes an env, and puts `TaskTimeLimit` on it where Gymnasium cannot.

    Args:
        env_class: The class.
        limited: Whether to put a limit on.
        budget: Its default.
    """

    def __init__(self, env_class: Any, limited: bool, budget: int | None) -> None:
        self._class, self._limited, self._budget = env_class, limited, budget
        modes = _RenderModes(env_class.metadata.get("render_modes", []))
        self.metadata = {**env_class.metadata, "render_modes": modes}
        self.__signature__ = inspect.signature(env_class)

    def __call__(self, **settings: Any) -> Any:
        env = self._class(**settings)
        if not self._limited:
            return env
        from dyna_gym.wrappers.time_limit import TaskTimeLimit

        return TaskTimeLimit(env, default=self._budget)


def __getattr__(name: str) -> Any:
    # The entry points of `register_world`: module.Class or module.Class@budget.
    path, at, budget = name.partition("@")
    module, dot, env_class = path.rpartition(".")
    if not dot:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(module), env_class)
    return _Creator(found, bool(at), int(budget) if budget else None)
