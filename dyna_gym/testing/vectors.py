"""Checks of vector envs."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from dyna_gym.registration import IDS
from dyna_gym.testing.common import (
    NotApplicable,
    describe,
    require,
    require_equal,
    short,
    steps_of,
)
from dyna_gym.testing.playing import (
    Env,
    deterministic,
    fixed,
    made,
    pick_action,
    sample_tasks,
    world_env,
)

SPAWN = {"shared_memory": False, "context": "spawn"}


def vector_id(env_id: str) -> str:
    """The id with its module before it, so that a worker which starts from nothing finds it."""
    return f"dyna_gym:{env_id}" if env_id in IDS else env_id


def batch_of(space: gym.Space[Any], actions: list[Any]) -> Any:
    """Actions of single envs as a vector env takes them."""
    empty: Any = create_empty_array(space, len(actions))
    return concatenate(space, actions, empty)


def rows_of(vector: Any, result: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What a vector env's step returned, described for each of its envs as `steps_of` does."""
    observations, rewards, terminated, truncated, infos = result
    singles = observations_of(vector, observations)
    return [
        steps_of((singles[i], rewards[i], terminated[i], truncated[i], info_of(infos, i)))
        for i in range(vector.num_envs)
    ]


def observations_of(vector: Any, observations: Any) -> list[Any]:
    """The observation of each env."""
    return list(iterate(vector.observation_space, observations))


