"""Tiny runs of every trainer, end to end; and that a killed run loses at most one update."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from dyna_gym.errors import ConfigError, DynaGymWarning
from dyna_gym.learning.resim_data import SearchSettings
from dyna_gym.learning.value_model import ValueModel, value_labels
from dyna_gym.policies import load_policy
from dyna_gym.responses import Response
from dyna_gym.task import Task
from dyna_gym.trainers import dyna_grpo, dyna_mind, grpo, resim, value
from dyna_gym.trajectory import Trajectory, Transition, read_trajectories

SEARCH = SearchSettings(breadth=6, depth=4)
# Short episodes: a model that has not learned yet writes long answers.
SHORT = '{"max_steps": 4}'
SMALL = {
    "settings": SHORT,
    "rounds": 2,
    "tasks": 12,
    "refine_tasks": 4,
    "n_envs": 12,
    "steps": 6,
    "batch": 16,
    "search": SEARCH,
    "eval_episodes": 1,
    "checkpoint_every": 2,
}


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("resim")
    resim.main(resim.Args(run=str(run / "run"), **SMALL))
    return run / "run"


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {k: v.numpy() for k, v in load_file(folder / "model.safetensors").items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.allclose(a[k], b[k], atol=1e-6) for k in a)


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_resim_writes_a_whole_run_folder(distilled: Path) -> None:
    told = json.loads((distilled / "summary.json").read_text())
    assert {"eval_id T=0", "eval_id T=1", "eval_ood T=0", "eval_ood T=1"} == set(told["evaluation"])
    assert len(told["resim"]) == 2
    episodes = list(read_trajectories(distilled / "resim-0.jsonl"))
    assert len(episodes) == 12
    assert all(t.lookahead_steps > 0 for e in episodes for t in e.transitions)
    refined = list(read_trajectories(distilled / "refine-1.jsonl"))
    assert all(t.draft is not None and t.plain_prompt for e in refined for t in e.transitions)
    assert load_policy(distilled / "policy").max_new_tokens > 0


def test_resim_loss_falls(tmp_path: Path) -> None:
    settings = {**SMALL, "rounds": 1, "steps": 30, "eval_episodes": 0, "checkpoint_every": 5}
    resim.main(resim.Args(run=str(tmp_path / "run"), **settings))
    losses = [row["losses/nll"] for row in metrics(tmp_path / "run")]
    assert losses[-1] < 0.8 * losses[0]


def test_ablate_plain_distils_no_futures(tmp_path: Path) -> None:
    settings = {**SMALL, "rounds": 1, "steps": 2, "eval_episodes": 0}
    resim.main(resim.Args(run=str(tmp_path / "run"), ablate="plain", **settings))
    texts = [
        t.response.text
        for e in read_trajectories(tmp_path / "run" / "resim-0.jsonl")
        for t in e.transitions
    ]
    assert texts
    assert not any("<sim>" in t for t in texts)


def test_a_run_folder_is_not_overwritten(distilled: Path) -> None:
    with pytest.raises(ConfigError, match="--resume"):
        resim.main(resim.Args(run=str(distilled), **SMALL))
    with pytest.raises(ConfigError, match="other settings"):
        resim.main(resim.Args(run=str(distilled), **{**SMALL, "lr": 1.0}, resume=True))


def small_grpo(distilled: Path, run: Path, **more: object) -> grpo.Args:
    return grpo.Args(
        policy=str(distilled / "policy"),
        run=str(run),
        groups=2,
        group_size=4,
        settings=SHORT,
        **more,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("advantage", ["grpo", "rloo"])
def test_grpo_runs_and_logs(distilled: Path, tmp_path: Path, advantage: str) -> None:
    run = tmp_path / "run"
    grpo.main(small_grpo(distilled, run, tokens=4_000, advantage=advantage))
    rows = metrics(run)
    wanted = {
        "charts/success",
        "charts/sim_score",
        "charts/return",
        "charts/generated_tokens",
        "charts/env_steps",
        "charts/lookahead_steps",
        "charts/zero_advantage_frac",
        "charts/failed_rollouts_frac",
        "losses/approx_kl",
        "losses/clip_fraction",
    }
    assert wanted <= set(rows[-1])
    assert rows[-1]["charts/generated_tokens"] >= 4_000
    assert rows[-1]["charts/lookahead_steps"] == 0
    assert (run / "policy" / "model.safetensors").exists()


def test_dyna_grpo_runs_and_logs(distilled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    args = dyna_grpo.Args(
        policy=str(distilled / "policy"),
        run=str(run),
        groups=2,
        group_size=4,
        settings=SHORT,
        tokens=5_000,
        gate_tasks=2,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynaGymWarning)
        dyna_grpo.main(args)
    rows = metrics(run)
    assert rows[0]["step"] == 0
    assert "gate/sim_rollout_success" in rows[0]
    first = next(r for r in rows if r.get("charts/phase") == 0.0)
    assert {
        "sim_rollout/success",
        "sim_rollout/sim_score",
        "sim_rollout/mean_advantage",
        "standard/mean_advantage",
        "sim_rollout/logp_refine_minus_plain",
    } <= set(first)
    assert rows[-1]["charts/lookahead_steps"] > 0


@pytest.mark.parametrize("bad", [{"group_size": 5}, {"n_t": 0, "n_pi": 0}])
def test_dyna_grpo_refuses_bad_settings(tmp_path: Path, bad: dict[str, int]) -> None:
    args = dyna_grpo.Args(policy="x", run=str(tmp_path / "run"), **bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="got"):
        dyna_grpo.main(args)


@pytest.mark.parametrize(
    ("trainer", "bad"),
    [
        (grpo, {"policy": "x", "groups": 0}),
        (grpo, {"policy": "x", "tokens": -1}),
        (dyna_grpo, {"policy": "x", "epochs": 0}),
        (dyna_grpo, {"policy": "x", "seed": -1}),
        (resim, {"steps": 0}),
        (value, {"tasks": 0}),
        (dyna_mind, {"processes": 0}),
    ],
)
def test_absurd_settings_are_told_before_anything_is_made(
    tmp_path: Path, trainer: Any, bad: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="expected a whole number >="):
        trainer.main(trainer.Args(run=str(tmp_path / "run"), **bad))
    assert not (tmp_path / "run").exists()


def test_a_missing_policy_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a folder that a policy was saved to"):
        load_policy(tmp_path / "nowhere")


def test_grpo_resumed_equals_uninterrupted(distilled: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    grpo.main(small_grpo(distilled, whole, tokens=4_000))
    with pytest.raises(RuntimeError, match="stop here"):
        _stop_after(1, lambda: grpo.main(small_grpo(distilled, parts, tokens=4_000)))
    assert len(metrics(parts)) == 1
    grpo.main(small_grpo(distilled, parts, tokens=4_000, resume=True))
    assert same(weights(whole / "policy"), weights(parts / "policy"))
    figures = [[r["charts/success"] for r in metrics(run)] for run in (whole, parts)]
    assert figures[0] == figures[1]


def _stop_after(updates: int, call: object) -> None:
    """Raise out of the trainer after so many checkpoints, as if it had been killed there."""
    from dyna_gym.runs import RunFolder

    save = RunFolder.save_checkpoint

    def counted(self: RunFolder, step: int, write: object) -> None:
        save(self, step, write)
        if step >= updates:
            raise RuntimeError("stop here")

    RunFolder.save_checkpoint = counted  # type: ignore[method-assign,assignment]
    try:
        call()  # type: ignore[operator]
    finally:
        RunFolder.save_checkpoint = save  # type: ignore[method-assign]


def test_resim_resumed_equals_uninterrupted(distilled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {**SMALL}
    with pytest.raises(RuntimeError, match="stop here"):
        _stop_after(8, lambda: resim.main(resim.Args(run=str(run), **settings)))
    resim.main(resim.Args(run=str(run), resume=True, **settings))
    assert same(weights(distilled / "policy"), weights(run / "policy"))


def test_sigkill_loses_at_most_one_update(distilled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "dyna_gym.trainers.grpo", "--policy", str(distilled / "policy")),
        *("--run", str(run), "--groups", "2", "--group-size", "4", "--tokens", "100000000"),
        *("--settings", SHORT),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if (run / "metrics.jsonl").exists() and len(metrics_or_none(run)) >= 2:
                break
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = len(metrics_or_none(run))
    assert done >= 2
    saved = json.loads((run / "checkpoint.json").read_text())
    assert saved["step"] >= done - 1
    folder = run / saved["folder"]
    assert {"model.safetensors", "optimizer.pt", "counters.json"} <= {
        p.name for p in folder.iterdir()
    }
    load_policy(folder)
    args = small_grpo(distilled, run, tokens=100_000_000, resume=True)
    with pytest.raises(RuntimeError, match="stop here"):
        _stop_after(saved["step"] + 1, lambda: grpo.main(args))
    steps = [row["step"] for row in metrics(run)]
    assert steps == list(range(1, saved["step"] + 2))


def metrics_or_none(run: Path) -> list[str]:
    """Complete lines only: the file is being written to."""
    path = run / "metrics.jsonl"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def episode(task: str, states: list[str], success: bool) -> Trajectory:
    steps = [Transition(prompt=s, response=Response(""), state=s) for s in states]
    return Trajectory(Task(task, "", "train", "toy"), steps, success=success)


def test_value_labels_by_hand() -> None:
    episodes = [
        episode("t", ["a", "b"], True),
        episode("t", ["a", "c", "a"], False),
        episode("u", ["a"], True),
    ]
    found = value_labels(episodes, gamma=0.5, t_max=3)
    assert found == [
        ("t", "a", 0.5**3 * 0.5),
        ("t", "b", 0.5**2 * 1.0),
        ("t", "a", 0.5**3 * 0.5),
        ("t", "c", 0.5**2 * 0.0),
        ("t", "a", 0.5**1 * 0.5),
        ("u", "a", 0.5**3 * 1.0),
    ]


def test_value_trainer_and_its_use_in_resim(tmp_path: Path) -> None:
    told = value.main(
        value.Args(run=str(tmp_path / "v"), tasks=20, held_out=5, episodes=4, steps=30, batch=32)
    )
    assert told["test_states"] > 0
    assert told["failed"] == 0
    settings = {**SMALL, "rounds": 1, "steps": 2, "eval_episodes": 0}
    folder = str(tmp_path / "v" / "value")
    summary = resim.main(resim.Args(run=str(tmp_path / "r"), value=folder, **settings))
    assert summary["value"] == folder


def test_value_model_learns_and_round_trips(tmp_path: Path) -> None:
    from dyna_gym.envs.sokoban.world import SokobanWorld

    world = SokobanWorld()
    tasks = [world.tasks("train")[i] for i in range(40)]
    states = [world.initial_abstract(t) for t in tasks]
    labels = [float(i % 2) for i in range(40)]
    model = ValueModel(world, seed=0)
    losses = model.fit(states, labels, steps=120, batch=40, lr=3e-3, seed=0)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    model.save(tmp_path / "value")
    again = ValueModel.load(tmp_path / "value", world)
    assert np.allclose(model(tasks, states), again(tasks, states))
    with pytest.raises(ConfigError, match="world's settings"):
        ValueModel.load(tmp_path / "value", SokobanWorld(size=9))


def test_main_job_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = dyna_mind.Args(
        run=str(tmp_path / "run"),
        resim=resim.Args(**{**SMALL, "eval_episodes": 0}),  # type: ignore[arg-type]
        tokens=1_000,
        eval_id_episodes=4,
        eval_ood_episodes=2,
    )
    summary = dyna_mind.main(args)
    for arm in ("distill", "grpo", "dyna_grpo"):
        for split in ("eval_id", "eval_ood"):
            assert {
                "success",
                "success_ci",
                "sim_score",
                "tokens",
                "env_steps",
                "lookahead_steps",
                "seconds",
            } <= set(summary[arm][split])
    assert summary["resim"]["eval_id"]["sim_score"] in (None, 1.0)
    assert (tmp_path / "run" / "curves.png").stat().st_size > 10_000
    assert "dyna_grpo" in capsys.readouterr().out
    args.resume = True
    assert dyna_mind.main(args)["distill"] == json.loads(json.dumps(summary["distill"]))
