"""The observation and action space of text worlds."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    iterate,
)
from gymnasium.wrappers.utils import create_zero_array

from dyna_gym.errors import ConfigError

# What `sample` draws from: letters of several scripts, punctuation, an emoji and white space, so that
# a consumer which only works for ASCII finds out in its first test.
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;!?'\"()[]<>/\\\n\täßñΩя中文√🙂"


class UnicodeText(Space[str]):
    """Any Unicode string of at most ``max_length`` characters, the empty string included.

    It subclasses `gymnasium.Space` and not `gymnasium.spaces.Text`: Text has a closed character set, and
    `AsyncVectorEnv` with its default shared memory hands out frozen placeholders for every subclass
    of it. Here shared memory is refused with a clear error instead; pass
    ``gym.make_vec(..., vector_kwargs={"shared_memory": False})``.

    Args:
        max_length: Longest string that the space contains, in characters.
        seed: Seed of `sample`.

    Examples:
        >>> space = UnicodeText(200, seed=0)
        >>> "go to desk 1" in space, "" in space, "naïve 中文 √" in space, 7 in space
        (True, True, True, False)
        >>> space == UnicodeText(200)
        True
        >>> space.sample() in space
        True
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        if not isinstance(max_length, (int, np.integer)) or max_length < 0:
            raise ConfigError(f"max_length: got {max_length!r}, expected a whole number >= 0")
        self.max_length = int(max_length)
        super().__init__(shape=(), dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short random string (at most 64 characters, or ``max_length`` if that is less)."""
        if mask is not None or probability is not None:
            raise ConfigError("UnicodeText.sample takes neither a mask nor probabilities")
        length = int(self.np_random.integers(0, min(self.max_length, 64) + 1))
        picks = self.np_random.integers(0, len(_ALPHABET), size=length)
        return "".join(_ALPHABET[i] for i in picks)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string of at most ``max_length`` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Strings are JSON already."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """Inverse of `to_jsonable`."""
        return [str(x) for x in sample_n]

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash(("UnicodeText", self.max_length))


class TextBatch(Space[tuple[str, ...]]):
    """``n`` strings: what a vector env of `UnicodeText` sub-envs observes and takes.

    Args:
        single: The sub-envs' space.
        n: How many sub-envs.
        seed: Seed of `sample`.
    """

    def __init__(self, single: UnicodeText, n: int, *, seed: int | None = None) -> None:
        self.single, self.n = single, n
        super().__init__(shape=None, dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[str, ...]:
        """Draw ``n`` strings."""
        if mask is not None or probability is not None:
            raise ConfigError("TextBatch.sample takes neither a mask nor probabilities")
        space = UnicodeText(self.single.max_length, seed=self.np_random)
        return tuple(space.sample() for _ in range(self.n))

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a sequence of ``n`` strings of the sub-envs' space."""
        return (
            isinstance(x, (tuple, list, np.ndarray))
            and len(x) == self.n
            and all(self.single.contains(s) for s in x)
        )

    def __repr__(self) -> str:
        return f"TextBatch({self.single!r}, n={self.n})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextBatch) and (self.single, self.n) == (other.single, other.n)

    def __hash__(self) -> int:
        return hash(("TextBatch", self.single, self.n))


@batch_space.register(UnicodeText)
def _batch_text(space: UnicodeText, n: int = 1) -> TextBatch:
    return TextBatch(space, n)


@create_empty_array.register(UnicodeText)
def _empty_text(space: UnicodeText, n: int = 1, fn: Any = None) -> tuple[str, ...]:
    return ("",) * n


@create_empty_array.register(TextBatch)
def _empty_batch(space: TextBatch, n: int = 1, fn: Any = None) -> tuple[tuple[str, ...], ...]:
    return (("",) * space.n,) * n


@create_zero_array.register(UnicodeText)
def _zero_text(space: UnicodeText) -> str:  # type: ignore[misc]
    return ""


@create_zero_array.register(TextBatch)
def _zero_batch(space: TextBatch) -> tuple[str, ...]:  # type: ignore[misc]
    return ("",) * space.n


@concatenate.register(UnicodeText)
def _concatenate_text(space: UnicodeText, items: Any, out: Any) -> tuple[str, ...]:
    return tuple(items)


@iterate.register(TextBatch)
def _iterate_text(space: TextBatch, items: Any) -> Any:  # type: ignore[misc]
    return iter(items)


def blank(space: Space[Any]) -> Any:
    """A value of the space that stands in where there is none: as near to nothing as it allows.

    Empty text, zeros (or the nearest that the bounds allow), the first of a discrete set, and so on
    inside `Dict`, `Tuple` and the other spaces of Gymnasium. Equal at every call. For a space of
    somebody else's that has no zero (see ``gymnasium.wrappers.utils.create_zero_array``) it is the
    first sample of a copy with seed 0; the space's own generator is not drawn from.

    Examples:
        >>> from gymnasium.spaces import Box, Dict
        >>> blank(Dict({"page": UnicodeText(9), "size": Box(2, 5, (2,))}))
        {'page': '', 'size': array([2., 2.], dtype=float32)}
    """
    try:
        value = create_zero_array(space)
        if space.contains(value):
            return value
    except CustomSpaceError:
        pass
    copied = copy.deepcopy(space)
    copied.seed(0)
    return copied.sample()
