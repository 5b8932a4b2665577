"""make_agent_env: the whole stack, from an id to prompts in and responses out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.errors import ConfigError
from dyna_gym.wrappers.abstract_state import AbstractStateWrapper
from dyna_gym.wrappers.prompt import PromptWrapper
from dyna_gym.wrappers.reasoning_action import ReasoningActionWrapper
from dyna_gym.wrappers.resim_search import ReSimSearchWrapper
from dyna_gym.wrappers.rewards import OutcomeReward, SuccessReward
from dyna_gym.wrappers.sim_rollout import SimRolloutWrapper

RESPONSES = ("plain", "sim_rollout", "resim")
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

    Examples:
        >>> import dyna_gym
        >>> env = dyna_gym.make_agent_env("DynaGym-Sokoban-v0", response="sim_rollout")
        >>> prompt, info = env.reset(seed=0)
        >>> draft = "<plan>\nup\nleft\n</plan><action>up</action>"
        >>> prompt, reward, *_, info = env.step(draft)
        >>> info["phase"], len(info["futures"]), reward
        ('refine', 2, 0.0)
    """
    if response not in RESPONSES:
        raise ConfigError(f"response: got {response!r}, expected one of {', '.join(RESPONSES)}")
    if reward not in REWARDS:
        raise ConfigError(f"reward: got {reward!r}, expected one of {', '.join(REWARDS)}")
    lookahead = dict(lookahead or {})
    if response == "plain" and lookahead:
        raise ConfigError(
            f"lookahead: got {sorted(lookahead)}, but response='plain' looks at nothing"
        )
    env: gym.Env[Any, Any] = gym.make(env_id, disable_env_checker=True, **settings)
    if reward == "outcome":
        env = OutcomeReward(env)
    elif reward == "success":
        env = SuccessReward(env)
    env = AbstractStateWrapper(env)
    if response == "plain":
        env = ReasoningActionWrapper(env)
    elif response == "sim_rollout":
        env = SimRolloutWrapper(env, **lookahead)
    else:
        env = ReSimSearchWrapper(env, **lookahead)
    return PromptWrapper(env, history=history, style=style)
