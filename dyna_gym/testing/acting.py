"""Checks of what comes back, and of what an agent can write."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np

import dyna_gym.wrappers as layers
from dyna_gym.responses import REASONS
from dyna_gym.task import Task
from dyna_gym.testing.common import (
    HOSTILE_RESPONSES,
    HOSTILE_TEXTS,
    HOSTILE_VALUES,
    ContractError,
    NotApplicable,
    describe,
    require,
    require_equal,
    short,
)
from dyna_gym.testing.playing import (
    SECONDS,
    Env,
    Timed,
    deterministic,
    made,
    pick_action,
    require_text,
    takes_text,
    world_env,
)

_KEYS = ("task", "state", "admissible_actions", "invalid_reason", "success", "score")


def _check_info(env: Env, info: dict[str, Any], where: str) -> None:
    fix = "build info in WorldEnv, and pass it on unchanged or extended in wrappers"
    for key in _KEYS:
        require(key in info, f"no info[{key!r}] {where}", "it always there", fix)
    actions, reason, score = info["admissible_actions"], info["invalid_reason"], info["score"]
    require(isinstance(info["task"], Task), f"task {info['task']!r} {where}", "a Task", fix)
    require(isinstance(info["state"], str), f"state {short(info['state'])} {where}", "a str", fix)
    listed = isinstance(actions, tuple) and all(isinstance(a, str) for a in actions)
    require(
        actions is None or listed,
        f"admissible_actions {short(actions)}",
        "tuple of str or None",
        fix,
    )
    own = world_env(env).world.reasons
    require(
        reason is None or reason in REASONS or reason in own,
        f"invalid_reason {reason!r} {where}",
        "None, a code of dyna_gym.responses.REASONS or one of the world's own `reasons`",
        "use one of these, or name it in World.reasons",
    )
    require(isinstance(info["success"], bool), f"success {info['success']!r}", "a bool", fix)
    good = isinstance(score, float) and 0.0 <= score <= 1.0
    require(good, f"score {score!r} {where}", "a float in [0, 1]", "scale the world's score")
    require("error" not in info, f"error {short(info.get('error'))} {where}", "no failure", fix)


def _check_own(env: Env) -> None:
    """What the world adds to what all have: reasons and pictures."""
    base = world_env(env)
    taken = sorted(base.world.reasons.keys() & REASONS.keys())
    require(not taken, f"own reasons {taken}", "codes that are not in REASONS", "choose others")
    if base.picture is not None:
        parts = getattr(env.observation_space, "spaces", {})
        space: Any = parts.get(base.picture) if isinstance(parts, dict) else None
        right = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
        right = right and len(space.shape) == 3 and space.shape[2] == 3
        expected = "the name of a Box of uint8 [height, width, 3] in a Dict observation space"
        got = f"picture {base.picture!r} of {env.observation_space}"
        require(right, got, expected, "name the part that is a picture")


def check_info(env_id: str, seconds: float | None = SECONDS, **make_kwargs: Any) -> str:
    """``info`` has all its keys, with the right types, at reset and at every step."""
    with made(env_id, **make_kwargs) as env:
        rng = np.random.default_rng(0)
        _check_own(env)
        observation, info = env.reset(seed=0)
        _check_info(env, info, "at reset")
        steps = Timed(range(60), seconds)
        for i in steps:
            action = pick_action(env, info, rng)
            listed = info["admissible_actions"]
            observation, reward, terminated, truncated, info = env.step(action)
            where = f"at step {i} (action {short(action, 40)})"
            _check_info(env, info, where)
            fix = "return plain Python values"
            require(type(reward) is float, f"reward {reward!r} {where}", "a float", fix)
            for flag in (terminated, truncated):
                require(type(flag) is bool, f"flag {flag!r} {where}", "a bool", fix)
            inside = env.observation_space.contains(observation)
            got = f"observation {short(observation)} {where}"
            require(inside, got, "one in observation_space", "make the space wide enough")
            if takes_text(env) and listed and action in listed and deterministic(env):
                got = f"{info['invalid_reason']!r} for the admissible {action!r}"
                require(info["invalid_reason"] is None, got, "None", "accept what you list")
            if isinstance(action, str) and action == "":
                require(
                    info["invalid_reason"] is not None,
                    "invalid_reason None for an empty action",
                    "a code such as 'empty_action'",
                    "refuse it in World.parse_action",
                )
            if terminated or truncated:
                observation, info = env.reset()
                _check_info(env, info, "at reset")
    return f"{steps.told('steps')}, all keys and types"


def _step_hostile(env: Env, action: Any) -> dict[str, Any]:
    try:
        _, _, terminated, truncated, info = env.step(action)
    except Exception as error:
        raise ContractError(
            f"got: step({short(action, 60)}) raises {type(error).__name__}: {short(str(error))}; "
            "expected: no exception for anything that an agent can write; what to do: return an "
            "Outcome with invalid_reason and the state unchanged"
        ) from error
    require(
        "error" not in info,
        f"step({short(action, 60)}) set info['error']",
        "invalid_reason: the agent failed, not the machinery",
        "raise MachineryError only for machines",
    )
    if terminated or truncated:
        env.reset()
    return info


def check_hostile_text(env_id: str, seconds: float | None = SECONDS, **make_kwargs: Any) -> str:
    """No text, however odd, and no value that is not text makes ``step`` raise."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        env.reset(seed=0)
        values = Timed([*HOSTILE_TEXTS, *HOSTILE_VALUES], seconds)
        for value in values:
            info = _step_hostile(env, value)
            if not isinstance(value, str):
                got = f"invalid_reason None for step({value!r})"
                require(info["invalid_reason"] is not None, got, "a code", "accept strings only")
    return values.told("texts and other values")


