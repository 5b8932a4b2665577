"""PromptWrapper: structured info below becomes the prompt above."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Dict, Space

from dyna_gym.env import WorldEnv
from dyna_gym.errors import ConfigError
from dyna_gym.prompts import STYLES, aggregate_prompt, plain_prompt, refine_prompt
from dyna_gym.spaces import UnicodeText
from dyna_gym.wrappers.base import LayerWrapper, whole_number, world_env_of


class PromptWrapper(LayerWrapper):
    """Turn the state, the last ``history`` steps and what a lookahead found into one prompt.

    Sits on a response layer. Below `SimRolloutWrapper`'s refine phase the prompt holds the true
    futures, and ``info["plain_prompt"]`` the prompt without them; below `ReSimSearchWrapper` it holds
    the search tree. Where the world shows pictures, the observation is a dict of ``prompt`` and ``image``,
    which `dyna_gym.policies.as_messages` turns into one message.

    Args:
        env: A response layer.
        history: How many past (state, action) pairs are shown, at most (h of the papers).
        style: `full` for instruction-tuned models, `compact` for small models from scratch.

    Examples:
        >>> import dyna_gym
        >>> env = dyna_gym.make_agent_env("DynaGym-Sokoban-v0", history=0)
        >>> prompt, info = env.reset(seed=0)
        >>> "Admissible actions: up, down, left, right" in prompt
        True
    """

    _changing = ("_past", "_steps", "_state", "_shown")

    def __init__(self, env: gym.Env[Any, Any], history: int = 2, style: str = "full") -> None:
        whole_number("history", history, 0)
        if style not in STYLES:
            raise ConfigError(f"style: got {style!r}, expected one of {', '.join(STYLES)}")
        world_env_of(type(self).__name__, env)
        if not env.has_wrapper_attr("world_layers"):
            raise ConfigError(
                f"PromptWrapper wraps {env}, expected a response layer (ReasoningActionWrapper, "
                "SimRolloutWrapper or ReSimSearchWrapper) below"
            )
        super().__init__(env, history=history, style=style)
        prompts = UnicodeText(1_000_000)
        self._picture: Space[Any] | None = _picture_space(self.world_env)
        self.observation_space = (
            prompts if self._picture is None else Dict(prompt=prompts, image=self._picture)
        )
        self._history, self._style = history, style
        self._past: tuple[tuple[str, str], ...] = ()
        self._steps = 0
        self._state = ""
        self._shown: tuple[Any, dict[str, Any]] = ("", {})

    def present(self) -> tuple[Any, dict[str, Any]]:
        """The observation and ``info`` that were last returned, without acting."""
        prompt, info = self._shown
        return prompt, dict(info)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode with an empty history."""
        _, info = self.env.reset(seed=seed, options=options)
        self._past, self._steps, self._state = (), 0, info["state"]
        return self._prompt(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and write the next prompt."""
        _, reward, terminated, truncated, info = self.env.step(action)
        if info.get("phase") != "refine":  # a draft is no step of the episode
            written = info["action"] or f"(invalid: {info['invalid_reason']})"
            self._past = (*self._past, (self._state, written))[-self._history :]
            self._past = self._past if self._history else ()
            self._steps += 1
            self._state = info["state"]
        prompt, info = self._prompt(info)
        return prompt, reward, terminated, truncated, info

    def _prompt(self, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        prompt = plain = ""
        if not info.get("error") or self._state:  # else it failed at reset: nothing to show
            prompt, plain = self._write(info)
        shown: Any = prompt
        if self._picture is not None:
            shown = {"prompt": prompt, "image": info["image"]}
        self._shown = shown, {**info, "plain_prompt": plain}
        return self.present()

    def _write(self, info: dict[str, Any]) -> tuple[str, str]:
        """The prompt, and the prompt without what a lookahead found."""
        task = info["task"]
        plain = plain_prompt(
            self.world,
            task.instruction,
            self._state,
            self._past,
            self._steps,
            info["admissible_actions"],
            self._style,
        )
        prompt = plain
        if info.get("phase") == "refine":
            prompt = refine_prompt(self.world, plain, info["draft"], info["futures"], self._style)
        elif info.get("search") is not None:
            prompt = aggregate_prompt(
                self.world, plain, info["search"].shown_as_dicts(), self._style
            )
        return prompt, plain


def _picture_space(env: WorldEnv[Any, Any]) -> Space[Any] | None:
    if env.picture is None:
        return None
    space = env.observation_space
    if not isinstance(space, Dict) or env.picture not in space.spaces:
        raise ConfigError(
            f"{type(env).__name__}.picture: got {env.picture!r}, expected a key of its Dict observation space"
        )
    return space.spaces[env.picture]
