"""The simulation score: how much of what a response imagines really happens.

Over the plan of a response that was produced without futures: the share of its steps whose imagined state is
the real one. A missing prediction counts 0, and so does a response without a plan. The paper has a language model
judge it; where a program can tell two states apart (`World.same_state`), a program does here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from dyna_gym.branching import branch, check_branchable
from dyna_gym.errors import BranchError, MachineryError
from dyna_gym.responses import parse_response
from dyna_gym.world import World

MAX_PLAN = 5
"""Longest plan that is judged; the paper's cap on SimRollout's depth."""


def can_measure(env: gym.Env[Any, Any]) -> bool:
    """Whether plans can be tried below this agent env."""
    try:
        check_branchable(env.get_wrapper_attr("world_layers"))
    except (AttributeError, BranchError):
        return False
    return True


def simulation_score(env: gym.Env[Any, Any], response: str) -> float | None:
    """Score of a response in the present state of an agent env; tries the plan in a branch.

    Args:
        env: The agent env, before the response is given to it.
        response: The response.

    Returns:
        A share in [0, 1]; None where the machinery failed, so that nothing was measured.
    """
    parsed = parse_response(response)
    plan = parsed.plan[:MAX_PLAN]
    if not plan:
        return 0.0
    world: World = env.unwrapped.world  # type: ignore[attr-defined]
    try:
        real = [world.digest(state) for _, state in try_plan(env, plan)]
    except MachineryError:
        return None
    return agreement(world, parsed.imagined_plan(), real)


def try_plan(env: gym.Env[Any, Any], plan: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What a plan really leads to from the present state of an agent env.

    Args:
        env: The agent env; it is as before afterwards.
        plan: World actions.

    Returns:
        (action, state) of each step, up to the end of the plan or of the episode.

    Raises:
        MachineryError: The machinery failed on the way.
    """
    with branch(env.get_wrapper_attr("world_layers"), rng="fresh") as below:
        return run_actions(below, plan)


def run_actions(env: gym.Env[Any, Any], actions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Take world actions until they or the episode end; (action, observation) of each step.

    Raises:
        MachineryError: The machinery failed on the way, so that what was seen is not the whole future.
    """
    seen = []
    for action in actions:
        observation, _, terminated, truncated, info = env.step(action)
        if info.get("error"):
            raise MachineryError(info["error"])
        seen.append((action, str(observation)))
        if terminated or truncated:
            break
    return tuple(seen)


def draft_score(env: gym.Env[Any, Any], info: dict[str, Any]) -> float:
    """Score of a SimRollout draft, whose futures are known already."""
    world: World = env.unwrapped.world  # type: ignore[attr-defined]
    parsed = parse_response(info["draft"])
    real = [world.digest(str(state)) for _, state in info["futures"]]
    return agreement(world, parsed.imagined_plan(), real) if parsed.plan else 0.0


def agreement(world: World, imagined: Sequence[str | None], real: Sequence[str]) -> float:
    """Share of the real states that were imagined right.

    Args:
        world: Says when two digests mean the same state.
        imagined: What was imagined for each planned step; None where nothing was.
        real: The states of the steps that could be taken (an episode may end before its plan does).
    """
    if not real:
        return 0.0
    right = [i is not None and world.same_state(i, r) for i, r in zip(imagined, real, strict=False)]
    return sum(right) / len(real)
