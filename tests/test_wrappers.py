"""Rewards, the plain response layer, prompts and the small wrappers, over the test worlds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gw

import dyna_gym
from dyna_gym.branching import branch
from dyna_gym.errors import ConfigError, DynaGymWarning, MachineryError
from dyna_gym.policies import RandomPolicy
from dyna_gym.policies.base import as_messages
from dyna_gym.trajectory import read_trajectories
from dyna_gym.wrappers import (
    AbstractStateWrapper,
    DiscreteActions,
    OutcomeReward,
    PromptWrapper,
    ReasoningActionWrapper,
    RecordTrajectories,
    RetryFailedEpisodes,
    SuccessReward,
)
from tests.conftest import SOKOBAN
from tests.worlds import TO_FOUR, TO_TWO, answer

Make = Callable[..., Any]


def rewards(env: Any, actions: list[str]) -> list[float]:
    env.reset(options=TO_TWO)
    return [env.step(a)[1] for a in actions]


# -- rewards ---------------------------------------------------------------------------------------


def test_outcome_reward_by_hand(make: Make) -> None:
    # Solved at the third step: two steps that cost, then the success.
    assert rewards(OutcomeReward(make("Counter")), ["inc", "", "inc"]) == [-0.1, -0.1, 10.0]
    # Truncated at the third, unsolved: the last step pays 0, not -0.1 and not -0.1 + 0.
    assert rewards(OutcomeReward(make("Counter", max_steps=3)), ["inc", "wait", "wait"]) == [
        -0.1,
        -0.1,
        0.0,
    ]
    own = OutcomeReward(make("Counter", max_steps=2), step=-1, success=3, failure=-2)
    assert rewards(own, ["wait", "wait"]) == [-1.0, -2.0]
    assert rewards(own, ["inc", "inc"]) == [-1.0, 3.0]


def test_outcome_reward_at_a_step_limit_that_finds_success(make: Make) -> None:
    # Judged at the limit: truncated and solved.
    assert rewards(OutcomeReward(make("Judged", max_steps=3)), ["inc", "inc", "wait"]) == [
        -0.1,
        -0.1,
        10.0,
    ]


def test_success_reward_by_hand(make: Make) -> None:
    assert rewards(SuccessReward(make("Counter")), ["inc", "", "inc"]) == [0.0, 0.0, 1.0]
    assert rewards(SuccessReward(make("Counter", max_steps=2)), ["inc", "wait"]) == [0.0, 0.0]
    assert rewards(SuccessReward(make("Judged", max_steps=2)), ["inc", "inc"]) == [0.0, 1.0]


@pytest.mark.parametrize("wrapper", [OutcomeReward, SuccessReward])
def test_failed_machinery_pays_nothing(make: Make, wrapper: Any) -> None:
    env = wrapper(make("Flaky", fail_at=range(1, 99)))
    env.reset(options=TO_TWO)
    _, reward, terminated, truncated, info = env.step("inc")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "error" in info


def test_failed_machinery_is_not_a_failure_that_costs(make: Make) -> None:
    env = OutcomeReward(make("Flaky", fail_at=range(1, 99)), failure=-5)
    env.reset(options=TO_TWO)
    assert env.step("inc")[1] == 0.0


def test_abstract_states_may_build_on_the_last_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = make("Counter")
    world = inner.unwrapped.world  # other envs may share it
    growing = lambda previous, action, seen: f"{previous or ''}{action};"  # noqa: E731
    monkeypatch.setattr(world, "abstract", growing)
    env = AbstractStateWrapper(inner)
    assert env.reset(options=TO_TWO)[0] == "None;"
    assert env.step("inc")[0] == "None;inc;"
    with branch(env) as below:
        assert below.step("dec")[0] == "None;inc;dec;"
    assert env.step("wait")[0] == "None;inc;wait;"
    assert env.reset(options=TO_TWO)[0] == "None;"


# -- the plain response layer ----------------------------------------------------------------------


def test_a_response_is_parsed_and_executed(make: Make) -> None:
    env = ReasoningActionWrapper(make("Counter"))
    observation, info = env.reset(options=TO_TWO)
    assert (info["observation"], info["action"], info["notes"]) == (observation, None, ())
    observation, _, _, _, info = env.step("<think><action>dec</action></think><action>INC</action>")
    assert (observation, info["action"], info["invalid_reason"]) == ("n=1 goal=2", "inc", None)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("", "no_action"),
        ("<action></action>", "empty_action"),
        ("<action>fly</action>", "unknown_action"),
        ("<think>", "unclosed_think"),
        (None, "no_action"),
    ],
)
def test_an_unreadable_response_counts_as_a_step(make: Make, response: Any, reason: str) -> None:
    env = ReasoningActionWrapper(make("Counter", max_steps=1))
    env.reset(options=TO_TWO)
    observation, _, _, truncated, info = env.step(response)
    assert (observation, truncated) == ("n=0 goal=2", True)
    assert (info["invalid_reason"], info["action"]) == (reason, None)


# -- prompts ---------------------------------------------------------------------------------------


def test_prompt_shows_the_last_h_steps(make_agent: Make) -> None:
    env = make_agent("Counter", history=2)
    prompt, _ = env.reset(options=TO_FOUR)
    assert "You have taken" not in prompt
    assert "Admissible actions: inc, dec, wait" in prompt
    assert "Count to 4." in prompt
    for action in ("dec", "fly", "wait"):
        prompt = env.step(answer(action))[0]
    assert "You have taken 3 steps. The last 2:" in prompt
    assert "State:\nn=-1 goal=4\nAction: (invalid: unknown_action)" in prompt
    assert "Action: wait" in prompt
    assert "Action: dec" not in prompt
    prompt, _ = env.reset(options=TO_FOUR)
    assert "You have taken" not in prompt


def test_prompt_without_history(make_agent: Make) -> None:
    env = make_agent("Counter", history=0)
    env.reset(options=TO_FOUR)
    assert "You have taken" not in env.step(answer("dec"))[0]


def test_a_draft_is_no_step_of_the_history(make_agent: Make) -> None:
    env = make_agent("Counter", response="sim_rollout", history=3)
    plain, info = env.reset(options=TO_FOUR)
    assert info["plain_prompt"] == plain
    refine, _, _, _, info = env.step(answer("dec", "dec", "inc"))
    assert info["plain_prompt"] == plain
    assert refine.startswith(plain)
    assert "Action: dec\nReal next state:\nn=-1 goal=4\nAction: inc" in refine
    prompt = env.step(answer("wait"))[0]
    assert "You have taken 1 steps. The last 1:\nState:\nn=0 goal=4\nAction: wait" in prompt


def test_compact_prompts(make_agent: Make) -> None:
    env = make_agent("Counter", response="sim_rollout", history=0, style="compact")
    prompt, _ = env.reset(options=TO_FOUR)
    assert prompt == "n=0 goal=4\n"
    prompt = env.step(answer("dec", "dec", "inc"))[0]
    assert prompt == "<sim> dec -> n -1 | inc -> n 0 </sim>\nn=0 goal=4\n"


def test_prompt_survives_failed_machinery(make_agent: Make) -> None:
    env = make_agent("Flaky", fail_at=range(3))
    prompt, info = env.reset(options=TO_FOUR)
    assert prompt == ""
    assert "error" in info
    prompt, _, _, truncated, _ = env.step(answer("inc"))
    assert truncated
    env = make_agent("Flaky", fail_at=range(1, 9))
    env.reset(options=TO_FOUR)
    prompt, reward, _, truncated, info = env.step(answer("inc"))
    assert (reward, truncated) == (0.0, True)
    assert "n=0 goal=4" in prompt


def test_prompt_needs_a_response_layer(make: Make) -> None:
    with pytest.raises(ConfigError, match="expected a response layer"):
        PromptWrapper(make("Counter")).reset(seed=0)
    for settings, told in (
        ({"history": -1}, "history: got -1"),
        ({"style": "x"}, "style: got 'x'"),
    ):
        with pytest.raises(ConfigError, match=told):
            PromptWrapper(make("Counter"), **settings)


def test_present_does_not_show_what_a_caller_did_to_info(make_agent: Make) -> None:
    env = make_agent("Counter")
    prompt, info = env.reset(options=TO_FOUR)
    info.clear()
    shown, again = env.present()
    assert shown == prompt
    assert again["task"].id == TO_FOUR["task"]


def test_make_agent_env_refuses_what_it_cannot_build() -> None:
    for settings, told in (
        ({"response": "x"}, "response: got 'x'"),
        ({"reward": "x"}, "reward: got 'x'"),
        ({"lookahead": {"max_depth": 2}}, "looks at nothing"),
    ):
        with pytest.raises(ConfigError, match=told):
            dyna_gym.make_agent_env(SOKOBAN, **settings)


# -- small wrappers --------------------------------------------------------------------------------


def test_discrete_actions(make: Make) -> None:
    env = DiscreteActions(make("Counter"), max_actions=5)
    env.reset(options=TO_TWO)
    assert env.actions == ("inc", "dec", "wait")
    assert env.action_masks().tolist() == [True, True, True, False, False]
    assert env.step(np.int64(0))[0] == "n=1 goal=2"
    for index in (3, 4, 99, -1):
        observation, _, _, _, info = env.step(index)
        assert (observation, info["invalid_reason"]) == ("n=1 goal=2", "not_admissible")
    for bad in ("inc", 1.0, True, None):
        with pytest.raises(ConfigError, match="expected an index in Discrete"):
            env.step(bad)
    assert env.step(0)[2]


def test_discrete_actions_use_candidates_where_the_set_is_unbounded(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = make("Counter")
    inner.unwrapped._admissible = lambda: None
    world = inner.unwrapped.world  # other envs may share it
    monkeypatch.setattr(world, "candidates", lambda state: ("inc", f"say {state}"))
    env = DiscreteActions(inner)
    env.reset(options=TO_TWO)
    assert env.actions == ("inc", "say n=0 goal=2")


@pytest.mark.slow
def test_sb3_learns_through_discrete_actions(make: Make, keep_global_rng: None) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    box = gym.spaces.Box(-50, 50, (2,), np.float64)
    inner = make("Counter")
    numbers = gw.TransformObservation(
        inner,
        lambda text: np.array([float(part.split("=")[1]) for part in text.split()]),
        box,
    )
    env = DiscreteActions(numbers, max_actions=3)
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=32, batch_size=16, n_epochs=1)
    model.learn(64)
    assert model.num_timesteps == 64


@pytest.mark.parametrize("response", ["world", "plain", "sim_rollout", "resim"])
def test_recorded_episodes_round_trip(
    make: Make, make_agent: Make, tmp_path: Path, response: str
) -> None:
    path = tmp_path / "new" / "episodes.jsonl"
    inner = make("Counter") if response == "world" else make_agent("Counter", response=response)
    env = RecordTrajectories(inner, path)
    say = (lambda a: a) if response == "world" else (lambda a: answer(a, a))
    for texts in (["inc", "wait", "inc"], ["inc", "\ud800", "inc"]):
        env.reset(seed=3, options=TO_TWO)
        for text in texts:
            for _ in range(2 if response == "sim_rollout" else 1):
                env.step(say(text))
    env.reset(options=TO_TWO)
    env.step(say("inc"))  # never finished: not written
    first, second = read_trajectories(path)
    assert first.task.id == TO_TWO["task"]
    assert (first.success, first.score, first.seed, first.error) == (True, 1.0, 3, None)
    assert first.mode == ("plain" if response == "world" else response)
    assert [t.reward for t in first.transitions] == (
        [0.0, 0.0, 1.0] if response == "world" else [-0.1, -0.1, 10.0]
    )
    assert [t.state for t in first.transitions] == ["n=0 goal=2", "n=1 goal=2", "n=1 goal=2"]
    assert [t.action for t in first.transitions] == ["inc", "wait", "inc"]
    assert [t.terminated for t in first.transitions] == [False, False, True]
    assert second.transitions[1].response.text == say("\ud800")
    assert second.transitions[1].invalid_reason == "unknown_action"
    for transition in first.transitions:
        drafted = response == "sim_rollout"
        assert (transition.draft is not None) == drafted
        assert (transition.plain_prompt is not None) == drafted
        assert len(transition.futures) == (1 if drafted else 0)


def test_recorder_after_the_end_is_told(make: Make, tmp_path: Path) -> None:
    env = RecordTrajectories(make("Counter", max_steps=1), tmp_path / "e.jsonl")
    with pytest.raises(gym.error.ResetNeeded):
        env.step("inc")
    env.reset(seed=0)
    env.step("wait")
    with pytest.raises(gym.error.ResetNeeded):
        env.step("wait")
    assert len(list(read_trajectories(tmp_path / "e.jsonl"))) == 1


def test_recorder_keeps_the_error(make: Make, tmp_path: Path) -> None:
    env = RecordTrajectories(make("Flaky", fail_at=range(1, 9)), tmp_path / "e.jsonl")
    env.reset(seed=0)
    env.step("inc")
    (episode,) = read_trajectories(tmp_path / "e.jsonl")
    assert episode.error.startswith("MachineryError")


def test_retry_shields_a_trainer(make: Make) -> None:
    env = RetryFailedEpisodes(make("Flaky", fail_at=range(2, 5)))
    _, info = env.reset(seed=0, options=TO_FOUR)
    assert info["retried"] == 0
    assert env.step("inc")[0] == "n=1 goal=4"
    with pytest.warns(DynaGymWarning, match="task counter/train/2 started again: MachineryError"):
        observation, reward, terminated, truncated, info = env.step("inc")
    assert (observation, reward, terminated, truncated) == ("n=0 goal=4", 0.0, False, False)
    assert (info["task"].id, info["retried"]) == ("counter/train/2", 1)
    assert "error" not in info
    assert env.step("inc")[4]["retried"] == 1


def test_retry_at_reset_and_its_bound(make: Make) -> None:
    env = RetryFailedEpisodes(make("Flaky", fail_at=range(3)))
    with pytest.warns(DynaGymWarning):
        observation, info = env.reset(seed=0, options=TO_FOUR)
    assert (observation, info["retried"]) == ("n=0 goal=4", 1)
    env = RetryFailedEpisodes(make("Flaky", fail_at=range(999)), retries=2)
    with (
        pytest.warns(DynaGymWarning),
        pytest.raises(MachineryError, match="failed 3 times in one episode"),
    ):
        env.reset(seed=0)


def test_wrappers_over_foreign_envs_are_told() -> None:
    with pytest.raises(
        ConfigError, match="AbstractStateWrapper wraps CartPoleEnv, expected a dyna_gym"
    ):
        AbstractStateWrapper(gym.make("CartPole-v1")).reset(seed=0)


def test_the_random_policy_drives_every_layer(make_agent: Make) -> None:
    for response in ("plain", "sim_rollout", "resim"):
        env = make_agent("Noisy", response=response)
        policy = RandomPolicy(seed=0, plan_length=3)
        observation, info = env.reset(seed=0)
        for _ in range(40):
            (reply,) = policy.act([as_messages(observation)], [info])
            observation, _, terminated, truncated, info = env.step(reply.text)
            if terminated or truncated:
                break
        assert terminated or truncated
