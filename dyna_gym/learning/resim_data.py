"""Data of stage 1: ReSim episodes, and refinement examples on the policy's own drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.policies.base import Policy, as_messages
from dyna_gym.progress import Progress
from dyna_gym.prompts import refine_prompt
from dyna_gym.responses import Response, format_response, format_simulation, parse_response
from dyna_gym.search import Rollout, SearchTree, ValueFn, aggregate, resim
from dyna_gym.simulation import MAX_PLAN, agreement, try_plans
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory, Transition
from dyna_gym.world import World


@dataclass(frozen=True)
class SearchSettings:
    """How ReSim searches. The paper gives none of these numbers [NF]."""

    breadth: int = 16
    """Rollouts a state (b)."""
    depth: int = 5
    """Longest rollout (d)."""
    keep: int = 2
    """Rollouts that a response tells of (b_train)."""
    follow: str = "plan"
    """`step` or `plan`; see `dyna_gym.search.resim`."""


def resim_episodes(
    envs: Sequence[gym.Env[Any, Any]],
    tasks: Sequence[Task],
    proposer: Policy,
    value: ValueFn,
    search: SearchSettings,
    rng: np.random.Generator,
    *,
    plain: bool = False,
    seed: int = 0,
    progress: str | None = None,
) -> list[Trajectory]:
    """Algorithm 3 over many tasks: search, aggregate, execute the next action, repeat.

    Args:
        envs: Plain agent envs; as many tasks are played at once.
        tasks: One episode each.
        proposer: Writes the rollouts.
        value: Values their ends.
        search: Breadth, depth and so on.
        rng: Draws which rollouts are shown.
        plain: Leave the simulated futures out of the responses (the ablation).
        seed: Episode ``i`` is reset with ``seed + i``.
        progress: Label of a progress bar, or None.

    Returns:
        One trajectory a task; responses are the aggregated ones, under prompts without search results.
    """
    done = []
    bar = Progress(len(tasks), progress, unit="episodes")
    for start in range(0, len(tasks), len(envs)):
        wave = tasks[start : start + len(envs)]
        episodes = [Trajectory(t, seed=seed + start + i, mode="resim") for i, t in enumerate(wave)]
        live = list(zip(envs, episodes, strict=False))
        for env, episode in live:
            _, info = env.reset(seed=episode.seed, options={"task": episode.task})
            episode.error = info.get("error")
        live = [(env, episode) for env, episode in live if episode.error is None]
        while live:
            trees = resim(
                [env for env, _ in live],
                proposer,
                value,
                breadth=search.breadth,
                depth=search.depth,
                keep=search.keep,
                follow=search.follow,
                rng=rng,
            )
            live = [
                (env, episode)
                for (env, episode), tree in zip(live, trees, strict=True)
                if not _advance(env, episode, tree, plain)
            ]
        done += episodes
        bar.update(len(wave))
    bar.close()
    return done


def _advance(env: gym.Env[Any, Any], episode: Trajectory, tree: SearchTree, plain: bool) -> bool:
    """Execute a tree's response; whether the episode has ended."""
    if tree.error is not None:
        episode.error = tree.error
        return True
    prompt, before = env.get_wrapper_attr("present")()
    text = aggregate(tree)
    if plain and tree.rollouts:
        plan = [action for action, _ in tree.rollouts[tree.best].steps]
        text = format_response("", plan, plan[0])
    _, reward, terminated, truncated, info = env.step(text)
    episode.transitions.append(
        Transition(
            prompt=prompt,
            response=Response(text),
            reward=float(reward),
            terminated=terminated,
            truncated=truncated,
            state=before["state"],
            action=info["action"],
            invalid_reason=info["invalid_reason"],
            lookahead_steps=tree.env_steps,
        )
    )
    episode.success, episode.score = info["success"], info["score"]
    episode.error = info.get("error")
    return terminated or truncated


