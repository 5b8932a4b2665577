"""Every check on every registered id; and that each check finds an env that is broken."""

from __future__ import annotations

import random
import re
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


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "noisy": ("Noisy", {"split": "eval_ood"}),
    "replayed": ("Replay", {}),
    "cannot be branched": ("Posting", {}),
    "instance that cannot": ("Choosy", {"branching": "none"}),
    "instance that can": ("Choosy", {"branching": "snapshot"}),
    "live": ("Live", {}),
    "live, with snapshots": ("Live", {"branching": "snapshot"}),
    "instance that is not live": ("Live", {"live": False, "branching": "snapshot"}),
    "machinery that fails": ("Flaky", {"fail_at": [0, 3, 7]}),
    "judged at the end": ("Judged", {}),
    "judge that fails": ("Judged", {"fail_at": [0]}),
    "observation is not the state": ("Delta", {}),
    "unbounded actions": ("Open", {}),
    "own keys, reasons and truncation": ("Chatty", {}),
    "pictures": ("Page", {}),
    "numbers": ("Number", {}),
    "simulator that ends early": ("Short", {}),
    "simulator with another budget": ("Tight", {}),
    "simulator that starts anywhere": ("Anywhere", {}),
    "shared data": ("Heavy", {"size": 2_000}),
    "played by a model": ("Engine", {}),
    "played by a model, with noise": ("NoisyEngine", {}),
    "dream": ("Dream", {}),
}
"""Worlds that keep the contract: id and settings of each kind."""
SPAWNING = (
    testing.check_two_processes,
    testing.check_sync_equals_async,
    testing.check_shared_memory,
)
"""Checks that start processes, which takes seconds."""


@pytest.mark.parametrize("kind", KINDS)
def test_kind_keeps_the_contract(kind: str) -> None:
    name, settings = KINDS[kind]
    checks = [check for check in testing.CHECKS if check not in SPAWNING]
    results = testing.run_checks(f"tests.worlds:DynaTest-{name}-v0", checks=checks, **settings)
    assert [f"{r.name}: {r.detail}" for r in results if not r.passed] == []


@pytest.mark.parametrize("check", SPAWNING, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["own keys, reasons and truncation", "pictures", "live", "dream"])
def test_kind_in_other_processes(kind: str, check: Any) -> None:
    name, settings = KINDS[kind]
    result = testing.run_check(check, f"tests.worlds:DynaTest-{name}-v0", **settings)
    assert result.passed, result.detail


class TestMixin(EnvContractTests):
    env_id = "tests.worlds:DynaTest-Noisy-v0"
    make_kwargs = {"split": "eval_id"}
    episodes = 1
    skip = ("expert", "two_processes", "sync_equals_async", "shared_memory")


