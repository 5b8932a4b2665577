"""make_agent_env: the whole stack, from an id to prompts in and responses out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from dyna_gym.errors import ConfigError
from dyna_gym.wrappers.abstract_state import AbstractStateWrapper
from dyna_gym.wrappers.prompt import PromptWrapper
from dyna_gym.wrappers.reasoning_action import ReasoningActionWrapper
from dyna_gym.wrappers.resim_search import ReSimSearchWrapper
from dyna_gym.wrappers.rewards import OutcomeReward, SuccessReward
from dyna_gym.wrappers.settings import arguments, check_mapping, check_names, make_world_env
from dyna_gym.wrappers.sim_rollout import SimRolloutWrapper

LAYERS: dict[str, Callable[..., gym.Env[Any, Any]]] = {
    "plain": ReasoningActionWrapper,
    "sim_rollout": SimRolloutWrapper,
    "resim": ReSimSearchWrapper,
}
"""The response layers by name."""
REWARDS = ("outcome", "success", "native")


def make_agent_env(
    env_id: str,
    *,
    response: str = "plain",
    reward: str = "outcome",
    history: int = 2,
    style: str = "full",
    lookahead: dict[str, Any] | None = None,
    **settings: Any,
) -> gym.Env[str, str]:
    r"""An env that shows prompts and takes an agent's whole responses.

    The stack, inner to outer: world, `TaskTimeLimit`, reward, `AbstractStateWrapper`, one response layer,
    `PromptWrapper`.

    Args:
        env_id: A registered id of dyna_gym.
        response: The response layer: `plain` (`ReasoningActionWrapper`), `sim_rollout`
            (`SimRolloutWrapper`) or `resim` (`ReSimSearchWrapper`).
        reward: `outcome` (Dyna-Mind's), `success` (DreamGym's) or `native` (the world's own).
        history: Past steps in the prompt, at most.
        style: `full` or `compact`; see `dyna_gym.prompts`.
        lookahead: Arguments of the response layer, such as ``{"max_depth": 5}``.
        settings: Arguments of the world, passed to `gymnasium.make`.

    Raises:
        ConfigError: There is no such id, layer, reward or argument.

    Examples:
        >>> import dyna_gym
        >>> env = dyna_gym.make_agent_env("DynaGym-Sokoban-v0", response="sim_rollout")
        >>> prompt, info = env.reset(seed=0)
        >>> draft = "<plan>\nup\nleft\n</plan><action>up</action>"
        >>> prompt, reward, *_, info = env.step(draft)
        >>> info["phase"], len(info["futures"]), reward
        ('refine', 2, 0.0)
    """
    if not isinstance(response, str) or response not in LAYERS:
        raise ConfigError(f"response: got {response!r}, expected one of {', '.join(LAYERS)}")
    if reward not in REWARDS:
        raise ConfigError(f"reward: got {reward!r}, expected one of {', '.join(REWARDS)}")
    lookahead = check_mapping("lookahead", lookahead)
    if response == "plain" and lookahead:
        raise ConfigError(
            f"lookahead: got {sorted(lookahead)}, but response='plain' looks at nothing"
        )
    layer = LAYERS[response]
    check_names("lookahead", lookahead, (arguments(layer) or [])[1:])  # the first is the env
    env = make_world_env("env_id", env_id, settings, disable_env_checker=True)
    if reward == "outcome":
        env = OutcomeReward(env)
    elif reward == "success":
        env = SuccessReward(env)
    env = AbstractStateWrapper(env)
    return PromptWrapper(layer(env, **lookahead), history=history, style=style)
