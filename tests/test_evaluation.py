"""Evaluation: intervals worked by hand, paired differences, baselines, the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dyna_gym.cli import main
from dyna_gym.errors import ConfigError
from dyna_gym.evaluation import evaluate, paired_difference, summarise, wilson_interval
from dyna_gym.responses import Response
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory, Transition

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


def test_eval_of_a_missing_policy_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", ID, "--policy", "nowhere", "--episodes", "1"]) == 2
    assert (
        "expected 'random', 'expert', 'aggregate' or an existing folder" in capsys.readouterr().err
    )
