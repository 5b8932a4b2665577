"""States in other instances, under other settings, and where the machinery fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gw

from dyna_gym.branching import branch, clone, lookahead, restore
from dyna_gym.errors import BranchError, MachineryError, ReplayDiverged, StateMismatch
from dyna_gym.outcome import Judgement
from dyna_gym.registration import register_world
from dyna_gym.wrappers import (
    OutcomeReward,
    PromptWrapper,
    ReasoningActionWrapper,
    ReSimSearchWrapper,
    SimRolloutWrapper,
    TaskTimeLimit,
)
from dyna_gym.wrappers.base import LayerWrapper
from tests.worlds import CounterEnv, NoisyEnv, ReplayEnv

Make = Callable[..., Any]


# -- settings --------------------------------------------------------------------------------------


class Scaled(LayerWrapper):
    """A reward in units of somebody's own."""

    def __init__(self, env: Any, scale: Any = 1.0) -> None:
        super().__init__(env, scale=scale)


class Unit:
    """A setting without an equality of its own."""

    def __init__(self, size: float) -> None:
        self.size = size


def times(factor: float) -> Callable[[Any], Any]:
    return lambda reward: reward * factor


SETTINGS: dict[str, tuple[Callable[[Make, Any], Any], Any, Any]] = {
    "env budget": (lambda make, n: make("Counter", max_steps=n), 10, 20),
    "TaskTimeLimit": (lambda make, n: TaskTimeLimit(make("Counter"), n), 5, 6),
    "TimeLimit": (lambda make, n: gw.TimeLimit(make("Counter"), n), 5, 6),
    "TimeLimit of make": (lambda make, n: make("Counter", max_episode_steps=n), 5, 6),
    "reward": (lambda make, x: OutcomeReward(make("Counter"), step=x), -0.1, -0.2),
    "history": (
        lambda make, n: PromptWrapper(ReasoningActionWrapper(make("Counter")), history=n),
        1,
        2,
    ),
    "lookahead": (lambda make, n: SimRolloutWrapper(make("Counter"), max_depth=n), 1, 2),
    "search": (lambda make, n: ReSimSearchWrapper(make("Counter"), depth=1, breadth=n), 1, 2),
    "function": (lambda make, x: gw.TransformReward(make("Counter"), times(x)), 2.0, 3.0),
    "another function": (
        lambda make, up: gw.TransformReward(
            make("Counter"), (lambda r: r) if up else (lambda r: -r)
        ),
        True,
        False,
    ),
    "array": (lambda make, x: Scaled(make("Counter"), np.array(x)), [1, 2], [1, 3]),
    "array of another shape": (lambda make, x: Scaled(make("Counter"), np.array(x)), [1], [1, 1]),
    "object": (lambda make, x: Scaled(make("Counter"), Unit(x)), 1.0, 2.0),
    "nested": (lambda make, x: Scaled(make("Counter"), {"a": [x, (Unit(x),)]}), 1, 2),
    "another type": (lambda make, x: Scaled(make("Counter"), x), "1", 1),
    "frames": (lambda make, n: gw.FrameStackObservation(make("Counter"), n), 2, 3),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_state_is_refused_under_other_settings(make: Make, kind: str) -> None:
    build, one, two = SETTINGS[kind]
    env, same, other = build(make, one), build(make, one), build(make, two)
    env.reset(seed=0)
    saved = clone(env)
    restore(same, saved)
    other.reset(seed=5)
    before = clone(other)
    with pytest.raises(StateMismatch, match=r"the same .*settings"):
        restore(other, saved)
    assert other.unwrapped.clone_state() == before.base, "a refused state has changed the env"
    assert [own.values for own in clone(other).layers] == [own.values for own in before.layers]


def test_the_refusal_names_the_layer_and_both_settings(make: Make) -> None:
    env, other = gw.TimeLimit(make("Counter"), 5), gw.TimeLimit(make("Counter"), 9)
    env.reset(seed=0)
    with pytest.raises(StateMismatch) as told:
        restore(other, clone(env))
    assert "TimeLimit(max_episode_steps=5)" in str(told.value)
    assert "TimeLimit(max_episode_steps=9)" in str(told.value)


# -- second instances ------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["step", "reset", "branch"])
@pytest.mark.parametrize("was_reset", [False, True], ids=["new", "reset before"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("world", ["Noisy", "Replay"])
def test_a_plain_second_instance_goes_on(
    make: Make, world: str, steps: int, was_reset: bool, then: str
) -> None:
    env, other = make(world), make(world)  # with OrderEnforcing and PassiveEnvChecker
    env.reset(seed=0)
    for _ in range(steps):
        env.step("dec")
    if was_reset:
        other.reset(seed=1)
    restore(other, clone(env))
    if then == "reset":
        env.reset(seed=3)
        other.reset(seed=3)
    elif then == "branch":
        with branch(other) as below:
            below.step("inc")
    for action in ("inc", "dec", "wait"):
        assert env.step(action) == other.step(action)
    assert env.reset(seed=4) == other.reset(seed=4)
    assert env.step("inc") == other.step("inc")


# -- failing machinery -----------------------------------------------------------------------------


class StuckEnv(NoisyEnv):
    """Its state cannot be put back while ``stuck``, in one of several ways."""

    stuck: Exception | None = None
    late = False

    def restore_state(self, snapshot: Any) -> None:
        if self.late:  # like a world whose own restore_state raises
            stuck, self.stuck = self.stuck, None
            super().restore_state(snapshot)
            self.stuck = stuck
            if stuck is not None:
                raise stuck
        else:
            super().restore_state(snapshot)

    def _set_state(self, state: Any) -> None:
        if self.stuck is not None:
            raise self.stuck
        super()._set_state(state)


register_world("DynaTest-Stuck-v0", "tests.test_restore:StuckEnv")


@pytest.mark.parametrize("late", [False, True], ids=["in _set_state", "after it"])
@pytest.mark.parametrize(
    "error", [MachineryError("the browser is gone"), ReplayDiverged("not where it was")], ids=repr
)
def test_after_a_failed_restore_the_layers_are_back_and_the_episode_is_given_up(
    make: Make, error: Exception, late: bool
) -> None:
    env = gw.TimeLimit(make("Stuck", backoff_s=0.0), 7)
    env.reset(seed=0)
    env.step("dec")
    base = env.unwrapped
    with suppress(MachineryError, ReplayDiverged), branch(env) as below:
        below.step("dec")
        below.step("dec")
        base.stuck, base.late = error, late
    assert env._elapsed_steps == 1
    assert base.looking_ahead == 0
    _, reward, terminated, truncated, info = env.step("inc")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert str(error) in info["error"]
    assert info["error_code"]
    base.stuck = None
    env.reset(seed=1)
    assert not env.step("inc")[3]


def test_a_bug_of_a_world_is_raised_and_the_layers_are_back(make: Make) -> None:
    env = gw.TimeLimit(make("Stuck"), 7)
    env.reset(seed=0)
    branched = branch(env)
    below = branched.__enter__()
    below.step("dec")
    env.unwrapped.stuck = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        branched.__exit__(None, None, None)
    assert env._elapsed_steps == 0


# -- looking ahead ---------------------------------------------------------------------------------


class ReplayCourtEnv(ReplayEnv):
    """Counts how often its judge is asked, in all instances; branches in a second one."""

    judged = 0

    def _finalize(self) -> Judgement | None:
        type(self).judged += 1
        return None


register_world("DynaTest-ReplayCourt-v0", "tests.test_restore:ReplayCourtEnv")


def test_nothing_is_judged_in_a_branch(make: Make) -> None:
    env = make("Judged", max_steps=2)
    env.reset(seed=0, options={"task": "counter/train/0"})
    base = env.unwrapped
    for opened in (lambda: branch(env), lambda: branch(env, rng="fresh"), lambda: lookahead(env)):
        saved = clone(env)
        with opened():
            assert base.looking_ahead == 1
            with branch(env) as below:
                assert base.looking_ahead == 2
                assert [below.step("wait")[3] for _ in range(2)] == [False, True]
            assert base.looking_ahead == 1
        restore(env, saved)
        assert base.looking_ahead == 0
    assert base.judged == 0
    env.step("wait")
    env.step("wait")
    assert base.judged == 1


def test_nothing_is_judged_in_the_second_instance_of_a_replay_world(make: Make) -> None:
    env = make("ReplayCourt", max_steps=1)
    env.reset(seed=0)
    with branch(env) as below:
        assert below.unwrapped.looking_ahead == 1
        assert env.unwrapped.looking_ahead == 0
        assert below.step("wait")[3]
    assert ReplayCourtEnv.judged == 0
    assert env.step("wait")[3]
    assert ReplayCourtEnv.judged == 1


def test_a_reset_in_a_branch_does_not_end_it(make: Make) -> None:
    env = gw.Autoreset(make("Judged", max_steps=1))
    env.reset(seed=0)
    with branch(env) as below:
        for _ in range(4):
            below.step("wait")
        with suppress(ZeroDivisionError), lookahead(env):
            raise ZeroDivisionError
    assert env.unwrapped.looking_ahead == 0


def test_branches_in_branches(make: Make) -> None:
    env = make("Noisy")
    env.reset(seed=0)
    env.step("dec")
    with branch(env, rng="fresh") as below:
        below.step("dec")
        first = below.unwrapped.clone_state()
        with branch(below, rng="fresh", stream=3) as deeper:
            deeper.step("inc")
        assert below.unwrapped.clone_state() == first
    assert env.unwrapped.n == -1


class SlowReplayEnv(ReplayEnv):
    """Noisy, and copied by running the actions again."""


register_world("DynaTest-SlowReplay-v0", "tests.test_restore:SlowReplayEnv")


def test_replay_worlds_branch_inside_branches_with_other_randomness(make: Make) -> None:
    env = make("SlowReplay")
    env.reset(seed=0)
    env.step("dec")
    twins: list[Any] = []
    with branch(env, rng="fresh") as below:
        for _ in range(3):
            below.step("dec")
            below.step("inc")
        saved = clone(below)
        with branch(below, rng="fresh", stream=1) as deeper:
            deeper.step("dec")
            twins.append(clone(deeper))
        again = [below.step("inc")[0] for _ in range(2)]
        restore(below, saved)
        assert [below.step("inc")[0] for _ in range(2)] == again
    other = make("SlowReplay")
    for state in (saved, *twins):
        restore(other, state)
    assert env.unwrapped.n == -1


def test_replay_with_settings_that_were_not_recorded_is_told() -> None:
    class Unrecorded(LayerWrapper):
        def __init__(self, env: Any, needed: int) -> None:
            super().__init__(env)

    env = Unrecorded(gym.make("tests.worlds:DynaTest-Replay-v0"), 3)
    env.reset(seed=0)
    with pytest.raises(BranchError, match=r"Unrecorded cannot be made a second time .*needed"):
        branch(env).__enter__()
    env.close()


def test_the_fingerprint_follows_the_settings() -> None:
    env = CounterEnv(max_steps=3)
    first = env.fingerprint()
    assert first == CounterEnv(max_steps=3).fingerprint() == env.fingerprint()
    env.max_steps = 4
    assert env.fingerprint() == CounterEnv(max_steps=4).fingerprint() != first
