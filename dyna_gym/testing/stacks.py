"""Checks of specs and of every wrapper of dyna_gym over the env."""

from __future__ import annotations

import inspect
import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

import dyna_gym.wrappers as layers
from dyna_gym.testing.common import require, require_equal
from dyna_gym.testing.playing import Env, fixed, made, sample_tasks, takes_text, world_env

_SEARCH: dict[str, Any] = {"value": "none", "breadth": 2, "depth": 2}


def _wrapped(wrapper: Callable[[Env], Env], make: Callable[[], Env]) -> Env:
    return wrapper(make())


def _stacks(env_id: str, folder: str, make_kwargs: dict[str, Any]) -> dict[str, Callable[[], Env]]:
    """Every wrapper, and every whole stack, that this env can carry."""
    make: Callable[[], Env] = partial(gym.make, env_id, **make_kwargs)
    with made(env_id, **make_kwargs) as env:
        text, branches = takes_text(env), world_env(env).branching != "none"
    special: dict[str, Callable[[], Env]] = {
        "RecordTrajectories": lambda: layers.RecordTrajectories(make(), f"{folder}/episodes.jsonl"),
        "PromptWrapper": lambda: layers.PromptWrapper(layers.ReasoningActionWrapper(make())),
        "ReSimSearchWrapper": lambda: layers.ReSimSearchWrapper(make(), **_SEARCH),
    }
    any_space = {"OutcomeReward", "SuccessReward", "TaskTimeLimit", "RecordTrajectories"}
    any_space |= {"RetryFailedEpisodes", "AbstractStateWrapper"}
    looks_ahead = {"SimRolloutWrapper", "ReSimSearchWrapper"}
    stacks: dict[str, Callable[[], Env]] = {"bare": make}
    for name in layers.__all__:
        wrapper = getattr(layers, name)
        if not (inspect.isclass(wrapper) and issubclass(wrapper, gym.Wrapper)):
            continue
        if (text or name in any_space) and (branches or name not in looks_ahead):
            stacks[name] = special.get(name, partial(_wrapped, wrapper, make))
    if text:
        responses = ["plain", "sim_rollout", "resim"] if branches else ["plain"]
        for response in responses:
            lookahead = _SEARCH if response == "resim" else None
            stack = partial(
                layers.make_agent_env, env_id, response=response, lookahead=lookahead, **make_kwargs
            )
            stacks[f"make_agent_env({response})"] = stack
    return stacks


def check_wrappers_forward(env_id: str, **make_kwargs: Any) -> str:
    """Every wrapper passes ``seed`` and ``options`` on: the task is the bare env's, each time."""
    with tempfile.TemporaryDirectory() as folder:
        stacks = _stacks(env_id, folder, make_kwargs)
        with made(env_id, **make_kwargs) as bare:
            tasks = {seed: bare.reset(seed=seed)[1]["task"].id for seed in (0, 1, 42)}
            other = sample_tasks(bare, world_env(bare).split, 3)[-1]
        for name, make in stacks.items():
            env = make()
            for seed, task_id in tasks.items():
                first, second = (env.reset(seed=seed) for _ in range(2))
                got = first[1]["task"].id
                fix = f"{name}.reset must call self.env.reset(seed=seed, options=options)"
                require(got == task_id, f"task {got!r} through {name} at seed {seed}", task_id, fix)
                what = f"two resets of {name} with seed {seed}"
                require_equal(fixed(env, *first), fixed(env, *second), what, fix)
            got = env.reset(options={"task": other.id})[1]["task"].id
            require(got == other.id, f"task {got!r} through {name}, options lost", other.id, fix)
            env.close()
    return f"{len(stacks)} stacks"


def check_spec_round_trip(env_id: str, **make_kwargs: Any) -> str:
    """``env.spec`` of every stack survives JSON and pickle, and makes an equal env again."""
    with tempfile.TemporaryDirectory() as folder:
        stacks = _stacks(env_id, folder, make_kwargs)
        for name, make in stacks.items():
            env = make()
            spec = env.spec
            fix = "record the constructor's arguments, names and plain data (RecordConstructorArgs)"
            require(spec is not None, f"no spec of {name}", "one", fix)
            assert spec is not None
            try:
                copies = {
                    "JSON": EnvSpec.from_json(spec.to_json()),
                    "pickle": pickle.loads(pickle.dumps(spec)),
                }
                again = {kind: gym.make(copied) for kind, copied in copies.items()}
            except Exception as error:
                got = f"the spec of {name} does not round-trip: {type(error).__name__}: {error}"
                require(False, got, "a spec of plain data", fix)
                raise
            first = fixed(env, *env.reset(seed=9))
            for kind, other in again.items():
                require(
                    copies[kind] == spec, f"another spec of {name} from {kind}", "the same", fix
                )
                got = str(other)
                require(got == str(env), f"{got} from {kind}", str(env), fix)
                what = f"{name} and {name} made from its spec ({kind})"
                require_equal(first, fixed(other, *other.reset(seed=9)), what, fix)
                other.close()
            env.close()
    return f"{len(stacks)} stacks by JSON and pickle"
