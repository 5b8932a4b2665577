"""Checks of worlds that a model plays: pure requests, and one call for many envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.errors import MachineryError
from dyna_gym.learning.collect import collect
from dyna_gym.model_env import Engine, ModelEnv
from dyna_gym.policies.base import Policy
from dyna_gym.responses import Response, format_response
from dyna_gym.testing.common import NotApplicable, describe, require, require_equal, steps_of
from dyna_gym.testing.playing import (
    Env,
    deterministic,
    listed_actions,
    made,
    pick_action,
    sample_tasks,
    takes_text,
    world_env,
)
from dyna_gym.testing.vectors import batch_of, rows_of, vector_id
from dyna_gym.vector import LockstepVectorEnv
from dyna_gym.wrappers import make_agent_env

ENVS, STEPS = 3, 8


class _Counting(Engine):
    """Passes requests on and counts; can be told to fail for a request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: list[list[Any]] = []
        self.refuse: int | None = None
        """Number of the request of each call that cannot be answered."""

    def reply(self, requests: Sequence[Any]) -> list[Any]:
        self.calls.append(list(requests))
        replies = list(self._engine.reply(requests))
        if self.refuse is not None and self.refuse < len(replies):
            replies[self.refuse] = MachineryError("refused by the check")
        return replies


def _model(env: Env) -> ModelEnv[Any, Any]:
    base = env.unwrapped
    if not isinstance(base, ModelEnv):
        raise NotApplicable("no model plays this world (it is no ModelEnv)")
    return base


def _shared_engine(envs: Sequence[Env]) -> _Counting:
    """Give envs one engine that counts. Equal engines are answered together; so they must be equal."""
    engines = [_model(env).engine for env in envs]
    fix = "let engines of equal settings be equal (__eq__ and __hash__), or envs share one"
    same = all(e == engines[0] and hash(e) == hash(engines[0]) for e in engines)
    require(same, "unequal engines of envs with equal settings", "equal ones", fix)
    counting = _Counting(engines[0])
    for env in envs:
        _model(env).engine = counting
    return counting


def check_requests(env_id: str, **make_kwargs: Any) -> str:
    """``request()`` changes nothing, is repeatable, and is what the step then asks."""
    with made(env_id, **make_kwargs) as env:
        base = _model(env)
        counting = _shared_engine([env])
        rng = np.random.default_rng(0)
        _, info = env.reset(seed=0)
        fix = "let _request change nothing and draw from its `rng` only"
        for step in range(3 * STEPS):
            action = pick_action(env, info, rng)
            before = describe((base.observe(), base.np_random.bit_generator.state, _state(base)))
            first, second = base.request(action), base.request(action)
            after = describe((base.observe(), base.np_random.bit_generator.state, _state(base)))
            require_equal(before, after, f"the env before and after request(), step {step},", fix)
            same = first == second
            require(same, f"{first!r} and then {second!r} for {action!r}", "equal requests", fix)
            counting.calls.clear()
            _, _, terminated, truncated, info = env.step(action)
            asked = [r for call in counting.calls for r in call]
            expected = [] if first is None else [first]
            require(asked == expected, f"a step that asks {asked}", f"{expected}", fix)
            if terminated or truncated:
                _, info = env.reset()
    return f"{3 * STEPS} requests"


def _state(base: ModelEnv[Any, Any]) -> Any:
    return base._get_state() if base.branching == "snapshot" else None


class _Scripted(Policy):
    """Answers by what it is shown, not by what it answered before."""

    def __init__(self, env: Env) -> None:
        self._env = env

    def act(self, messages: Any, infos: Sequence[dict[str, Any]]) -> list[Response]:
        return [self._one(info) for info in infos]

    def _one(self, info: dict[str, Any]) -> Response:
        actions = listed_actions(self._env, info)
        if not actions:
            return Response("")
        key = f"{info['task'].id} {info['state']} {info.get('phase')}"
        rng = np.random.default_rng(list(key.encode()))
        plan = [actions[i] for i in rng.integers(len(actions), size=3)]
        return Response(format_response(None, plan, plan[0]))


