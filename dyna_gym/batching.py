"""Many stacks side by side: one call of each engine for all that their next steps will ask.

Envs without an engine are stepped one after another, as without this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import StickyAction

from dyna_gym.errors import MachineryError
from dyna_gym.model_env import Engine, ModelEnv

Env = gym.Env[Any, Any]


def step_all(envs: Sequence[Env], actions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Step each env with its action; engines are asked once for all."""
    prepare(envs, actions)
    return [env.step(action) for env, action in zip(envs, actions, strict=True)]


def prepare(envs: Sequence[Env], actions: Sequence[Any]) -> None:
    """Get all that the coming steps will ask of engines, in one call of each engine.

    Args:
        envs: Stacks that are about to be stepped.
        actions: What each will be stepped with: responses, indices or world actions.
    """
    from dyna_gym.simulation import look_ahead  # which steps envs itself

    drafts, asked = [], []
    for env, action in zip(envs, actions, strict=True):
        layer = next((x for x in layers(env) if getattr(x, "drafting", False)), None)
        if layer is not None:
            drafts.append((layer, action))
        elif isinstance(env.unwrapped, ModelEnv):
            asked.append((env.unwrapped, env.unwrapped.request(world_action(env, action))))
    ask(asked)
    if drafts:
        look_ahead([layer for layer, _ in drafts], [text for _, text in drafts])


def ask(asked: Sequence[tuple[ModelEnv[Any, Any], Any | None]]) -> None:
    """Get the replies to requests, which may be None, and give each env its own.

    Args:
        asked: (env, request); an env may stand in several pairs.
    """
    by_engine: dict[Engine, list[tuple[ModelEnv[Any, Any], Any]]] = {}
    for env, request in asked:
        env.expect(())
        if request is not None:
            by_engine.setdefault(env.engine, []).append((env, request))
    found: dict[int, list[tuple[Any, Any]]] = {}
    for engine, pairs in by_engine.items():
        try:
            replies = engine.reply([request for _, request in pairs])
        except MachineryError as error:
            replies = [error] * len(pairs)
        for (env, request), reply in zip(pairs, replies, strict=True):
            found.setdefault(id(env), []).append((request, reply))
    for env, _ in asked:
        env.expect(found.get(id(env), ()))


def world_action(env: Env, action: Any) -> Any:
    """What reaches the env at the bottom when the stack is stepped with ``action``.

    A layer that changes actions says so with ``passes_on``; one that does not say it (of third parties)
    (or draws lots, such as `StickyAction`) only costs the env a call of its own.
    """
    for layer in layers(env):
        passes_on = getattr(layer, "passes_on", None)
        if passes_on is not None:
            action = passes_on(action)
        elif isinstance(layer, gym.ActionWrapper) and not isinstance(layer, StickyAction):
            action = layer.action(action)
    return action


def layers(env: Env) -> Iterator[Any]:
    """The wrappers of a stack, outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
