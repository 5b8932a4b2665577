"""World and Oracle: what the real env and its dream twin have in common.

A `World` is the one place where something is known about a particular environment besides the env
class itself. Wrappers, prompts, searches, dreams and trainers ask it; nobody branches on its name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast
from weakref import WeakValueDictionary

import numpy as np

from dyna_gym.task import Task

if TYPE_CHECKING:
    import gymnasium as gym


class ParsedAction(NamedTuple):
    """An action as the world understands it, or the reason why it does not."""

    action: str | None
    """Canonical text of the action; None if it cannot be read."""
    reason: str | None
    """Reason code (see `dyna_gym.responses.REASONS`); None when fine."""


_SHARED: WeakValueDictionary[tuple[type, str], World] = WeakValueDictionary()


def _shared(cls: type[World], settings: dict[str, Any]) -> World:
    return cls.shared(**settings)


class World(ABC):
    """Rules and texts of one world, shared by its real env and its dream.

    A *state* here is always the abstract state: a short text that holds nothing that the agent could
    not know. `WorldEnv` keeps it and shows it as ``info["state"]``; an observation may be something else.

    A world never changes after it was made, so that envs, copies of envs and processes can share it. Envs
    get theirs from `shared`: equal settings give the same object, which is copied and pickled by
    reference, however large its data.
    """

    name: str
    """Short lower-case name."""
    rules: str
    """The rules in plain words, for prompts."""
    action_help: str
    """The action grammar in plain words, for prompts."""
    reasons: Mapping[str, str] = {}
    """Codes of ``info["invalid_reason"]`` that this world has besides those of
    `dyna_gym.responses.REASONS`, and what they mean."""

    @classmethod
    def shared(cls, **settings: Any) -> Self:
        """The world of these settings; the one that is there already, if one is.

        Args:
            settings: Arguments of the constructor, by name.
        """
        key = (cls, cls.settings_key(settings))
        world = _SHARED.get(key)
        if world is None:
            world = cls(**settings)
            world._made_by = (cls, settings)
            _SHARED[key] = world
        return cast(Self, world)

    @classmethod
    def settings_key(cls, settings: Mapping[str, Any]) -> str:
        """Equal for settings that mean the same world. Worlds made of files add what tells their versions."""
        try:
            return json.dumps(settings, sort_keys=True, default=repr)
        except (TypeError, ValueError):  # keys that JSON has not
            return repr(settings)

    _made_by: tuple[type[World], dict[str, Any]] | None = None

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes

    def __reduce__(self) -> Any:
        if self._made_by is None:
            return super().__reduce__()
        return (_shared, self._made_by)

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order."""

    @abstractmethod
    def initial_abstract(self, task: Task) -> str:
        """The state in which an episode of the task starts, known without the world.

        A dream starts here. Of a nondeterministic world it is a state like those that episodes start in.
        """

    @abstractmethod
    def parse_action(self, text: str) -> ParsedAction:
        """Read an action that an agent wrote. Whole tokens only; never raises."""

    @abstractmethod
    def admissible(self, state: str) -> tuple[str, ...] | None:
        """Actions that may be taken in the state, or None where the set is unbounded."""

    def candidates(self, state: str) -> tuple[str, ...]:
        """A finite list of sensible actions, even where `admissible` is unbounded."""
        actions = self.admissible(state)
        if actions is None:
            raise NotImplementedError(f"{type(self).__name__} must override candidates()")
        return actions

    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        """The state after ``action`` led from ``previous`` to ``observation``; default: the observation.

        Args:
            previous: The state before; None at the start.
            action: What was written, as it was written; None at the start.
            observation: What the env then observed.
        """
        if not isinstance(observation, str):
            raise NotImplementedError(
                f"{type(self).__name__} must override abstract(): its observations are no texts"
            )
        return observation

    def digest(self, state: str) -> str:
        """The compact form, one line, in which a response imagines the state."""
        return " ".join(state.split())

    def same_state(self, a: str, b: str) -> bool:
        """Whether two digests mean the same state."""
        return a.split() == b.split()

    def compact(self, state: str) -> str:
        """The state with as few tokens as possible, for small models (``PromptWrapper(style="compact")``)."""
        return state

    def vocabulary(self) -> tuple[str, ...]:
        """Pieces of text that a from-scratch model's tokenizer needs for states, digests and actions.

        Joined pieces are the text: a piece holds its own white space.
        """
        raise NotImplementedError(
            f"the world {self.name!r} has no closed vocabulary: use TransformersPolicy, not NanoPolicy"
        )


class Oracle(ABC):
    """What is known about a world beyond what an agent may know. Optional; never used by an env."""

    score_floor: float = 1.0
    """Mean success that the expert must reach on the world's tasks."""

    @abstractmethod
    def expert(self, env: gym.Env[Any, Any]) -> Callable[[Any, dict[str, Any]], str]:
        """A callable ``(observation, info) -> action`` that solves the env's current task."""

    @abstractmethod
    def value(self, task: Task, state: str) -> float:
        """How good the state is, in [0, 1]: 1 solved, 0 hopeless."""

    def generate_tasks(self, count: int, rng: np.random.Generator) -> list[Task]:
        """New tasks of the training distribution, where the world can make them."""
        raise NotImplementedError(f"{type(self).__name__} cannot generate tasks")
