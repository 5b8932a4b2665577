"""Randomness of any kind: copied, restored, and other in its place."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyna_gym.branching import branch, clone, fresh_rng, restore
from dyna_gym.errors import BranchError
from dyna_gym.generators import (
    fresh_state,
    generator_state,
    refresh,
    same_state,
    set_generator_state,
    set_state,
)
from dyna_gym.policies import RandomPolicy
from dyna_gym.policies.base import Policy
from dyna_gym.responses import Response

Make = Callable[..., Any]
KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def generator(kind: str, seed: int = 0) -> np.random.Generator:
    made = np.random.Generator(getattr(np.random, kind)(seed))
    made.integers(2**16, dtype=np.uint32)  # so that half a word is kept, where the kind does that
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_states_depend_on_state_and_key_only(kind: str) -> None:
    state = generator(kind).bit_generator.state
    before = repr(state)

    def draws(fresh: Any) -> list[float]:
        made = set_state(generator(kind, 5), fresh)
        kept = made.integers(2**32, dtype=np.uint32) / 2**32  # what is kept of the last word
        return [float(kept), *made.random(4).tolist()]

    first = draws(fresh_state(state, 0))
    assert draws(fresh_state(state, 0)) == first
    assert repr(state) == before
    others = [draws(fresh_state(state, 1)), draws(fresh_state(state, 0, 0)), draws(state)]
    others.append(draws(fresh_state(generator(kind, 1).bit_generator.state, 0)))
    for other in others:
        assert set(first).isdisjoint(other)


def test_all_of_a_long_state_counts() -> None:
    state = generator("MT19937").bit_generator.state
    key = state["state"]["key"].copy()
    key[300] += 1  # where repr() of an array shows "..."
    other = {**state, "state": {**state["state"], "key": key}}
    with np.printoptions(threshold=10):
        assert not same_state(fresh_state(state, 0), fresh_state(other, 0))
        assert not same_state(state, other)


def test_fresh_draws_are_even() -> None:
    states = [fresh_state(generator("PCG64").bit_generator.state, k) for k in range(2_000)]
    assert all(state["state"]["inc"] % 2 for state in states)  # as PCG needs it
    draws = [set_state(generator("PCG64"), state).random() for state in states]
    counts = np.histogram(draws, bins=10, range=(0, 1))[0]
    assert counts.min() > 150
    assert counts.max() < 250


def test_a_generator_that_is_none_of_numpys_is_told() -> None:
    with pytest.raises(BranchError, match="got a generator of kind 'Xoshiro'"):
        fresh_state({"bit_generator": "Xoshiro", "state": {}}, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_envs_branch_with_a_generator_of_any_kind(make: Make, kind: str) -> None:
    env, other = make("Noisy"), make("Noisy")
    env.reset(seed=0)
    env.unwrapped.np_random = generator(kind)

    def ahead(target: Any, **settings: Any) -> list[str]:
        with branch(target, **settings) as below:
            return noise(below)

    def noise(target: Any) -> list[str]:
        target.unwrapped.n = -100
        return [target.step("inc")[0] for _ in range(10)]

    same, fresh = ahead(env), ahead(env, rng="fresh")
    assert fresh != same
    assert fresh == ahead(env, rng="fresh") != ahead(env, rng="fresh", stream=1)
    saved = clone(env)
    restore(other, saved)  # which has a generator of NumPy's default kind
    assert type(other.unwrapped.np_random.bit_generator).__name__ == kind
    restore(env, fresh_rng(saved, 0))
    assert noise(env) == fresh
    restore(env, saved)
    assert noise(env) == noise(other) == same


@pytest.mark.parametrize("kind", KINDS)
def test_replay_worlds_branch_with_a_generator_of_any_kind(make: Make, kind: str) -> None:
    env = make("Replay")
    env.unwrapped.np_random = generator(kind)
    env.reset()
    env.step("dec")
    with branch(env, rng="fresh") as below:
        below.step("dec")
        clone(below)
        with branch(below) as deeper:
            deeper.step("inc")
    with branch(env) as below:
        ahead = below.step("inc")[0]
    assert env.step("inc")[0] == ahead


@pytest.mark.parametrize(
    "made",
    [
        lambda: np.random.default_rng(1),
        lambda: generator("MT19937"),
        lambda: np.random.RandomState(1),
        lambda: random.Random(1),
    ],
    ids=["Generator", "MT19937", "RandomState", "Random"],
)
def test_refreshing_in_place(made: Callable[[], Any]) -> None:
    def draw(key: int) -> float:
        one = made()
        refresh(one, key)
        return float(one.random())

    assert draw(0) == draw(0)
    assert len({draw(0), draw(1), float(made().random())}) == 3


# -- policies --------------------------------------------------------------------------------------


class Many(Policy):
    """Randomness in every form that a policy may have."""

    def __init__(self) -> None:
        import torch

        self.numpy = np.random.default_rng(0)
        self.old = np.random.RandomState(0)
        self.python = random.Random(0)
        self.torch = torch.Generator().manual_seed(0)
        self.weights = torch.ones(2)

    def act(self, messages: Any, infos: Any) -> list[Response]:
        import torch

        drawn = torch.rand(1, generator=self.torch).item()
        numbers = (self.numpy.random(), self.old.rand(), self.python.random(), drawn)
        return [Response(str(x)) for x in numbers]


def test_the_randomness_of_a_policy_is_copied() -> None:
    pytest.importorskip("torch")
    policy, other = Many(), Many()
    policy.act([], [])
    saved = policy.clone_rng()
    assert sorted(saved) == ["numpy", "old", "python", "torch"]
    first = policy.act([], [])
    policy.act([], [])
    for each in (policy, other):
        each.restore_rng(saved)
        assert each.act([], []) == first


def test_a_policy_without_randomness_has_none_to_copy() -> None:
    class Fixed(Policy):
        def act(self, messages: Any, infos: Any) -> list[Response]:
            return []

    assert Fixed().clone_rng() == {}
    assert list(RandomPolicy().clone_rng()) == ["_rng"]
    assert generator_state(3) is None
    one = random.Random(2)
    state = generator_state(one)
    first = one.random()
    set_generator_state(one, state)
    assert one.random() == first
