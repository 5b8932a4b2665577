"""Random generators of NumPy, of any kind: their states, and other randomness in their place."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np

from dyna_gym.errors import BranchError

RngState = dict[str, Any]
"""State of a `numpy.random.BitGenerator`, as NumPy gives it."""


def fresh_state(state: RngState, *key: int | str) -> RngState:
    """The state of other randomness: depends on ``state`` and ``key``, but is no continuation of it.

    Args:
        state: State of a generator.
        key: Tells apart what is made from the same state.

    Returns:
        A state of the same kind of generator; equal for equal arguments.
    """
    kind = state["bit_generator"]
    words = kind in ("PCG64", "PCG64DXSM")  # any state and any odd increment is one of theirs
    text = repr((state if words else _plain(state), *key))
    digest = hashlib.sha256(text.encode()).digest()
    if words:
        own = {
            "state": int.from_bytes(digest[:16], "big"),
            "inc": int.from_bytes(digest[16:], "big") | 1,
        }
        return {**state, "has_uint32": 0, "uinteger": 0, "state": own}
    return dict(_bit_generator(kind, digest).state)


def set_state(generator: np.random.Generator, state: RngState) -> np.random.Generator:
    """A generator that goes on from ``state``: the one given, unless it is of another kind."""
    kind = state["bit_generator"]
    if type(generator.bit_generator).__name__ != kind:
        generator = np.random.Generator(_bit_generator(kind, b""))
    generator.bit_generator.state = state
    return generator


def same_state(a: RngState, b: RngState) -> bool:
    """Whether two generators go on alike."""
    return bool(_plain(a) == _plain(b))


def refresh(generator: Any, *key: int | str) -> None:
    """Give a generator other randomness, in place, that depends on its state and ``key``.

    Args:
        generator: A `numpy.random.Generator` or `RandomState`, or a `random.Random`.
        key: See `fresh_state`.
    """
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = fresh_state(dict(bits.state), *key)
    elif isinstance(generator, random.Random):
        generator.seed(_number(generator.getstate(), *key))
    else:
        generator.seed(_number(generator.get_state(legacy=False), *key) % 2**32)


def generator_state(value: Any) -> Any:
    """State of a generator of NumPy's, Python's or torch's; None if it is none of these."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, random.Random):
        return value.getstate()
    known = isinstance(value, np.random.RandomState) or type(value).__module__ == "torch._C"
    return value.get_state() if known and hasattr(value, "get_state") else None


def set_generator_state(generator: Any, state: Any) -> None:
    """Inverse of `generator_state`."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
"""What `refresh` takes."""


def _number(state: Any, *key: int | str) -> int:
    return int.from_bytes(hashlib.sha256(repr((_plain(state), *key)).encode()).digest(), "big")


def _plain(state: Any) -> Any:
    """The same without arrays, whose ``repr`` leaves out what is long."""
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


def _bit_generator(kind: str, seed: bytes) -> np.random.BitGenerator:
    made = getattr(np.random, kind, None)
    if not (isinstance(made, type) and issubclass(made, np.random.BitGenerator)):
        raise BranchError(
            f"np_random: got a generator of kind {kind!r}, expected one of NumPy's own "
            "(PCG64, MT19937, Philox, SFC64, PCG64DXSM), whose states can be made anew"
        )
    return made(int.from_bytes(seed, "big"))
