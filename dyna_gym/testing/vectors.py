"""Checks of vector envs."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from dyna_gym.registration import IDS
from dyna_gym.testing.common import (
    Env,
    NotApplicable,
    describe,
    made,
    pick_action,
    require,
    require_equal,
    sample_tasks,
    short,
    world_env,
)

SPAWN = {"shared_memory": False, "context": "spawn"}


def _vector_id(env_id: str) -> str:
    """The id with its module before it, so that a worker which starts from nothing finds it."""
    return f"dyna_gym:{env_id}" if env_id in IDS else env_id


def _batch(space: gym.Space[Any], actions: list[Any]) -> Any:
    empty: Any = create_empty_array(space, len(actions))
    return concatenate(space, actions, empty)


def _single_info(infos: dict[str, Any], i: int) -> dict[str, Any]:
    return {key: infos[key][i] for key in infos if not key.startswith("_")}


def check_sync_equals_async(env_id: str, **make_kwargs: Any) -> str:
    """Sync and async (spawned) vector envs and single envs return the same, step by step."""
    vector_id, n = _vector_id(env_id), 2
    make = partial(gym.make_vec, vector_id, num_envs=n, **make_kwargs)
    with made(env_id, **make_kwargs) as probe:
        single = [describe(probe.reset(seed=7 + i)[0]) for i in range(n)]
        sync = make(vectorization_mode="sync")
        spawned = make(vectorization_mode="async", vector_kwargs=SPAWN)
        try:
            (observations, infos), other = sync.reset(seed=7), spawned.reset(seed=7)
            fix = "give the observation space a batched form (see dyna_gym.spaces)"
            got = [describe(observations[i]) for i in range(n)]
            require_equal(got, single, "the sync vector and single envs", fix)
            require_equal(describe((observations, infos)), describe(other), "sync and async", fix)
            rng = np.random.default_rng(0)
            for step in range(8):
                actions = [
                    pick_action(probe, observations[i], _single_info(infos, i), rng)
                    for i in range(n)
                ]
                batch = _batch(sync.single_action_space, actions)
                a, b = sync.step(batch), spawned.step(batch)
                require_equal(describe(a), describe(b), f"sync and async, step {step},", fix)
                observations, infos = a[0], a[4]
        finally:
            sync.close()
            spawned.close()
    return f"{vector_id}, {n} workers (spawn), 8 steps"


def check_shared_memory(env_id: str, **make_kwargs: Any) -> str:
    """With shared memory, which cannot hold text, there is a clear error and no frozen text."""
    make = partial(gym.make_vec, _vector_id(env_id), num_envs=2, **make_kwargs)
    try:
        vector = make(vectorization_mode="async", vector_kwargs={"context": "spawn"})
    except Exception as error:
        told = "shared_memory=False" in str(error)
        fix = "derive text spaces from gymnasium.Space, not from gymnasium.spaces.Text"
        got = f"{type(error).__name__}: {short(str(error))}"
        require(told, got, "an error that names shared_memory=False", fix)
        return "refused, naming shared_memory=False"
    try:
        got_text = describe(vector.reset(seed=7)[0])
    finally:
        vector.close()
    sync = make(vectorization_mode="sync")
    expected = describe(sync.reset(seed=7)[0])
    sync.close()
    fix = "refuse shared memory for this space"
    require_equal(got_text, expected, "with shared memory and without,", fix)
    return "shared memory works"


def _short_episodes(env: Env) -> gym.Wrapper[Any, Any, Any, Any]:
    return RecordEpisodeStatistics(TimeLimit(env, max_episode_steps=2))


def check_autoreset(env_id: str, **make_kwargs: Any) -> str:
    """The final observation and the episode's statistics are where Gymnasium documents them."""
    with made(env_id, **make_kwargs) as bare:
        env = _short_episodes(bare)
        observation, info = env.reset(seed=3)
        action = pick_action(env, observation, info, np.random.default_rng(1))
        if env.step(action)[2]:
            raise NotApplicable("the first action ends the episode")
        last = env.step(action)
        final, next_first = describe(last[0]), describe(env.reset()[0])
    for mode in (gym.vector.AutoresetMode.NEXT_STEP, gym.vector.AutoresetMode.SAME_STEP):
        vector = gym.make_vec(
            _vector_id(env_id),
            num_envs=1,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": mode},
            wrappers=[_short_episodes],
            **make_kwargs,
        )
        vector.reset(seed=3)
        batch = _batch(vector.single_action_space, [action])
        vector.step(batch)
        observations, _, terminations, truncations, infos = vector.step(batch)
        name, fix = (
            f"{mode.value} autoreset",
            "leave autoreset to the vector env; never reset in step",
        )
        ended = bool(terminations[0] or truncations[0])
        require(ended, f"no end at the limit with {name}", "truncation", fix)
        if mode == gym.vector.AutoresetMode.NEXT_STEP:
            require_equal(describe(observations[0]), final, f"{name}: final observations", fix)
            observations, _, _, _, after = vector.step(batch)
            require("task" in after, f"{name}: no task after it", "info of the reset", fix)
        else:
            require_equal(describe(infos["final_obs"][0]), final, f"{name}: final_obs", fix)
            infos = infos["final_info"]
        require_equal(describe(observations[0]), next_first, f"{name}: next episodes", fix)
        length = int(infos["episode"]["l"][0])
        require(length == 2, f"{name}: episode length {length}", "2", fix)
        require("success" in infos, f"{name}: no success in the last info", "it there", fix)
        vector.close()
    return "next_step and same_step"


def check_group_reset(env_id: str, **make_kwargs: Any) -> str:
    """A group of envs that are reset to one task start equally, whatever their seeds."""
    with made(env_id, **make_kwargs) as env:
        task = sample_tasks(env, world_env(env).split, 2)[-1]
    vector = gym.make_vec(_vector_id(env_id), num_envs=4, vectorization_mode="sync", **make_kwargs)
    observations, infos = vector.reset(seed=0, options={"task": task.id})
    vector.close()
    ids = [t.id for t in infos["task"]]
    fix = "start from the task alone: the seed may decide noise later, not the start"
    require(ids == [task.id] * 4, f"tasks {ids}", f"four times {task.id!r}", fix)
    for i in range(1, 4):
        a, b = describe(observations[0]), describe(observations[i])
        require_equal(a, b, f"first observations of envs 0 and {i} of a group", fix)
    return f"4 envs on {task.id}"


def accepts_episodes(check: Any) -> bool:
    """Whether a check has the setting ``episodes``."""
    return "episodes" in inspect.signature(check).parameters
