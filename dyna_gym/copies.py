"""Copies of values: of what can be changed in place, and only of that.

The same as `copy.deepcopy`, of which it is a faster case for plain data, memo included.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, OrderedDict, defaultdict, deque
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

import numpy as np

from dyna_gym.generators import GENERATORS
from dyna_gym.task import Task

ATOMIC = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type, BuiltinFunctionType}
    | {np.bool_, np.uint8, np.int32, np.int64, np.float32, np.float64, np.str_, Task}
)
"""Types whose values cannot be changed in place."""
_CONTAINERS = frozenset({list, dict, set, deque, OrderedDict, defaultdict, Counter})
MUTABLE = _CONTAINERS | {bytearray, np.ndarray, *GENERATORS}
"""Types that people do change in place."""


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy; what cannot be changed is itself.

    Args:
        value: Anything.
        memo: As of `copy.deepcopy`: what stands for the objects of those ids.
    """
    kind = type(value)
    if kind in ATOMIC:
        return value
    found = memo.get(id(value), memo)
    if found is not memo:
        return found
    if kind is tuple:
        if _flat(value):
            return value
        items = tuple([copied(x, memo) for x in value])
        # Like deepcopy: a tuple of what cannot be changed is itself.
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return _remember(value, memo.get(id(value), items), memo)
    if kind is dict:
        into: dict[Any, Any] = {}
        _remember(value, into, memo)
        into.update(_items(value, memo))
        return into
    if kind is list:
        rows: list[Any] = []
        _remember(value, rows, memo)
        rows.extend([copied(x, memo) for x in value])
        return rows
    if kind is FunctionType:
        return _function(value, memo)
    if kind in _CONTAINERS and _flat(value):
        return _remember(value, copy.copy(value), memo)
    return copy.deepcopy(value, memo)


def _function(value: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """The function, seeing in its closure what stands for what it saw; nothing in there is copied."""
    cells = []
    for cell in value.__closure__ or ():
        try:
            found = memo.get(id(cell.cell_contents), memo)
        except ValueError:  # nothing in it yet
            found = memo
        cells.append(cell if found is memo else CellType(found))
    if all(a is b for a, b in zip(cells, value.__closure__ or (), strict=True)):
        return value
    made = FunctionType(
        value.__code__, value.__globals__, value.__name__, value.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = value.__kwdefaults__
    made.__dict__.update(value.__dict__)
    return made


def _remember(value: Any, copy_: Any, memo: dict[int, Any]) -> Any:
    memo[id(value)] = copy_
    memo.setdefault(id(memo), []).append(value)  # alive, so that its id is not used again
    return copy_


def _flat(value: Any) -> bool:
    """Whether a container holds only what cannot be changed."""
    if not ATOMIC.issuperset(map(type, value)):
        return False
    return not isinstance(value, dict) or ATOMIC.issuperset(map(type, value.values()))


def _items(value: dict[Any, Any], memo: dict[int, Any]) -> dict[Any, Any]:
    return {copied(k, memo): copied(v, memo) for k, v in value.items()}


def fits(present: Any, saved: Any) -> bool:
    """Whether `fill` can make an object equal to a copy that was made of it."""
    if type(present) is FunctionType:
        return True  # it is what it was
    if type(present) is not type(saved) or type(present) not in MUTABLE:
        return False
    if isinstance(present, np.ndarray):
        same = present.shape == saved.shape and present.dtype == saved.dtype
        return same and present.flags.writeable and not present.dtype.hasobject
    return True


def fill(present: Any, saved: Any, memo: dict[int, Any]) -> None:
    """Make an object equal to a copy of it, in place, for whoever else holds it."""
    if isinstance(present, FunctionType):
        return
    if isinstance(present, np.ndarray):
        np.copyto(present, saved)
    elif isinstance(present, np.random.Generator):
        present.bit_generator.state = saved.bit_generator.state
    elif isinstance(present, np.random.RandomState):
        present.set_state(saved.get_state(legacy=False))
    elif isinstance(present, random.Random):
        present.setstate(saved.getstate())
    elif isinstance(present, dict):
        items = _items(saved, memo)
        present.clear()
        present.update(items)
    else:
        values = saved if isinstance(saved, bytearray) else [copied(x, memo) for x in saved]
        present.clear()
        if isinstance(present, set):
            present.update(values)
        else:
            present.extend(values)
