"""V_nu of Dyna-Mind, App. D.3: plays episodes, labels their states, trains a value model.

``V(s_t) = gamma ** (t_max - t) * (share of successes among the trajectories that contain s_t)``,
with the exponent as the paper prints it. gamma, the model, the loss and the data are [NF]: ours.
The trained folder is given to `trainers/resim.py` as ``--value``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dyna_gym.evaluation import cast
from dyna_gym.launch import check_numbers, json_settings, run_trainer
from dyna_gym.learning.collect import collect, split_failed
from dyna_gym.learning.value_model import ValueModel, value_labels
from dyna_gym.runs import RunFolder


@dataclass
class Args:
    """Train V_nu."""

    run: str = "runs/value"
    """Folder of the run; the model is in its ``value/``."""
    env_id: str = "DynaGym-Sokoban-v0"
    """Which world."""
    settings: str = "{}"
    """Arguments of the world as JSON, such as '{"size": 7}'."""
    policy: str = "random"
    """Who plays: random, or a folder of a saved policy."""
    tasks: int = 400
    """Training tasks."""
    held_out: int = 100
    """Further training tasks for the report."""
    episodes: int = 16
    """Episodes a task."""
    gamma: float = 0.95
    """Discount [NF]."""
    steps: int = 800
    """Optimiser steps."""
    batch: int = 128
    """States an optimiser step."""
    lr: float = 1e-3
    """Learning rate."""
    history: int | None = None
    """Past steps in the policy's prompt; default: what it was trained with."""
    style: Literal["compact", "full"] | None = None
    """Style of the policy's prompt; default: what it was trained with."""
    seed: int = 0
    """Seed."""
    resume: bool = False
    """Accept a folder whose run has ended (and return its summary), or start one again."""


def main(args: Args) -> dict[str, Any]:
    """Train; returns the summary."""
    check_numbers(
        args,
        counts=("tasks", "episodes", "steps", "batch"),
        from_zero=("held_out", "seed"),
        positive=("lr",),
        shares=("gamma",),
    )
    with RunFolder(args.run, asdict(args), resume=args.resume, contents=("policy",)) as run:
        return run.summary() or _train(args, run)


def _train(args: Args, run: RunFolder) -> dict[str, Any]:
    settings = json_settings(args.settings)
    policy, envs = cast(
        args.policy,
        args.env_id,
        128,
        seed=args.seed,
        style=args.style,
        history=args.history,
        settings=settings,
    )
    world, tasks = envs[0].unwrapped.world, envs[0].unwrapped.tasks
    run.begin()
    wanted = [tasks[i] for i in range(min(args.tasks + args.held_out, len(tasks)))]
    played = collect(
        envs,
        policy,
        [t for t in wanted for _ in range(args.episodes)],
        seed=args.seed,
        measure=False,
        progress="episodes",
    )
    good, failed = split_failed(played)
    t_max = max(len(e.transitions) for e in good)
    labels = value_labels(good, args.gamma, t_max)
    seen = {t.id for t in wanted[: args.tasks]}
    train = [(s, v) for task, s, v in labels if task in seen]
    test = [(s, v) for task, s, v in labels if task not in seen]
    model = ValueModel(world, seed=args.seed)
    losses = model.fit(
        [s for s, _ in train],
        [v for _, v in train],
        steps=args.steps,
        batch=args.batch,
        lr=args.lr,
        seed=args.seed,
        progress="V_nu",
    )
    for step, loss in enumerate(losses, 1):
        if step % 50 == 0:
            run.log(step, losses__value=loss)
    model.save(run.path / "value")
    summary: dict[str, Any] = {
        "episodes": len(good),
        "failed": failed,
        "success": float(np.mean([e.success for e in good])),
        "t_max": t_max,
        "train_states": len(train),
        "test_states": len(test),
        "loss": losses[-1] if losses else None,
    }
    if test:
        predicted = model(wanted[:1] * len(test), [s for s, _ in test])
        actual = np.array([v for _, v in test])
        summary["test_mae"] = float(np.abs(predicted - actual).mean())
        summary["test_mae_of_mean"] = float(np.abs(actual - np.mean([v for _, v in train])).mean())
        summary["test_correlation"] = float(np.corrcoef(predicted, actual)[0, 1])
    run.write_summary(summary)
    print(summary)
    return summary


if __name__ == "__main__":
    run_trainer(main, Args, __doc__)
