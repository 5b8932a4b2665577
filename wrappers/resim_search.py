"""ReSimSearchWrapper: search the real env before every answer (Dyna-Mind, Algorithm 3)."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from dyna_gym.branching import check_branchable
from dyna_gym.errors import ConfigError
from dyna_gym.policies import make_policy
from dyna_gym.search import FOLLOW, SearchTree, resim
from dyna_gym.spaces import UnicodeText
from dyna_gym.values import make_value
from dyna_gym.wrappers.base import LayerWrapper, whole_number, world_env_of
from dyna_gym.wrappers.prompt import PromptWrapper
from dyna_gym.wrappers.reasoning_action import MAX_RESPONSE, ReasoningActionWrapper


class ReSimSearchWrapper(LayerWrapper):
    """From each state, take real rollouts in branches and show the best and some others.

    The response that comes in is executed as by `ReasoningActionWrapper`; what was found stands in
    ``info["search"]`` (`dyna_gym.search.SearchTree`) before it, for an aggregator to write the response
    from. Its case of many envs, with one call of the proposer for all, is `dyna_gym.search.resim`.

    Args:
        env: The layers below, which take world actions and can be branched.
        proposer: Who writes the rollouts: ``random``, ``expert`` or a folder of a saved policy.
        value: Who values their ends: ``oracle`` (the world's exact value, labelled as such in
            reports), ``none`` (all 0, only success counts) or a folder of a saved value model.
        breadth: Rollouts a state (b; the paper's is [NF]).
        depth: Longest rollout (d; the paper's is [NF]).
        keep: Rollouts shown (b_train; the paper's is [NF]).
        search: Only ``dfs``, the paper's.
        follow: `step` or `plan`; see `dyna_gym.search.resim`.
        history: History of the proposer's prompts.
        style: Style of the proposer's prompts.
        seed: Seed of the proposer and of which others are shown.

    Raises:
        BranchError: The env below cannot be branched.
    """

    _changing = ("_tree",)
    _fixed = ("_below", "_proposer", "_value", "_settings", "_recorded", "_rng")

    def __init__(
        self,
        env: gym.Env[Any, Any],
        proposer: str = "random",
        value: str = "oracle",
        breadth: int = 4,
        depth: int = 4,
        keep: int = 2,
        search: str = "dfs",
        follow: str = "step",
        history: int = 0,
        style: str = "compact",
        seed: int = 0,
    ) -> None:
        for name, number in (("breadth", breadth), ("depth", depth), ("keep", keep)):
            whole_number(name, number, 1)
        whole_number("seed", seed, 0)
        for name, given in (("proposer", proposer), ("value", value)):
            if not isinstance(given, str):
                raise ConfigError(f"{name}: got {given!r}, expected a name or a folder (str)")
        if search != "dfs":
            raise ConfigError(f"search: got {search!r}, expected 'dfs'")
        if follow not in FOLLOW:
            raise ConfigError(f"follow: got {follow!r}, expected one of {', '.join(FOLLOW)}")
        world_env_of(type(self).__name__, env, text=True)
        check_branchable(env)
        # The proposer acts in an agent env of its own over the same layers below, so its prompts have the
        # history that it knows; it is also what executes the response.
        agent = PromptWrapper(ReasoningActionWrapper(env), history=history, style=style)
        self._below = env
        self._recorded = {
            "proposer": proposer,
            "value": value,
            "breadth": breadth,
            "depth": depth,
            "keep": keep,
            "search": search,
            "follow": follow,
            "history": history,
            "style": style,
            "seed": seed,
        }
        super().__init__(agent, **self._recorded)
        self.observation_space = env.observation_space
        self.action_space = UnicodeText(MAX_RESPONSE)
        self._proposer = make_policy(proposer, world=self.world, envs=[env], seed=seed)
        oracle = getattr(self.unwrapped, "oracle", None)
        self._value = make_value(value, self.world, oracle)
        self._settings: dict[str, Any] = {
            "breadth": breadth,
            "depth": depth,
            "keep": keep,
            "follow": follow,
        }
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._tree: SearchTree | None = None

    def _more_state(self) -> Any:
        return self._rng.bit_generator.state, self._proposer.clone_rng()

    def _set_more_state(self, state: Any) -> None:
        self._rng.bit_generator.state, proposer = state
        self._proposer.restore_rng(proposer)

    @property
    def world_layers(self) -> gym.Env[Any, Any]:
        """The env below, which takes world actions."""
        return self._below

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The spec without the inner layers, which the constructor makes by itself."""
        below = self._below.spec
        if below is None:
            return None
        spec = copy.deepcopy(below)
        entry_point = f"{type(self).__module__}:{type(self).__name__}"
        own = WrapperSpec(type(self).__name__, entry_point, kwargs=dict(self._recorded))
        spec.additional_wrappers += (own,)
        return spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and search its first state."""
        if seed is not None:
            self._rng = np.random.default_rng([self._seed, seed])
            self._proposer.seed(seed)
        _, info = self.env.reset(seed=seed, options=options)
        return info["observation"], self._searched(info, ended=bool(info.get("error")))

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Execute the response and search the next state."""
        _, reward, terminated, truncated, info = self.env.step(action)
        info = self._searched(info, ended=terminated or truncated)
        if info.get("error") and not terminated:
            reward, truncated = 0.0, True
        return info["observation"], reward, terminated, truncated, info

    def _searched(self, info: dict[str, Any], ended: bool) -> dict[str, Any]:
        self._tree = None
        if not ended:
            trees = resim([self.env], self._proposer, self._value, rng=self._rng, **self._settings)
            self._tree = trees[0]
        steps = self._tree.env_steps if self._tree else 0
        found = {**info, "search": self._tree, "lookahead_steps": steps}
        if self._tree is not None and self._tree.error:
            found["error"] = self._tree.error
        return found
