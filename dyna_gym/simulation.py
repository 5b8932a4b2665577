"""Trying plans in branches, and the simulation score: how much of what a response imagines really happens.

The score, over the plan of a response that was produced without futures: the share of its steps whose imagined
state is the real one. A missing prediction counts 0, and so does a response without a plan. The paper has a
language model judge it; where a program can tell two states apart (`World.same_state`), a program does here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import gymnasium as gym

from dyna_gym.batching import step_all
from dyna_gym.branching import branch, check_branchable
from dyna_gym.errors import BranchError, MachineryError
from dyna_gym.responses import parse_response
from dyna_gym.world import World

MAX_PLAN = 5
"""Longest plan that is judged; the paper's cap on SimRollout's depth."""

Env = gym.Env[Any, Any]
Futures = tuple[tuple[str, str], ...]
"""(action, abstract state after it) of each step of a plan, up to its end or that of the episode."""


class Tried(NamedTuple):
    """What trying a plan showed."""

    futures: Futures = ()
    steps: int = 0
    """Env steps that it took, those of getting to the present state included."""
    error: MachineryError | None = None
    """The machinery failed on the way: what was seen is not the whole future."""
    reason: str | None = None
    """Why there are no futures though the plan could be read."""


class Ahead(NamedTuple):
    """Where a plan can be tried, in the state that the real env is in."""

    env: Env
    most: int | None = None
    """Steps after which the real episode would be truncated; None where ``env`` knows."""
    steps: int = 0
    """Env steps that it took to get there."""
    reason: str | None = None
    """Why nothing can be tried."""


class LookaheadLayer(Protocol):
    """A response layer that tries a draft's plan before the response that counts."""

    @property
    def drafting(self) -> bool:
        """Whether the next response is a draft."""

    def plan(self, response: Any) -> tuple[str, ...]:
        """World actions that the draft plans, cut to the depth that is tried."""

    def ahead(self) -> AbstractContextManager[Ahead]:
        """Where they are tried; on leaving, everything is as before."""

    def foresee(self, response: Any, tried: Tried) -> None:
        """Have at hand what trying the draft showed, for the step that takes it."""


def look_ahead(layers: Sequence[LookaheadLayer], responses: Sequence[Any]) -> None:
    """Try the drafts of many layers side by side; each layer's next step finds what its own showed."""
    plans = [layer.plan(text) for layer, text in zip(layers, responses, strict=True)]
    tried = try_in([layer.ahead() for layer in layers], plans)
    for layer, text, found in zip(layers, responses, tried, strict=True):
        layer.foresee(text, found)


def try_plans(envs: Sequence[Env], plans: Sequence[Sequence[str]]) -> list[Tried]:
    """What plans really lead to from the present states of agent envs, which are as before afterwards.

    Args:
        envs: Agent envs.
        plans: World actions, one plan an env.
    """
    return try_in([_Branch(env.get_wrapper_attr("world_layers")) for env in envs], plans)


class _Branch(AbstractContextManager[Ahead]):
    """A branch whose noise is not the env's own."""

    def __init__(self, env: Env) -> None:
        self._branch = branch(env, rng="fresh")

    def __enter__(self) -> Ahead:
        return Ahead(self._branch.__enter__())

    def __exit__(self, *error: Any) -> None:
        self._branch.__exit__(*error)


def try_in(
    opened: Sequence[AbstractContextManager[Ahead]], plans: Sequence[Sequence[str]]
) -> list[Tried]:
    """Try plans in lockstep, so that engines are asked once a depth for all.

    Args:
        opened: Where to try each plan.
        plans: World actions.

    Returns:
        One result a plan; failing machinery is told in it, and never raised.
    """
    tried = [Tried() for _ in opened]
    places: dict[int, Ahead] = {}
    try:
        for i, context in enumerate(opened):
            try:
                place = context.__enter__()
            except MachineryError as error:
                tried[i] = Tried(error=error)
                continue
            places[i] = place
            tried[i] = Tried(steps=place.steps, reason=place.reason)
        live = [i for i, place in places.items() if place.reason is None]
        for depth in range(max(map(len, plans), default=0)):
            live = [i for i in live if depth < len(plans[i]) and places[i].most != depth]
            results = step_all([places[i].env for i in live], [plans[i][depth] for i in live])
            live = [
                i
                for i, result in zip(live, results, strict=True)
                if _add(tried, i, plans[i][depth], result)
            ]
    finally:
        for i in places:
            try:
                opened[i].__exit__(None, None, None)
            except MachineryError as error:
                tried[i] = tried[i]._replace(error=error)
    return tried


def _add(tried: list[Tried], i: int, action: str, result: tuple[Any, ...]) -> bool:
    """Note one step; whether the episode goes on."""
    _, _, terminated, truncated, info = result
    found = tried[i]
    if info.get("error"):
        error = MachineryError(info["error"], code=info["error_code"])
        tried[i] = found._replace(steps=found.steps + 1, error=error)
        return False
    futures = (*found.futures, (action, info["state"]))
    tried[i] = found._replace(futures=futures, steps=found.steps + 1)
    return not (terminated or truncated)


# -- the score -------------------------------------------------------------------------------------


def can_measure(env: Env) -> bool:
    """Whether plans can be tried below this agent env."""
    try:
        check_branchable(env.get_wrapper_attr("world_layers"))
    except (AttributeError, BranchError):
        return False
    return True


def simulation_scores(envs: Sequence[Env], responses: Sequence[Any]) -> list[float | None]:
    """Scores of responses in the present states of agent envs; tries the plans in branches.

    Args:
        envs: The agent envs, before the responses are given to them.
        responses: One response an env.

    Returns:
        Shares in [0, 1]; None where the machinery failed, so that nothing was measured.
    """
    parsed = [parse_response(text) for text in responses]
    planned = [i for i, p in enumerate(parsed) if p.plan]
    tried = try_plans([envs[i] for i in planned], [parsed[i].plan[:MAX_PLAN] for i in planned])
    scores: list[float | None] = [0.0] * len(envs)
    for i, found in zip(planned, tried, strict=True):
        world: World = envs[i].unwrapped.world  # type: ignore[attr-defined]
        real = [world.digest(state) for _, state in found.futures]
        scores[i] = None if found.error else agreement(world, parsed[i].imagined_plan(), real)
    return scores


def simulation_score(env: Env, response: Any) -> float | None:
    """`simulation_scores` of one env."""
    return simulation_scores([env], [response])[0]


def draft_score(env: Env, info: dict[str, Any]) -> float:
    """Score of a SimRollout draft, whose futures are known already."""
    world: World = env.unwrapped.world  # type: ignore[attr-defined]
    parsed = parse_response(info["draft"])
    real = [world.digest(state) for _, state in info["futures"]]
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
