"""Policies without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dyna_gym.envs.sokoban.oracle import SokobanOracle, moves_to_go
from dyna_gym.envs.sokoban.world import SokobanWorld
from dyna_gym.errors import ConfigError
from dyna_gym.learning.collect import collect
from dyna_gym.policies import (
    AggregatorPolicy,
    ExpertPolicy,
    RandomPolicy,
    as_messages,
    make_policy,
)
from dyna_gym.responses import parse_response

ID = "DynaGym-Sokoban-v0"
ACTIONS = ("up", "down", "left", "right")
Make = Callable[..., Any]


def test_as_messages() -> None:
    assert as_messages("hello") == [{"role": "user", "content": "hello"}]
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    assert as_messages(messages) == messages
    assert as_messages(tuple(messages)) == messages


def plans(policy: RandomPolicy, count: int, actions: Any = ACTIONS) -> list[tuple[str, ...]]:
    infos = [{"admissible_actions": actions}] * count
    parsed = [parse_response(r.text) for r in policy.act([[]] * count, infos)]
    assert all(p.action == (p.plan[0] if p.plan else None) for p in parsed)
    return [p.plan for p in parsed]


def test_random_plans() -> None:
    found = plans(RandomPolicy(seed=0, plan_length=3), 400)
    assert {len(p) for p in found} == {3}
    counts = Counter(a for p in found for a in p)
    assert set(counts) == set(ACTIONS)
    assert all(250 < n < 350 for n in counts.values())  # 300 expected


def test_random_plans_of_varied_length() -> None:
    lengths = Counter(len(p) for p in plans(RandomPolicy(plan_length=3, vary=True), 600))
    assert set(lengths) == {1, 2, 3}
    assert all(150 < n < 250 for n in lengths.values())


def test_random_is_seeded() -> None:
    policy = RandomPolicy(seed=1)
    first = plans(policy, 20)
    assert plans(policy, 20) != first
    policy.seed(1)
    assert plans(policy, 20) == first == plans(RandomPolicy(seed=1), 20)


@pytest.mark.parametrize(
    "info", [{"admissible_actions": ()}, {"admissible_actions": None, "error": "x"}]
)
def test_random_without_known_actions_writes_an_empty_action(info: Any) -> None:
    policy = RandomPolicy()
    assert parse_response(policy.act([[]], [info])[0].text).reason == "empty_action"


def test_expert_plays_shortest_solutions(make_agent: Make) -> None:
    envs = [make_agent(ID) for _ in range(3)]
    tasks = list(envs[0].unwrapped.tasks[:5])
    policy = make_policy("expert", world=envs[0].unwrapped.world, envs=envs)
    for episode in collect(envs, policy, tasks):
        start = episode.transitions[0].state
        assert episode.success
        assert len(episode.transitions) == moves_to_go(start)


def test_expert_asks_the_expert_of_each_rows_env(make: Make) -> None:
    envs = [make(ID), make(ID)]
    boards = ["#####\n#PXO#\n#####", "#####\n#OXP#\n#####"]
    task = envs[0].unwrapped.tasks[0]
    infos = [{"task": task, "slot": i, "observation": b} for i, b in enumerate(boards)]
    policy = ExpertPolicy(SokobanOracle(), envs)
    found = [parse_response(r.text).action for r in policy.act([[], []], infos)]
    assert found == ["right", "left"]
    with pytest.raises(ConfigError, match="has 2 envs, got a row of env 2"):
        policy.act([[]], [{**infos[0], "slot": 2}])


def test_aggregator_solves_by_search(make_agent: Make) -> None:
    lookahead = {"proposer": "random", "value": "oracle", "breadth": 12, "depth": 5}
    env = make_agent(ID, response="resim", lookahead=lookahead)
    tasks = list(env.unwrapped.tasks[:3])
    episodes = collect([env], AggregatorPolicy(), tasks)
    assert all(e.sim_score == 1.0 for e in episodes)  # it tells of what was really seen
    assert sum(e.success for e in episodes) >= 2


def test_aggregator_needs_a_search() -> None:
    with pytest.raises(ConfigError, match=r"no info\['search'\]: make the env with"):
        AggregatorPolicy().act([[]], [{}])
    assert AggregatorPolicy().act([[]], [{"error": "browser gone"}])[0].text == ""


@pytest.mark.parametrize("name", ["nobody", "/no/such/folder"])
def test_make_policy_of_an_unknown_name(name: str) -> None:
    with pytest.raises(ConfigError, match=r"policy: got .* expected 'random'"):
        make_policy(name, world=SokobanWorld())


def test_make_policy(make: Make) -> None:
    world = SokobanWorld()
    policy = make_policy("random", world=world, seed=4, plan_length=2)
    assert isinstance(policy, RandomPolicy)
    assert plans(policy, 9) == plans(RandomPolicy(seed=4, plan_length=2), 9)
    assert isinstance(make_policy("aggregate", world=world), AggregatorPolicy)
    with pytest.raises(ConfigError, match="needs the envs"):
        make_policy("expert", world=world)
