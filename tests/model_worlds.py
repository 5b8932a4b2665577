"""Toy worlds that a model plays, registered as ``tests.worlds:DynaTest-...-v0``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dyna_gym.env import Outcome
from dyna_gym.errors import MachineryError
from dyna_gym.model_env import Engine, ModelEnv
from dyna_gym.registration import register_world
from dyna_gym.task import Task
from tests.counter import CounterEnv, read

CALLS: list[int] = []
"""How many requests each call of an engine in this process had."""


class Ask(NamedTuple):
    """A request."""

    n: int
    action: str
    step: int
    """How far ``inc`` goes: what the env drew for the engine."""


class CountingEngine(Engine):
    """Adds up; equal to any other engine of its settings, as one model on one device is.

    Args:
        refuses: Replies to requests with this action cannot be had.
        down: No reply can be had.
    """

    def __init__(self, refuses: str | None = None, down: bool = False) -> None:
        self.refuses, self.down = refuses, down

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountingEngine) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.refuses, self.down))

    def reply(self, requests: Sequence[Any]) -> list[Any]:
        CALLS.append(len(requests))
        if self.down:
            raise MachineryError("the engine is down", code="engine")
        return [self._one(ask) for ask in requests]

    def _one(self, ask: Ask) -> Any:
        if ask.action == self.refuses:
            return MachineryError(f"no reply to {ask.action!r}", code="engine")
        return ask.n + {"inc": ask.step, "dec": -1, "wait": 0}[ask.action]


class EngineEnv(ModelEnv[Any, Any], CounterEnv):
    """A counter that an engine counts; bad actions are refused without asking it."""

    def __init__(
        self, *, refuses: str | None = None, down: bool = False, noise: int = 1, **settings: Any
    ) -> None:
        CounterEnv.__init__(self, **settings)
        self.engine = CountingEngine(refuses, down)
        self.noise = noise

    def _config(self) -> dict[str, Any]:
        return {"noise": self.noise}

    def _request(self, action: Any, rng: np.random.Generator) -> Ask | None:
        parsed = self.world.parse_action(action)
        if parsed.action is None:
            return None
        return Ask(self.n, parsed.action, int(rng.integers(1, self.noise + 1)))

    def _receive(self, action: Any, reply: Any | None) -> Outcome[Any]:
        if reply is None:
            return self._outcome(self.world.parse_action(action).reason)
        self.n = reply
        return self._outcome(None)


class NoisyEngineEnv(EngineEnv):
    """With randomness that goes into the requests."""

    def __init__(self, *, noise: int = 2, **settings: Any) -> None:
        super().__init__(noise=noise, **settings)


class DreamEnv(NoisyEngineEnv):
    """Observes states as they are, and starts in any."""

    observes_state = True
    starts_anywhere = True

    def _start_from(self, task: Task, state: str, history: Any) -> str:
        self.n = read(state)[0]
        return str(self._observation())


for _env in (EngineEnv, NoisyEngineEnv, DreamEnv):
    _name = _env.__name__
    register_world(
        f"DynaTest-{_name.removesuffix('Env')}-v0", f"tests.model_worlds:{_name}", batched=True
    )
