"""Evaluation: success with its interval, simulation score, tokens and steps, by split."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.files import write_json
from dyna_gym.learning.collect import collect, split_failed
from dyna_gym.policies import Policy, make_policy
from dyna_gym.task import SPLITS
from dyna_gym.trajectory import Trajectory, write_trajectories

MAX_ENVS = 256


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate.

    Examples:
        >>> [round(x, 3) for x in wilson_interval(8, 10)]
        [0.49, 0.943]
        >>> wilson_interval(0, 0)
        (0.0, 1.0)
    """
    if trials == 0:
        return 0.0, 1.0
    p, n = successes / trials, trials
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # Rounding must not push an end past what the formula gives exactly at p = 0 and p = 1.
    return max(0.0, centre - half), min(1.0, centre + half)


def summarise(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Figures of a set of episodes; those that the machinery spoiled are counted and left out.

    Returns:
        ``success`` with ``success_ci`` (95 %), ``score``, ``return``, ``sim_score`` (None if not measured),
        ``tokens`` (generated, a response; drafts apart), ``generated_tokens`` (all), ``env_steps``,
        ``lookahead_steps``, ``invalid`` (share of steps), ``episodes``, ``failed``.
    """
    good, failed = split_failed(trajectories)
    n = len(good)
    if n == 0:
        raise ConfigError(f"none of {failed} episodes could be played: {trajectories[0].error}")
    steps = [t for e in good for t in e.transitions]
    responses = [r for t in steps for r in (t.response, t.draft) if r is not None]
    scores = [e.sim_score for e in good if e.sim_score is not None]
    low, high = wilson_interval(sum(e.success for e in good), n)
    return {
        "success": sum(e.success for e in good) / n,
        "success_ci": [round(low, 4), round(high, 4)],
        "score": sum(e.score for e in good) / n,
        "return": sum(e.total_reward for e in good) / n,
        "sim_score": sum(scores) / len(scores) if scores else None,
        "tokens": sum(len(r.token_ids) for r in responses) / max(1, len(responses)),
        "generated_tokens": sum(e.tokens for e in good),
        "env_steps": len(steps),
        "lookahead_steps": sum(e.lookahead_steps for e in good),
        "invalid": sum(t.invalid_reason is not None for t in steps) / max(1, len(steps)),
        "episodes": n,
        "failed": failed,
    }


def paired_difference(
    a: Sequence[Trajectory], b: Sequence[Trajectory], *, samples: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """How much better ``b`` is than ``a`` on the same tasks, with 95 % intervals by bootstrap over tasks.

    Args:
        a: Episodes of one policy.
        b: Episodes of another; tasks that one of them lacks are left out.
        samples: Bootstrap samples.
        seed: Seed of the bootstrap.

    Returns:
        ``success`` and ``sim_score`` (b minus a), each with ``..._ci``; ``tasks``, how many were compared.
    """
    before = {e.task.id: e for e in a if e.error is None}
    pairs = [(before[e.task.id], e) for e in b if e.error is None and e.task.id in before]
    if not pairs:
        raise ConfigError("paired_difference: the two sets of episodes have no task in common")
    rng = np.random.default_rng(seed)
    picks = rng.integers(len(pairs), size=(samples, len(pairs)))
    told: dict[str, Any] = {"tasks": len(pairs)}
    for name, figure in (
        ("success", lambda e: float(e.success)),
        ("sim_score", lambda e: e.sim_score or 0.0),
    ):
        gain = np.array([figure(y) - figure(x) for x, y in pairs])
        low, high = np.percentile(gain[picks].mean(axis=1), [2.5, 97.5])
        told[name] = float(gain.mean())
        told[f"{name}_ci"] = [round(float(low), 4), round(float(high), 4)]
    return told


def play(
    policy: Policy | str,
    env_id: str,
    *,
    split: str = "eval_id",
    episodes: int = 100,
    first: int = 0,
    response: str = "plain",
    temperature: float | None = None,
    style: str = "full",
    history: int = 2,
    lookahead: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    progress: str | None = None,
) -> list[Trajectory]:
    """Play the first ``episodes`` tasks of a split.

    Args:
        policy: The policy, or the name of one (`dyna_gym.policies.make_policy`).
        env_id: A registered id.
        split: Which tasks.
        episodes: How many.
        first: Number of the first task.
        response: Response layer.
        temperature: Of a policy that has one; 0 is greedy; None leaves it.
        style: Prompt style.
        history: Past steps in the prompt.
        lookahead: Arguments of the response layer.
        settings: Arguments of the world.
        seed: Seed of the policy and of the episodes.
        progress: Label of a progress bar, or None.
    """
    from dyna_gym.wrappers.stack import make_agent_env

    settings = {"split": split, **(settings or {})}

    def make() -> Any:
        return make_agent_env(
            env_id,
            response=response,
            style=style,
            history=history,
            lookahead=lookahead,
            **settings,
        )

    envs = [make()]
    available = len(envs[0].unwrapped.tasks)
    if available < first + 1:
        raise ConfigError(f"split {split!r} of {env_id} has {available} tasks, got first={first}")
    tasks = [envs[0].unwrapped.tasks[i] for i in range(first, min(first + episodes, available))]
    envs += [make() for _ in range(min(MAX_ENVS, len(tasks)) - 1)]
    if isinstance(policy, str):
        policy = make_policy(policy, world=envs[0].unwrapped.world, envs=envs, seed=seed)
    policy.seed(seed)
    before = getattr(policy, "temperature", None)
    if temperature is not None and before is not None:
        policy.temperature = temperature  # type: ignore[attr-defined]
    try:
        return collect(envs, policy, tasks, seed=seed, progress=progress)
    finally:
        if before is not None:
            policy.temperature = before  # type: ignore[attr-defined]
        for env in envs:
            env.close()


def evaluate(policy: Policy | str, env_id: str, **settings: Any) -> dict[str, Any]:
    """`play`, then `summarise`; with ``seconds``."""
    started = time.perf_counter()
    figures = summarise(play(policy, env_id, **settings))
    return {**figures, "seconds": round(time.perf_counter() - started, 2)}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Plain-text table of `evaluate`'s figures, one row a name."""
    header = f"{'':<34}{'success':>8}  {'95 % interval':<15}{'sim':>6}{'tokens':>8}{'steps':>8}{'ahead':>8}"
    lines = [header, "-" * len(header)]
    for name, r in rows.items():
        low, high = r["success_ci"]
        sim = "-" if r["sim_score"] is None else f"{r['sim_score']:.3f}"
        lines.append(
            f"{name:<34}{r['success']:>8.3f}  [{low:.3f}, {high:.3f}]{sim:>8}{r['tokens']:>8.1f}"
            f"{r['env_steps']:>8}{r['lookahead_steps']:>8}"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``dyna-gym eval``."""
    parser.add_argument("id", help="registered id, such as DynaGym-Sokoban-v0")
    parser.add_argument(
        "--policy",
        default="random",
        help="random, expert, aggregate, or a folder of a saved policy",
    )
    parser.add_argument("--splits", nargs="+", default=["eval_id", "eval_ood"], choices=SPLITS)
    parser.add_argument("--episodes", type=int, default=100, help="tasks a split")
    parser.add_argument("--response", default="plain", choices=["plain", "sim_rollout", "resim"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--style", default="full", choices=["full", "compact"])
    parser.add_argument("--history", type=int, default=2)
    parser.add_argument(
        "--lookahead", type=json.loads, default=None, help="JSON, such as '{\"breadth\": 8}'"
    )
    parser.add_argument(
        "--settings", type=json.loads, default=None, help="arguments of the world, as JSON"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None, help="folder for summary.json and trajectories")


def run(args: argparse.Namespace) -> int:
    """``dyna-gym eval``."""
    if args.response == "resim" and args.policy == "random":
        args.policy = (
            "aggregate"  # the one policy that makes sense of a search tree without a model
        )
    rows: dict[str, dict[str, Any]] = {}
    # Only a policy that samples has a temperature.
    temperatures = [None] if args.policy in ("random", "expert", "aggregate") else args.temperatures
    for split in args.splits:
        for temperature in temperatures:
            name = f"{args.policy} {split}" + ("" if temperature is None else f" T={temperature:g}")
            started = time.perf_counter()
            episodes = play(
                args.policy,
                args.id,
                split=split,
                episodes=args.episodes,
                response=args.response,
                temperature=temperature,
                style=args.style,
                history=args.history,
                lookahead=args.lookahead,
                settings=args.settings,
                seed=args.seed,
                progress=name,
            )
            rows[name] = {
                **summarise(episodes),
                "seconds": round(time.perf_counter() - started, 2),
            }
            if args.out:
                file = name.replace("/", "_").replace(" ", "-")
                write_trajectories(f"{args.out}/{file}.jsonl", episodes)
    print(table(rows))
    if args.out:
        write_json(f"{args.out}/summary.json", rows)
    return 0
