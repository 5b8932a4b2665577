"""Evaluation: intervals worked by hand, paired differences, baselines, the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dyna_gym import make_agent_env
from dyna_gym.cli import main
from dyna_gym.errors import ConfigError, DynaGymWarning
from dyna_gym.evaluation import evaluate, paired_difference, play, summarise, wilson_interval
from dyna_gym.policies import PromptForm, RandomPolicy, choose_form, load_policy
from dyna_gym.responses import Response
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory, Transition
from tests.policies.tiny import nano

ID = "DynaGym-Sokoban-v0"


def test_wilson_interval_by_hand() -> None:
    # p = 1/2, n = 4, z = 2: centre 1/2, half-width 2 * sqrt(1/16 + 1/16) / (1 + 1) = sqrt(1/8)
    low, high = wilson_interval(2, 4, z=2.0)
    assert (low, high) == pytest.approx((0.5 - 0.125**0.5, 0.5 + 0.125**0.5))
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == 1.0


def episode(number: int, success: bool, sim: float, error: str | None = None) -> Trajectory:
    step = Transition("p", Response("r", token_ids=(1, 2, 3)), sim_score=sim, lookahead_steps=2)
    task = Task(f"t{number}", "", "train", "toy")
    return Trajectory(task, [step], success=success, score=float(success), error=error)


def test_failed_episodes_are_counted_and_left_out() -> None:
    told = summarise(
        [episode(0, True, 1.0), episode(1, False, 0.5), episode(2, False, 0.0, "down")]
    )
    assert (told["success"], told["failed"], told["episodes"]) == (0.5, 1, 2)
    assert told["sim_score"] == 0.75
    assert (told["tokens"], told["env_steps"], told["lookahead_steps"]) == (3, 2, 4)
    with pytest.raises(ConfigError, match="down"):
        summarise([episode(2, False, 0.0, "down")])


def test_paired_difference() -> None:
    a = [episode(i, i < 5, 0.2) for i in range(10)]
    b = [episode(i, i < 8, 0.7) for i in range(10)]
    told = paired_difference(a, b, seed=0)
    assert told["success"] == pytest.approx(0.3)
    assert told["success_ci"][0] <= 0.3 <= told["success_ci"][1]
    assert told["sim_score"] == pytest.approx(0.5)
    assert told["sim_score_ci"] == pytest.approx([0.5, 0.5])  # the same gain on every task
    assert paired_difference(a, b, seed=0) == told
    with pytest.raises(ConfigError, match="no task in common"):
        paired_difference(a, [episode(99, True, 1.0)])


def test_expert_beats_random_and_search_imagines_rightly() -> None:
    """COMPLAINTS 84: baselines beside every figure."""
    expert = evaluate("expert", ID, episodes=20, style="compact", history=0)
    random = evaluate("random", ID, episodes=20, style="compact", history=0)
    search = evaluate("aggregate", ID, episodes=10, response="resim", style="compact", history=0)
    assert expert["success"] == 1.0
    assert random["success"] < 0.6
    assert search["sim_score"] == 1.0
    assert search["lookahead_steps"] > search["env_steps"]


def test_eval_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", ID, "--policy", "expert", "--episodes", "3", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "expert eval_ood" in capsys.readouterr().out
    told = json.loads((tmp_path / "summary.json").read_text())
    assert told["expert eval_id"]["success"] == 1.0
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


# -- a saved policy knows how its prompts were written ----------------------------------------------


@pytest.fixture(scope="module")
def compact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy (of random weights) that was trained on compact prompts without history."""
    folder = tmp_path_factory.mktemp("policy")
    policy = nano(max_new_tokens=8)
    policy.prompt_form = PromptForm("compact", 0)
    policy.save(str(folder))
    return folder


FEW: dict[str, Any] = {"episodes": 2, "settings": {"max_steps": 2}}


@pytest.mark.parametrize(
    ("told", "form"),
    [
        ({}, ("compact", 0)),
        ({"style": "compact"}, ("compact", 0)),
        ({"style": "compact", "history": 0}, ("compact", 0)),
        ({"history": 2}, ("compact", 2)),
        ({"style": "full"}, ("full", 0)),
    ],
)
@pytest.mark.parametrize("as_name", [True, False])
@pytest.mark.filterwarnings("ignore:.*unknown to the policy:dyna_gym.errors.DynaGymWarning")
def test_a_policy_is_played_as_it_was_trained(
    compact: Path, told: dict[str, Any], form: tuple[str, int], as_name: bool
) -> None:
    policy = str(compact) if as_name else load_policy(compact)
    if form == ("compact", 0):
        episodes = play(policy, ID, **FEW, **told)
    else:
        with pytest.warns(
            DynaGymWarning, match="trained on prompts of style 'compact' with history 0"
        ):
            episodes = play(policy, ID, **FEW, **told)
    wanted = make_agent_env(ID, style=form[0], history=form[1], split="eval_id", max_steps=2)
    first = episodes[0]
    prompt, _ = wanted.reset(seed=first.seed, options={"task": first.task})
    assert first.transitions[0].prompt == prompt
    prompt, *_ = wanted.step(first.transitions[0].response.text)
    assert first.transitions[1].prompt == prompt


def test_policies_that_know_nothing_get_the_default() -> None:
    assert choose_form(RandomPolicy()) == PromptForm("full", 2)
    assert choose_form(nano(), "compact", 3) == PromptForm("compact", 3)


@pytest.mark.filterwarnings("always::dyna_gym.errors.DynaGymWarning")
def test_the_command_line_tells_a_contradiction_and_what_cannot_be_read(
    compact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", ID, "--policy", str(compact), "--episodes", "2", "--splits", "eval_id"]
    words += ["--settings", '{"max_steps": 2}', "--temperatures", "1"]
    assert main(words) == 0
    assert "warning" not in capsys.readouterr().err
    assert main([*words, "--style", "full"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warning"] * 3
    assert "trained on prompts of style 'compact'" in lines[0]
    assert "are unknown to the policy" in lines[1]
    assert lines[2] == "warning: 4 of 4 prompts held unknown tokens"


@pytest.mark.parametrize("settings", [{"size": 9}, {"ood_size": 10}])
def test_a_policy_of_another_vocabulary_is_refused(
    compact: Path, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", ID, "--policy", str(compact), "--settings", json.dumps(settings)]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "use the world and the settings that it was trained with" in err


def test_a_policy_of_another_world_is_refused(compact: Path) -> None:
    with pytest.raises(
        ConfigError, match="got a NanoPolicy of the world 'sokoban', expected one of 'counter'"
    ):
        play(str(compact), "tests.worlds:DynaTest-Counter-v0", episodes=1)
