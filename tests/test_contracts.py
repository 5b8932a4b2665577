"""Every check on every registered id; and that each check finds an env that is broken."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dyna_gym import testing
from dyna_gym.registration import IDS
from dyna_gym.testing import EnvContractTests
from dyna_gym.testing.common import describe, first_difference


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("env_id", IDS)
def test_registered_id(env_id: str, check: Any) -> None:
    check(env_id)


class TestNoisyWorld(EnvContractTests):
    env_id = "tests.worlds:DynaTest-Noisy-v0"
    skip = ("expert",)  # noise may carry the counter past the goal for too long


class TestReplayWorld(EnvContractTests):
    env_id = "tests.worlds:DynaTest-Replay-v0"
    make_kwargs = {"split": "eval_ood"}
    skip = ("expert", "two_processes", "sync_equals_async", "shared_memory")


BROKEN = {
    "IgnoresSeed": (testing.check_same_seed, "two resets with seed 0 differ"),
    "Hashes": (testing.check_two_processes, "two processes, seed 0, row 0"),
    "GlobalRandom": (testing.check_global_rng, "another state of random"),
    "ForgetsState": (testing.check_clone, "state and restored state|the future and that of"),
    "OwnRandom": (testing.check_second_instance, "the env and the second instance differ"),
    "EzPickled": (testing.check_deepcopy_and_pickle, "EzPickle"),
    "SharedInfo": (testing.check_returned_values, "when returned and later, differ"),
    "Hackable": (testing.check_idle_agents, "success on task counter/train/0 by writing ''"),
    "Fragile": (testing.check_hostile_text, "UnicodeEncodeError"),
    "TakesAnything": (testing.check_info, "invalid_reason None for an empty action"),
    "Overlaps": (testing.check_splits, "in 'train' and 'eval_id'"),
    "Frozen": (testing.check_shared_memory, "with shared memory and without"),
    "NoBudget": (testing.check_idle_agents, "with a budget of"),
    "Warns": (testing.check_gymnasium, "odd"),
    "BadExpert": (testing.check_expert, "success 0.00 of the expert on train"),
    "NoEquality": (testing.check_sync_equals_async, "not equivalent"),
    "NoInfo": (testing.check_info, "invalid_reason 'because'"),
}


@pytest.mark.filterwarnings("ignore:.*share an object")  # Gymnasium finds SharedInfo, too
@pytest.mark.parametrize("name", BROKEN)
def test_broken_env_is_found(name: str) -> None:
    check, told = BROKEN[name]
    state = random.getstate()
    try:
        with pytest.raises(Exception, match=told):
            check(f"tests.broken:DynaBroken-{name}-v0")
    finally:
        random.setstate(state)  # GlobalRandom draws from it


def test_not_a_world_env_is_told() -> None:
    with pytest.raises(testing.ContractError, match=r"subclass of dyna_gym\.env\.WorldEnv"):
        testing.check_info("CartPole-v1")


def test_worlds_without_branching_say_so() -> None:
    result = testing.run_check(testing.check_branch, "tests.worlds:DynaTest-Posting-v0")
    assert (result.status, result.passed) == ("skipped", True)
    assert "none" in result.detail


def test_run_checks_reports_instead_of_raising() -> None:
    seen: list[Any] = []
    results = testing.run_checks(
        "tests.broken:DynaBroken-Hackable-v0",
        checks=[testing.check_same_seed, testing.check_idle_agents],
        episodes=1,
        on_result=seen.append,
    )
    assert [r.status for r in results] == ["passed", "failed"]
    assert seen == results
    assert results[1].name == "idle_agents"
    for part in ("got:", "expected:", "what to do:"):
        assert part in results[1].detail


def test_differences_are_named_by_path() -> None:
    a = describe({"x": (1, {"b", "a"}), "y": float("nan")})
    assert first_difference(a, describe({"y": float("nan"), "x": (1, {"a", "b"})})) is None
    assert (
        first_difference(a, describe({"x": (1, {"a", "c"}), "y": 0.0}))
        == "['x'][1][1]: 'b' against 'c'"
    )
    assert first_difference([True], [1]) is not None
