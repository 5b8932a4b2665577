"""Envs that break the contract, one way each: the checks must find them."""

from __future__ import annotations

import copy
import itertools
import random
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from dyna_gym.env import Judgement, Outcome
from dyna_gym.registration import register_world
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import Task
from dyna_gym.world import ParsedAction
from tests.counter import ACTIONS, CounterEnv, CounterOracle, CounterWorld
from tests.worlds import (
    ChattyEnv,
    ChoosyEnv,
    DeltaEnv,
    HeavyEnv,
    HeavyWorld,
    JudgedEnv,
    LiveEnv,
    NoisyEnv,
    NumberEnv,
    OpenEnv,
    OpenWorld,
    PageEnv,
)


class IgnoresSeed(CounterEnv):  # COMPLAINTS 14
    made = 0

    def _start(self, task: Task) -> str:
        IgnoresSeed.made += 1
        self.n = -IgnoresSeed.made
        return self._observation()


class Reseeds(CounterEnv):  # COMPLAINTS 24
    numbers = itertools.count()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=next(self.numbers) if seed is None else seed, options=options)


class IgnoresOption(CounterEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)


class StartsBySeed(CounterEnv):  # COMPLAINTS 85
    def _start(self, task: Task) -> Any:
        super()._start(task)
        self.n = -int(self.np_random.integers(1_000))
        return self._observation()


class DrawsWhenCloned(CounterEnv):
    def clone_state(self) -> Any:
        self.np_random.random()
        return super().clone_state()


class TakesObjects(CounterEnv):
    """Is registered with a setting that no JSON can hold."""

    def __init__(self, *, hook: Any = None, **settings: Any) -> None:
        super().__init__(**settings)


class _NoText(CounterWorld):
    def parse_action(self, text: str) -> ParsedAction:
        text.strip()
        return super().parse_action(text)


class NoText(CounterEnv):
    world_class = _NoText


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


# -- the abstract state ----------------------------------------------------------------------------


class ShowsObservation(DeltaEnv):
    """Takes the observation for the state."""

    def _info(self) -> dict[str, Any]:
        return {**super()._info(), "state": self.observe_only()}

    def observe_only(self) -> str:
        return str(self._observation())


class _WrongStart(CounterWorld):
    def initial_abstract(self, task: Task) -> str:
        return "n=7 goal=9"


class WrongStart(CounterEnv):
    world_class = _WrongStart


class _Tries(CounterWorld):
    def initial_abstract(self, task: Task) -> str:
        return f"{super().initial_abstract(task)} tries=0"

    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        tries = 0 if previous is None else int(previous.rpartition("=")[2]) + 1
        return f"{observation} tries={tries}"


class CountsBadActions(CounterEnv):
    """A refused action changes the state."""

    world_class = _Tries


class _Hinted(CounterWorld):
    hint = 0

    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        return f"{observation} steps={self.hint}" if previous else str(observation)


class Leaks(CounterEnv):
    """The state holds what the env knows and the agent cannot."""

    world_class = _Hinted

    def _start(self, task: Task) -> Any:
        self.world.hint = 0  # type: ignore[attr-defined]
        return super()._start(task)

    def _outcome(self, reason: str | None) -> Outcome[str]:
        self.world.hint += reason is None  # type: ignore[attr-defined]
        return super()._outcome(reason)


class _NoCandidates(OpenWorld):
    candidates = CounterWorld.candidates


class NoCandidates(OpenEnv):
    world_class = _NoCandidates


# -- what a world may say --------------------------------------------------------------------------


class Shadows(ChattyEnv):
    """Its extras hide keys that others look for."""

    def _extras(self) -> dict[str, Any]:
        return {"score": 3, "futures": ()}


class JudgeShadows(JudgedEnv):
    """The details of its judgement do."""

    def _finalize(self) -> Judgement | None:
        judgement = super()._finalize()
        return judgement and judgement._replace(extras={"error": "the agent was wrong"})


class NoReason(ChattyEnv):
    """Its reasons stand in no table."""

    world_class = CounterWorld

    def _apply(self, action: str) -> Outcome[str]:
        outcome = super()._apply(action)
        return outcome._replace(invalid_reason=outcome.invalid_reason and "my_own")


class _TakesCodes(CounterWorld):
    reasons = {"ambiguous": "something else than elsewhere"}


class TakesCodes(CounterEnv):
    world_class = _TakesCodes


class Picky(NumberEnv):
    """Refuses forms of what is inside its action space."""

    def _apply(self, action: Any) -> Outcome[Any]:
        if type(action) is not int:
            raise TypeError("an int, please")
        return super()._apply(action)


# -- pictures --------------------------------------------------------------------------------------


class SharedFrame(PageEnv):
    """Draws each picture over the last."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.frame = np.zeros((4, 16, 3), np.uint8)

    def _observation(self) -> Any:
        observation = super()._observation()
        self.frame[:] = observation["screen"]
        return {**observation, "screen": self.frame}


class NoPicture(PageEnv):
    picture = "page"


# -- drafts, chance and what instances say ---------------------------------------------------------


class JudgesDrafts(JudgedEnv):
    def finalize(self) -> Judgement | None:
        return self._finalize()


class ForetellsNoise(CounterEnv):
    """Draws from a generator of its own, which branches do not know."""

    def _start(self, task: Task) -> Any:
        self.own = np.random.default_rng(int(self.np_random.integers(2**31)))
        return super()._start(task)

    def _apply(self, action: str) -> Outcome[str]:
        if self.world.parse_action(action).action == "inc":
            self.n += int(self.own.integers(2))
        return super()._apply(action)

    def _get_state(self) -> Any:
        return self.n, copy.deepcopy(self.own)

    def _set_state(self, state: Any) -> None:
        self.n, self.own = copy.deepcopy(state)


class ForgetsFailure(CounterEnv):
    """Goes on from wherever it is when it could not be put back."""

    def restore_state(self, snapshot: Any) -> None:
        super().restore_state(snapshot)
        self._failure = None


class Undeclared(LiveEnv):
    """Is nondeterministic and does not say so."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.nondeterministic = False

    def _weather(self) -> int:
        return next(LiveEnv.clock) % 3 // 2


class BranchesAnyway(ChoosyEnv):
    """Says that it cannot be branched, and can."""

    def clone_state(self) -> Any:
        self.branching, before = "snapshot", self.branching
        try:
            return super().clone_state()
        finally:
            self.branching = before


# -- shared data -----------------------------------------------------------------------------------


class _Learns(HeavyWorld):
    def admissible(self, state: str) -> tuple[str, ...]:
        return (*ACTIONS, *self.catalogue[1_000:])

    def parse_action(self, text: str) -> ParsedAction:
        return super().parse_action("wait" if str(text).startswith("item") else text)


class WorldLearns(HeavyEnv):
    """Keeps what it saw in the world that all share."""

    world_class = _Learns

    def _apply(self, action: str) -> Outcome[str]:
        self.world.catalogue.append(f"item {self.n}")  # type: ignore[attr-defined]
        return super()._apply(action)


class _ByValue(HeavyWorld):
    def __reduce__(self) -> Any:
        return object.__reduce__(self)


class PickledByValue(HeavyEnv):
    world_class = _ByValue


gym.register("DynaBroken-TakesObjects-v0", "tests.broken:TakesObjects", kwargs={"hook": print})
for _name, _env in list(globals().items()):
    if isinstance(_env, type) and issubclass(_env, CounterEnv) and _env.__module__ == __name__:
        register_world(f"DynaBroken-{_name}-v0", f"tests.broken:{_name}")
