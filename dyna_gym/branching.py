"""Copying and branching a whole stack: the env and every wrapper below the caller.

`clone` and `restore` copy the state of all layers, `branch` is a context manager inside which one may
step freely. How a layer is copied stands in `dyna_gym.layers`; our wrappers, Gymnasium's own (all but a
few, see `dyna_gym.adapters`) and what `register_adapter` adds can be. A layer that records or acts in some
other way raises `BranchError`, by name, instead of being left silently wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import gymnasium as gym

from dyna_gym.adapters import kind_of, register_adapter
from dyna_gym.env import Snapshot, WorldEnv
from dyna_gym.errors import (
    BranchError,
    ConfigError,
    MachineryError,
    ReplayDiverged,
    StateMismatch,
)
from dyna_gym.generators import fresh_state
from dyna_gym.layers import Copier, Kind, LayerState, with_fresh_noise
from dyna_gym.settings import differing

__all__ = [
    "StackState",
    "branch",
    "check_branchable",
    "clone",
    "fresh_rng",
    "lookahead",
    "register_adapter",
    "restore",
]

Env = gym.Env[Any, Any]


class StackState(NamedTuple):
    """State of a stack, outermost layer first."""

    layers: tuple[LayerState, ...]
    base: Snapshot


def _layers(env: Env) -> list[Any]:
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return layers


def _base(env: Env) -> WorldEnv[Any, Any]:
    base = env.unwrapped
    if not isinstance(base, WorldEnv):
        raise BranchError(
            f"{type(base).__name__} is not a dyna_gym.env.WorldEnv: it has no snapshots"
        )
    return base


def _saved(layers: list[Any], base: WorldEnv[Any, Any]) -> tuple[LayerState, ...]:
    copier = Copier(layers, base)
    return tuple([copier.save(layer, kind_of(layer)) for layer in layers])


def check_branchable(env: Env) -> None:
    """Raise now what `branch` would raise later.

    Raises:
        BranchError: A wrapper cannot be copied, or the world has ``branching == "none"``.
    """
    layers = _layers(env)
    for layer in layers:
        kind_of(layer)
    base = _base(env)
    if base.branching == "none":
        raise BranchError(
            f"{type(base).__name__} cannot be branched: its actions have effects outside the env. "
            'Look ahead in a dream instead: SimRolloutWrapper(env, simulator="DreamGym-...")'
        )
    _saved(layers, base)


def clone(env: Env) -> StackState:
    """Copy the state of all layers, counters and random generators included.

    Raises:
        BranchError: A layer cannot be copied.

    Examples:
        >>> import gymnasium as gym, dyna_gym
        >>> env = gym.make("DynaGym-Sokoban-v0")
        >>> _ = env.reset(seed=0)
        >>> saved = clone(env)
        >>> first = env.step("up")[0]
        >>> restore(env, saved)
        >>> env.step("up")[0] == first
        True
    """
    base = _base(env)
    layers = _saved(_layers(env), base)
    return StackState(layers, base.clone_state())


def restore(env: Env, state: StackState) -> None:
    """Put all layers back to ``state``, which may come from another instance of the same stack.

    Raises:
        StateMismatch: The stack has other layers or settings, or the world another configuration. Nothing
            has changed then.
        MachineryError: The machinery failed while the world was put back. The layers are put back all the
            same, and the next step truncates the episode with ``info["error"]``.
        ReplayDiverged: Likewise; re-running the actions showed other observations than when recorded.
    """
    layers, states = _layers(env), state.layers
    base = _base(env)
    kinds = [kind_of(layer) for layer in layers]
    _check_same(layers, kinds, states)
    try:
        base.restore_state(state.base)
    except StateMismatch:
        raise
    except BaseException as error:
        Copier(layers, base).load(states, kinds)
        if isinstance(error, (MachineryError, ReplayDiverged)):
            code = getattr(error, "code", "diverged")
            base.give_up(f"{type(error).__name__}: {error}", code)
        raise
    Copier(layers, base).load(states, kinds)


def _check_same(layers: list[Any], kinds: list[Kind], states: tuple[LayerState, ...]) -> None:
    if [kind.name for kind in kinds] != [state.name for state in states]:
        raise StateMismatch(
            f"the state is of the layers {[state.name for state in states]}, this env has "
            f"{[kind.name for kind in kinds]}"
        )
    for layer, state in zip(layers, states, strict=True):
        here, there = getattr(layer, "_saved_kwargs", {}), state.settings
        different = [] if here is there else differing(here, there)
        if different:
            theirs, ours = (
                ", ".join(f"{n}={s[n]!r}" for n in different if n in s) for s in (there, here)
            )
            raise StateMismatch(
                f"the state is of {state.name}({theirs}), this env has {state.name}({ours}), so the episode "
                "would go on otherwise: make both with the same settings"
            )


@contextmanager
def lookahead(env: Env) -> Iterator[None]:
    """Tell the env that what happens inside is no part of the episode: worlds do not judge it.

    `branch` does so by itself; this is for searches of `clone` and `restore`.
    """
    base = _base(env)
    before = base.looking_ahead
    base.looking_ahead = before + 1
    try:
        yield
    finally:
        base.looking_ahead = before  # whatever a reset inside has made of it


@contextmanager
def branch(env: Env, rng: Literal["same", "fresh"] = "same", stream: int = 0) -> Iterator[Env]:
    """Step freely inside; on leaving, all layers are as before.

    Args:
        env: The layers below the caller.
        rng: ``same`` goes on with the env's own randomness: the branch shows the very future that
            will come. ``fresh`` gives the branch its own, so that it does not reveal the future's
            noise.
        stream: Number of the branch; with ``fresh``, branches of the same state and number see the
            same noise.

    Yields:
        The env to step: ``env`` itself, or for replay worlds a second instance at the same state.
    """
    if rng not in ("same", "fresh"):
        raise ConfigError(f"rng: got {rng!r}, expected 'same' or 'fresh'")
    saved = clone(env)
    base = _base(env)
    replay = base.branching == "replay"
    target = _second_instance(env, base) if replay else env
    with lookahead(target):
        try:
            start = saved if rng == "same" else fresh_rng(saved, stream)
            if replay or start.layers is not saved.layers:
                restore(target, start)
            else:
                target.unwrapped.np_random.bit_generator.state = start.base.rng
            yield target
        finally:
            if not replay:
                restore(env, saved)


def fresh_rng(state: StackState, stream: int) -> StackState:
    """The same state with other randomness to come, in the world and in the layers.

    Args:
        state: State of a stack.
        stream: Number of what is made from it; equal for equal states and numbers.
    """
    base = state.base._replace(rng=fresh_state(state.base.rng, stream))
    return StackState(with_fresh_noise(state.layers, stream), base)


def _second_instance(env: Env, base: WorldEnv[Any, Any]) -> Env:
    """The twin in which a replay world looks ahead; made once for each env."""
    names = [type(x).__name__ for x in _layers(env)]
    if base._twin is None or [type(x).__name__ for x in _layers(base._twin)] != names:
        if base._twin is not None:  # of another part of the stack
            base._twin.close()
        base._twin = _made_again(env)
    return base._twin


def _made_again(env: Env) -> Env:
    """A second instance of a stack. Not from ``env.spec``, which forgets where a TimeLimit stands."""
    if isinstance(env, gym.Wrapper):
        if not isinstance(env, gym.utils.RecordConstructorArgs):
            raise BranchError(
                f"the wrapper {type(env).__name__} cannot be made a second time: let it derive from "
                "gymnasium.utils.RecordConstructorArgs"
            )
        # A response layer may put layers of its own between itself and the env that it was given.
        below: Env = getattr(env, "world_layers", env.env)
        settings = {k: v for k, v in env._saved_kwargs.items() if k != "env"}
        try:
            again: Env = type(env)(_made_again(below), **settings)
        except TypeError as error:
            raise BranchError(
                f"the wrapper {type(env).__name__} cannot be made a second time with the settings that it "
                f"recorded, {settings} ({error}): record all that its constructor needs"
            ) from error
        return again
    if env.spec is None:
        raise BranchError(
            f"{type(env).__name__} branches by replay in a second instance, which is made from its "
            "spec: make the env with gymnasium.make"
        )
    spec = copy.deepcopy(env.spec)
    spec.max_episode_steps, spec.additional_wrappers = None, ()
    spec.order_enforce, spec.disable_env_checker = False, True
    return gym.make(spec)
