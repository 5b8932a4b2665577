"""WorldEnv: the base of every world, real or dream."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from dyna_gym.errors import (
    BranchError,
    ConfigError,
    MachineryError,
    ReplayDiverged,
    StateMismatch,
    UnknownTask,
)
from dyna_gym.task import SPLITS, Task, find_task
from dyna_gym.world import World

ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")
T = TypeVar("T")
Branching = Literal["snapshot", "replay", "none"]


class Outcome(NamedTuple, Generic[ObsT]):
    """What a world says about one action."""

    observation: ObsT
    reward: float = 0.0
    terminated: bool = False
    success: bool = False
    score: float = 0.0
    """The world's own score of the episode so far, in [0, 1]."""
    invalid_reason: str | None = None


class Judgement(NamedTuple):
    """What `WorldEnv.finalize` says about an episode that is judged at its end."""

    reward: float
    success: bool
    score: float


class Snapshot(NamedTuple):
    """Everything that decides how an episode of a `WorldEnv` goes on."""

    fingerprint: str
    """Which world and configuration the state belongs to."""
    task: Task
    state: Any
    """The world's own state (or, for replay worlds, the actions that lead to it)."""
    rng: dict[str, Any]
    status: tuple[Any, ...]
    """Last outcome and flags of the episode."""


class ReplayLog(NamedTuple):
    """State of a world that cannot copy itself: how it was reached."""

    rng: dict[str, Any]
    """State of the random generator before the episode started."""
    actions: tuple[Any, ...]
    digests: tuple[str, ...]
    """Digest of the first observation and of the one after each action."""


