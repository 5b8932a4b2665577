"""Envs that break the contract, one way each: the checks must find them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from dyna_gym.env import Outcome
from dyna_gym.registration import register_world
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import Task
from dyna_gym.world import ParsedAction
from tests.counter import ACTIONS, CounterEnv, CounterOracle, CounterWorld
from tests.worlds import NoisyEnv


class IgnoresSeed(CounterEnv):  # COMPLAINTS 14
    made = 0

    def _start(self, task: Task) -> str:
        IgnoresSeed.made += 1
        self.n = -IgnoresSeed.made
        return self._observation()


class Hashes(CounterEnv):  # COMPLAINTS 15
    def _start(self, task: Task) -> str:
        self.n = -(hash(task.id) % 1_000)
        return self._observation()


class GlobalRandom(CounterEnv):  # COMPLAINTS 16
    def _start(self, task: Task) -> str:
        random.random()
        return super()._start(task)


class ForgetsState(NoisyEnv):  # COMPLAINTS 30
    def _set_state(self, state: Any) -> None:
        pass


class OwnRandom(NoisyEnv):  # COMPLAINTS 30: randomness that the snapshot does not hold
    def _apply(self, action: str) -> Outcome[str]:
        self.draws = getattr(self, "draws", 0) + 1
        self.n -= self.draws % 5
        return super()._apply(action)

    def _start(self, task: Task) -> str:
        self.draws = 0
        return super()._start(task)


class EzPickled(CounterEnv, gym.utils.EzPickle):  # COMPLAINTS 29
    def __init__(self, **settings: Any) -> None:
        gym.utils.EzPickle.__init__(self, **settings)
        CounterEnv.__init__(self, **settings)


class SharedInfo(CounterEnv):  # COMPLAINTS 38: one dict for all
    def _info(self) -> dict[str, Any]:
        self.buffer = getattr(self, "buffer", {})
        self.buffer.update(super()._info())
        return self.buffer


class Hackable(CounterEnv):  # COMPLAINTS 84: solved before anything is done
    def _outcome(self, reason: str | None) -> Outcome[str]:
        return super()._outcome(reason)._replace(success=True)


class Fragile(CounterEnv):
    def _apply(self, action: str) -> Outcome[str]:
        action.encode()  # raises for a lone surrogate, and for what is no string
        return super()._apply(action)


class _Substring(CounterWorld):
    def parse_action(self, text: str) -> ParsedAction:
        found = [a for a in ACTIONS if a in str(text)]
        return ParsedAction(found[0] if found else "wait", None)


class TakesAnything(CounterEnv):  # COMPLAINTS 3: an empty action counts as valid
    world_class = _Substring


class _Overlapping(CounterWorld):
    def tasks(self, split: str) -> Sequence[Task]:
        tasks = list(super().tasks("train"))
        return [Task(t.id, t.instruction, split, t.world, t.params) for t in tasks]


class Overlaps(CounterEnv):  # COMPLAINTS 18
    world_class = _Overlapping


class Frozen(CounterEnv):  # COMPLAINTS 32: a space that shared memory takes and freezes
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = gym.spaces.Text(20, charset="n=goal 0123456789-")  # type: ignore[assignment]


class NoBudget(CounterEnv):
    def step_budget(self) -> int | None:
        return 1_000_000


class Warns(CounterEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        warnings.warn("odd", UserWarning, stacklevel=2)
        return super().reset(seed=seed, options=options)


class BadExpert(CounterEnv):
    class oracle(CounterOracle):
        def expert(self, env: Any) -> Any:
            return lambda observation, info: "dec"

    oracle = oracle()  # type: ignore[assignment,misc]


class NoEquality(CounterEnv):  # COMPLAINTS 34
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

        class Text(UnicodeText):
            def __eq__(self, other: object) -> bool:
                return self is other

            __hash__ = UnicodeText.__hash__

        self.observation_space = Text(100)


class NoInfo(CounterEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        if info["invalid_reason"]:
            info["invalid_reason"] = "because"
        return info


for _name, _env in list(globals().items()):
    if isinstance(_env, type) and issubclass(_env, CounterEnv) and _env.__module__ == __name__:
        register_world(f"DynaBroken-{_name}-v0", f"tests.broken:{_name}")