def refinement_examples(
    envs: Sequence[gym.Env[Any, Any]],
    tasks: Sequence[Task],
    policy: Policy,
    proposer: Policy,
    value: ValueFn,
    search: SearchSettings,
    rng: np.random.Generator,
    *,
    style: str,
    seed: int = 0,
    progress: str | None = None,
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Examples of refining: draft, its true futures -> a better response. Our addition [NF].

    A pretrained model can use true futures in its prompt; a model from scratch has never seen such a prompt.
    The policy plays by its own drafts, so that states and drafts are its own. The target tells first what the
    draft's plan really leads to, copied from the prompt; if that solves the task the plan is kept, else the best of the
    search is told too and the better of the two taken.

    Args:
        envs: Plain agent envs.
        tasks: One episode each.
        policy: Writes the drafts.
        proposer: Writes the rollouts of the alternative.
        value: Values ends.
        search: Breadth, depth and so on.
        rng: Draws.
        style: Prompt style of the refinement prompt.
        seed: Episode ``i`` is reset with ``seed + i``.
        progress: Label of a progress bar, or None.

    Returns:
        Two lists with one trajectory a task. Of mode ``sim_rollout``: ``prompt`` is the refinement prompt,
        ``response`` the target, ``draft`` and ``plain_prompt`` the policy's. Of mode ``resim``: what the search
        answers under the prompt without futures at the same states, which are the policy's own.
    """
    done, answers = [], []
    bar = Progress(len(tasks), progress, unit="episodes")
    for start in range(0, len(tasks), len(envs)):
        wave = tasks[start : start + len(envs)]
        episodes = [
            Trajectory(t, seed=seed + start + i, mode="sim_rollout") for i, t in enumerate(wave)
        ]
        live = list(zip(envs, episodes, strict=False))
        for env, episode in live:
            _, info = env.reset(seed=episode.seed, options={"task": episode.task})
            episode.error = info.get("error")
        live = [(env, episode) for env, episode in live if episode.error is None]
        searched = {id(e): Trajectory(e.task, seed=e.seed, mode="resim") for e in episodes}
        while live:
            shown = [env.get_wrapper_attr("present")() for env, _ in live]
            drafts = policy.act([as_messages(p) for p, _ in shown], [info for _, info in shown])
            trees = resim(
                [env for env, _ in live],
                proposer,
                value,
                breadth=search.breadth,
                depth=search.depth,
                keep=search.keep,
                follow=search.follow,
                rng=rng,
            )
            still = []
            for (env, episode), (prompt, info), draft, tree in zip(
                live, shown, drafts, trees, strict=True
            ):
                _refine(env, episode, prompt, info, draft, tree, value, style)
                if tree.rollouts and tree.error is None:
                    plain = Transition(prompt, Response(aggregate(tree)), state=info["state"])
                    searched[id(episode)].transitions.append(plain)
                _, _, terminated, truncated, after = env.step(draft.text)
                episode.success, episode.error = after["success"], after.get("error")
                if not (terminated or truncated):
                    still.append((env, episode))
            live = still
        done += episodes
        answers += [searched[id(e)] for e in episodes]
        bar.update(len(wave))
    bar.close()
    return done, answers


def _refine(
    env: gym.Env[Any, Any],
    episode: Trajectory,
    prompt: str,
    info: dict[str, Any],
    draft: Response,
    tree: SearchTree,
    value: ValueFn,
    style: str,
) -> None:
    """Add one refinement example to the episode."""
    parsed = parse_response(draft.text)
    plan = parsed.plan[:MAX_PLAN]
    if tree.error is not None or not tree.rollouts:
        return
    world: World = env.unwrapped.world  # type: ignore[attr-defined]
    (found,) = try_plans([env], [plan])
    if found.error is not None:
        return
    futures = found.futures
    digests = [world.digest(state) for _, state in futures]
    tried = _as_rollout(futures, digests, world, episode.task, value)
    episode.transitions.append(
        Transition(
            prompt=refine_prompt(world, prompt, draft.text, futures, style),
            response=Response(refined_response(tried, tree.rollouts[tree.best])),
            state=info["state"],
            plain_prompt=prompt,
            draft=draft,
            futures=tuple((a, d) for (a, _), d in zip(futures, digests, strict=True)),
            lookahead_steps=len(futures) + tree.env_steps,
            sim_score=agreement(world, parsed.imagined_plan(), digests) if plan else 0.0,
        )
    )


def _as_rollout(
    futures: Sequence[tuple[str, str]],
    digests: Sequence[str],
    world: World,
    task: Task,
    value: ValueFn,
) -> Rollout | None:
    if not futures:
        return None
    end = futures[-1][1]
    worth = float(value([task], [end])[0])
    steps = [(a, d) for (a, _), d in zip(futures, digests, strict=True)]
    return Rollout(steps, end, worth, success=worth >= 1.0)


def refined_response(tried: Rollout | None, other: Rollout) -> str:
    """The target of refinement: copy what was tried, commit if it wins, else compare with another.

    Args:
        tried: The draft's plan with what really happened; None if it could not be read.
        other: The best rollout of a search.
    """
    told = [] if tried is None else [tried]
    best = tried
    if tried is None or not tried.success:
        told.append(other)
        if tried is None or other.value > tried.value:
            best = other
    assert best is not None
    think = "\n".join(format_simulation(r.steps, r.value) for r in told)
    plan = [action for action, _ in best.steps]
    return format_response(think, plan, plan[0])
