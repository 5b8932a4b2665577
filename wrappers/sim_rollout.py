"""SimRolloutWrapper: try the plan in the real env, then answer again (Dyna-Mind, Algorithm 2)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from dyna_gym.branching import branch, check_branchable
from dyna_gym.errors import ConfigError, MachineryError
from dyna_gym.responses import ParsedResponse, parse_response
from dyna_gym.simulation import run_actions
from dyna_gym.spaces import UnicodeText
from dyna_gym.wrappers.abstract_state import AbstractStateWrapper
from dyna_gym.wrappers.base import LayerWrapper, whole_number
from dyna_gym.wrappers.reasoning_action import MAX_RESPONSE, execute_response


class SimRolloutWrapper(LayerWrapper):
    """Two phases a step: a draft whose plan is tried in a branch, then the response that counts.

    In phase ``draft`` a response comes in; its plan runs in a branch of the real env, nothing is
    executed, and the next ``info`` has the true futures. In phase ``refine`` a second response comes
    in and its action is executed. Drafts pay nothing, count for nothing below and never end an
    episode; wrappers *outside* this one see each of them as a step of reward 0, so put `TimeLimit`,
    reward and statistics wrappers inside. A draft whose plan cannot be read still leads to a refine
    phase; a draft with an action but no plan is taken as a plan of one step.

    Adds to ``info``, besides what `ReasoningActionWrapper` adds: ``phase`` (of the *next* response),
    ``futures`` (tuple of ``(action, state)``; states as the layer below observes them),
    ``draft`` (its text), ``plan_reason`` (why there are no futures, or None), ``lookahead_steps``
    (env steps taken in the branch).

    Args:
        env: The layers below, which take world actions and can be branched.
        max_depth: Longest plan that is tried; the paper caps it at 5.
        simulator: Id of another env with the same tasks (a dream) in which to look ahead instead.

    Raises:
        BranchError: The env below cannot be branched and no simulator is named.

    Examples:
        Dropped into a plain loop, with a policy that knows nothing:

        >>> import gymnasium as gym, dyna_gym
        >>> from dyna_gym.policies import RandomPolicy
        >>> env = SimRolloutWrapper(gym.make("DynaGym-Sokoban-v0"))
        >>> policy = RandomPolicy(seed=0, plan_length=3)
        >>> observation, info = env.reset(seed=0)
        >>> terminated = truncated = False
        >>> while not (terminated or truncated):
        ...     response = policy.act([observation], [info])[0]
        ...     observation, reward, terminated, truncated, info = env.step(response.text)
        >>> info["phase"]
        'draft'
    """

    _changing = ("_draft", "_observation", "_info", "_executed")

    def __init__(
        self, env: gym.Env[Any, Any], max_depth: int = 5, simulator: str | None = None
    ) -> None:
        whole_number("max_depth", max_depth, 1)
        super().__init__(env, max_depth=max_depth, simulator=simulator)
        self.action_space = UnicodeText(MAX_RESPONSE)
        self._max_depth = max_depth
        self._simulator = None if simulator is None else _simulator(simulator, env)
        if self._simulator is None:
            check_branchable(env)
        elif self._simulator.unwrapped.world.name != self.world.name:  # type: ignore[attr-defined]
            raise ConfigError(
                f"simulator: {simulator!r} is not of the world {self.world.name!r}, so its states "
                "and tasks would not be those of this env"
            )
        self._draft: str | None = None  # None: the next response is a draft
        self._observation: Any = None
        self._info: dict[str, Any] = {}
        self._executed: tuple[str, ...] = ()

    @property
    def world_layers(self) -> gym.Env[Any, Any]:
        """The env below, which takes world actions."""
        return self.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in phase ``draft``."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._executed = ()
        info = {**info, "observation": observation, "action": None, "notes": ()}
        return observation, self._await_draft(observation, info)

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a draft or a refined response, whichever is due."""
        parsed = parse_response(action)
        if self._draft is None:
            return self._look_ahead(action, parsed)
        observation, reward, terminated, truncated, info = execute_response(self, parsed)
        self._executed += (parsed.action or "",)
        info = self._await_draft(observation, info)
        return observation, reward, terminated, truncated, info

    def _await_draft(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        self._draft, self._observation, self._info = None, observation, info
        return self._with_lookahead("draft")

    def _with_lookahead(
        self,
        phase: str,
        futures: tuple[tuple[str, Any], ...] = (),
        plan_reason: str | None = None,
    ) -> dict[str, Any]:
        return {
            **self._info,
            "phase": phase,
            "futures": futures,
            "draft": self._draft,
            "plan_reason": plan_reason,
            "lookahead_steps": len(futures),
        }

    def _look_ahead(
        self, text: str, parsed: ParsedResponse
    ) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._draft = text if isinstance(text, str) else ""
        plan = parsed.plan or ((parsed.action,) if parsed.action else ())
        plan = plan[: self._max_depth]
        try:
            if self._simulator is None:
                with branch(self.env, rng="fresh") as env:
                    futures = run_actions(env, plan)
            else:
                self._simulator.reset(seed=0, options={"task": self._info["task"]})
                run_actions(self._simulator, self._executed)
                futures = run_actions(self._simulator, plan)
        except MachineryError as error:
            # Half a future would be taken for the whole one: the episode is given up, not scored.
            info = {**self._with_lookahead("draft"), "error": str(error)}
            return self._observation, 0.0, False, True, info
        info = self._with_lookahead("refine", futures, parsed.plan_reason)
        return self._observation, 0.0, False, False, info

    def close(self) -> None:
        """Close the env and the simulator."""
        if self._simulator is not None:
            self._simulator.close()
        super().close()


def _simulator(env_id: str, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The env to look ahead in, observing what the layer below observes."""
    simulator: gym.Env[Any, Any] = gym.make(env_id)
    layer = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, AbstractStateWrapper):
            return AbstractStateWrapper(simulator)
        layer = layer.env
    return simulator
