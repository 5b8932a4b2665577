"""Fixtures that all tests share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import dyna_gym

ROOT = Path(__file__).parent.parent
SOKOBAN = "DynaGym-Sokoban-v0"


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """``gym.make`` for test worlds (by their short names) and ids; closes the envs at the end."""
    envs: list[Any] = []

    def make(name: str, **settings: Any) -> Any:
        env_id = name if "-v" in name else f"tests.worlds:DynaTest-{name}-v0"
        envs.append(gym.make(env_id, **settings))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


@pytest.fixture
def make_agent() -> Iterator[Callable[..., Any]]:
    """``dyna_gym.make_agent_env``, in the same way."""
    envs: list[Any] = []

    def make(name: str, **settings: Any) -> Any:
        env_id = name if "-v" in name else f"tests.worlds:DynaTest-{name}-v0"
        envs.append(dyna_gym.make_agent_env(env_id, **settings))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


@pytest.fixture(autouse=True)
def _global_rng_untouched() -> Iterator[None]:
    """No test may lean on, or leave traces in, the global generators (COMPLAINTS 16)."""
    before = repr((random.getstate(), np.random.get_state()))  # noqa: NPY002
    yield
    assert repr((random.getstate(), np.random.get_state())) == before  # noqa: NPY002


@pytest.fixture
def keep_global_rng() -> Iterator[None]:
    """For tests of libraries that draw from the global generators."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
