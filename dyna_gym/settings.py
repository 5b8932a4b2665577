"""Whether two wrappers were constructed with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Names of the constructor arguments that do not mean the same in both."""
    return sorted(n for n in {*a, *b} if n not in a or n not in b or not _equal(a[n], b[n]))


def _equal(a: Any, b: Any) -> bool:
    try:
        return _same(a, b)
    except Exception:  # they cannot even be compared: better refused than wrong
        return False


def _same(a: Any, b: Any) -> bool:
    """Whether two settings mean the same."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        # Made twice by the same line: equal code that sees equal values.
        cells = ([c.cell_contents for c in f.__closure__ or ()] for f in (a, b))
        return a.__code__ == b.__code__ and _same(a.__defaults__, b.__defaults__) and _same(*cells)
    if type(a) is type(b) and type(a).__eq__ is object.__eq__ and hasattr(a, "__dict__"):
        return _same(vars(a), vars(b))
    return bool(a == b)
