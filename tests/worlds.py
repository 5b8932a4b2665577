"""Small worlds for tests, one a kind, registered as ``tests.worlds:DynaTest-...-v0``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from dyna_gym.env import Branching, Judgement, Outcome
from dyna_gym.errors import MachineryError
from dyna_gym.registration import register_world
from dyna_gym.spaces import UnicodeText
from dyna_gym.task import Task
from dyna_gym.world import ParsedAction, World
from tests import model_worlds  # registers its ids
from tests.counter import (
    ACTIONS,
    STATE,
    TO_FOUR,
    TO_TWO,
    CounterEnv,
    CounterOracle,
    CounterWorld,
    read,
)

__all__ = [
    "ACTIONS",
    "STATE",
    "TO_FOUR",
    "TO_TWO",
    "CounterEnv",
    "CounterWorld",
    "answer",
    "model_worlds",
]


def answer(action: str, *plan: str) -> str:
    """A response."""
    lines = "".join(f"{a}\n" for a in plan)
    return f"<think>x</think><plan>\n{lines}</plan><action>{action}</action>"


# -- copying and randomness ------------------------------------------------------------------------


class NoisyEnv(CounterEnv):
    """``inc`` adds 1 or 2, by the env's own generator."""

    noise = 2


class ReplayEnv(NoisyEnv):
    """Cannot copy its state: branches by re-running the actions."""

    branching = "replay"

    def _get_state(self) -> Any:
        raise AssertionError("a replay world must not be asked for its state")

    _set_state = _get_state  # type: ignore[assignment]


class DriftingEnv(ReplayEnv):
    """Says that it can be replayed, and cannot: each start is another."""

    starts = 0

    def _start(self, task: Task) -> str:
        super()._start(task)
        DriftingEnv.starts += 1
        self.n = -DriftingEnv.starts
        return str(self._observation())


class PostingEnv(CounterEnv):
    """Acting has effects outside: cannot be branched."""

    branching = "none"


class ChoosyEnv(CounterEnv):
    """An instance says how it can be copied."""

    def __init__(self, *, branching: Branching = "none", **settings: Any) -> None:
        super().__init__(**settings)
        self.branching = branching