def check_lockstep_agents(env_id: str, **make_kwargs: Any) -> str:
    """Agent envs that are stepped together give what single ones give, with one model call a step."""
    with made(env_id, **make_kwargs) as probe:
        base = _model(probe)
        if not takes_text(probe) or not deterministic(probe):
            raise NotApplicable("its actions are no text, or it is nondeterministic")
        tasks = sample_tasks(probe, base.split, ENVS)
        policy = _Scripted(probe)
        branches = base.branching == "snapshot"
        told = []
        for response in ("plain", "sim_rollout") if branches else ("plain",):
            envs = [make_agent_env(env_id, response=response, **make_kwargs) for _ in tasks]
            counting = _shared_engine(envs)
            single = [
                collect([envs[i]], policy, [task], seed=i, measure=branches)[0]
                for i, task in enumerate(tasks)
            ]
            serial = len(counting.calls)
            counting.calls.clear()
            together = collect(envs, policy, tasks, measure=branches)
            fix = "let _request and _receive depend on the env's own state only"
            for i, (a, b) in enumerate(zip(single, together, strict=True)):
                what = f"episode {i} alone and beside others, through {response},"
                require_equal(describe(a), describe(b), what, fix)
            longest = max(len(t.transitions) for t in together)
            # One call for the step, and one for each step of what is tried before it.
            most = longest * (1 + 3 * (response == "sim_rollout" or branches))
            got = f"{len(counting.calls)} calls of the model for {longest} steps of {ENVS} envs"
            require(len(counting.calls) <= most, got, f"at most {most}", fix)
            told.append(f"{response}: {len(counting.calls)} calls instead of {serial}")
            for env in envs:
                env.close()
    return ", ".join(told)


def check_lockstep_vector(env_id: str, **make_kwargs: Any) -> str:
    """``gym.make_vec`` gives what single envs give, with one model call a step; a failure stays with its env."""
    with made(env_id, **make_kwargs) as probe:
        _model(probe)
        if not deterministic(probe):
            raise NotApplicable("the env declares itself nondeterministic")
    vector: Any = gym.make_vec(vector_id(env_id), num_envs=ENVS, **make_kwargs)
    envs = [gym.make(env_id, **make_kwargs) for _ in range(ENVS)]
    try:
        fix = "register the id with register_world(..., batched=True)"
        right = isinstance(vector, LockstepVectorEnv)
        require(right, f"a {type(vector).__name__} of make_vec", "a LockstepVectorEnv", fix)
        counting = _shared_engine(vector.envs)
        _shared_engine(envs)
        base = world_env(envs[0])
        tasks = [task.id for task in sample_tasks(envs[0], base.split, ENVS)]
        tasks += tasks[:1] * (ENVS - len(tasks))
        vector.reset(seed=5, options={"tasks": tasks})
        single: list[Any] = [
            env.reset(seed=5 + i, options={"task": tasks[i]}) for i, env in enumerate(envs)
        ]
        fix = "let _request and _receive depend on the env's own state only"
        rng = np.random.default_rng(0)
        for step in range(STEPS):
            actions = [pick_action(env, s[-1], rng) for env, s in zip(envs, single, strict=True)]
            refused = _refuse(counting, vector.envs, actions) if step == STEPS - 1 else None
            counting.calls.clear()
            results = rows_of(vector, vector.step(batch_of(vector.single_action_space, actions)))
            got = f"{len(counting.calls)} calls of the model for one step"
            require(len(counting.calls) <= 1, got, "at most 1", fix)
            single = [env.step(action) for env, action in zip(envs, actions, strict=True)]
            for i, (row, result) in enumerate(zip(results, single, strict=True)):
                if i == refused:
                    got = f"no error of env {i}, whose request failed"
                    told = row["truncated"] and row["reward"] == "0.0" and "error" in row["info"]
                    require(told, got, "truncation, reward 0 and info['error']", fix)
                    continue
                what = f"env {i} of the vector and a single env, step {step},"
                require_equal(row, steps_of(result), what, fix)
            if any(result[2] or result[3] for result in single):
                break
    finally:
        vector.close()
        for env in envs:
            env.close()
    return f"{step + 1} steps of {ENVS} envs, one call each"


def _refuse(counting: _Counting, envs: Sequence[Env], actions: Sequence[Any]) -> int | None:
    """Have the request of the last env that asks something fail; which env that is."""
    asking = [i for i, env in enumerate(envs) if _model(env).request(actions[i]) is not None]
    counting.refuse = len(asking) - 1 if asking else None
    return asking[-1] if asking else None