def info_of(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """The ``info`` of one env of a vector env; inner dicts are merged in the same way."""
    keys = [k for k in infos if not k.startswith("_") and infos[f"_{k}"][i]]
    return {k: info_of(v, i) if isinstance(v := infos[k], dict) else v[i] for k in keys}


def check_sync_equals_async(env_id: str, **make_kwargs: Any) -> str:
    """Sync and async (spawned) vector envs and single envs return the same, step by step."""
    name, n = vector_id(env_id), 2
    make = partial(gym.make_vec, name, num_envs=n, **make_kwargs)
    with made(env_id, **make_kwargs) as probe:
        single = [fixed(probe, *probe.reset(seed=7 + i)) for i in range(n)]
        sync = make(vectorization_mode="sync")
        spawned = make(vectorization_mode="async", vector_kwargs=SPAWN)
        try:
            (observations, infos), other = sync.reset(seed=7), spawned.reset(seed=7)
            fix = "give the observation space a batched form (see dyna_gym.spaces)"
            inner = observations_of(sync, observations)
            got = [fixed(probe, inner[i], info_of(infos, i)) for i in range(n)]
            require_equal(got, single, "the sync vector and single envs", fix)
            same = fixed(probe, observations, infos)
            require_equal(same, fixed(probe, *other), "sync and async", fix)
            rng = np.random.default_rng(0)
            for step in range(8):
                actions = [pick_action(probe, info_of(infos, i), rng) for i in range(n)]
                batch = batch_of(sync.single_action_space, actions)
                a, b = sync.step(batch), spawned.step(batch)
                infos = a[4]
                if deterministic(probe):
                    what = f"sync and async, step {step},"
                    require_equal(rows_of(sync, a), rows_of(spawned, b), what, fix)
        finally:
            sync.close()
            spawned.close()
    return f"{name}, {n} workers (spawn), 8 steps"


def check_shared_memory(env_id: str, **make_kwargs: Any) -> str:
    """With shared memory, which cannot hold text, there is a clear error and no frozen text."""
    make = partial(gym.make_vec, vector_id(env_id), num_envs=2, **make_kwargs)
    try:
        vector = make(vectorization_mode="async", vector_kwargs={"context": "spawn"})
    except Exception as error:
        told = "shared_memory=False" in str(error)
        fix = "derive text spaces from gymnasium.Space, not from gymnasium.spaces.Text"
        got = f"{type(error).__name__}: {short(str(error))}"
        require(told, got, "an error that names shared_memory=False", fix)
        return "refused, naming shared_memory=False"
    with made(env_id, **make_kwargs) as probe:
        try:
            shared = fixed(probe, *vector.reset(seed=7))
        finally:
            vector.close()
        sync = make(vectorization_mode="sync")
        expected = fixed(probe, *sync.reset(seed=7))
        sync.close()
    fix = "refuse shared memory for this space"
    require_equal(shared, expected, "with shared memory and without,", fix)
    return "shared memory works"


def _short_episodes(env: Env) -> gym.Wrapper[Any, Any, Any, Any]:
    return RecordEpisodeStatistics(TimeLimit(env, max_episode_steps=2))


def check_autoreset(env_id: str, **make_kwargs: Any) -> str:
    """The final observation and the episode's statistics are where Gymnasium documents them."""
    with made(env_id, **make_kwargs) as bare:
        env = _short_episodes(bare)
        _, info = env.reset(seed=3)
        action = pick_action(env, info, np.random.default_rng(1))
        if any(env.step(action)[2:4]):
            raise NotApplicable("the first action ends the episode")
        final = env.step(action)
        next_first = env.reset()
        for mode in (gym.vector.AutoresetMode.NEXT_STEP, gym.vector.AutoresetMode.SAME_STEP):
            vector = gym.make_vec(
                vector_id(env_id),
                num_envs=1,
                vectorization_mode="sync",
                vector_kwargs={"autoreset_mode": mode},
                wrappers=[_short_episodes],
                **make_kwargs,
            )
            _check_mode(env, vector, action, final, next_first)
            vector.close()
    return "next_step and same_step"


def _check_mode(
    env: Env, vector: Any, action: Any, final: tuple[Any, ...], next_first: tuple[Any, ...]
) -> None:
    mode = vector.metadata["autoreset_mode"]
    name, fix = f"{mode.value} autoreset", "leave autoreset to the vector env; never reset in step"
    vector.reset(seed=3)
    batch = batch_of(vector.single_action_space, [action])
    vector.step(batch)
    observations, _, terminations, truncations, infos = vector.step(batch)
    ended = bool(terminations[0] or truncations[0])
    require(ended, f"no end at the limit with {name}", "truncation", fix)
    if mode == gym.vector.AutoresetMode.NEXT_STEP:
        last, last_info = observations_of(vector, observations)[0], info_of(infos, 0)
        observations, _, _, _, after = vector.step(batch)
        require("task" in after, f"{name}: no task after it", "info of the reset", fix)
    else:
        last, last_info = infos["final_obs"][0], info_of(infos["final_info"], 0)
        after = infos
    a, b = fixed(env, last, last_info), fixed(env, final[0], _without_time(final[4], last_info))
    require_equal(a, b, f"{name}: last observation and info", fix)
    first = observations_of(vector, observations)[0]
    if deterministic(env):
        require_equal(describe(first), describe(next_first[0]), f"{name}: next episodes", fix)
    length = int(last_info["episode"]["l"])
    require(length == 2, f"{name}: episode length {length}", "2", fix)
    require("success" in last_info, f"{name}: no success in the last info", "it there", fix)


def _without_time(info: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The info with the other's statistics, which hold how long the episode took."""
    return {**info, "episode": other["episode"]}


def check_group_reset(env_id: str, **make_kwargs: Any) -> str:
    """A group of envs that are reset to one task start equally, whatever their seeds."""
    n = 4
    with made(env_id, **make_kwargs) as env:
        task = sample_tasks(env, world_env(env).split, 2)[-1]
        vector = gym.make_vec(
            vector_id(env_id), num_envs=n, vectorization_mode="sync", **make_kwargs
        )
        observations, infos = vector.reset(seed=0, options={"task": task.id})
        vector.close()
        ids = [t.id for t in infos["task"]]
        fix = "start from the task alone: the seed may decide noise later, not the start"
        require(ids == [task.id] * n, f"tasks {ids}", f"{n} times {task.id!r}", fix)
        rows = [
            fixed(env, first, info_of(infos, i))
            for i, first in enumerate(observations_of(vector, observations))
        ]
    for i in range(1, n):
        require_equal(rows[0], rows[i], f"first results of envs 0 and {i} of a group", fix)
    return f"{n} envs on {task.id}"