class LiveEnv(CounterEnv):
    """As a live site: starts and steps differ whatever the seed, and instances say so."""

    clock = itertools.count()

    def __init__(
        self, *, live: bool = True, branching: Branching = "none", **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.nondeterministic = live
        self.branching = branching

    def _start(self, task: Task) -> str:
        super()._start(task)
        self.n -= self._weather()
        return str(self._observation())

    def _apply(self, action: str) -> Outcome[str]:
        if self.world.parse_action(action).action == "inc" and self.n < -1:
            self.n += self._weather()
        return super()._apply(action)

    def _weather(self) -> int:
        return next(LiveEnv.clock) % 3 // 2 if self.nondeterministic else 0


# -- machinery -------------------------------------------------------------------------------------


class FlakyEnv(CounterEnv):
    """Fails at the calls of its machinery whose numbers (from 0, since it was made) are given.

    Args:
        fail_at: Numbers of the calls that fail.
        hooks: What needs the machinery, of `start`, `apply`, `admissible`, `finalize` and `set_state`.
        partial: An action has acted before it fails.
    """

    def __init__(
        self,
        *,
        fail_at: Sequence[int] = (),
        hooks: Sequence[str] = ("start", "apply"),
        partial: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.fail_at, self.hooks = frozenset(fail_at), frozenset(hooks)
        self.partial = partial
        self.calls = 0
        self.acted = 0
        """How often an action has reached the world."""

    def _work(self, hook: str, retry: bool = False) -> None:
        if hook not in self.hooks:
            return
        self.calls += 1
        if self.calls - 1 in self.fail_at:
            code = "judge" if hook == "finalize" else "machinery"
            raise MachineryError(f"call {self.calls - 1} failed", code=code, retry=retry)

    def _start(self, task: Task) -> Any:
        self._work("start")
        return super()._start(task)

    def _apply(self, action: Any) -> Outcome[Any]:
        if not self.partial:
            self._work("apply", retry=True)
        outcome = super()._apply(action)
        self.acted += 1
        if self.partial:
            self._work("apply")
        return outcome

    def _admissible(self) -> tuple[str, ...] | None:
        self._work("admissible")
        return super()._admissible()

    def _finalize(self) -> Judgement | None:
        self._work("finalize")
        return super()._finalize()

    def _set_state(self, state: Any) -> None:
        self._work("set_state")
        super()._set_state(state)


class JudgedEnv(FlakyEnv):
    """Judged at the end only, by a judge that can fail, as worlds with a `stop` action are."""

    def __init__(self, *, hooks: Sequence[str] = ("finalize",), **settings: Any) -> None:
        super().__init__(hooks=hooks, **settings)
        self.judged = 0

    def _outcome(self, reason: str | None) -> Outcome[str]:
        return Outcome(str(self._observation()), invalid_reason=reason)

    def _finalize(self) -> Judgement | None:
        super()._finalize()
        self.judged += 1
        solved = self.n == self.goal
        said = {"verdict": "right" if solved else f"{self.n} is not {self.goal}"}
        return Judgement(5.0 * solved, solved, 1.0 if solved else 0.25, said)


# -- what a world may say --------------------------------------------------------------------------


class DeltaWorld(CounterWorld):
    """The state adds up what the pages say of each action."""

    start = re.compile(r"You stand at (-?\d+) and want (\d+)\.")
    moves = {"Up.": 1, "Up by two.": 2, "Down.": -1, "Nothing moved.": 0}

    def initial_abstract(self, task: Task) -> str:
        return f"{super().initial_abstract(task)} last=none"

    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        if previous is None:
            found = self.start.fullmatch(observation)
            assert found, observation
            return f"n={found[1]} goal={found[2]} last=none"
        parsed = self.parse_action(action)
        if parsed.action is None:
            return previous
        n, goal = read(previous)
        return f"n={n + self.moves[observation]} goal={goal} last={parsed.action}"


class DeltaEnv(NoisyEnv):
    """Its observations are pages that say what an action did; the abstract state is another text."""

    world_class = DeltaWorld

    def _start(self, task: Task) -> str:
        self.moved: int | None = None
        return str(super()._start(task))

    def _apply(self, action: str) -> Outcome[str]:
        before = self.n
        outcome = super()._apply(action)
        self.moved = self.n - before
        return outcome._replace(observation=self._observation())

    def _observation(self) -> str:
        if self.moved is None:
            return f"You stand at {self.n} and want {self.goal}."
        return next(page for page, move in DeltaWorld.moves.items() if move == self.moved)

    def _get_state(self) -> Any:
        return self.n, self.moved

    def _set_state(self, state: Any) -> None:
        self.n, self.moved = state


class OpenWorld(CounterWorld):
    """Any number can be added: the set of actions has no end."""

    action_help = "add K, for any whole number K from -99 to 99"
    pattern = re.compile(r"add (-?\d{1,2})")

    def parse_action(self, text: str) -> ParsedAction:
        if not isinstance(text, str):
            return ParsedAction(None, "unknown_action")
        if not text.strip():
            return ParsedAction(None, "empty_action")
        found = self.pattern.fullmatch(text.strip())
        return ParsedAction(found[0], None) if found else ParsedAction(None, "unknown_action")

    def admissible(self, state: str) -> None:
        read(state)

    def candidates(self, state: str) -> tuple[str, ...]:
        n, goal = read(state)
        return tuple(f"add {k}" for k in sorted({1, 2, -1, goal - n}))


class _OpenOracle(CounterOracle):
    def expert(self, env: gym.Env[Any, Any]) -> Callable[[Any, dict[str, Any]], str]:
        def act(observation: Any, info: dict[str, Any]) -> str:
            n, goal = read(info["state"])
            return f"add {goal - n}"

        return act


class OpenEnv(CounterEnv):
    """Its actions are unbounded; the world has candidates."""

    world_class = OpenWorld
    oracle = _OpenOracle()

    def _apply(self, action: str) -> Outcome[str]:
        parsed = self.world.parse_action(action)
        if parsed.action:
            self.n += int(parsed.action.removeprefix("add "))
        return self._outcome(parsed.reason)


class ChattyWorld(CounterWorld):
    """Says why in its own words: below -2 one cannot go."""

    reasons = {"too_low": "the counter cannot go below -2"}

    def admissible(self, state: str) -> tuple[str, ...]:
        return ("inc", "wait") if read(state)[0] <= -2 else ACTIONS


class ChattyEnv(CounterEnv):
    """Has info keys and invalid reasons of its own, and ends its session by itself."""

    world_class = ChattyWorld

    def __init__(self, *, patience: int = 5, **settings: Any) -> None:
        super().__init__(**settings)
        self.patience = patience
        self.waits = 0
        self.heard: list[str] = []

    def _config(self) -> dict[str, Any]:
        return {"patience": self.patience}

    def _start(self, task: Task) -> Outcome[str]:
        self.waits, self.heard = 0, []
        return Outcome(super()._start(task), extras=self._extras())

    def _apply(self, action: str) -> Outcome[str]:
        if self.n <= -2 and self.world.parse_action(action).action == "dec":
            return self._outcome("too_low")._replace(extras=self._extras())
        outcome = super()._apply(action)
        if outcome.invalid_reason is None:
            self.heard.append(self.world.parse_action(action).action or "")
            self.waits += self.heard[-1] == "wait"
        tired = self.waits >= self.patience and not outcome.terminated
        return outcome._replace(truncated=tired, extras=self._extras())

    def _extras(self) -> dict[str, Any]:
        # The list is the env's own and grows: who reads info must not see that.
        return {"heard": list(self.heard), "where": {"n": np.array([self.n])}}

    def _get_state(self) -> Any:
        return self.n, self.waits, tuple(self.heard)

    def _set_state(self, state: Any) -> None:
        self.n, self.waits, heard = state
        self.heard = list(heard)


# -- pictures and numbers --------------------------------------------------------------------------


class PageWorld(CounterWorld):
    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        return str(observation["page"])


class PageEnv(CounterEnv):
    """Observes a page and a picture of it."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}
    world_class = PageWorld
    picture = "screen"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = Dict(
            page=UnicodeText(100), screen=Box(0, 255, (4, 16, 3), np.uint8)
        )

    def _observation(self) -> Any:
        screen = np.zeros((4, 16, 3), np.uint8)
        screen[:2, self.n % 16] = 255
        screen[2:, : self.goal] = (0, 255, 0)
        return {"page": f"n={self.n} goal={self.goal}", "screen": screen}

    def render(self) -> Any:
        if self.render_mode == "rgb_array" and self.task:
            return self._observation()["screen"]
        return super().render()


class NumberWorld(CounterWorld):
    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        return "n={} goal={}".format(*observation)


class NumberEnv(CounterEnv):
    """Numbers in and out: no text for an agent that writes."""

    world_class = NumberWorld

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = Box(-1_000, 1_000, (2,), np.int64)  # type: ignore[assignment]
        self.action_space = Discrete(len(ACTIONS))  # type: ignore[assignment]

    def _observation(self) -> Any:
        return np.array([self.n, self.goal])

    def _apply(self, action: Any) -> Outcome[Any]:
        return super()._apply(ACTIONS[int(action)])


# -- simulators of the counter ---------------------------------------------------------------------


class ShortEnv(CounterEnv):
    """Ends at 1, wherever the goal is."""

    oracle = None

    def _outcome(self, reason: str | None) -> Outcome[str]:
        return super()._outcome(reason)._replace(terminated=self.n >= 1)


class TightEnv(CounterEnv):
    """Gives two steps, whatever the task says."""

    oracle = None

    def __init__(self, *, max_steps: int | None = 2, **settings: Any) -> None:
        super().__init__(max_steps=max_steps, **settings)


class AnywhereEnv(NoisyEnv):
    """Starts in any state, and remembers how it was told to."""

    starts_anywhere = True
    told: tuple[str, Any] = ("", ())

    def _start_from(self, task: Task, state: str, history: Any) -> str:
        self.told = (state, tuple(history))
        self.n = read(state)[0]
        return str(self._observation())


# -- shared data -----------------------------------------------------------------------------------


class HeavyWorld(CounterWorld):
    """A catalogue that takes long to build and is large."""

    built = 0

    def __init__(self, size: int = 1_000) -> None:
        type(self).built += 1
        self.catalogue = [f"item {i}" for i in range(size)]


class HeavyEnv(CounterEnv):
    """Shares its world with all envs of the same settings."""

    world_class = HeavyWorld

    def __init__(self, *, size: int = 1_000, **settings: Any) -> None:
        self.size = size
        super().__init__(**settings)

    def _make_world(self) -> World:
        return self.world_class.shared(size=self.size)

    def _config(self) -> dict[str, Any]:
        return {"size": self.size}


for _env in list(globals().values()):
    if isinstance(_env, type) and issubclass(_env, CounterEnv):
        register_world(
            f"DynaTest-{_env.__name__.removesuffix('Env')}-v0", f"tests.worlds:{_env.__name__}"
        )