def check_hostile_responses(
    env_id: str, seconds: float | None = SECONDS, **make_kwargs: Any
) -> str:
    """The same, for whole responses through each response layer."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        kinds = ["plain"] if world_env(env).branching == "none" else ["plain", "sim_rollout"]
    told = []
    for kind in kinds:
        env = layers.make_agent_env(env_id, response=kind, **make_kwargs)
        env.reset(seed=0)
        texts = Timed((*HOSTILE_RESPONSES, *HOSTILE_TEXTS, *HOSTILE_VALUES), seconds)
        for text in texts:
            for _ in range(2 if kind == "sim_rollout" else 1):  # as a draft and as the answer
                _step_hostile(env, text)
        env.close()
        told.append(texts.told(f"responses through {kind}"))
    return ", ".join(told)


def edge_values(space: gym.Space[Any]) -> Iterator[Any]:
    """Values at the edges of a space, in the forms in which libraries hand them over."""
    spaces = gym.spaces
    if isinstance(space, spaces.Discrete):
        for value in (int(space.start), int(space.start + space.n - 1)):
            # As a list of actions has it, as NumPy's choice gives it, as SB3's predict does.
            yield from (value, np.int64(value), np.array(value))
    elif isinstance(space, spaces.Box):
        yield from (space.low.copy(), space.high.copy())
    elif isinstance(space, spaces.MultiDiscrete):
        yield from (space.start.copy(), space.start + space.nvec - 1)
    elif isinstance(space, spaces.MultiBinary):
        yield from (np.zeros(space.shape, space.dtype), np.ones(space.shape, space.dtype))
    elif isinstance(space, spaces.Text):
        yield from (str(space.characters)[:1] * n for n in (space.min_length, space.max_length))
    elif isinstance(space, spaces.Dict):
        for row in _columns(*space.spaces.values()):
            yield dict(zip(space.spaces, row, strict=True))
    elif isinstance(space, spaces.Tuple):
        yield from _columns(*space.spaces)
    elif hasattr(space, "max_length"):
        yield from ("", " " * space.max_length, "\ud800" * min(3, space.max_length))


def _columns(*parts: gym.Space[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*map(edge_values, parts), strict=False)


def check_action_space(env_id: str, seconds: float | None = SECONDS, **make_kwargs: Any) -> str:
    """Whatever is inside the action space is accepted by ``step``: samples and edges."""
    with made(env_id, **make_kwargs) as env:
        env.reset(seed=0)
        env.action_space.seed(0)
        samples = (env.action_space.sample() for _ in range(30))
        edges = islice(edge_values(env.action_space), 100)
        actions = [a for a in (*edges, *samples) if env.action_space.contains(a)]
        if not actions:
            raise NotApplicable("nothing is known to be in the action space")
        timed = Timed(actions, seconds)
        for action in timed:
            _step_hostile(env, action)
    return timed.told("actions")


def _overwrite(value: Any) -> None:
    """Change all that can be changed in place."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value.fill(0 if value.any() else 1)
    elif isinstance(value, dict):
        for part in value.values():
            _overwrite(part)
        value.clear()
    elif isinstance(value, list):
        for part in value:
            _overwrite(part)
        value.clear()
    elif isinstance(value, tuple):
        for part in value:
            _overwrite(part)


def check_returned_values(env_id: str, **make_kwargs: Any) -> str:
    """What was returned is not changed later, nor is the env by a caller who changes it."""
    fix = "return new objects, not the env's own buffers"
    with made(env_id, **make_kwargs) as env:
        base = world_env(env)
        rng = np.random.default_rng(0)
        observation, info = env.reset(seed=0)
        kept = [(observation, info, describe((observation, info)))]
        for _ in range(6):
            action = pick_action(env, info, rng)
            observation, _, terminated, truncated, info = env.step(action)
            kept.append((observation, info, describe((observation, info))))
            if terminated or truncated:
                break
        env.reset(seed=1)
        for i, (observation, info, then) in enumerate(kept):
            what = f"observation and info of step {i}, when returned and later,"
            require_equal(then, describe((observation, info)), what, fix)
        for at_reset in (True, False):
            result: tuple[Any, ...] = env.reset(seed=2)
            if not at_reset:
                result = env.step(pick_action(env, result[1], rng))
            before = describe(base.observe())
            _overwrite((result[0], result[-1]))
            what = "the env before and after the caller changed what it had returned"
            require_equal(before, describe(base.observe()), what, fix)
    return f"{len(kept)} results unchanged later"
