"""Worlds played by a model that break the contract, one way each: the checks must find them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dyna_gym.env import Outcome
from dyna_gym.model_env import Engine
from dyna_gym.registration import register_world
from tests.model_worlds import Ask, CountingEngine, EngineEnv, NoisyEngineEnv


class AsksWithOwnNoise(NoisyEngineEnv):
    """Draws from the env's generator, so that asking changes what comes."""

    def _request(self, action: Any, rng: np.random.Generator) -> Ask | None:
        return super()._request(action, self.np_random)


class AsksAnew(NoisyEngineEnv):
    """Numbers its requests: no two are equal, so no reply that is at hand fits."""

    numbers = itertools.count(10)

    def _request(self, action: Any, rng: np.random.Generator) -> Ask | None:
        ask = super()._request(action, rng)
        return ask and ask._replace(n=next(self.numbers))


class AsksOtherwise(NoisyEngineEnv):
    """The step asks something else than was told."""

    def _apply(self, action: Any) -> Outcome[Any]:
        request = self._request("wait", self.np_random)
        return self._receive(action, self._ask(request))


class UnequalEngines(EngineEnv):
    """Each env thinks that its model is another one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.engine = _Unequal()


class _Unequal(Engine):
    def reply(self, requests: Sequence[Any]) -> list[Any]:
        return CountingEngine().reply(requests)


class RemembersOthers(EngineEnv):
    """What comes back depends on what other envs have asked."""

    last = 0

    def _receive(self, action: Any, reply: Any | None) -> Outcome[Any]:
        if reply is not None:
            reply -= RemembersOthers.last % 2
            RemembersOthers.last += 1
        return super()._receive(action, reply)


class NotBatched(EngineEnv):
    """Is registered as a world that no model plays."""


for _name, _env in list(globals().items()):
    if isinstance(_env, type) and issubclass(_env, EngineEnv) and _env.__module__ == __name__:
        register_world(
            f"DynaBroken-{_name}-v0",
            f"tests.broken_models:{_name}",
            batched=_name != "NotBatched",
        )
