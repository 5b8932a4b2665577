"""What users of similar projects suffer, row by row, where no other test stands for the row.

Rows are those of the project's list of complaints; `grep -rn "COMPLAINTS 32" tests` finds the tests
of a row. Rows of single worlds stand with their worlds' tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import dyna_gym.wrappers as layers
from dyna_gym import testing
from dyna_gym.learning.advantages import group_advantages, refine_advantages
from dyna_gym.policies import RandomPolicy
from dyna_gym.policies.base import as_messages
from dyna_gym.testing.common import describe
from dyna_gym.testing.rollout import rollouts_elsewhere
from dyna_gym.wrappers import AbstractStateWrapper, ReasoningActionWrapper
from tests.conftest import SOKOBAN

Make = Callable[..., Any]


# COMPLAINTS 1
@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("push left then up", "ambiguous"),
        ("supply", "unknown_action"),
        ("up up", "ambiguous"),
        ("upward", "unknown_action"),
        ("down_left", "ambiguous"),
    ],
)
def test_row_1_directions_are_whole_tokens(make: Make, action: str, reason: str) -> None:
    env = ReasoningActionWrapper(make(SOKOBAN))
    before, _ = env.reset(seed=0)
    batch = [f"<think>x</think><action>{action}</action>"]
    after, _, _, _, info = env.step(batch[0])
    assert (after, info["action"], info["invalid_reason"]) == (before, None, reason)
    assert batch == [f"<think>x</think><action>{action}</action>"]


# COMPLAINTS 1
@pytest.mark.parametrize("text", ["up", " UP ", "move up!", "(up)", "up.", "I go **up** now"])
def test_row_1_one_direction_is_read_whatever_stands_around_it(make: Make, text: str) -> None:
    assert make(SOKOBAN).unwrapped.world.parse_action(text) == ("up", None)


def test_rows_2_and_3_through_the_stack(make_agent: Make) -> None:  # COMPLAINTS 2, 3
    env = make_agent(SOKOBAN)
    env.reset(seed=0)
    text = "<think>maybe <action>up</action></think><action>left</action>"
    assert env.step(text)[4]["action"] == "left"
    info = env.step("<think>x</think><action></action>")[4]
    assert (info["action"], info["invalid_reason"]) == (None, "empty_action")


def test_row_9_the_first_action_may_be_invalid(make: Make) -> None:  # COMPLAINTS 9
    env = make(SOKOBAN)
    env.reset(seed=0)
    assert env.step("x")[4]["invalid_reason"] == "unknown_action"


def test_row_14_six_resets_with_a_seed_are_equal(make: Make) -> None:  # COMPLAINTS 14
    env = make(SOKOBAN)
    assert len({env.reset(seed=1234)[0] for _ in range(6)}) == 1


@pytest.mark.parametrize("split", ["train", "eval_ood"])
def test_row_15_boards_are_equal_under_any_hash_seed(
    make: Make, split: str
) -> None:  # COMPLAINTS 15
    # Small rooms are refused often, so that the seeds of further tries count.
    spec = make(SOKOBAN, size=5, split=split).spec
    seeds = tuple(range(12))
    first, second = (rollouts_elsewhere(spec, seeds, 0, h) for h in (1, 2))
    assert first == second
    assert len({rows[0]["observation"] for rows in first}) > 6


def test_row_16_global_generators_neither_matter_nor_move(make: Make) -> None:  # COMPLAINTS 16
    state = random.getstate()
    try:
        boards = set()
        for i in range(3):
            random.seed(i)
            env = make(SOKOBAN)
            boards.add(env.reset(seed=0)[0])
            env.step("up")
            random_now = random.getstate()
            random.seed(i)
            assert random.getstate() == random_now
        assert len(boards) == 1
    finally:
        random.setstate(state)


def test_row_18_splits_are_disjoint_in_layout(make: Make) -> None:  # COMPLAINTS 18
    world = make(SOKOBAN).unwrapped.world
    seen: dict[str, str] = {}
    for split in ("train", "eval_id", "eval_ood"):
        for task in world.tasks(split)[:60]:
            walls = "".join(
                "#" if c == "#" else "\n" if c == "\n" else "_"
                for c in world.initial_abstract(task)
            )
            assert seen.setdefault(walls, split) == split


def test_row_23_a_wrapper_that_forgets_the_seed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # COMPLAINTS 23
    class Forgetful(AbstractStateWrapper):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return super().reset(options=options)

    class Stubborn(AbstractStateWrapper):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return super().reset(seed=seed)

    monkeypatch.setattr(layers, "AbstractStateWrapper", Forgetful)
    with pytest.raises(testing.ContractError, match="through AbstractStateWrapper at seed"):
        testing.check_wrappers_forward(SOKOBAN)
    monkeypatch.setattr(layers, "AbstractStateWrapper", Stubborn)
    with pytest.raises(testing.ContractError, match="options lost"):
        testing.check_wrappers_forward(SOKOBAN)


def test_row_24_unseeded_resets_after_a_seeded_one(make: Make) -> None:  # COMPLAINTS 24
    runs = []
    for _ in range(2):
        env = make(SOKOBAN)
        runs.append([env.reset(seed=1)[0], env.reset()[0], env.reset()[0]])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


@pytest.mark.parametrize("response", ["plain", "sim_rollout", "resim"])
def test_rows_29_and_30_copies_of_whole_stacks_go_on(make_agent: Make, response: str) -> None:
    # COMPLAINTS 29, 30
    import copy
    import pickle

    env = make_agent(SOKOBAN, response=response)
    env.reset(seed=2)
    for _ in range(3):  # with sim_rollout: in the middle of a step
        env.step("<plan>\nup\nleft\n</plan><action>up</action>")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    policy_seed = 5
    futures = []
    for each in (env, *copies):
        policy = RandomPolicy(seed=policy_seed, plan_length=2)
        observation, info = each.present()
        rows = []
        for _ in range(4):
            (reply,) = policy.act([as_messages(observation)], [info])
            result = each.step(reply.text)
            rows.append(describe(result))
            observation, info = result[0], result[4]
            if result[2] or result[3]:
                break
        futures.append(rows)
    assert futures[0] == futures[1] == futures[2]


def test_row_32_async_strings_are_not_frozen(make: Make) -> None:  # COMPLAINTS 32
    vector = gym.make_vec(
        f"dyna_gym:{SOKOBAN}",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
    )
    try:
        first, _ = vector.reset(seed=0)
        texts = {first[0]} | {vector.step((a, a))[0][0] for a in ("up", "down", "left", "right")}
        second, _ = vector.reset(seed=[10, 11])
    finally:
        vector.close()
    assert len(texts) > 1
    assert second != first
    assert first[0] == make(SOKOBAN).reset(seed=0)[0]


def test_row_35_text_goes_into_classic_libraries_as_an_array(make: Make) -> None:  # COMPLAINTS 35
    # See test_wrappers.test_sb3_learns_through_discrete_actions for the whole way.
    env = layers.DiscreteActions(make(SOKOBAN), max_actions=4)
    assert isinstance(env.action_space, gym.spaces.Discrete)
    env.reset(seed=0)
    assert env.action_masks().all()


def test_row_35_a_classic_library_says_that_it_cannot_read_text(
    make: Make, keep_global_rng: None
) -> None:
    """COMPLAINTS 35: no ``TypeError: 'NoneType' object is not iterable``."""
    from stable_baselines3 import PPO

    with pytest.raises(NotImplementedError, match=r"UnicodeText.*not supported"):
        PPO("MlpPolicy", layers.DiscreteActions(make(SOKOBAN), max_actions=4))


def test_row_37_statistics_do_not_depend_on_the_autoreset_mode() -> None:  # COMPLAINTS 37
    lengths = {}
    for mode in gym.vector.AutoresetMode.NEXT_STEP, gym.vector.AutoresetMode.SAME_STEP:
        vector = gym.make_vec(
            SOKOBAN,
            num_envs=2,
            vectorization_mode="sync",
            max_steps=3,
            vector_kwargs={"autoreset_mode": mode},
            wrappers=[gym.wrappers.RecordEpisodeStatistics],
        )
        vector.reset(seed=0)
        ended = []
        for _ in range(8):
            *_, terminated, truncated, infos = vector.step(("zzz", "zzz"))
            if (terminated | truncated).all():
                final = infos.get("final_info", infos)
                ended.append((final["episode"]["l"].tolist(), final["success"].tolist()))
        lengths[mode] = ended
        vector.close()
    expected = ([3, 3], [False, False])
    assert lengths[gym.vector.AutoresetMode.NEXT_STEP] == [expected] * 2
    assert lengths[gym.vector.AutoresetMode.SAME_STEP] == [expected] * 2


def test_row_38_returned_info_is_the_callers(make: Make) -> None:  # COMPLAINTS 38
    env = make(SOKOBAN)
    first = env.reset(seed=0)[1]
    second = env.step("up")[4]
    assert first is not second
    second["task"] = None
    assert env.step("up")[4]["task"] == first["task"]


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium also prints the worker's traceback
def test_row_39_a_workers_error_keeps_its_name() -> None:  # COMPLAINTS 39
    vector = gym.make_vec(
        "tests.worlds:DynaTest-Counter-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
    )
    try:
        with pytest.raises(Exception, match="no task 'nope' in world 'counter'"):
            vector.reset(options={"task": "nope"})
    finally:
        vector.close(terminate=True)


# COMPLAINTS 71
@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_row_71_groups_without_signal_are_zero_and_counted(kind: str) -> None:
    groups = [group_advantages(r, kind) for r in ([0.0, 0, 0, 0], [1.0, 0, 0, 0])]
    assert all(np.isfinite(g).all() for g in groups)
    assert groups[0].tolist() == [0.0] * 4
    assert groups[1][0] > 0 > groups[1][1]
    assert sum(groups[1]) == pytest.approx(0.0)
    zero_advantage_frac = np.mean([not g.any() for g in groups])
    assert zero_advantage_frac == 0.5


# COMPLAINTS 71
def test_row_71_equal_rewards_that_floats_do_not_hold_exactly_are_zero() -> None:
    for value in (0.1, 9.7, -0.30000000000000004, 1e6 / 3):
        assert not group_advantages([value] * 7).any()
        assert not group_advantages([sum([value / 10] * 10), value]).any()
        refined = refine_advantages([value] * 3, [True] * 3, [value] * 5)
        assert not refined.any()
    assert group_advantages([5.0]).tolist() == [0.0]
    assert group_advantages([]).tolist() == []


def test_row_71_advantages_by_hand() -> None:  # COMPLAINTS 71
    # mean 2.5, population std sqrt(18.75)
    got = group_advantages([10.0, 0, 0, 0])
    assert got == pytest.approx([7.5 / 18.75**0.5, *[-2.5 / 18.75**0.5] * 3])
    assert group_advantages([10.0, 0, 0, 0], "rloo") == pytest.approx([10.0, *[-10 / 3] * 3])
    # Above both means, and correct.
    got = refine_advantages([9.9, 9.5, 0.0], [True, True, False], [9.8, 0.0])
    assert got.tolist() == [1.0, 1.0, 0.0]
    assert refine_advantages([9.9], [False], [0.0]).tolist() == [0.0]


def test_row_84_idle_agents_fail_and_the_random_rate_is_told() -> None:  # COMPLAINTS 84
    assert "idle agents" in testing.check_idle_agents(SOKOBAN, episodes=10)
    assert "random admissible actions solve" in testing.check_random_agent(SOKOBAN, episodes=10)


def test_row_85_a_group_shares_its_first_observation() -> None:  # COMPLAINTS 85
    vector = gym.make_vec(SOKOBAN, num_envs=4, vectorization_mode="sync")
    task = vector.envs[0].unwrapped.tasks[17]
    observations, infos = vector.reset(seed=3, options={"task": task})
    assert len(set(observations)) == 1
    assert [t.id for t in infos["task"]] == [task.id] * 4
    vector.close()
