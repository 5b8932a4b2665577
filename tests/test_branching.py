"""Clones and branches of whole stacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import wrappers as gw

from dyna_gym.branching import branch, check_branchable, clone, fresh_rng, register_adapter, restore
from dyna_gym.errors import BranchError, ConfigError, ReplayDiverged, StateMismatch
from dyna_gym.wrappers import (
    AbstractStateWrapper,
    OutcomeReward,
    RecordTrajectories,
    RetryFailedEpisodes,
    SimRolloutWrapper,
)
from tests.worlds import CounterEnv, DriftingEnv

Make = Callable[..., Any]


class Counts(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """A wrapper of somebody else's that accumulates."""

    def __init__(self, env: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.env.step(action)


class Known(Counts):
    """The same, with an adapter."""


register_adapter(Known)


def full_stack(make: Make, name: str = "Noisy") -> Any:
    env = gw.RecordEpisodeStatistics(gw.TimeLimit(make(name), 7))
    return AbstractStateWrapper(OutcomeReward(env))


def numbers(result: Any) -> Any:
    observation, reward, terminated, truncated, info = result
    info = {k: v for k, v in info.items() if k != "episode"} | {
        k: float(info["episode"][k]) for k in ("r", "l") if "episode" in info
    }
    return observation, reward, terminated, truncated, info


def future(env: Any, actions: str = "wwwwwww") -> list[Any]:
    names = {"w": "wait", "i": "inc", "d": "dec"}
    rows = []
    for letter in actions:
        rows.append(numbers(env.step(names[letter])))
        if rows[-1][2] or rows[-1][3]:
            break
    return rows


def test_clone_covers_limits_statistics_and_order(make: Make) -> None:  # COMPLAINTS 29
    env = full_stack(make)
    env.reset(seed=0)
    env.step("dec")
    env.step("dec")
    saved = clone(env)
    names = [own.name for own in saved.layers]
    assert names == [
        "AbstractStateWrapper",
        "OutcomeReward",
        "RecordEpisodeStatistics",
        "TimeLimit",
        "TaskTimeLimit",
        "OrderEnforcing",
        "PassiveEnvChecker",
    ]
    first = future(env)
    assert len(first) == 5  # TimeLimit(7) after the two steps before
    assert first[-1][4]["l"] == 7.0
    restore(env, saved)
    assert future(env) == first
    env.reset(seed=1)  # another episode in between
    restore(env, saved)
    assert future(env) == first


def test_statistics_queues_are_put_back(make: Make) -> None:
    env = gw.RecordEpisodeStatistics(make("Counter", max_steps=2))
    env.reset(seed=0)
    with branch(env) as below:
        for _ in range(2):
            below.step("wait")
        assert len(env.return_queue) == 1
    assert len(env.return_queue) == len(env.length_queue) == len(env.time_queue) == 0
    assert env.episode_count == 0


def test_a_second_instance_that_was_never_reset_goes_on(make: Make) -> None:  # COMPLAINTS 30
    env, other = full_stack(make), full_stack(make)
    env.reset(seed=3)
    env.step("dec")
    restore(other, clone(env))
    assert future(other, "idiiid") == future(env, "idiiid")


def test_other_layers_are_a_mismatch(make: Make) -> None:
    env, other = full_stack(make), OutcomeReward(make("Noisy"))
    env.reset(seed=0)
    with pytest.raises(StateMismatch, match="the state is of the layers"):
        restore(other, clone(env))


def test_another_world_is_a_mismatch(make: Make) -> None:
    env, other = make("Noisy"), make("Counter")
    env.reset(seed=0)
    with pytest.raises(StateMismatch, match="fingerprint"):
        restore(other, clone(env))
    with pytest.raises(StateMismatch, match="expected what clone_state"):
        other.unwrapped.restore_state({"n": 1})


def test_unknown_wrappers_are_named_when_the_lookahead_is_built(make: Make) -> None:
    env = Counts(make("Counter"))
    with pytest.raises(BranchError, match="the wrapper Counts cannot be branched"):
        SimRolloutWrapper(env)
    env.reset(seed=0)
    with pytest.raises(BranchError, match="Counts"):
        clone(env)


@pytest.mark.parametrize("kind", ["record", "retry"])
def test_recorders_refuse_to_be_branched(make: Make, tmp_path: Any, kind: str) -> None:
    inner = make("Counter")
    env: Any = RecordTrajectories(inner, tmp_path / "x.jsonl")
    if kind == "retry":
        env = RetryFailedEpisodes(inner)
    with pytest.raises(BranchError, match=type(env).__name__):
        SimRolloutWrapper(env)


def test_a_registered_adapter_is_used(make: Make) -> None:
    env = Known(make("Counter"))
    env.reset(seed=0)
    env.step("wait")
    with branch(env):
        env.step("wait")
        assert env.count == 2
    assert env.count == 1


def test_only_world_envs_have_snapshots() -> None:
    env = gym.make("CartPole-v1")
    for call in (check_branchable, clone):
        with pytest.raises(BranchError, match=r"not a dyna_gym\.env\.WorldEnv"):
            call(env)


def test_none_worlds_refuse(make: Make) -> None:
    env = make("Posting")
    env.reset(seed=0)
    with pytest.raises(BranchError, match="effects outside"):
        env.unwrapped.clone_state()
    with pytest.raises(BranchError, match="simulator="):
        SimRolloutWrapper(env)


def test_clone_before_reset_is_told(make: Make) -> None:
    with pytest.raises(gym.error.ResetNeeded, match=r"call env\.reset\(\) first"):
        make("Counter").unwrapped.clone_state()


# -- randomness ------------------------------------------------------------------------------------


def noise(env: Any, k: int = 24) -> list[int]:
    """How far each of ``k`` noisy steps goes; the counter is put far from the goal."""
    env.unwrapped.n = -1_000
    jumps = []
    for _ in range(k):
        before = env.unwrapped.n
        env.unwrapped._last = env.unwrapped._last._replace(terminated=False)
        env.unwrapped.step("inc")
        jumps.append(env.unwrapped.n - before)
    return jumps


def test_same_randomness_shows_the_future_and_fresh_does_not(make: Make) -> None:
    env = make("Noisy")
    env.reset(seed=0)
    env.step("dec")

    def ahead(**settings: Any) -> list[int]:
        with branch(env, **settings) as below:
            return noise(below)

    same = ahead(rng="same")
    fresh = ahead(rng="fresh")
    assert set(same) == {1, 2}
    assert fresh != same
    assert fresh == ahead(rng="fresh")  # the same branch of the same state
    assert fresh != ahead(rng="fresh", stream=1)
    assert noise(env) == same  # what then happens


def test_fresh_depends_on_the_state_of_the_generator(make: Make) -> None:
    env = make("Noisy")
    env.reset(seed=0)
    first = fresh_rng(clone(env), 0).base.rng
    env.step("inc")
    assert fresh_rng(clone(env), 0).base.rng != first


def test_unknown_randomness_is_told(make: Make) -> None:
    env = make("Noisy")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="rng: got 'new'"), branch(env, rng="new"):  # type: ignore[arg-type]
        pass


