"""Data of stage 1: what ReSim episodes and refinement examples must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dyna_gym
from dyna_gym.learning.resim_data import (
    SearchSettings,
    refined_response,
    refinement_examples,
    resim_episodes,
)
from dyna_gym.policies import RandomPolicy
from dyna_gym.responses import parse_response
from dyna_gym.search import Rollout, without_detours
from dyna_gym.values import no_value, oracle_value

SEARCH = SearchSettings(breadth=8, depth=4)


@pytest.fixture
def envs() -> list[Any]:
    return [
        dyna_gym.make_agent_env("DynaGym-Sokoban-v0", style="compact", history=1) for _ in range(4)
    ]


def rollout(value: float, *steps: tuple[str, str], success: bool = False) -> Rollout:
    return Rollout(list(steps), "end", value, success=success)


def test_a_plan_that_wins_is_kept_at_once() -> None:
    won = rollout(1.0, ("up", "A"), ("left", "B solved"), success=True)
    parsed = parse_response(refined_response(won, rollout(1.0, ("down", "C"))))
    assert (parsed.plan, len(parsed.simulations)) == (("up", "left"), 1)


@pytest.mark.parametrize(("value", "plan"), [(0.2, ("down",)), (0.9, ("up",))])
def test_else_the_better_of_two_is_taken(value: float, plan: tuple[str, ...]) -> None:
    tried, other = rollout(value, ("up", "A")), rollout(0.5, ("down", "C"))
    parsed = parse_response(refined_response(tried, other))
    assert parsed.plan == plan
    assert [s.steps[0].digest for s in parsed.simulations] == ["A", "C"]


def test_an_unreadable_draft_leaves_the_search() -> None:
    parsed = parse_response(refined_response(None, rollout(0.5, ("down", "C"))))
    assert (parsed.plan, len(parsed.simulations)) == (("down",), 1)


def test_detours_are_left_out_and_the_end_stays() -> None:
    steps = [("up", "B"), ("down", "A"), ("left", "C"), ("left", "C"), ("up", "D")]
    assert without_detours(steps, "A") == [("left", "C"), ("up", "D")]
    assert without_detours([("up", "A")], "A") == []


def test_resim_episodes_imagine_what_really_happens(envs: list[Any]) -> None:
    tasks = [envs[0].unwrapped.tasks[i] for i in range(6)]
    value = oracle_value(envs[0].unwrapped.oracle)
    settings = {"search": SEARCH, "rng": np.random.default_rng(0)}
    episodes = resim_episodes(envs, tasks, RandomPolicy(0, 4, vary=True), value, **settings)
    assert [e.task.id for e in episodes] == [t.id for t in tasks]
    world = envs[0].unwrapped.world
    for episode in episodes:
        for now, after in zip(episode.transitions, episode.transitions[1:], strict=False):
            parsed = parse_response(now.response.text)
            assert parsed.action == now.action == parsed.plan[0]
            imagined = parsed.imagined_plan()[0]
            assert imagined is not None
            assert world.same_state(imagined, world.digest(after.state))
            assert "<sim>" not in now.prompt  # the search is in the response, not in the prompt
    assert np.mean([e.success for e in episodes]) > 0.5


def test_plain_episodes_take_the_same_actions(envs: list[Any]) -> None:
    tasks = [envs[0].unwrapped.tasks[i] for i in range(4)]
    found = []
    for plain in (False, True):
        value = oracle_value(envs[0].unwrapped.oracle)
        proposer = RandomPolicy(0, 4, vary=True)
        rng = np.random.default_rng(0)
        found.append(resim_episodes(envs, tasks, proposer, value, SEARCH, rng, plain=plain))
    actions = [[[t.action for t in e.transitions] for e in episodes] for episodes in found]
    assert actions[0] == actions[1]
    assert not any("<sim>" in t.response.text for e in found[1] for t in e.transitions)


def test_refinement_examples_copy_the_true_futures(envs: list[Any]) -> None:
    tasks = [envs[0].unwrapped.tasks[i] for i in range(4)]
    drafts, proposer = RandomPolicy(1, 3), RandomPolicy(2, 4, vary=True)
    examples, answers = refinement_examples(
        envs, tasks, drafts, proposer, no_value, SEARCH, np.random.default_rng(0), style="compact"
    )
    steps = [t for e in examples for t in e.transitions]
    assert steps
    for t in steps:
        told = parse_response(t.response.text).simulations[0]
        assert tuple(told.steps) == t.futures
        assert all(digest in t.prompt for _, digest in t.futures)
        assert t.plain_prompt is not None
        assert t.prompt.endswith(t.plain_prompt)
        assert t.lookahead_steps > len(t.futures)
    plain = [t for e in answers for t in e.transitions]
    assert [t.prompt for t in plain] == [t.plain_prompt for t in steps]
