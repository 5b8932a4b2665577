"""WorldEnv: the base of every world, real or dream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.env_state import ActT, Branching, StatefulEnv, observation_digest
from dyna_gym.errors import (
    ConfigError,
    TaskTypeError,
    UnknownTask,
)
from dyna_gym.outcome import (
    Judgement,
    ObsT,
    Outcome,
    ReplayLog,
    Snapshot,
    copied,
    own_keys,
    plain_data,
)
from dyna_gym.spaces import blank
from dyna_gym.task import SPLITS, Task, find_task
from dyna_gym.world import World

__all__ = [
    "Branching",
    "Judgement",
    "Outcome",
    "ReplayLog",
    "Snapshot",
    "WorldEnv",
    "observation_digest",
]

RESET_OPTIONS = ("task", "state", "history")


class WorldEnv(StatefulEnv[ObsT, ActT]):
    """A Gymnasium env with tasks, a fixed set of info keys and copyable states.

    A world implements `_start`, `_apply`, `_admissible` and, if ``branching == "snapshot"``,
    `_get_state` and `_set_state`. This class picks the task, keeps the abstract state, fills ``info``,
    and sees to it that nothing which an agent can write raises and that failing machinery is never scored.

    ``info`` always has ``task`` (`Task`), ``state`` (str: the abstract state, see `World`),
    ``admissible_actions`` (tuple of str, or None where the set is unbounded; empty after termination),
    ``invalid_reason`` (str or None), ``success`` (bool) and ``score`` (float in [0, 1]); where the world
    shows pictures ``image`` (uint8 [height, width, 3]); after a failure of the machinery also ``error``
    and ``error_code`` (str), with ``truncated=True`` and reward 0. A world adds keys of its own with
    `Outcome.extras`.

    Args:
        world: The world's rules and texts.
        split: Which tasks to draw from: `train`, `eval_id` or `eval_ood`.
        tasks: Tasks to draw from instead of the whole split: ids, numbers in the split, or Tasks.
        max_steps: Step budget that overrides the tasks' own; see `TaskTimeLimit`.
        render_mode: One of ``metadata["render_modes"]`` or None.
        retries: How often failing machinery is tried again before the episode is given up.
        backoff_s: Seconds before the first of these tries; doubled before each further one.
    """

    nondeterministic: bool = False
    """Whether equal seeds may give unequal episodes (a live site, an endpoint); also of the instance."""
    observes_state: bool = False
    """Whether observations are abstract states already, as in a dream."""
    starts_anywhere: bool = False
    """Whether ``reset(options={"task", "state", "history"})`` can start in the middle of an episode."""
    picture: str | None = None
    """Key of the part of a `Dict` observation that is a picture for the agent."""

    def __init__(
        self,
        world: World,
        *,
        split: str = "train",
        tasks: Sequence[str | int | Task] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
        retries: int = 2,
        backoff_s: float = 0.5,
    ) -> None:
        if split not in SPLITS:
            raise ConfigError(f"split: got {split!r}, expected one of {', '.join(SPLITS)}")
        if max_steps is not None:
            max_steps = _whole("max_steps", max_steps, 1, " or None")
        modes = self.metadata.get("render_modes", [])
        if render_mode is not None and render_mode not in modes:
            raise ConfigError(f"render_mode: got {render_mode!r}, expected one of {modes} or None")
        self.world = world
        self.split = split
        self.max_steps = max_steps
        self.render_mode = render_mode
        self.retries = _whole("retries", retries, 0)
        self.backoff_s = _seconds("backoff_s", backoff_s)
        self._all_tasks = self.tasks = world.tasks(split)
        if len(self.tasks) == 0:
            raise ConfigError(f"world {world.name!r} has no tasks in split {split!r}")
        if tasks is not None:
            self.tasks = self._chosen(tasks)
        self.task: Task | None = None
        self.looking_ahead = 0
        """How many branches this env is in: what happens there is no part of the episode."""
        self._last: Outcome[ObsT] | None = None
        self._seen = ""  # the abstract state
        self._listed: tuple[str, ...] | None = None
        self._failure: tuple[str, str] | None = None  # message and code
        self._log: ReplayLog | None = None
        self._twin: gym.Env[Any, Any] | None = None

    # -- what a world implements ------------------------------------------------------------------

    @abstractmethod
    def _start(self, task: Task) -> ObsT | Outcome[ObsT]:
        """Set the world to the start of ``task``.

        Returns:
            The first observation, or an `Outcome` where there is more to say. May be called again if it
            raises `MachineryError`.
        """

    @abstractmethod
    def _apply(self, action: ActT) -> Outcome[ObsT]:
        """Take one action; a bad one changes nothing and has a reason.

        Raises:
            MachineryError: With ``retry=True`` only if nothing has changed, so that the action may be
                taken again without acting twice.
        """

    @abstractmethod
    def _admissible(self) -> tuple[str, ...] | None:
        """Admissible actions in the present state, or None where the set is unbounded."""

    def _finalize(self) -> Judgement | None:
        """Judge the episode now; None for worlds that judge as they go."""
        return None

    def _start_from(
        self, task: Task, state: str, history: Sequence[tuple[str, str]]
    ) -> ObsT | Outcome[ObsT]:
        """Set a world with ``starts_anywhere`` to an abstract state.

        Args:
            task: The task.
            state: The abstract state.
            history: (state, action) pairs that led to it, oldest first.
        """
        raise NotImplementedError

    # -- tasks ------------------------------------------------------------------------------------

    def _chosen(self, tasks: Any) -> tuple[Task, ...]:
        what = "a list of task ids, of numbers of tasks or of Tasks (for one task a list of one)"
        single = isinstance(tasks, (str, bytes, Task, Mapping)) or not hasattr(tasks, "__iter__")
        if single or not (given := list(tasks)):
            raise ConfigError(f"tasks: got {tasks!r}, expected {what}")
        try:
            return tuple(self.lookup_task(task) for task in given)
        except (UnknownTask, TaskTypeError) as error:
            raise ConfigError(f"tasks: {error}") from None

    def lookup_task(self, task: str | int | Task | Mapping[str, Any]) -> Task:
        """The task of that id in any split of this world, or of that number among ``tasks``.

        Raises:
            UnknownTask: There is no such task.
            TaskTypeError: It is neither an id, nor a whole number, nor a task.
        """
        if isinstance(task, Mapping):
            task = Task(**task)  # as the spec holds it
        if isinstance(task, Task):
            if task.world != self.world.name:
                raise UnknownTask(
                    f"got a task of world {task.world!r}, expected one of {self.world.name!r}"
                )
            return task
        if isinstance(task, (int, np.integer)) and not isinstance(task, bool):
            if not 0 <= task < len(self.tasks):
                raise UnknownTask(f"got task {task}, expected a number below {len(self.tasks)}")
            return self.tasks[int(task)]
        if not isinstance(task, str):
            raise TaskTypeError(
                f"got a task of type {type(task).__name__}, expected a Task, a task id (str) or the number "
                "of a task among env.unwrapped.tasks"
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

    @property
    def spec(self) -> Any:
        """How this env was made (`gymnasium.envs.registration.EnvSpec`), in data that JSON can hold."""
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        if spec is not None:
            spec.kwargs = plain_data(spec.kwargs)
            spec.nondeterministic |= self.nondeterministic  # Gymnasium asks the spec
        self._spec = spec

    _spec: Any = None

    # -- Gymnasium --------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the env's generator. Without ``options`` it also decides the task.
            options: ``{"task": Task | task_id | number}`` picks the task. Envs with ``starts_anywhere``
                also take ``state`` (an abstract state to start from) and ``history`` (the (state,
                action) pairs that led to it).

        Returns:
            The first observation and ``info``.
        """
        options = self._read_options(options)
        super().reset(seed=seed)
        task = options.get("task")
        if task is None:
            task = self.tasks[int(self.np_random.integers(len(self.tasks)))]
        self.task = chosen = task
        self._failure, self.looking_ahead = None, 0
        rng = self._rng_state()

        def start() -> ObsT | Outcome[ObsT]:
            self._set_rng_state(rng)  # as an attempt that failed left it otherwise
            if "state" in options:
                return self._start_from(chosen, options["state"], options["history"])
            return self._start(chosen)

        started = self._guarded(start)
        if self._failure is not None:
            started = Outcome(blank(self.observation_space))
        outcome = started if isinstance(started, Outcome) else Outcome(started)
        self._seen = ""
        self._take(outcome, None)  # type: ignore[arg-type]
        if self.branching == "replay":
            self._log = ReplayLog(rng, (), (observation_digest(outcome.observation),))
        return self.observe()

    def _read_options(self, options: Any) -> dict[str, Any]:
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(
                f"options: got {options!r}, expected a dict such as {{'task': ...}} or None"
            )
        options = dict(options or {})
        if "tasks" in options:
            raise ConfigError(
                "options: 'tasks' gives each env of a dyna_gym.vector.LockstepVectorEnv its own task; for one "
                "env use 'task'"
            )
        allowed = RESET_OPTIONS if self.starts_anywhere else RESET_OPTIONS[:1]
        unknown = sorted(str(k) for k in options.keys() - set(allowed))
        if unknown:
            expected = ", ".join(map(repr, allowed))
            raise ConfigError(f"options: got unknown keys {unknown}, expected only {expected}")
        if options.get("task") is not None:
            options["task"] = self.lookup_task(options["task"])
        elif "state" in options or "history" in options:
            raise ConfigError("options: 'state' and 'history' need the 'task' that they are of")
        if "history" in options and "state" not in options:
            raise ConfigError("options: 'history' needs the 'state' that it led to")
        if not isinstance(options.get("state", ""), str):
            raise ConfigError(f"options: got the state {options['state']!r}, expected a str")
        options["history"] = _pairs(options.get("history", ()))
        return options

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
        if self._failure is None:
            outcome = self._guarded(lambda: self._apply(action), repeatable=False)
            if outcome is not None:
                self._take(outcome, action)
                if self._log is not None:
                    digest = observation_digest(outcome.observation)
                    self._log = self._log._replace(
                        actions=(*self._log.actions, action), digests=(*self._log.digests, digest)
                    )
        if self._failure is not None:  # now or earlier, while the episode goes on or as it ended
            self._last = self._last._replace(reward=0.0, terminated=False, invalid_reason=None)
            observation, info = self.observe()
            return observation, 0.0, False, True, info
        last = self._last
        observation, info = self.observe()
        return observation, float(last.reward), last.terminated, last.truncated, info

    def _take(self, outcome: Outcome[ObsT], action: ActT | None) -> None:
        """Make an outcome the present one."""
        own_keys(outcome.extras)
        self._last = outcome
        if self._failure is not None:
            self._listed = None
            return
        observation = outcome.observation
        if self.observes_state:
            self._seen = str(observation)
        else:
            self._seen = self.world.abstract(self._seen or None, action, observation)
        if outcome.terminated:
            self._listed = ()
        else:
            self._listed = self._guarded(self._admissible)

    def observe(self) -> tuple[ObsT, dict[str, Any]]:
        """The present observation and ``info``, without acting. The caller may change both."""
        if self._last is None:
            raise gym.error.ResetNeeded("observe() before reset(): call env.reset() first")
        return copied(self._last.observation), self._info()

    def _info(self) -> dict[str, Any]:
        last = self._last
        assert last is not None
        info: dict[str, Any] = {
            **copied(dict(last.extras)),
            "task": self.task,
            "state": self._seen,
            "admissible_actions": None if self._failure else self._listed,
            "invalid_reason": last.invalid_reason,
            "success": bool(last.success),
            "score": float(last.score),
        }
        if self.picture is not None:
            info["image"] = last.observation[self.picture].copy()  # type: ignore[index]
        if self._failure is not None:
            info["error"], info["error_code"] = self._failure
        return info

    # -- machinery --------------------------------------------------------------------------------

    def finalize(self) -> Judgement | None:
        """Judge the episode now, for worlds that are judged at the end; called by `TaskTimeLimit`.

        Returns:
            The judgement, which ``info`` then has, too; None where there is nothing to judge: in a branch,
            after a failure, and in worlds that judge as they go. A judge that fails is a failure of the
            machinery: ``info["error"]`` says so.
        """
        if self._last is None or self.looking_ahead or self._failure is not None:
            return None
        judgement = self._guarded(self._finalize)
        if judgement is not None:
            self._last = self._last._replace(
                success=judgement.success,
                score=judgement.score,
                extras={**self._last.extras, **own_keys(judgement.extras)},
            )
        return judgement


def _whole(name: str, value: Any, least: int, also: str = "") -> int:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(f"{name}: got {value!r}, expected a whole number >= {least}{also}")
    return int(value)


def _seconds(name: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.integer, np.floating))
    if not number or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ConfigError(f"{name}: got {value!r}, expected a number of seconds >= 0")
    return float(value)


def _pairs(history: Any) -> tuple[tuple[str, str], ...]:
    pairs = history if isinstance(history, (list, tuple)) else [history]
    for pair in pairs:
        right = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not (right and all(isinstance(text, str) for text in pair)):
            raise ConfigError(
                f"options: got {pair!r} in the history, expected (state, action) pairs"
            )
    return tuple((state, action) for state, action in pairs)
