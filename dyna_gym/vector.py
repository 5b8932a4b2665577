"""LockstepVectorEnv: sub-envs in one process whose models are asked once for all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import iterate

from dyna_gym.batching import prepare
from dyna_gym.env import WorldEnv
from dyna_gym.errors import ConfigError


class LockstepVectorEnv(SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv`, with one call of each engine a step and a task for each sub-env.

    What comes back equals that of as many single envs. ``gymnasium.make_vec`` makes it for ids whose
    worlds a model plays; it takes any id.

    Args:
        env_id: A registered id.
        num_envs: How many sub-envs.
        settings: Arguments of ``gymnasium.make``.

    Examples:
        >>> import dyna_gym
        >>> envs = LockstepVectorEnv("DynaGym-Sokoban-v0", num_envs=2)
        >>> _, infos = envs.reset(options={"tasks": [0, 7]})
        >>> [task.id for task in infos["task"]]
        ['sokoban/6x6x1/train/000000', 'sokoban/6x6x1/train/000007']
    """

    def __init__(self, env_id: str, num_envs: int = 1, **settings: Any) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ConfigError(f"num_envs: got {num_envs!r}, expected a whole number >= 1")
        super().__init__([partial(_make, env_id, settings) for _ in range(num_envs)])

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in each sub-env.

        Args:
            seed: One seed (sub-env ``i`` takes ``seed + i``), or one a sub-env.
            options: ``{"tasks": [...]}`` gives each sub-env its task, ``{"task": ...}`` all the same. Episodes
                after an autoreset draw their own.
        """
        options = dict(options or {})
        tasks = options.pop("tasks", None)
        if tasks is not None:
            if isinstance(tasks, str) or not hasattr(tasks, "__len__"):
                raise ConfigError(f"options: got tasks {tasks!r}, expected one task a sub-env")
            if len(tasks) != self.num_envs or "task" in options:
                raise ConfigError(
                    f"options: got {len(tasks)} tasks, expected {self.num_envs}, one a sub-env, and no 'task'"
                )
        for i, env in enumerate(self.envs):
            assert isinstance(env, _NextTask)
            env.next_task = None if tasks is None else tasks[i]
        try:
            return super().reset(seed=seed, options=options)  # type: ignore[arg-type]
        finally:
            for env in self.envs:
                env.next_task = None  # type: ignore[attr-defined]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all sub-envs; those whose episode has ended are reset."""
        given = list(iterate(self.action_space, actions))
        going = [i for i in range(self.num_envs) if not self._autoreset_envs[i]]
        prepare([self.envs[i] for i in going], [given[i] for i in going])
        return super().step(actions)


class _NextTask(gym.Wrapper[Any, Any, Any, Any]):
    """Gives the next reset a task of its own; a vector env has one ``options`` for all."""

    next_task: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self.next_task is not None:
            options = {**(options or {}), "task": self.next_task}
        return self.env.reset(seed=seed, options=options)


def _make(env_id: str, settings: dict[str, Any]) -> gym.Env[Any, Any]:
    env = gym.make(env_id, **settings)
    if not isinstance(env.unwrapped, WorldEnv):
        raise ConfigError(f"{env_id!r} is not an env of dyna_gym (`dyna-gym envs` lists the ids)")
    return _NextTask(env)


def __getattr__(name: str) -> Any:
    # The vector entry point of an id is its name here: see `dyna_gym.registration.register_world`.
    if name not in gym.registry:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(LockstepVectorEnv, name)
