"""ReSim's search: real rollouts from a state, valued and thinned out (Dyna-Mind, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.model_env import ModelEnv
from dyna_gym.policies.base import Policy, as_messages
from dyna_gym.responses import format_response, format_simulation, parse_response
from dyna_gym.task import Task
from dyna_gym.walk import Env, Rollout, SearchTree, Walk

__all__ = ["Rollout", "SearchTree", "ValueFn", "aggregate", "resim", "without_detours"]

FOLLOW = ("step", "plan")
"""Ways in which rollouts follow their responses; see `resim`."""
Shown = tuple[Any, dict[str, Any]]
ValueFn = Callable[[Sequence[Task], Sequence[str]], "np.ndarray"]
"""(tasks, states) of n rollout ends -> values [n] in [0, 1]: V_nu of the paper."""


def resim(
    envs: Sequence[Env],
    proposer: Policy,
    value: ValueFn,
    *,
    breadth: int,
    depth: int,
    keep: int,
    rng: np.random.Generator,
    follow: str = "step",
) -> list[SearchTree]:
    """Search from the present state of each env; leaves all envs as they were.

    Args:
        envs: Agent envs (prompts out, responses in), each in the middle of an episode; they must be
            branchable.
        proposer: Writes the rollouts; called once a depth for all rollouts of all envs.
        value: Values the last state of each rollout. A solved one has value 1 without asking.
        breadth: Rollouts a state (b).
        depth: Longest rollout, in env steps (d).
        keep: Rollouts that are shown (b_train).
        rng: Draws the others that are shown.
        follow: `step` asks the proposer before each action, as Algorithm 3 does; `plan` takes the
            whole plan of one response, b responses a state instead of b * d (ours [NF], for small
            compute).

    Returns:
        One tree an env. A tree whose ``error`` is set is of a machine that failed.
    """
    for name, number in (("breadth", breadth), ("depth", depth), ("keep", keep)):
        if number < 1:
            raise ConfigError(f"{name}: got {number!r}, expected a whole number >= 1")
    if follow not in FOLLOW:
        raise ConfigError(f"follow: got {follow!r}, expected one of {', '.join(FOLLOW)}")
    walk = _walk_steps if follow == "step" else _walk_plans
    observed = [env.get_wrapper_attr("present")() for env in envs]
    trees = [SearchTree([], 0, []) for _ in envs]
    rollouts = walk(envs, observed, proposer, breadth, depth, trees)
    tasks = [info["task"] for _, info in observed]
    starts = [
        env.unwrapped.world.digest(info["state"])  # type: ignore[attr-defined]
        for env, (_, info) in zip(envs, observed, strict=True)
    ]
    _judge(trees, rollouts, tasks, starts, value)
    for tree in trees:
        _select(tree, keep, rng)
    return trees


def _walk_steps(
    envs: Sequence[Env],
    observed: list[Shown],
    proposer: Policy,
    breadth: int,
    depth: int,
    trees: list[SearchTree],
) -> list[list[Rollout]]:
    """Ask the proposer before each action, with the prompts that the agent would see."""
    seen = [[shown] * breadth for shown in observed]
    with Walk(envs, breadth, trees) as walk:
        for _ in range(depth):
            live = walk.live()
            if not live:
                break
            answers = proposer.act(
                [as_messages(seen[i][k][0]) for i, k in live],
                [{**seen[i][k][1], "slot": i} for i, k in live],
            )
            for (i, _), answer in zip(live, answers, strict=True):
                trees[i].tokens += len(answer.token_ids)
            for i, k in walk.advance(live, [answer.text for answer in answers]):
                seen[i][k] = envs[i].get_wrapper_attr("present")()
    return walk.rollouts


def _walk_plans(
    envs: Sequence[Env],
    observed: list[Shown],
    proposer: Policy,
    breadth: int,
    depth: int,
    trees: list[SearchTree],
) -> list[list[Rollout]]:
    """Ask the proposer once for each rollout and take its whole plan, below the response layer."""
    shown = [row for row in observed for _ in range(breadth)]
    answers = proposer.act(
        [as_messages(prompt) for prompt, _ in shown],
        [{**info, "slot": n // breadth} for n, (_, info) in enumerate(shown)],
    )
    plans: list[list[tuple[str, ...]]] = [[] for _ in envs]
    for n, answer in enumerate(answers):
        trees[n // breadth].tokens += len(answer.token_ids)
        parsed = parse_response(answer.text)
        plan = parsed.plan or ((parsed.action,) if parsed.action else ())
        plans[n // breadth].append(plan[:depth])
    below = [env.get_wrapper_attr("world_layers") for env in envs]
    with Walk(below, breadth, trees) as walk:
        if any(isinstance(env.unwrapped, ModelEnv) for env in envs):
            for at in range(depth):  # step by step, so that a model is asked once for all rollouts
                live = [(i, k) for i, k in walk.live() if at < len(plans[i][k])]
                for _ in walk.advance(live, [plans[i][k][at] for i, k in live]):
                    pass
        else:
            walk.follow(plans)
    return walk.rollouts


def _judge(
    trees: list[SearchTree],
    rollouts: list[list[Rollout]],
    tasks: list[Task],
    starts: list[str],  # digests
    value: ValueFn,
) -> None:
    """De-duplicate, and value the ends of all rollouts of all envs in one call."""
    pending: list[tuple[Rollout, Task]] = []
    for tree, found, task, start in zip(trees, rollouts, tasks, starts, strict=True):
        unique: dict[tuple[tuple[str, str], ...], Rollout] = {}
        for rollout in found:
            rollout.steps = without_detours(rollout.steps, start)
            if rollout.steps:
                unique.setdefault(tuple(rollout.steps), rollout)
        tree.rollouts = list(unique.values())
        for rollout in tree.rollouts:
            if rollout.success:
                rollout.value = 1.0
            else:
                pending.append((rollout, task))
    if pending:
        values = value([task for _, task in pending], [r.end for r, _ in pending])
        for (rollout, _), v in zip(pending, values, strict=True):
            rollout.value = float(v)


def without_detours(steps: Sequence[tuple[str, str]], start: str) -> list[tuple[str, str]]:
    """Leave out what leads back to a state that was there before: the template summary of a rollout.

    What stays are real states, in their order, and the end is the same.

    Args:
        steps: (action, digest of the state after it).
        start: Digest of the state before the first.

    Examples:
        >>> without_detours([("left", "B"), ("right", "A"), ("up", "C"), ("up", "C")], "A")
        [('up', 'C')]
    """
    path: list[tuple[str, str]] = []
    seen = [start]
    for action, state in steps:
        if state in seen:
            keep = seen.index(state)
            del path[keep:], seen[keep + 1 :]
        else:
            path.append((action, state))
            seen.append(state)
    return path


def _select(tree: SearchTree, keep: int, rng: np.random.Generator) -> None:
    if not tree.rollouts:
        return
    order = sorted(
        range(len(tree.rollouts)),
        key=lambda i: (-tree.rollouts[i].value, len(tree.rollouts[i].steps), i),
    )
    tree.best = order[0]
    others = [i for i in range(len(tree.rollouts)) if i != tree.best]
    picked = rng.permutation(len(others))[: keep - 1]
    tree.shown = [int(i) for i in rng.permutation([tree.best, *(others[j] for j in picked)])]


def aggregate(tree: SearchTree) -> str:
    """Write the response that a search tree stands for: the template aggregator.

    Each shown rollout becomes one simulated future, in the words of the world; the plan is the best
    one's, its first action the action. The embedded default for the language model M of Algorithm 3.

    Returns:
        The response; one without an action if no rollout got anywhere.
    """
    if not tree.rollouts:
        return "<think>\nnothing found\n</think>"
    shown = [tree.rollouts[i] for i in tree.shown]
    think = "\n".join(format_simulation(r.steps, r.value) for r in shown)
    plan = [action for action, _ in tree.rollouts[tree.best].steps]
    return format_response(think, plan, plan[0])
