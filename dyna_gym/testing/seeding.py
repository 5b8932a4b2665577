"""Checks of seeds, tasks and determinism."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from dyna_gym.errors import UnknownTask
from dyna_gym.testing.common import require, require_equal, short
from dyna_gym.testing.playing import (
    fixed,
    made,
    pick_action,
    play,
    require_deterministic,
    sample_tasks,
    world_env,
)
from dyna_gym.testing.rollout import rollouts_elsewhere

SEEDS = (0, 1, 7)
_ONLY_NP_RANDOM = "draw only from self.np_random (no global RNG, hash(), set order or clock)"


def check_gymnasium(env_id: str, **make_kwargs: Any) -> str:
    """Gymnasium's own ``check_env`` passes, without warnings."""
    with made(env_id, **make_kwargs) as env, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    told = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    require(not told, f"warnings of check_env: {told}", "none", "follow what they say")
    return "check_env passes without warnings"


def check_two_processes(env_id: str, **make_kwargs: Any) -> str:
    """Fifty steps of several seeds are equal in two processes with other PYTHONHASHSEEDs."""
    with made(env_id, **make_kwargs) as env:
        require_deterministic(env)
        spec = env.spec
    assert spec is not None
    first, second = (rollouts_elsewhere(spec, SEEDS, 50, hash_seed) for hash_seed in (1, 2))
    for seed, a, b in zip(SEEDS, first, second, strict=True):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            require_equal(x, y, f"two processes, seed {seed}, row {i},", _ONLY_NP_RANDOM)
    return f"seeds {SEEDS}, 50 steps each, PYTHONHASHSEED 1 and 2"


def check_same_seed(env_id: str, **make_kwargs: Any) -> str:
    """The same seed twice gives the same first observation and task; other seeds other tasks."""
    with made(env_id, **make_kwargs) as env:
        for seed in SEEDS:
            first, second = (fixed(env, *env.reset(seed=seed)) for _ in range(2))
            fix = "call super().reset(seed=seed) first and start from the task alone"
            require_equal(first, second, f"two resets with seed {seed}", fix)
        drawn = {env.reset(seed=seed)[1]["task"].id for seed in range(20)}
        many = len(world_env(env).tasks)
        require(
            len(drawn) > 1 or many == 1,
            f"task {drawn} for 20 seeds, of {many} tasks",
            "the seed to decide the task",
            "pass `seed` on to super().reset()",
        )
    return f"20 seeds draw {len(drawn)} tasks"


def check_unseeded_reset(env_id: str, **make_kwargs: Any) -> str:
    """``reset(seed)`` and then two resets without seed are equal in two instances."""
    with made(env_id, **make_kwargs) as one, made(env_id, **make_kwargs) as two:
        for name, seed in (("the seeded", 5), ("the first unseeded", None), ("the second", None)):
            a, b = (fixed(env, *env.reset(seed=seed)) for env in (one, two))
            require_equal(a, b, f"two instances, {name} reset,", _ONLY_NP_RANDOM)
    return "a seed fixes the resets after it, too"


def check_task_option(env_id: str, **make_kwargs: Any) -> str:
    """``options={"task": ...}`` picks the task by id and by Task, and refuses unknown ones."""
    fix = 'pick the task with options["task"], as WorldEnv.reset does'
    with made(env_id, **make_kwargs) as env:
        tasks = sample_tasks(env, world_env(env).split, 3)
        for task in tasks:
            by_id = env.reset(seed=1, options={"task": task.id})
            by_task = env.reset(seed=2, options={"task": task})
            for _, info in (by_id, by_task):
                got = info["task"]
                require(got == task, f"the task {short(got.id)}", f"{task.id!r}", fix)
            what = f"task {task.id} picked by id and as Task"
            require_equal(fixed(env, *by_id), fixed(env, *by_task), what, fix)
        try:
            env.reset(options={"task": "no such task"})
        except UnknownTask:
            return f"{len(tasks)} tasks by id and as Task"
        got = env.reset(options={"task": "no such task"})[1]["task"].id
        require(False, f"the task {got!r} for an unknown id", "UnknownTask", fix)
    raise AssertionError("unreachable")


def check_global_rng(env_id: str, **make_kwargs: Any) -> str:
    """Making, resetting and stepping leave ``random`` and ``np.random`` as they were."""

    def states() -> tuple[str, str]:
        return repr(random.getstate()), repr(np.random.get_state())  # noqa: NPY002

    before = states()
    with made(env_id, **make_kwargs) as env:
        rng = np.random.default_rng(0)
        _, info = env.reset(seed=0)
        for _ in range(5):
            _, _, terminated, truncated, info = env.step(pick_action(env, info, rng))
            if terminated or truncated:
                _, info = env.reset()
    for name, a, b in zip(("random", "np.random"), before, states(), strict=True):
        require(
            a == b, f"another state of {name}", "the global generators untouched", _ONLY_NP_RANDOM
        )
    return "random and np.random untouched"


def check_repeatable(env_id: str, **make_kwargs: Any) -> str:
    """Two instances in one process play equally, whatever was played before."""
    with made(env_id, **make_kwargs) as one, made(env_id, **make_kwargs) as two:
        require_deterministic(one)
        play(two, 99, 5)  # leftovers of an episode must not show
        for seed in SEEDS:
            a, b = play(one, seed, 30), play(two, seed, 30)
            require_equal(a, b, f"two instances, seed {seed},", "reset all state in _start")
    return f"seeds {SEEDS}, 30 steps each, in two instances"