BROKEN = [
    ("IgnoresSeed", testing.check_same_seed, "two resets with seed 0 differ"),
    ("IgnoresSeed", testing.check_autoreset, "NextStep autoreset: last observation and info"),
    ("Reseeds", testing.check_unseeded_reset, "the first unseeded reset, differ"),
    ("IgnoresOption", testing.check_task_option, "expected: 'counter/train/0'"),
    ("StartsBySeed", testing.check_group_reset, "first results of envs 0 and 1 of a group"),
    ("DrawsWhenCloned", testing.check_branch, "before and after a branch differ"),
    ("TakesObjects", testing.check_spec_round_trip, "the spec of bare does not round-trip"),
    ("NoText", testing.check_grammar, r"parse_action\(None\) raises AttributeError"),
    ("Hackable", testing.check_random_agent, "success of random actions on all of"),
    ("Fragile", testing.check_hostile_responses, "UnicodeEncodeError"),
    ("Hashes", testing.check_two_processes, "two processes, seed 0, row 0"),
    ("GlobalRandom", testing.check_global_rng, "another state of random"),
    ("ForgetsState", testing.check_clone, "state and restored state|the future and that of"),
    ("OwnRandom", testing.check_second_instance, "the env and the second instance differ"),
    ("EzPickled", testing.check_deepcopy_and_pickle, "EzPickle"),
    ("SharedInfo", testing.check_returned_values, "when returned and later, differ"),
    ("Hackable", testing.check_idle_agents, "success on task counter/train/0 by writing ''"),
    ("Fragile", testing.check_hostile_text, "UnicodeEncodeError"),
    ("TakesAnything", testing.check_info, "invalid_reason None for an empty action"),
    ("Overlaps", testing.check_splits, "in 'train' and 'eval_id'"),
    ("Frozen", testing.check_shared_memory, "with shared memory and without"),
    ("NoBudget", testing.check_idle_agents, "with a budget of"),
    ("Warns", testing.check_gymnasium, "odd"),
    ("BadExpert", testing.check_expert, "success 0.00 of the expert on train"),
    ("NoEquality", testing.check_sync_equals_async, "not equivalent"),
    ("NoInfo", testing.check_info, "invalid_reason 'because'"),
    ("ShowsObservation", testing.check_state, "not a state: 'You stand at 0"),
    ("WrongStart", testing.check_state, "first state 'n=0 goal=2'"),
    ("CountsBadActions", testing.check_state, "after the refused action"),
    ("Leaks", testing.check_state, "and later"),
    ("NoCandidates", testing.check_state, r"must override candidates\(\)"),
    ("Shadows", testing.check_info, r"extras: got the keys \['futures', 'score'\]"),
    ("JudgeShadows", testing.check_idle_agents, r"extras: got the keys \['error'\]"),
    ("NoReason", testing.check_info, "invalid_reason 'my_own'"),
    ("TakesCodes", testing.check_info, r"own reasons \['ambiguous'\]"),
    ("Picky", testing.check_action_space, "raises TypeError: 'an int, please'"),
    ("SharedFrame", testing.check_clone, "state and restored state"),
    ("NoPicture", testing.check_info, "picture 'page' of Dict"),
    ("JudgesDrafts", testing.check_drafts_are_not_judged, "asked 1 times for a draft"),
    ("ForetellsNoise", testing.check_drafts_hide_noise, "40 of 40 drafts foretold"),
    ("ForgetsFailure", testing.check_broken_draft, "truncated False"),
    ("Undeclared", testing.check_repeatable, "two instances, seed 0, differ"),
    ("BranchesAnyway", testing.check_clone, "a branch of an env with branching='none'"),
    ("WorldLearns", testing.check_world_is_shared, "other answers of the world"),
    ("PickledByValue", testing.check_world_is_shared, "another world object in a pickle"),
]
BROKEN_MODELS = [
    ("AsksWithOwnNoise", testing.check_requests, "before and after request"),
    ("AsksAnew", testing.check_requests, "expected: equal requests"),
    ("AsksOtherwise", testing.check_requests, "a step that asks"),
    ("UnequalEngines", testing.check_lockstep_agents, "unequal engines"),
    ("RemembersOthers", testing.check_lockstep_agents, "alone and beside others"),
    ("NotBatched", testing.check_lockstep_vector, "SyncVectorEnv of make_vec"),
]


@pytest.mark.filterwarnings("ignore:.*share an object")  # Gymnasium finds SharedInfo, too
@pytest.mark.parametrize(("name", "check", "told"), BROKEN)
def test_broken_env_is_found(name: str, check: Any, told: str) -> None:
    state = random.getstate()
    try:
        result = testing.run_check(check, f"tests.broken:DynaBroken-{name}-v0")
    finally:
        random.setstate(state)  # GlobalRandom draws from it
    assert not result.passed
    assert re.search(told, result.detail), result.detail


@pytest.mark.parametrize(("name", "check", "told"), BROKEN_MODELS)
def test_broken_model_world_is_found(name: str, check: Any, told: str) -> None:
    with pytest.raises(testing.ContractError, match=told):
        check(f"tests.broken_models:DynaBroken-{name}-v0")


def test_every_check_has_a_broken_twin() -> None:
    found = {check for _, check, _ in (*BROKEN, *BROKEN_MODELS)}
    found.add(testing.check_wrappers_forward)  # broken wrappers: tests/test_complaints.py, row 23
    assert [check.__name__ for check in testing.CHECKS if check not in found] == []


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
