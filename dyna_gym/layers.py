"""How one layer of a stack is copied.

What a layer is in the middle of stands in its attributes. So all of them are copied, also those that its
author did not think of; only what is declared ``_fixed`` is left alone. Values that cannot be changed in place
are put back as they are, all others are deep-copied. What several attributes or layers share is shared in the
copy, too, and what points into the stack (to another layer, the env, its world or its generator) points into
the stack that the state is restored to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from dyna_gym.copies import ATOMIC, MUTABLE, copied, fill, fits
from dyna_gym.errors import BranchError
from dyna_gym.generators import GENERATORS, refresh

_SPACES = ("_action_space", "_observation_space")
_FRAME = frozenset({"env", "_metadata", "_cached_spec", "_saved_kwargs", *_SPACES})
"""Attributes of every Gymnasium wrapper that are no state; and its spaces, which come first."""
_NOTHING: Mapping[str, Any] = {}


class BranchableLayer:
    """A layer that can be copied because all that it changes stands in its attributes.

    All attributes are state unless they are named here. Names are collected over the base classes. The
    classes of dyna_gym itself, not their subclasses, name all that they change, and nothing else of them is
    looked at.
    """

    _changing: tuple[str, ...] = ()
    """Attributes whose values are replaced while stepping and never changed in place. They are put back
    without a copy, which is faster; lists, dicts, sets, arrays and generators are copied all the same."""
    _fixed: tuple[str, ...] = ()
    """Attributes that are no state, such as functions, models and other envs: never copied nor put back."""
    _refusal: str | None = None
    """Why a branch below this layer cannot be undone (it writes to a file, say), if so."""

    def _more_state(self) -> Any:
        """State that stands in no attribute of this layer, such as that of a policy's generator."""
        return None

    def _set_more_state(self, state: Any) -> None:
        """Inverse of `_more_state`."""


class Copies(NamedTuple):
    """What of a layer's state had to be copied."""

    where: tuple[int, ...]
    """Which of the layer's values."""
    originals: tuple[Any, ...]
    """What they are copies of."""
    slots: tuple[tuple[str, Any], ...]
    """Values of the class's own ``__slots__``, where it has some."""
    noisy: bool
    """Whether there is a random generator among them."""


class LayerState(NamedTuple):
    """State of one layer."""

    name: str
    """Class of the layer."""
    settings: Mapping[str, Any]
    """What it was constructed with (`gymnasium.utils.RecordConstructorArgs`)."""
    names: tuple[str, ...]
    """Attributes."""
    values: tuple[Any, ...]
    copies: Copies | None
    """None if none of the values can be changed in place."""
    more: Any
    """What `BranchableLayer._more_state` gave."""


