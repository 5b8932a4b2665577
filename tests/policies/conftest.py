"""Tiny models, and a guard of torch's global generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.policies.tiny import nano, tiny_policy


@pytest.fixture(autouse=True)
def _torch_rng_untouched() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state())


@pytest.fixture(scope="module")
def policy() -> Any:
    """A TransformersPolicy on a tiny random Llama."""
    return tiny_policy()


@pytest.fixture(scope="module")
def small() -> Any:
    """A tiny NanoPolicy for Sokoban."""
    return nano()
