"""Searches leave no trace, can be copied, and do not show what chance holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyna_gym.branching import branch, clone, restore
from dyna_gym.policies.base import Policy
from dyna_gym.responses import Response
from dyna_gym.search import resim
from dyna_gym.wrappers import ReSimSearchWrapper, SimRolloutWrapper
from tests.worlds import CounterOracle, answer

Make = Callable[..., Any]
FOLLOWS = ("step", "plan")


class Saying(Policy):
    """Says always the same."""

    def __init__(self, text: str) -> None:
        self.text = text

    def act(self, messages: Any, infos: Any) -> list[Response]:
        return [Response(self.text) for _ in infos]


def value(tasks: Any, states: Any) -> np.ndarray:
    oracle = CounterOracle()
    return np.array([oracle.value(t, s) for t, s in zip(tasks, states, strict=True)])


@pytest.mark.parametrize("follow", FOLLOWS)
def test_searches_do_not_show_the_envs_own_noise(make_agent: Make, follow: str) -> None:
    """Whether a step goes 1 or 2 far must say nothing about how far the env's next one goes."""
    env = make_agent("Noisy")
    told, happened, apart = [], [], 0
    for seed in range(60):
        env.reset(seed=seed, options={"task": "counter/train/2"})
        tree = resim(
            [env],
            Saying(answer("inc", "inc")),
            value,
            breadth=6,
            depth=1,
            keep=1,
            rng=np.random.default_rng(0),
            follow=follow,
        )[0]
        ends = [rollout.end for rollout in tree.rollouts]
        apart += len(ends) == 2  # rollouts are told apart by where they end
        first = resim(
            [env],
            Saying(answer("inc", "inc")),
            value,
            breadth=1,
            depth=1,
            keep=1,
            rng=np.random.default_rng(0),
            follow=follow,
        )[0]
        told.append(first.rollouts[0].end)
        happened.append(env.step(answer("inc"))[4]["state"])
    equal = sum(a == b for a, b in zip(told, happened, strict=True))
    assert 15 <= equal <= 45, f"{equal} of 60 searches showed what then happened"
    assert apart > 40, "all rollouts of a state see the same noise"


@pytest.mark.parametrize("follow", FOLLOWS)
@pytest.mark.parametrize("world", ["Noisy", "Replay"])
def test_searches_leave_no_trace(make: Make, world: str, follow: str) -> None:
    settings = {"depth": 3, "breadth": 3, "follow": follow}
    env, control = ReSimSearchWrapper(make(world), **settings), make(world)
    env.reset(seed=0)
    control.reset(seed=0)
    for action in ("dec", "inc", "wait", "inc"):
        info, expected = env.step(answer(action))[4], control.step(action)[4]
        assert {k: info[k] for k in expected} == expected
        assert env.unwrapped.clone_state() == control.unwrapped.clone_state()
        assert env.unwrapped.looking_ahead == 0


@pytest.mark.parametrize("follow", FOLLOWS)
def test_a_search_that_raises_leaves_no_trace(make_agent: Make, follow: str) -> None:
    class Failing(Saying):
        calls = 0

        def act(self, messages: Any, infos: Any) -> list[Response]:
            self.calls += 1
            if self.calls == 2 or follow == "plan":
                raise ZeroDivisionError
            return super().act(messages, infos)

    env = make_agent("Noisy")
    env.reset(seed=0)
    before = clone(env)
    settings = {"breadth": 2, "depth": 3, "keep": 1, "rng": np.random.default_rng(0)}
    with pytest.raises(ZeroDivisionError):
        resim([env], Failing(answer("dec")), value, follow=follow, **settings)
    assert clone(env) == before
    assert env.unwrapped.looking_ahead == 0


TALL: dict[str, dict[str, Any]] = {
    "steps": {"follow": "step"},
    "plans": {"follow": "plan"},
    "history": {"history": 2},
    "some shown": {"breadth": 6, "keep": 3},
}


@pytest.mark.parametrize("kind", TALL)
def test_a_copied_search_goes_on_the_same(make: Make, kind: str) -> None:
    settings = {"depth": 3, "breadth": 4, "keep": 2, **TALL[kind]}

    def fresh() -> Any:
        return ReSimSearchWrapper(make("Noisy"), **settings)

    def walk(env: Any) -> list[Any]:
        rows = [env.step(answer(a)) for a in ("dec", "inc", "wait")]
        return [(row[0], row[1], row[4]["search"]) for row in rows]

    env, other = fresh(), fresh()
    env.reset(seed=3)
    env.step(answer("dec"))
    saved = clone(env)
    first = walk(env)
    assert len({str(tree) for _, _, tree in first}) == 3
    restore(env, saved)
    assert walk(env) == first
    restore(other, saved)  # never reset
    assert walk(other) == first
    restore(env, saved)
    with branch(env) as below:
        assert walk(below) == first
    assert walk(env) == first


def test_the_prompts_after_a_branch_are_those_without_it(make_agent: Make) -> None:
    settings: dict[str, Any] = {"history": 3, "response": "sim_rollout"}
    env, control = make_agent("Noisy", **settings), make_agent("Noisy", **settings)
    texts = [answer("dec", "dec", "inc"), answer("dec"), answer("wait", "wait"), answer("inc")]
    for each in (env, control):
        each.reset(seed=1)
        for text in texts:
            each.step(text)
    for depth in range(1, 5):  # leaves the branch in either phase
        with branch(env, rng="fresh") as below:
            for text in texts[:depth]:
                below.step(text)
        assert env.present() == control.present()
    for text in texts:
        row, expected = env.step(text), control.step(text)
        assert row == expected
        assert env.present() == control.present()


def test_drafts_do_not_show_the_envs_own_noise(make: Make) -> None:
    env = SimRolloutWrapper(make("Noisy"))
    equal = 0
    for seed in range(60):
        env.reset(seed=seed, options={"task": "counter/train/2"})
        foreseen = env.step(answer("inc", "inc"))[4]["futures"][0][1]
        equal += env.step(answer("inc"))[4]["state"] == foreseen
    assert 15 <= equal <= 45, f"{equal} of 60 drafts showed what then happened"
