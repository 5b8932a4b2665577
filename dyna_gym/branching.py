"""Copying and branching a whole stack: the env and every wrapper below the caller.

`clone` and `restore` copy the state of all layers, `branch` is a context manager inside which one may
step freely. Each layer must know how to copy itself: our wrappers have ``clone_layer`` and
``restore_layer``, Gymnasium's own have an adapter here, and `register_adapter` adds more. A layer
that records or accumulates in some other way raises `BranchError`, by name, instead of being left
silently wrong.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from gymnasium import wrappers as gw

from dyna_gym.env import Snapshot, WorldEnv
from dyna_gym.errors import BranchError, ConfigError, StateMismatch

Env = gym.Env[Any, Any]
Clone = Callable[[Any], Any]
Restore = Callable[[Any, Any], None]


class StackState(NamedTuple):
    """State of a stack, outermost layer first."""

    layers: tuple[tuple[str, Any], ...]
    """Class name and own state of each wrapper."""
    base: Snapshot


def _attributes(*names: str) -> tuple[Clone, Restore]:
    def clone(layer: Any) -> Any:
        return tuple(getattr(layer, name, None) for name in names)

    def restore(layer: Any, state: Any) -> None:
        for name, value in zip(names, state, strict=True):
            setattr(layer, name, value)

    return clone, restore


# The queues are the wrapper's own and changed in place, so they are copied.
_COUNTERS = ("episode_count", "episode_start_time", "episode_returns", "episode_lengths")
_QUEUES = ("time_queue", "return_queue", "length_queue")


def _clone_statistics(layer: Any) -> Any:
    return (
        {name: getattr(layer, name) for name in _COUNTERS},
        {name: tuple(getattr(layer, name)) for name in _QUEUES},
    )


def _restore_statistics(layer: Any, state: Any) -> None:
    counters, queues = state
    for name, value in counters.items():
        setattr(layer, name, value)
    for name, items in queues.items():
        queue = getattr(layer, name)
        queue.clear()
        queue.extend(items)


_ADAPTERS: dict[type, tuple[Clone, Restore]] = {
    gw.TimeLimit: _attributes("_elapsed_steps"),
    gw.OrderEnforcing: _attributes("_has_reset"),
    gw.RecordEpisodeStatistics: (_clone_statistics, _restore_statistics),
    gw.PassiveEnvChecker: _attributes(
        "checked_reset", "checked_step", "checked_render", "checked_data_reuse", "_previous_data"
    ),
    # These hold no state; the functions that users give them must not either.
    gw.TransformObservation: _attributes(),
    gw.TransformReward: _attributes(),
    gw.TransformAction: _attributes(),
}


def register_adapter(wrapper: type[gym.Wrapper[Any, Any, Any, Any]], *attributes: str) -> None:
    """Tell how to copy a third-party wrapper.

    Args:
        wrapper: The exact class; subclasses need an entry of their own, as they may hold more.
        attributes: Names of the attributes that change while stepping. Their values are not copied,
            only put back, so they must not be mutated in place.
    """
    _ADAPTERS[wrapper] = _attributes(*attributes)


def _layers(env: Env) -> Iterator[Any]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _adapter(layer: Any) -> tuple[Clone, Restore]:
    if callable(getattr(layer, "clone_layer", None)):
        return (lambda x: x.clone_layer()), (lambda x, state: x.restore_layer(state))
    found = _ADAPTERS.get(type(layer))
    if found is None:
        raise BranchError(
            f"the wrapper {type(layer).__name__} cannot be branched: it may record what happens in a "
            "branch. Put it outside the lookahead wrapper, or tell how to copy it with "
            "dyna_gym.branching.register_adapter"
        )
    return found


def check_branchable(env: Env) -> None:
    """Raise now what `branch` would raise later.

    Raises:
        BranchError: A wrapper has no way to be copied, or the world has ``branching == "none"``.
    """
    for layer in _layers(env):
        _adapter(layer)
    base = env.unwrapped
    if not isinstance(base, WorldEnv):
        raise BranchError(
            f"{type(base).__name__} is not a dyna_gym.env.WorldEnv: it has no snapshots"
        )
    if base.branching == "none":
        raise BranchError(
            f"{type(base).__name__} cannot be branched: its actions have effects outside the env. "
            'Look ahead in a dream instead: SimRolloutWrapper(env, simulator="DreamGym-...")'
        )


def clone(env: Env) -> StackState:
    """Copy the state of all layers, counters and random generator included.

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
    layers = tuple((type(x).__name__, _adapter(x)[0](x)) for x in _layers(env))
    base = env.unwrapped
    if not isinstance(base, WorldEnv):
        raise BranchError(
            f"{type(base).__name__} is not a dyna_gym.env.WorldEnv: it has no snapshots"
        )
    return StackState(layers, base.clone_state())


def restore(env: Env, state: StackState) -> None:
    """Put all layers back to ``state``, which may come from another instance of the same stack.

    Raises:
        StateMismatch: The stack has other layers, or the world another configuration.
    """
    layers = list(_layers(env))
    names, expected = [type(x).__name__ for x in layers], [name for name, _ in state.layers]
    if names != expected:
        raise StateMismatch(f"the state is of the layers {expected}, this env has {names}")
    base = env.unwrapped
    assert isinstance(base, WorldEnv)
    base.restore_state(state.base)
    for layer, (_, own) in zip(layers, state.layers, strict=True):
        _adapter(layer)[1](layer, own)


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
    base = env.unwrapped
    assert isinstance(base, WorldEnv)
    replay = base.branching == "replay"
    target = _second_instance(env, base) if replay else env
    if replay:
        restore(target, saved)
    try:
        if rng == "fresh":
            target.unwrapped.np_random.bit_generator.state = fresh_rng(saved, stream).base.rng
        yield target
    finally:
        if not replay:
            restore(env, saved)


def fresh_rng(state: StackState, stream: int) -> StackState:
    """The same state with other randomness to come: equal for equal ``stream``."""
    # Depends on the state of the generator but is no continuation of it.
    key = hashlib.sha256(repr((state.base.rng, stream)).encode()).digest()
    rng = {**state.base.rng, "has_uint32": 0, "uinteger": 0}
    words = {"state": int.from_bytes(key[:16], "big"), "inc": int.from_bytes(key[16:], "big") | 1}
    return state._replace(base=state.base._replace(rng={**rng, "state": words}))


def _second_instance(env: Env, base: WorldEnv[Any, Any]) -> Env:
    """The twin in which a replay world looks ahead; made once for each env."""
    names = [type(x).__name__ for x in _layers(env)]
    if base._twin is None or [type(x).__name__ for x in _layers(base._twin)] != names:
        if base._twin is not None:  # of another part of the stack
            base._twin.close()
        base._twin = _made_again(env)
        base._twin.reset(seed=0)
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
        again: Env = type(env)(_made_again(below), **env._saved_kwargs)
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
