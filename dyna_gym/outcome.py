"""What a world says about an action and an episode, and what a snapshot of an episode holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dyna_gym.errors import ConfigError
from dyna_gym.task import Task

ObsT = TypeVar("ObsT")

NOTHING: Mapping[str, Any] = {}
"""Default of ``extras``; never written to."""

INFO_KEYS = frozenset(
    {
        "task",
        "state",
        "admissible_actions",
        "invalid_reason",
        "success",
        "score",
        "image",
        "error",
        "error_code",
    }
)
"""Keys of ``info`` that `WorldEnv` fills itself; a world's ``extras`` have others."""

LAYER_KEYS = frozenset(
    {
        "observation",
        "action",
        "notes",
        "phase",
        "futures",
        "draft",
        "plan_reason",
        "lookahead_steps",
        "search",
        "plain_prompt",
        "retried",
        "slot",
        "episode",
        "final_obs",
        "final_info",
    }
)
"""Keys of ``info`` that wrappers, collectors and Gymnasium's vector envs add."""


class Outcome(NamedTuple, Generic[ObsT]):
    """What a world says about one action (or, from `WorldEnv._start`, about the start)."""

    observation: ObsT
    reward: float = 0.0
    terminated: bool = False
    success: bool = False
    score: float = 0.0
    """The world's own score of the episode so far, in [0, 1]."""
    invalid_reason: str | None = None
    """A code of `dyna_gym.responses.REASONS` or of the world's own ``reasons``; None when fine."""
    truncated: bool = False
    """The world itself cannot go on, though nothing was decided (a session that ran out)."""
    extras: Mapping[str, Any] = NOTHING
    """The world's own keys of ``info``."""


class Judgement(NamedTuple):
    """What `WorldEnv.finalize` says about an episode that is judged at its end."""

    reward: float
    success: bool
    score: float
    extras: Mapping[str, Any] = NOTHING
    """Details, such as what the judge wrote: more of the world's own keys of ``info``."""


class Snapshot(NamedTuple):
    """Everything that decides how an episode of a `WorldEnv` goes on."""

    fingerprint: str
    """Which world and configuration the state belongs to."""
    task: Task
    state: Any
    """The world's own state (or, for replay worlds, the actions that lead to it)."""
    rng: dict[str, Any]
    status: tuple[Any, ...]
    """Last outcome, abstract state, admissible actions and failure of the episode."""


class ReplayLog(NamedTuple):
    """State of a world that cannot copy itself: how it was reached."""

    rng: dict[str, Any]
    """State of the random generator before the episode started."""
    actions: tuple[Any, ...]
    digests: tuple[str, ...]
    """Digest of the first observation and of the one after each action."""
    reseeded: tuple[tuple[int, dict[str, Any]], ...] = ()
    """(number of actions, state of the generator): where a branch went on with other randomness."""


def own_keys(extras: Mapping[str, Any]) -> Mapping[str, Any]:
    """A world's extras, which must not hide what others look for under the same key.

    Raises:
        ConfigError: They have a key that is taken.
    """
    taken = sorted(extras.keys() & (INFO_KEYS | LAYER_KEYS)) if extras else ()
    if taken:
        raise ConfigError(
            f"extras: got the keys {taken}, which `info` has already; expected keys of the world's own: "
            "rename them"
        )
    return extras


def copied(value: Any) -> Any:
    """The same value without anything that its holder could change for others.

    Arrays, dicts and lists are copied, also inside one another; everything else is kept.
    """
    if isinstance(value, (str, int, float, Task)) or value is None:
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, list):
        return [copied(v) for v in value]
    if type(value) is tuple:
        # Most tuples (of texts) hold nothing that can be changed, and stay the same object.
        new = tuple(copied(v) for v in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    return value


def plain_data(value: Any) -> Any:
    """Settings as JSON can hold them: NumPy's numbers as Python's, tasks and paths as data.

    Examples:
        >>> plain_data({"size": np.int64(7), "tasks": (np.int32(1), "a")})
        {'size': 7, 'tasks': [1, 'a']}
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Task):
        return json.loads(value.to_json())
    if isinstance(value, Mapping):
        return {k: plain_data(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(v) for v in value]
    return value
