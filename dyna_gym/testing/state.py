"""Checks of the abstract state, which prompts, searches and dreams are made of."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np

from dyna_gym.testing.common import ContractError, NotApplicable, describe, require, short
from dyna_gym.testing.playing import (
    SECONDS,
    Env,
    Timed,
    deterministic,
    made,
    mixed_tasks,
    pick_action,
    takes_text,
    world_env,
)
from dyna_gym.world import World

STEPS = 12


class _Seen(NamedTuple):
    """One step, as `World.abstract` is told of it."""

    previous: str | None
    action: Any
    observation: Any
    state: str


def check_state(env_id: str, seconds: float | None = SECONDS, **make_kwargs: Any) -> str:
    """``info["state"]`` starts where the world says, follows from what was seen, and can be read."""
    with made(env_id, **make_kwargs) as env:
        base = world_env(env)
        tasks = Timed(mixed_tasks(env, 2), seconds)
        count = 0
        for task in tasks:
            steps = _steps(env, task)
            first = steps[0].state
            expected = base.world.initial_abstract(task)
            fix = "initial_abstract(task) must be what abstract() makes of the first observation"
            same = first == expected or not deterministic(env)
            require(same, f"first state {short(first)}", short(expected), fix)
            env.reset(seed=1)  # what the world knew of the episode is gone now
            for step in steps:
                _check_step(base.world, base.observes_state, step)
            count += len(steps)
    return f"{count} states of {tasks.told('tasks')}"


def _steps(env: Env, task: Any) -> list[_Seen]:
    """Play a little; also checks that a refused action leaves the state as it was."""
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=0, options={"task": task})
    steps = [_Seen(None, None, copy.deepcopy(observation), info["state"])]
    _check_readable(env, info, ended=False)
    for _ in range(STEPS):
        action, before = pick_action(env, info, rng), info
        observation, _, terminated, truncated, info = env.step(action)
        state = info["state"]
        steps.append(_Seen(before["state"], action, copy.deepcopy(observation), state))
        if info["invalid_reason"] is not None and deterministic(env):
            for what, a, b in (
                ("state", before["state"], state),
                ("admissible_actions", before["admissible_actions"], info["admissible_actions"]),
            ):
                got = f"{what} {short(b)} after the refused action {short(action, 40)}"
                fix = "a bad action changes nothing: abstract() must give `previous` back"
                require(a == b, got, f"{short(a)}, as before", fix)
        _check_readable(env, info, ended=terminated)
        if terminated or truncated:
            break
    return steps


def _check_step(world: World, observes_state: bool, step: _Seen) -> None:
    if observes_state:
        fix = "observe the abstract state itself, or leave observes_state False"
        got = f"state {short(step.state)} of the observation {short(step.observation)}"
        require(step.state == step.observation, got, "the observation", fix)
        return
    again = world.abstract(step.previous, step.action, step.observation)
    require(
        again == step.state,
        f"state {short(step.state)}, and later {short(again)} of the same step",
        "what World.abstract makes of the previous state, the action and the observation, and nothing else",
        "leave the state to WorldEnv, and keep nothing of an episode in the world",
    )


def _check_readable(env: Env, info: dict[str, Any], ended: bool) -> None:
    """The world must be able to read its own states."""
    world, state = world_env(env).world, info["state"]
    digest = world.digest(state)
    one_line = bool(digest) and digest.splitlines() == [digest] and "|" not in digest
    fix = "digests stand in <sim> lines: one line, without '|'"
    require(one_line, f"digest {short(digest)} of {short(state)}", "one line of text", fix)
    require(world.same_state(digest, digest), "same_state(d, d) is False", "True", "mend it")
    if ended or not takes_text(env):
        return
    got, expected = info["admissible_actions"], world.admissible(state)
    same = got == expected or not deterministic(env)
    fix = "let the env's _admissible ask the world"
    require(same, f"admissible {short(got)}", f"{short(expected)}, as of the state", fix)
    actions = world.candidates(state)
    fix = "override candidates() where the set is unbounded"
    require(len(actions) > 0, f"no candidates in {short(state)}", "some", fix)
    for action in actions[:50]:
        parsed = world.parse_action(action)
        require(
            parsed.action == action and parsed.reason is None,
            f"{parsed} for the listed {action!r}",
            f"the action {action!r} without a reason",
            "parse_action must read what admissible and candidates list",
        )


def check_world_is_shared(env_id: str, **make_kwargs: Any) -> str:
    """A world never changes; one made by `World.shared` is one object in all envs, copies and pickles."""
    with made(env_id, **make_kwargs) as env, made(env_id, **make_kwargs) as other:
        world = world_env(env).world
        before = _answers(env, world)
        rng = np.random.default_rng(1)
        _, info = env.reset(seed=1)
        for _ in range(STEPS):
            _, _, terminated, truncated, info = env.step(pick_action(env, info, rng))
            if terminated or truncated:
                break
        fix = "keep what belongs to an episode in the env: other envs and processes share the world"
        after = _answers(env, world)
        require(before == after, "other answers of the world after an episode", "the same", fix)
        if world._made_by is None:
            raise NotApplicable("the world never changes, but is not made by World.shared")
        fix = "leave __reduce__ and __deepcopy__ to World, and give shared() all settings"
        for name, copied in (
            ("another env of the same settings", world_env(other).world),
            ("a deep copy", copy.deepcopy(world)),
            ("a pickle", pickle.loads(pickle.dumps(world))),
        ):
            require(copied is world, f"another world object in {name}", "the same", fix)
    return "the world never changes, and is one object in envs, copies and pickles"


def _answers(env: Env, world: World) -> Any:
    """What the world says of some first states."""
    told: list[Any] = [world.name, world.rules, world.action_help, world.reasons]
    try:
        for task in mixed_tasks(env, 3):
            state = world.initial_abstract(task)
            told += [task, state, world.digest(state), world.admissible(state), vars(task)]
            told += [world.candidates(state) if takes_text(env) else None]
    except NotImplementedError as error:
        raise ContractError(
            f"got: NotImplementedError ({error}); expected: answers about first states; what to do: implement it"
        ) from error
    return describe(told)
