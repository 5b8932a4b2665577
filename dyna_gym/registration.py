"""The ids of dyna_gym. Entry points are strings: registering imports no world."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec

IDS: dict[str, tuple[str, int | None]] = {
    "DynaGym-Sokoban-v0": ("dyna_gym.envs.sokoban.env:SokobanEnv", None),
}
"""Id -> (entry point, default step budget for tasks that have none of their own)."""


def register_all() -> None:
    """Register every id; done when `dyna_gym` is imported, harmless when done again."""
    for env_id, (entry_point, budget) in IDS.items():
        if env_id in gym.registry:
            continue
        limit = WrapperSpec(
            name="TaskTimeLimit",
            entry_point="dyna_gym.wrappers.time_limit:TaskTimeLimit",
            kwargs={"default": budget},
        )
        gym.register(id=env_id, entry_point=entry_point, additional_wrappers=(limit,))
