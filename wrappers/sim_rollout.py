"""SimRolloutWrapper: try the plan in the real env, then answer again (Dyna-Mind, Algorithm 2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from dyna_gym.branching import branch, check_branchable
from dyna_gym.env import WorldEnv
from dyna_gym.errors import ConfigError, MachineryError
from dyna_gym.responses import parse_response
from dyna_gym.simulation import Ahead, Tried, look_ahead
from dyna_gym.spaces import UnicodeText
from dyna_gym.wrappers.base import LayerWrapper, whole_number, world_env_of
from dyna_gym.wrappers.reasoning_action import MAX_RESPONSE, execute_response
from dyna_gym.wrappers.settings import check_mapping, make_world_env
from dyna_gym.wrappers.time_limit import remaining_steps


class SimRolloutWrapper(LayerWrapper):
    """Two phases a step: a draft whose plan is tried in a branch, then the response that counts.

    In phase ``draft`` a response comes in; its plan runs in a branch of the real env, nothing is
    executed, and the next ``info`` has the true futures. In phase ``refine`` a second response comes
    in and its action is executed. Drafts pay nothing, count for nothing below and never end an
    episode; wrappers *outside* this one see each of them as a step of reward 0, so put `TimeLimit`,
    reward and statistics wrappers inside. A draft whose plan cannot be read still leads to a refine
    phase; a draft with an action but no plan is taken as a plan of one step.

    Adds to ``info``, besides what `ReasoningActionWrapper` adds: ``phase`` (of the *next* response),
    ``futures`` (tuple of ``(action, abstract state)``), ``draft`` (its text), ``plan_reason`` (why there
    are no futures, or None), ``lookahead_steps`` (env steps taken to see them).

    Where the env cannot be branched, another env of the same world (a dream) looks ahead. It is set to
    the present abstract state and history where it can start there (``starts_anywhere``); any other gets
    there by the actions that were executed, whose steps are counted, and tells nothing
    (``plan_reason`` `simulator_diverged`) if it arrives somewhere else. Its own step budget does not
    count: the real env's does.

    Args:
        env: The layers below, which take world actions and can be branched.
        max_depth: Longest plan that is tried; the paper caps it at 5.
        simulator: Id of another env with the same tasks (a dream) in which to look ahead instead.
        simulator_settings: Arguments of ``gymnasium.make`` for it.

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

    _changing = ("_draft", "_observation", "_info", "_past", "_foreseen")
    _fixed = ("_simulator",)  # set anew whenever it is looked ahead in

    def __init__(
        self,
        env: gym.Env[Any, Any],
        max_depth: int = 5,
        simulator: str | None = None,
        simulator_settings: Mapping[str, Any] | None = None,
    ) -> None:
        whole_number("max_depth", max_depth, 1)
        world_env_of(type(self).__name__, env, text=True)
        simulator_settings = check_mapping("simulator_settings", simulator_settings)
        super().__init__(
            env, max_depth=max_depth, simulator=simulator, simulator_settings=simulator_settings
        )
        self.action_space = UnicodeText(MAX_RESPONSE)
        self._max_depth = max_depth
        self._simulator = self._make_simulator(simulator, simulator_settings)
        if self._simulator is None:
            check_branchable(env)
        self._draft: str | None = None  # None: the next response is a draft
        self._observation: Any = None
        self._info: dict[str, Any] = {}
        self._past: tuple[tuple[str, str], ...] = ()  # (state, action) of the steps so far
        self._foreseen: tuple[Any, Tried] | None = None

    def _make_simulator(
        self, env_id: str | None, settings: dict[str, Any]
    ) -> WorldEnv[Any, Any] | None:
        if env_id is None:
            if settings:
                raise ConfigError("simulator_settings: there is no simulator that they could be of")
            return None
        # Without its step budget, which is not that of the episode.
        simulator = make_world_env("simulator", env_id, settings).unwrapped
        assert isinstance(simulator, WorldEnv)
        if simulator.world.name != self.world.name:
            raise ConfigError(
                f"simulator: {env_id!r} is not of the world {self.world.name!r}, so its states "
                "and tasks would not be those of this env"
            )
        return simulator

    @property
    def world_layers(self) -> gym.Env[Any, Any]:
        """The env below, which takes world actions."""
        return self.env

    @property
    def drafting(self) -> bool:
        """Whether the next response is a draft."""
        return self._draft is None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in phase ``draft``."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._past, self._foreseen = (), None
        info = {**info, "observation": observation, "action": None, "notes": ()}
        return observation, self._await_draft(observation, info)

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a draft or a refined response, whichever is due."""
        if self._draft is None:
            return self._take_draft(action)
        parsed = parse_response(action)
        state = self._info["state"]
        observation, reward, terminated, truncated, info = execute_response(self, parsed)
        self._past += ((state, parsed.action or ""),)
        info = self._await_draft(observation, info)
        return observation, reward, terminated, truncated, info

    def passes_on(self, response: Any) -> str:
        """The world action that a refined response leads to."""
        return parse_response(response).action or ""

    def _await_draft(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        self._draft, self._observation, self._info = None, observation, info
        return self._with_lookahead("draft", Tried(), None)

    def _with_lookahead(self, phase: str, tried: Tried, plan_reason: str | None) -> dict[str, Any]:
        return {
            **self._info,
            "phase": phase,
            "futures": tried.futures,
            "draft": self._draft,
            "plan_reason": plan_reason,
            "lookahead_steps": tried.steps,
        }

    def _take_draft(self, text: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._foreseen is None or self._foreseen[0] != text:
            look_ahead([self], [text])
        assert self._foreseen is not None
        tried, self._foreseen = self._foreseen[1], None
        if tried.error is not None:
            # Half a future would be taken for the whole one: the episode is given up, not scored.
            info = self._with_lookahead("draft", tried._replace(futures=()), None)
            info |= {"error": str(tried.error), "error_code": tried.error.code}
            return self._observation, 0.0, False, True, info
        self._draft = text if isinstance(text, str) else ""
        reason = tried.reason or parse_response(text).plan_reason
        info = self._with_lookahead("refine", tried, reason)
        return self._observation, 0.0, False, False, info

    # -- looking ahead (`dyna_gym.simulation.LookaheadLayer`) -------------------------------------

    def plan(self, response: Any) -> tuple[str, ...]:
        """World actions that a draft plans, at most ``max_depth``."""
        parsed = parse_response(response)
        plan = parsed.plan or ((parsed.action,) if parsed.action else ())
        return plan[: self._max_depth]

    def foresee(self, response: Any, tried: Tried) -> None:
        """Have at hand what trying the draft showed."""
        self._foreseen = response, tried

    @contextmanager
    def ahead(self) -> Iterator[Ahead]:
        """An env in the present state, in which a plan can be tried."""
        if self._simulator is None:
            with branch(self.env, rng="fresh") as env:
                yield Ahead(env)
        else:
            yield self._simulated(self._simulator)

    def _simulated(self, simulator: WorldEnv[Any, Any]) -> Ahead:
        info, most = self._info, remaining_steps(self.env)
        # As many step numbers, as many streams; never the real env's own noise.
        key = f"{self.world_env.np_random.bit_generator.state}{len(self._past)}"
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4])
        options: dict[str, Any] = {"task": info["task"]}
        if simulator.starts_anywhere:
            options |= {"state": info["state"], "history": self._past}
            steps = 0
        else:
            steps = len(self._past)
        _, seen = simulator.reset(seed=seed, options=options)
        _raise_failure(seen)
        for _, action in self._past[:steps]:
            _, _, terminated, truncated, seen = simulator.step(action)
            _raise_failure(seen)
            if terminated or truncated:
                return Ahead(simulator, steps=steps, reason="simulator_ended")
        world = self.world
        if not world.same_state(world.digest(seen["state"]), world.digest(info["state"])):
            return Ahead(simulator, steps=steps, reason="simulator_diverged")
        return Ahead(simulator, most, steps)

    def close(self) -> None:
        """Close the env and the simulator."""
        if self._simulator is not None:
            self._simulator.close()
        super().close()


def _raise_failure(info: dict[str, Any]) -> None:
    if info.get("error"):
        raise MachineryError(info["error"], code=info["error_code"])
