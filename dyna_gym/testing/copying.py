"""Checks of clones, branches and copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import TimeLimit

from dyna_gym.branching import branch, clone, restore
from dyna_gym.errors import BranchError
from dyna_gym.testing.common import NotApplicable, describe, require, require_equal
from dyna_gym.testing.playing import Env, deterministic, go_on, made, pick_action, world_env

BEFORE, AFTER = 3, 8
"""Steps before the copy is taken, and the most after it."""
_FIX = (
    "return all of the state from _get_state(), as immutable values, and draw from np_random only"
)


def _started(env: Env, seed: int) -> list[Any]:
    """Take a few steps (on the first task that does not end by them); actions to go on with."""
    for attempt in range(20):
        rng = np.random.default_rng(seed + attempt)
        _, info = env.reset(seed=seed + attempt)
        ended = False
        for _ in range(BEFORE):
            _, _, terminated, truncated, info = env.step(pick_action(env, info, rng))
            ended = terminated or truncated
            if ended:
                break
        if not ended:
            return [pick_action(env, info, rng) for _ in range(AFTER)]
    raise NotApplicable(f"no episode is longer than {BEFORE} steps")


def _limited(env: Env) -> Env:
    # The limit falls into the steps after the copy, so that a counter that is not copied shows.
    return TimeLimit(env, max_episode_steps=BEFORE + AFTER - 2)


def _branchable(env: Env) -> None:
    if world_env(env).branching == "none":
        try:
            with branch(env):
                pass
        except BranchError:
            raise NotApplicable('branching = "none", and branch() says so') from None
        require(False, "a branch of an env with branching='none'", "BranchError", "raise it")


def _future(env: Env, actions: Sequence[Any]) -> list[Any]:
    """What the actions lead to, as far as it is decided: nothing of it in a nondeterministic world."""
    rows = go_on(env, actions)
    return rows if deterministic(env) else []


def _position(env: Env) -> Any:
    """What is seen, and where the env's generator stands."""
    return describe((world_env(env).observe(), world_env(env).np_random.bit_generator.state))


def check_clone(env_id: str, **make_kwargs: Any) -> str:
    """After clone and restore the same actions give the same, counters and randomness included."""
    with made(env_id, **make_kwargs) as bare:
        env = _limited(bare)
        env.reset(seed=3)
        _branchable(env)
        actions = _started(env, 3)
        saved = clone(env)
        seen = describe(world_env(env).observe())
        first = _future(env, actions)
        for length in (AFTER, 1, 2, AFTER):  # again: a snapshot must survive being restored
            restore(env, saved)
            now = describe(world_env(env).observe())
            require_equal(seen, now, "state and restored state", _FIX)
            rows = _future(env, actions[:length])
            require_equal(first[:length], rows, "the future and that of the clone", _FIX)
    return f"the state and {len(first)} steps after it are equal, five times"


def check_second_instance(env_id: str, **make_kwargs: Any) -> str:
    """A clone goes on identically in another instance of the same stack."""
    with made(env_id, **make_kwargs) as one, made(env_id, **make_kwargs) as two:
        env, other = _limited(one), _limited(two)
        env.reset(seed=4)
        _branchable(env)
        actions = _started(env, 4)
        other.reset(seed=11)
        restore(other, clone(env))
        here, there = (describe(world_env(x).observe()) for x in (env, other))
        require_equal(here, there, "the env and the second instance", _FIX)
        a, b = _future(env, actions), _future(other, actions)
        require_equal(a, b, "the env and the second instance", _FIX)
    return f"the state and {len(a)} steps after it are equal in a second instance"


def check_branch(env_id: str, **make_kwargs: Any) -> str:
    """Stepping in a branch leaves the env as it was, whichever randomness the branch has."""
    with made(env_id, **make_kwargs) as one, made(env_id, **make_kwargs) as two:
        env, control = _limited(one), _limited(two)
        env.reset(seed=5)
        _branchable(env)
        actions = _started(env, 5)
        _started(control, 5)
        for rng in ("same", "fresh"):
            before = _position(env)
            with branch(env, rng=rng) as below:
                go_on(below, actions[::-1])
            require_equal(before, _position(env), "before and after a branch", _FIX)
        with branch(env, rng="same") as below:
            ahead = _future(below, actions)
        a, b = _future(env, actions), _future(control, actions)
        require_equal(a, b, "an env that was branched and one that was not", _FIX)
        require_equal(ahead, a, 'a branch with rng="same" and what then happened', _FIX)
    return "branches leave no trace"


def _pickled(env: Env) -> Env:
    copied: Env = pickle.loads(pickle.dumps(env))
    return copied


_COPIES: dict[str, Callable[[Env], Env]] = {"deepcopy": copy.deepcopy, "pickle": _pickled}


def check_deepcopy_and_pickle(env_id: str, **make_kwargs: Any) -> str:
    """A deep copy and a pickled env go on from where the original is, not from the start."""
    done = []
    for name, copy_env in _COPIES.items():
        with made(env_id, **make_kwargs) as bare:
            env = _limited(bare)
            actions = _started(env, 6)
            try:
                other = copy_env(env)
            except Exception as error:
                handles = world_env(env).branching != "snapshot"
                if handles:  # a browser or a device cannot be copied this way
                    continue
                require(
                    False,
                    f"{name} raises {type(error).__name__}: {error}",
                    "a copy",
                    "hold no closures, locks or open files (and do not use EzPickle)",
                )
                raise
            fix = "do not use EzPickle: its copy is a new env that has not been reset"
            try:
                b = describe(world_env(other).observe())
            except ResetNeeded:
                require(False, f"a copy by {name} that was not reset", "the same state", fix)
            a = describe(world_env(env).observe())
            require_equal(a, b, f"the env and its copy by {name}", fix)
            one, two = _future(env, actions), _future(other, actions)
            require_equal(one, two, f"the env and its {name}", fix)
            done.append(name)
            other.close()
    if not done:
        raise NotApplicable("the env holds something outside Python; use clone() and restore()")
    return f"{' and '.join(done)} go on identically"
