"""The ids of dyna_gym. Entry points are strings: registering imports no world."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec


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
    if not batched:
        limit = WrapperSpec(
            name="TaskTimeLimit",
            entry_point="dyna_gym.wrappers.time_limit:TaskTimeLimit",
            kwargs={"default": budget},
        )
        gym.register(id=env_id, entry_point=entry_point, additional_wrappers=(limit,))
        return
    # Gymnasium has no vector entry point for ids with additional wrappers, so this entry point puts the
    # limit on by itself. All that it needs stands in the string, which any process can load.
    name = f"{entry_point.replace(':', '.')}@{'' if budget is None else budget}"
    gym.register(
        id=env_id,
        entry_point=f"{__name__}:{name}",
        vector_entry_point=f"dyna_gym.vector:{env_id}",
    )


class _Limited:
    """Makes an env and puts `TaskTimeLimit` on it."""

    def __init__(self, env_class: Any, budget: int | None) -> None:
        self._class, self._budget = env_class, budget
        self.metadata = env_class.metadata
        self.__signature__ = inspect.signature(env_class.__init__).replace()

    def __call__(self, **settings: Any) -> Any:
        from dyna_gym.wrappers.time_limit import TaskTimeLimit

        return TaskTimeLimit(self._class(**settings), default=self._budget)


def __getattr__(name: str) -> Any:
    path, at, budget = name.partition("@")
    if not at:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, env_class = path.rpartition(".")
    found = getattr(import_module(module), env_class)
    return _Limited(found, int(budget) if budget else None)
