"""Value functions for searches: who says how good the end of a rollout is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.search import ValueFn
from dyna_gym.task import Task
from dyna_gym.world import Oracle, World


def oracle_value(oracle: Oracle) -> ValueFn:
    """The world's exact value. Not in the paper, whose V_nu is learned; reports label it."""
    return partial(_oracle_values, oracle)  # not a closure: an env that holds it must be picklable


def _oracle_values(oracle: Oracle, tasks: Sequence[Task], states: Sequence[str]) -> np.ndarray:
    return np.array([oracle.value(t, s) for t, s in zip(tasks, states, strict=True)])


def no_value(tasks: Sequence[Task], states: Sequence[str]) -> np.ndarray:
    """All ends are worth 0, so that only success counts."""
    return np.zeros(len(tasks))


def make_value(name: str, world: World, oracle: Oracle | None = None) -> ValueFn:
    """A value function by name: ``oracle``, ``none``, or a folder of a saved V_nu.

    Raises:
        ConfigError: There is no such value function.
    """
    if name == "none":
        return no_value
    if name == "oracle":
        if oracle is None:
            raise ConfigError(
                f"value: the world {world.name!r} has no oracle; use a trained V_nu or 'none'"
            )
        return oracle_value(oracle)
    if not Path(name).is_dir():
        raise ConfigError(
            f"value: got {name!r}, expected 'oracle', 'none' or an existing folder that trainers/value.py wrote"
        )
    from dyna_gym.learning.value_model import ValueModel

    return ValueModel.load(name, world)
