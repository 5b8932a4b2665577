"""What the policy-gradient trainers share: groups, their figures, and how a run is resumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.errors import needs
from dyna_gym.learning.advantages import group_advantages
from dyna_gym.learning.collect import collect, split_failed
from dyna_gym.learning.optimise import Learner
from dyna_gym.learning.rows import Row, episode_rows
from dyna_gym.policies.base import TrainablePolicy
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory

with needs("train", __name__):
    import torch


@dataclass
class Counters:
    """How far a run has come."""

    update: int = 0
    generated_tokens: int = 0
    env_steps: int = 0
    lookahead_steps: int = 0

    def count(self, episodes: Sequence[Trajectory]) -> None:
        """Add what these episodes cost; failed ones cost, too."""
        self.generated_tokens += sum(e.tokens for e in episodes)
        self.env_steps += sum(len(e.transitions) for e in episodes)
        self.lookahead_steps += sum(e.lookahead_steps for e in episodes)


def draw_tasks(tasks: Sequence[Task], count: int, rng: np.random.Generator) -> list[Task]:
    """``count`` different tasks (all of them, if there are fewer)."""
    picks = rng.choice(len(tasks), size=min(count, len(tasks)), replace=False)
    return [tasks[int(i)] for i in picks]


def rollout_groups(
    envs: Sequence[gym.Env[Any, Any]],
    policy: TrainablePolicy,
    tasks: Sequence[Task],
    size: int,
    seed: int,
    progress: str | None = None,
) -> list[list[Trajectory]]:
    """``size`` episodes of each task.

    Returns:
        One group a task. Failed episodes are in it; leave them out with `split_failed`.
    """
    policy.seed(seed)
    episodes = collect(
        envs, policy, [t for t in tasks for _ in range(size)], seed=seed, progress=progress
    )
    return [episodes[i : i + size] for i in range(0, len(episodes), size)]


def group_rows(
    groups: Sequence[Sequence[Trajectory]],
    kind: str,
    policy: TrainablePolicy,
    cut: bool = True,
) -> tuple[list[Row], list[np.ndarray]]:
    """Training rows of groups of standard rollouts, each group and each episode in it of equal weight.

    Args:
        groups: Episodes of each task.
        kind: How returns become advantages.
        policy: Encodes.
        cut: Take responses that the token limit cut off, too.

    Returns:
        The rows, and the advantages of each group's episodes; failed episodes are left out.
    """
    rows: list[Row] = []
    advantages = []
    for group in groups:
        good, _ = split_failed(group)
        found = group_advantages([e.total_reward for e in good], kind)
        advantages.append(found)
        for episode, a in zip(good, found, strict=True):
            weight = 1.0 / (len(groups) * len(good))
            rows += episode_rows(episode, float(a), weight, policy, cut=cut)
    return rows, advantages


def episode_figures(groups: Sequence[Sequence[Trajectory]]) -> dict[str, float]:
    """Mean success, simulation score, return, length and tokens a response; shares of what was cut off or failed."""
    episodes = [e for group in groups for e in group]
    good, failed = split_failed(episodes)
    scores = [e.sim_score for e in good if e.sim_score is not None]
    steps = sum(len(e.transitions) for e in good)
    answers = [r for e in good for t in e.transitions for r in (t.response, t.draft) if r]
    return {
        "success": _mean([float(e.success) for e in good]),
        "sim_score": _mean(scores),
        "return": _mean([e.total_reward for e in good]),
        "episode_length": steps / max(1, len(good)),
        "tokens_per_response": sum(e.tokens for e in good) / max(1, len(answers)),
        "cut_frac": _mean([float(r.finish == "length") for r in answers]),
        "failed_rollouts_frac": failed / max(1, len(episodes)),
    }


def zero_advantage_frac(advantages: Sequence[np.ndarray]) -> float:
    """Share of groups that teach nothing, because all their episodes went equally well."""
    return _mean([float(not np.any(a)) for a in advantages])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def learning_rate(peak: float, update: int, warmup: int, done: float) -> float:
    """Linear warm-up over the first updates, then linear decay to a tenth over the token budget.

    Args:
        peak: Learning rate after the warm-up.
        update: Number of the update, from 0.
        warmup: Updates of the warm-up.
        done: Share of the token budget that is spent, in [0, 1].

    Examples:
        >>> [round(learning_rate(1.0, u, 2, u / 10), 2) for u in (0, 1, 5, 10)]
        [0.5, 0.91, 0.55, 0.1]
    """
    return peak * min(1.0, (update + 1) / max(1, warmup)) * (1.0 - 0.9 * min(1.0, done))


def update_seed(seed: int, update: int, stream: int = 0) -> int:
    """Seed of the rollouts of an update; runs that were resumed see the same."""
    return int(np.random.SeedSequence([seed, update, stream]).generate_state(1)[0])


def save_learner(folder: Path, learner: Learner, counters: Counters) -> None:
    """Write all that a run needs to go on: policy, optimiser, counters."""
    learner.policy.save(str(folder))
    torch.save(learner.optimizer.state_dict(), folder / "optimizer.pt")
    (folder / "counters.json").write_text(json.dumps(vars(counters)))


def restore_learner(folder: Path, learner: Learner) -> Counters:
    """Put the optimiser back; the policy was loaded from the same folder already."""
    learner.optimizer.load_state_dict(torch.load(folder / "optimizer.pt"))
    return Counters(**json.loads((folder / "counters.json").read_text()))
