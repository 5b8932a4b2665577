"""Evaluation: success with its interval, simulation score, tokens and steps, by split."""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.files import check_writable, write_json
from dyna_gym.launch import check_numbers, json_settings
from dyna_gym.learning.collect import collect, split_failed
from dyna_gym.policies import (
    BASELINES,
    Policy,
    TrainablePolicy,
    choose_form,
    load_policy,
    make_policy,
)
from dyna_gym.prompts import STYLES
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


def cast(
    policy: Policy | str,
    env_id: str,
    count: int,
    *,
    seed: int = 0,
    style: str | None = None,
    history: int | None = None,
    settings: dict[str, Any] | None = None,
    **stack: Any,
) -> tuple[Policy, list[Any]]:
    """A policy, and agent envs whose prompts are written as it was trained to read them.

    Args:
        policy: The policy, or the name of one (`dyna_gym.policies.make_policy`).
        env_id: A registered id.
        count: How many envs.
        seed: Seed of a policy that is made here.
        style: Prompt style; None is what the policy was trained on, else `full`.
        history: Past steps in the prompt; None is what the policy was trained on, else 2.
        settings: Arguments of the world.
        stack: Further arguments of `dyna_gym.make_agent_env`.

    Raises:
        ConfigError: Something of it cannot be had, or the policy was made for another world.
    """
    from dyna_gym.wrappers.stack import make_agent_env

    settings = dict(settings or {})
    clash = sorted(
        settings.keys() & {"env_id", "response", "reward", "history", "style", "lookahead"}
    )
    if clash:
        raise ConfigError(
            f"settings: got {clash}, expected arguments of the world only; {', '.join(clash)}: not one of them"
        )
    if isinstance(policy, str) and policy not in BASELINES and Path(policy).is_dir():
        policy = load_policy(policy, seed=seed)
    form = choose_form(policy, style, history)
    envs: list[Any] = [
        make_agent_env(env_id, style=form.style, history=form.history, **stack, **settings)
        for _ in range(count)
    ]
    world = envs[0].unwrapped.world
    if isinstance(policy, str):
        policy = make_policy(policy, world=world, envs=envs, seed=seed)
    elif isinstance(policy, TrainablePolicy):
        policy.check_world(world)
    return policy, envs


def play(
    policy: Policy | str,
    env_id: str,
    *,
    split: str = "eval_id",
    episodes: int = 100,
    first: int = 0,
    response: str = "plain",
    temperature: float | None = None,
    style: str | None = None,
    history: int | None = None,
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
        style: Prompt style; None is what the policy was trained on, else `full`.
        history: Past steps in the prompt; None is what the policy was trained on, else 2.
        lookahead: Arguments of the response layer.
        settings: Arguments of the world.
        seed: Seed of the policy and of the episodes.
        progress: Label of a progress bar, or None.

    Raises:
        ConfigError: A setting cannot be used, or the policy was made for another world.
    """
    given = argparse.Namespace(episodes=episodes, first=first, seed=seed)
    check_numbers(given, counts=("episodes",), from_zero=("first", "seed"))
    if temperature is not None and not 0 <= temperature < math.inf:
        raise ConfigError(f"temperature: got {temperature!r}, expected a finite number >= 0")
    settings = {"split": split, **(settings or {})}
    policy, envs = cast(
        policy,
        env_id,
        min(MAX_ENVS, episodes),
        seed=seed,
        style=style,
        history=history,
        settings=settings,
        response=response,
        lookahead=lookahead,
    )
    all_tasks = envs[0].unwrapped.tasks
    if len(all_tasks) < first + 1:
        raise ConfigError(
            f"split {split!r} of {env_id} has {len(all_tasks)} tasks, got first={first}"
        )
    tasks = [all_tasks[i] for i in range(first, min(first + episodes, len(all_tasks)))]
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
    own = "default: what the policy was trained with"
    parser.add_argument("--style", choices=STYLES, help=f"prompt style; {own}")
    parser.add_argument("--history", type=int, help=f"past steps in the prompt; {own}")
    parser.add_argument(
        "--lookahead", help="arguments of the response layer as JSON, such as '{\"breadth\": 8}'"
    )
    parser.add_argument("--settings", help="arguments of the world, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None, help="folder for summary.json and trajectories")


def run(args: argparse.Namespace) -> int:
    """``dyna-gym eval``."""
    check_numbers(args, counts=("episodes",), from_zero=("seed",))
    for temperature in args.temperatures:
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"temperatures: got {temperature}, expected finite numbers >= 0")
    if args.response == "resim" and args.policy == "random":
        args.policy = (
            "aggregate"  # the one policy that makes sense of a search tree without a model
        )
    if args.policy == "aggregate" and args.response != "resim":
        raise ConfigError(
            "policy: 'aggregate' writes what a search has found; add --response resim"
        )
    if args.out is not None:
        check_writable(args.out)
    name: str = args.policy
    policy: Policy | str = name
    if name not in BASELINES and Path(name).is_dir():
        policy = load_policy(name, seed=args.seed)
    rows: dict[str, dict[str, Any]] = {}
    # Only a policy that samples has a temperature.
    temperatures = args.temperatures if isinstance(policy, TrainablePolicy) else [None]
    for split in args.splits:
        for temperature in temperatures:
            label = f"{name} {split}" + ("" if temperature is None else f" T={temperature:g}")
            started = time.perf_counter()
            episodes = play(
                policy,
                args.id,
                split=split,
                episodes=args.episodes,
                response=args.response,
                temperature=temperature,
                style=args.style,
                history=args.history,
                lookahead=json_settings(args.lookahead, "lookahead"),
                settings=json_settings(args.settings),
                seed=args.seed,
                progress=label,
            )
            rows[label] = {
                **summarise(episodes),
                "seconds": round(time.perf_counter() - started, 2),
            }
            if args.out:
                file = re.sub(r"[^\w.=+-]+", "_", label.replace(" ", "-"))[-150:]
                write_trajectories(f"{args.out}/{file}.jsonl", episodes)
    print(table(rows))
    for told in _oddities(policy):
        print(f"warning: {told}", file=sys.stderr)
    if args.out:
        write_json(f"{args.out}/summary.json", rows)
    return 0


def _oddities(policy: Policy | str) -> list[str]:
    """What a policy could not read, over all that it has played."""
    counts = getattr(policy, "counts", {})
    kinds = {
        "unknown_prompts": "held unknown tokens",
        "long_prompts": "were cut to fit the context",
    }
    total = counts.get("prompts", 0)
    return [
        f"{counts[k]:,} of {total:,} prompts {told}" for k, told in kinds.items() if counts.get(k)
    ]