class Layout(NamedTuple):
    """Which attributes a layer has, in the order in which they are saved."""

    keys: frozenset[str]
    """All there are, fixed ones included."""
    names: tuple[str, ...]
    """Those that are saved: spaces, then ``_changing``, then others."""
    others: int
    """Where the others begin."""
    get: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    plain: set[tuple[type, ...]]
    """Types of values that were found to hold nothing that can be changed in place."""

    def copies(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        """Which of the values must be copied."""
        types = tuple(map(type, values))
        if types in self.plain:  # as nearly always
            return ()
        where = [i for i, t in enumerate(types) if i < self.others and t in MUTABLE]
        where += [i for i, t in enumerate(types) if i >= self.others and t not in ATOMIC]
        if not where:
            self.plain.add(types)
        return tuple(where)


def _getter(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda own: tuple([own[name] for name in names])


class Kind:
    """What is known about the attributes of a class of layers.

    Args:
        layer_type: The class.
        changing: See `BranchableLayer`.
        fixed: See `BranchableLayer`.
        complete: Whether nothing changes but what is ``changing``, and that never in place.
    """

    def __init__(
        self,
        layer_type: type,
        changing: Iterable[str],
        fixed: Iterable[str],
        complete: bool = False,
    ) -> None:
        self.name = layer_type.__name__
        self.changing, self.fixed = frozenset(changing), _FRAME | frozenset(fixed)
        declared = (vars(base).get("__slots__", ()) for base in layer_type.__mro__)
        slots = [n for d in declared for n in ((d,) if isinstance(d, str) else d)]
        self.slots = tuple(n for n in slots if n not in self.fixed and not n.startswith("__"))
        self.has_more = (
            issubclass(layer_type, BranchableLayer)
            and layer_type._more_state is not BranchableLayer._more_state
        )
        self.complete = complete
        self.names = tuple(sorted(self.changing))
        self.get = _getter(self.names)
        self._layout: Layout | None = None

    def layout(self, own: Mapping[str, Any]) -> Layout:
        """The layout of a layer's ``__dict__``."""
        layout = self._layout
        if layout is None or own.keys() != layout.keys:
            changing = own.keys() & self.changing
            others = own.keys() - self.fixed - changing
            names = (*_SPACES, *sorted(changing), *sorted(others))
            first = len(names) - len(others)
            layout = self._layout = Layout(frozenset(own), names, first, _getter(names), set())
        return layout


class _Place:
    """Stands in a state for what is no part of a layer: the layers themselves and the env below."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __deepcopy__(self, memo: dict[int, Any]) -> _Place:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _place, (self.number,)


@cache
def _place(number: int) -> _Place:
    return _Place(number)


class Copier:
    """One pass over a stack, in which what is shared stays shared.

    Args:
        layers: The wrappers, outermost first.
        base: The env at the bottom.
    """

    def __init__(self, layers: Sequence[Any], base: Any) -> None:
        self._layers, self._base = layers, base
        self._memo: dict[int, Any] = {}

    def _parts(self) -> tuple[Any, ...]:
        base = self._base
        return (base, base.world, base.np_random, *self._layers)

    # -- out of the stack -------------------------------------------------------------------------

    def save(self, layer: Any, kind: Kind) -> LayerState:
        """The state of a layer.

        Raises:
            BranchError: An attribute cannot be copied.
        """
        own, copies = layer.__dict__, None
        if kind.complete:
            names, values = kind.names, kind.get(own)
        else:
            layout = kind.layout(own)
            names, values = layout.names, layout.get(own)
            where = layout.copies(values)
            if where or kind.slots:
                values, copies = self._copies(layer, kind, names, values, where)
        more = layer._more_state() if kind.has_more else None
        fields = (kind.name, own.get("_saved_kwargs", _NOTHING), names, values, copies, more)
        return tuple.__new__(LayerState, fields)  # a third of the time of LayerState(...)

    def _copies(
        self,
        layer: Any,
        kind: Kind,
        names: tuple[str, ...],
        values: tuple[Any, ...],
        where: tuple[int, ...],
    ) -> tuple[tuple[Any, ...], Copies]:
        memo = self._memo
        if not memo:
            memo.update((id(part), _place(i)) for i, part in enumerate(self._parts()))
        copies = list(values)
        for i in where:
            copies[i] = self._copy(values[i], layer, names[i])
        held = [name for name in kind.slots if hasattr(layer, name)]
        slots = tuple((name, self._copy(getattr(layer, name), layer, name)) for name in held)
        noisy = any(isinstance(x, GENERATORS) for x in memo.values())
        return tuple(copies), Copies(where, tuple(values[i] for i in where), slots, noisy)

    def _copy(self, value: Any, layer: Any, name: str) -> Any:
        try:
            return copied(value, self._memo)
        except Exception as error:
            who = type(layer).__name__
            raise BranchError(
                f"the wrapper {who} cannot be branched: its attribute {name!r} "
                f"({type(value).__name__}) cannot be copied ({error}). If it is no state, name it in "
                f"{who}._fixed; else put the wrapper outside the lookahead wrapper"
            ) from error

    # -- into the stack ---------------------------------------------------------------------------

    def load(self, states: Sequence[LayerState], kinds: Sequence[Kind]) -> None:
        """Put the layers back."""
        if any(state.copies for state in states):
            self._memo.update((id(_place(i)), part) for i, part in enumerate(self._parts()))
            self._fill(states)
        for layer, state, kind in zip(self._layers, states, kinds, strict=True):
            own, names, values = layer.__dict__, state.names, state.values
            if kind.has_more:
                layer._set_more_state(state.more)
            if kind.complete:
                own.update(zip(names, values, strict=True))
                continue
            if kind.layout(own).names is not names:  # the branch, or this instance, has others
                for name in own.keys() - kind.fixed - set(names):
                    del own[name]
            if state.copies is not None:
                values = self._load_copies(layer, kind, values, state.copies)
            if own["_action_space"] is values[0] and own["_observation_space"] is values[1]:
                own.update(zip(names, values, strict=True))
            else:
                self._load_spaces(own, values)
                own.update(zip(names[2:], values[2:], strict=True))

    def _fill(self, states: Sequence[LayerState]) -> None:
        """Put back in place what the layers still hold as the same objects."""
        found = []
        for layer, state in zip(self._layers, states, strict=True):
            if state.copies is None:
                continue
            for i, original in zip(state.copies.where, state.copies.originals, strict=True):
                saved, present = state.values[i], layer.__dict__.get(state.names[i])
                if present is original and fits(present, saved):
                    self._memo[id(saved)] = present
                    found.append((present, saved))
        for present, saved in found:  # when all of them are known, as one may hold another
            fill(present, saved, self._memo)

    def _load_copies(
        self, layer: Any, kind: Kind, values: tuple[Any, ...], copies: Copies
    ) -> tuple[Any, ...]:
        loaded = list(values)
        for i in copies.where:
            loaded[i] = copied(values[i], self._memo)
        slots = dict(copies.slots)
        for name in kind.slots:
            if name in slots:
                setattr(layer, name, copied(slots[name], self._memo))
            elif hasattr(layer, name):
                delattr(layer, name)
        return tuple(loaded)

    def _load_spaces(self, own: dict[str, Any], values: tuple[Any, ...]) -> None:
        # Each instance has spaces of its own, as they hold the generators of samples.
        for name, space in zip(_SPACES, values[:2], strict=True):
            if own[name] is not space and own[name] != space:
                own[name] = copied(space, self._memo)


def with_fresh_noise(states: tuple[LayerState, ...], stream: int) -> tuple[LayerState, ...]:
    """The same states, but the generators in them have other randomness to come."""
    for state in states:
        if state.copies is not None and state.copies.noisy:
            break
    else:
        return states
    memo: dict[int, Any] = {}
    fresh = []
    for state in states:
        if state.copies is None:
            fresh.append(state)
            continue
        values = list(state.values)
        for i in state.copies.where:
            values[i] = copied(values[i], memo)
        copies = state.copies._replace(slots=copied(state.copies.slots, memo))
        fresh.append(state._replace(values=tuple(values), copies=copies))
    generators = [x for x in memo.values() if isinstance(x, GENERATORS)]
    for number, generator in enumerate(generators):
        refresh(generator, stream, number)
    return tuple(fresh)