def test_an_exception_inside_leaves_the_env_as_before(make: Make) -> None:
    env = make("Counter")
    env.reset(seed=0)
    with suppress(ZeroDivisionError), branch(env) as below:
        below.step("dec")
        raise ZeroDivisionError
    assert env.unwrapped.n == 0


# -- replay ----------------------------------------------------------------------------------------


def test_replay_worlds_branch_in_a_second_instance(make: Make) -> None:
    env = full_stack(make, "Replay")
    env.reset(seed=5)
    env.step("dec")
    with branch(env, rng="same") as below:
        assert below is not env
        assert below.unwrapped is not env.unwrapped
        ahead = future(below, "iiii")
    assert env.unwrapped.n == -1
    assert future(env, "iiii") == ahead


def test_replay_with_a_time_limit_by_hand_and_branches_of_inner_layers(make: Make) -> None:
    # gym.make(env.spec) would put this TimeLimit below TaskTimeLimit.
    inner = make("Replay")
    env = gw.TimeLimit(inner, 5)
    env.reset(seed=5)
    for layers in (env, inner, env):
        with branch(layers) as below:
            assert type(below) is type(layers)
            assert below.step("wait")[0] == "n=0 goal=" + str(env.unwrapped.task.params["goal"])


def test_replay_notices_divergence(make: Make) -> None:
    env = make("Drifting")
    env.reset(seed=0)
    env.step("wait")
    starts = DriftingEnv.starts
    with pytest.raises(ReplayDiverged, match=r"task counter/train/\d+: observation 0 of 1 differs"):
        with branch(env):
            pass
    assert DriftingEnv.starts > starts


def test_replay_clones_hold_actions_not_states(make: Make) -> None:
    env = make("Replay")
    env.reset(seed=0)
    env.step("dec")
    saved = clone(env)
    assert saved.base.state.actions == ("dec",)
    env.step("dec")
    restore(env, saved)
    assert env.unwrapped.n == -1
    assert env.unwrapped.clone_state().state == saved.base.state


def test_replay_needs_a_spec() -> None:
    from tests.worlds import ReplayEnv

    env = ReplayEnv()
    env.reset(seed=0)
    with pytest.raises(BranchError, match=r"make the env with gymnasium\.make"), branch(env):
        pass


def test_closing_a_replay_env_closes_its_twin(make: Make) -> None:
    env = make("Replay")
    env.reset(seed=0)
    with branch(env) as below:
        pass
    closed: list[bool] = []
    below.unwrapped.close = lambda: closed.append(True)
    env.close()
    assert closed == [True]
    assert env.unwrapped._twin is None


def test_snapshots_are_values() -> None:
    env = CounterEnv()
    env.reset(seed=0)
    env.step("dec")
    saved = env.clone_state()
    env.step("dec")
    assert saved.state == -1
    assert saved == saved._replace()
