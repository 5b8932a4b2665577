"""What lies under a `WorldEnv`: states that can be copied, and machinery that may fail."""

from __future__ import annotations

import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import gymnasium as gym
import numpy as np

from dyna_gym.errors import BranchError, MachineryError, ReplayDiverged, StateMismatch
from dyna_gym.generators import same_state, set_state
from dyna_gym.outcome import ObsT, Outcome, ReplayLog, Snapshot, copied
from dyna_gym.task import Task
from dyna_gym.world import World

ActT = TypeVar("ActT")
T = TypeVar("T")
Branching = Literal["snapshot", "replay", "none"]


class StatefulEnv(gym.Env[ObsT, ActT]):
    """An env whose episode can be copied and whose machinery may fail; the lower half of `WorldEnv`."""

    branching: Branching = "none"
    """How states are copied. An instance may say otherwise than its class."""

    world: World
    task: Task | None
    max_steps: int | None
    retries: int
    backoff_s: float
    _last: Outcome[ObsT] | None
    _seen: str  # the abstract state
    _listed: tuple[str, ...] | None
    _failure: tuple[str, str] | None  # message and code
    _log: ReplayLog | None = None
    _twin: gym.Env[Any, Any] | None = None
    _fingerprint: tuple[dict[str, Any], str] = {}, ""

    # -- what a world implements ------------------------------------------------------------------

    @abstractmethod
    def _start(self, task: Task) -> ObsT | Outcome[ObsT]:
        """Set the world to the start of a task; see `WorldEnv`."""

    @abstractmethod
    def _apply(self, action: ActT) -> Outcome[ObsT]:
        """Take one action; see `WorldEnv`."""

    def _get_state(self) -> Any:
        """An immutable copy of the world's state."""
        raise NotImplementedError

    def _set_state(self, state: Any) -> None:
        """Inverse of `_get_state`."""
        raise NotImplementedError

    def _config(self) -> dict[str, Any]:
        """JSON-able settings that decide what actions do; part of the fingerprint."""
        return {}

    # -- machinery --------------------------------------------------------------------------------

    def give_up(self, message: str, code: str = "machinery") -> None:
        """The machinery has failed: from the next step on the episode is truncated with ``info["error"]``."""
        self._failure = (message, code)

    def _guarded(self, call: Callable[[], T], *, repeatable: bool = True) -> T | None:
        """Run a hook of the world, again if the machinery fails and that does no harm.

        Returns:
            What the hook returned; None if it was given up, and then ``_failure`` says why.
        """
        for attempt in range(self.retries + 1):
            try:
                return call()
            except ReplayDiverged:
                raise
            except MachineryError as error:
                if attempt == self.retries or not (repeatable or error.retry):
                    self.give_up(f"{type(error).__name__}: {error}", error.code)
                    return None
                time.sleep(self.backoff_s * 2**attempt)
        return None

    # -- copying ----------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """Equal for two envs exactly when a snapshot of one means the same in the other."""
        config = {
            "class": type(self).__qualname__,
            "world": self.world.name,
            "max_steps": self.max_steps,
            **self._config(),
        }
        if config != self._fingerprint[0]:  # searches ask for it at every step
            text = json.dumps(config, sort_keys=True)
            self._fingerprint = copied(config), hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._fingerprint[1]

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
        status = (self._last, self._seen, self._listed, self._failure)
        return Snapshot(self.fingerprint(), self.task, state, self._rng_state(), status)

    def restore_state(self, snapshot: Snapshot) -> None:
        """Go on from ``snapshot``. If the machinery fails at that, the next step says so.

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
        self.task, self._failure = snapshot.task, None
        try:
            if self.branching == "replay":
                self._guarded(lambda: self._replay(snapshot.state, snapshot.rng))
            else:
                self._guarded(lambda: self._set_state(snapshot.state))
        finally:
            failure = self._failure
            self._set_rng_state(snapshot.rng)
            self._last, self._seen, self._listed, self._failure = snapshot.status
            self._failure = failure or self._failure

    def _replay(self, log: ReplayLog, rng: dict[str, Any]) -> None:
        assert self.task is not None
        reseeded = dict(log.reseeded)
        self._set_rng_state(log.rng)
        started = self._start(self.task)
        observation: Any = started.observation if isinstance(started, Outcome) else started
        for i, digest in enumerate(log.digests):
            if observation_digest(observation) != digest:
                self.give_up("the world is not where it was: its replay has diverged", "diverged")
                raise ReplayDiverged(
                    f"task {self.task.id}: observation {i} of {len(log.actions)} differs from the "
                    "recorded one; the world is not deterministic and cannot be branched"
                )
            if i in reseeded:
                self._set_rng_state(reseeded[i])
            if i < len(log.actions):
                observation = self._apply(log.actions[i]).observation
        if not same_state(self._rng_state(), rng):  # a branch with randomness of its own
            reseeded[len(log.actions)] = rng
        self._log = log._replace(reseeded=tuple(reseeded.items()))

    def _rng_state(self) -> dict[str, Any]:
        # A copy: NumPy builds the dict anew at each access, but its arrays may be shared.
        return copied(dict(self.np_random.bit_generator.state))

    def _set_rng_state(self, state: dict[str, Any]) -> None:
        generator = set_state(self.np_random, state)
        if generator is not self._np_random:  # another instance may have another kind of generator
            self.np_random = generator

    def close(self) -> None:
        """Release the second instance that a replay world uses for branches, if there is one."""
        if self._twin is not None:
            self._twin.close()
            self._twin = None
        super().close()


def observation_digest(observation: Any) -> str:
    """A short hash of an observation, equal in every process."""
    digest = hashlib.sha256()
    _feed(digest, observation)
    return digest.hexdigest()[:16]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(repr(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        digest.update(b"[")
        for item in value:
            _feed(digest, item)
        digest.update(b"]")
    else:
        digest.update(repr(value).encode("utf-8", "surrogatepass"))