class WorldEnv(gym.Env[ObsT, ActT]):
    """A Gymnasium env with tasks, a fixed set of info keys and copyable states.

    A world implements `_start`, `_apply` and, if ``branching == "snapshot"``, `_get_state` and
    `_set_state`. This class picks the task, fills ``info``, and sees to it that nothing which an agent
    can write raises and that failing machinery is never scored.

    ``info`` always has ``task`` (`Task`), ``admissible_actions`` (tuple of str, or None where the set
    is unbounded), ``invalid_reason`` (str or None), ``success`` (bool) and ``score`` (float in [0, 1]);
    after a failure of the machinery also ``error`` (str), with ``truncated=True`` and reward 0.

    Args:
        world: The world's rules and texts.
        split: Which tasks to draw from: `train`, `eval_id` or `eval_ood`.
        tasks: Task ids (or Tasks) to draw from instead of the whole split.
        max_steps: Step budget that overrides the tasks' own; see `TaskTimeLimit`.
        render_mode: One of ``metadata["render_modes"]`` or None.
        retries: How often failing machinery is tried again before the episode is given up.
    """

    branching: ClassVar[Branching] = "none"
    nondeterministic: ClassVar[bool] = False

    def __init__(
        self,
        world: World,
        *,
        split: str = "train",
        tasks: Sequence[str | Task] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
        retries: int = 2,
    ) -> None:
        if split not in SPLITS:
            raise ConfigError(f"split: got {split!r}, expected one of {', '.join(SPLITS)}")
        if max_steps is not None and (not isinstance(max_steps, int) or max_steps < 1):
            raise ConfigError(f"max_steps: got {max_steps!r}, expected a whole number >= 1 or None")
        modes = self.metadata.get("render_modes", [])
        if render_mode is not None and render_mode not in modes:
            raise ConfigError(f"render_mode: got {render_mode!r}, expected one of {modes} or None")
        self.world = world
        self.split = split
        self.max_steps = max_steps
        self.render_mode = render_mode
        self.retries = retries
        self._all_tasks = world.tasks(split)
        self.tasks: Sequence[Task] = (
            self._all_tasks if tasks is None else tuple(self.lookup_task(t) for t in tasks)
        )
        if len(self.tasks) == 0:
            raise ConfigError(f"world {world.name!r} has no tasks in split {split!r}")
        self.task: Task | None = None
        self._last: Outcome[ObsT] | None = None
        self._error: str | None = None
        self._log: ReplayLog | None = None
        self._twin: gym.Env[Any, Any] | None = None

    # -- what a world implements ------------------------------------------------------------------

    @abstractmethod
    def _start(self, task: Task) -> ObsT:
        """Set the world to the start of ``task`` and return the first observation."""

    @abstractmethod
    def _apply(self, action: ActT) -> Outcome[ObsT]:
        """Take one action; a bad one changes nothing and has a reason. Raises only `MachineryError`."""

    @abstractmethod
    def _admissible(self) -> tuple[str, ...] | None:
        """Admissible actions in the present state, or None where the set is unbounded."""

    def _get_state(self) -> Any:
        """An immutable copy of the world's state."""
        raise NotImplementedError

    def _set_state(self, state: Any) -> None:
        """Inverse of `_get_state`."""
        raise NotImplementedError

    def _config(self) -> dict[str, Any]:
        """JSON-able settings that decide what actions do; part of the fingerprint."""
        return {}

    def finalize(self) -> Judgement | None:
        """Judge the episode now; None for worlds that judge as they go."""
        return None

    # -- tasks ------------------------------------------------------------------------------------

    def lookup_task(self, task: str | Task) -> Task:
        """The task of that id in any split of this world.

        Raises:
            UnknownTask: There is no such task.
        """
        if isinstance(task, Task):
            if task.world != self.world.name:
                raise UnknownTask(
                    f"got a task of world {task.world!r}, expected one of {self.world.name!r}"
                )
            return task
        if not isinstance(task, str):
            raise UnknownTask(
                f"got a task of type {type(task).__name__}, expected a Task or a task id (str)"
            )
        for split in (self.split, *(s for s in SPLITS if s != self.split)):
            tasks = self._all_tasks if split == self.split else self.world.tasks(split)
            found = find_task(tasks, task)
            if found is not None:
                return found
        raise UnknownTask(
            f"no task {task!r} in world {self.world.name!r}; ids look like {self._all_tasks[0].id!r} "
            "(see env.unwrapped.tasks)"
        )

    def step_budget(self) -> int | None:
        """Steps that the current episode may take: the env's setting, else the task's, else None."""
        if self.max_steps is not None:
            return self.max_steps
        return None if self.task is None else self.task.params.get("max_steps")

    # -- Gymnasium --------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the env's generator. Without ``options`` it also decides the task.
            options: ``{"task": Task | task_id}`` picks the task.

        Returns:
            The first observation and ``info``.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        task = options.pop("task", None)
        if options:
            raise ConfigError(f"options: got unknown keys {sorted(options)}, expected only 'task'")
        if task is not None:
            self.task = self.lookup_task(task)
        else:
            self.task = self.tasks[int(self.np_random.integers(len(self.tasks)))]
        self._error = None
        rng = self._rng_state()
        chosen = self.task
        started = self._guarded(lambda: self._start(chosen))
        observation = self._blank() if started is None else started
        self._last = Outcome(observation)
        if self.branching == "replay":
            self._log = ReplayLog(rng, (), (observation_digest(observation),))
        return observation, self._info()

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Take one action; see the class for ``info`` and for what failing machinery does.

        Raises:
            gymnasium.error.ResetNeeded: The episode has ended, or none was started.
        """
        if self._last is None or self.task is None:
            raise gym.error.ResetNeeded("step() before reset(): call env.reset() first")
        if self._last.terminated:
            raise gym.error.ResetNeeded(
                "the episode has terminated: call env.reset() before step()"
            )
        outcome = None
        if self._error is None:
            outcome = self._guarded(lambda: self._apply(action))
        if outcome is None:  # the machinery failed, now or at reset
            self._last = self._last._replace(reward=0.0, invalid_reason=None)
            return self._last.observation, 0.0, False, True, self._info()
        self._last = outcome
        if self._log is not None:
            digest = observation_digest(outcome.observation)
            self._log = self._log._replace(
                actions=(*self._log.actions, action), digests=(*self._log.digests, digest)
            )
        return outcome.observation, float(outcome.reward), outcome.terminated, False, self._info()

    def observe(self) -> tuple[ObsT, dict[str, Any]]:
        """The present observation and ``info``, without acting."""
        if self._last is None:
            raise gym.error.ResetNeeded("observe() before reset(): call env.reset() first")
        return self._last.observation, self._info()

    def _info(self) -> dict[str, Any]:
        assert self._last is not None
        info: dict[str, Any] = {
            "task": self.task,
            "admissible_actions": None if self._error else self._admissible(),
            "invalid_reason": self._last.invalid_reason,
            "success": bool(self._last.success),
            "score": float(self._last.score),
        }
        if self._error is not None:
            info["error"] = self._error
        return info

    def _blank(self) -> ObsT:
        """An observation that stands in where the machinery gave none."""
        space = self.observation_space
        return "" if space.contains("") else space.sample()  # type: ignore[return-value]

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """Run a hook of the world, again if the machinery fails; None once it is given up."""
        for attempt in range(self.retries + 1):
            try:
                return call()
            except MachineryError as error:
                if attempt == self.retries:
                    self._error = f"{type(error).__name__}: {error}"
        return None

    # -- copying ----------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """Equal for two envs exactly when a snapshot of one means the same in the other."""
        config = {"class": type(self).__qualname__, "world": self.world.name, **self._config()}
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]

    def clone_state(self) -> Snapshot:
        """A snapshot from which this env, or another of equal fingerprint, can go on exactly.

        Raises:
            BranchError: The world cannot be copied (``branching == "none"``).
        """
        if self.task is None:
            raise gym.error.ResetNeeded("clone_state() before reset(): call env.reset() first")
        if self.branching == "none":
            raise BranchError(
                f"{type(self).__name__} cannot be branched: its actions have effects outside the env"
            )
        state = self._log if self.branching == "replay" else self._get_state()
        return Snapshot(
            self.fingerprint(), self.task, state, self._rng_state(), (self._last, self._error)
        )

    def restore_state(self, snapshot: Snapshot) -> None:
        """Go on from ``snapshot``.

        Raises:
            StateMismatch: The snapshot is of another world or configuration.
            ReplayDiverged: Re-running the actions showed other observations than when recorded.
        """
        if not isinstance(snapshot, Snapshot):
            raise StateMismatch(
                f"got {type(snapshot).__name__}, expected what clone_state() returned"
            )
        if snapshot.fingerprint != self.fingerprint():
            raise StateMismatch(
                f"the snapshot has fingerprint {snapshot.fingerprint}, this env {self.fingerprint()}: "
                "make both envs with the same id and settings"
            )
        self.task = snapshot.task
        failure = None
        if self.branching == "replay":
            if self._guarded(lambda: self._replay(snapshot.state)) is None:
                failure = self._error  # the next step says so
        else:
            self._set_state(snapshot.state)
        self.np_random.bit_generator.state = snapshot.rng
        self._last, self._error = snapshot.status
        self._error = failure or self._error

    def _replay(self, log: ReplayLog) -> bool:
        assert self.task is not None
        self.np_random.bit_generator.state = log.rng
        observation = self._start(self.task)
        for i, digest in enumerate(log.digests):
            if observation_digest(observation) != digest:
                raise ReplayDiverged(
                    f"task {self.task.id}: observation {i} of {len(log.actions)} differs from the "
                    "recorded one; the world is not deterministic and cannot be branched"
                )
            if i < len(log.actions):
                observation = self._apply(log.actions[i]).observation
        self._log = log
        return True

    def _rng_state(self) -> dict[str, Any]:
        # A copy: NumPy builds the dict anew at each access, but its arrays may be shared.
        state: dict[str, Any] = dict(self.np_random.bit_generator.state)
        return {k: dict(v) if isinstance(v, dict) else v for k, v in state.items()}

    def close(self) -> None:
        """Release the second instance that a replay world uses for branches, if there is one."""
        if self._twin is not None:
            self._twin.close()
            self._twin = None
        super().close()


def observation_digest(observation: Any) -> str:
    """A short hash of an observation, equal in every process."""
    if isinstance(observation, np.ndarray):
        data = observation.tobytes() + str(observation.shape).encode()
    else:
        data = repr(observation).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:16]
