"""Tasks: what an episode is about, and sequences of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, overload

import numpy as np

from dyna_gym.errors import ConfigError

SPLITS = ("train", "eval_id", "eval_ood")


_PLAIN = frozenset({str, int, float, bool, type(None)})


class Params(dict[str, Any]):
    """A dict that cannot be changed: envs hand their task out in ``info`` and go on reading it.

    A dict, so that it is equal to one, is JSON as it is and is read at a dict's speed. Dicts in it are
    `Params` too, and lists are tuples.

    Raises:
        ConfigError: It would hold something that JSON cannot.
    """

    def __init__(
        self, values: Mapping[str, Any] | Iterable[tuple[str, Any]], where: str = "params"
    ) -> None:
        values = dict(values)
        for key in values:
            if not isinstance(key, str):
                raise ConfigError(
                    f"Task.{where}: got the key {key!r}, expected str: JSON has no other keys"
                )
        super().__init__(
            {
                k: v if type(v) in _PLAIN else _frozen(v, f"{where}[{k!r}]")
                for k, v in values.items()
            }
        )

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "the params of a Task cannot be changed: envs and samplers share the Task. Make another "
            "one: dataclasses.replace(task, id=..., params={**task.params, ...})"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Params, (dict(self),)

    def __copy__(self) -> Params:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Params:
        return self


def _frozen(value: Any, where: str) -> Any:
    """JSON-able data as a value that cannot be changed."""
    if isinstance(value, Mapping):
        return Params(value, where)
    if isinstance(value, (list, tuple)):
        return tuple(
            v if type(v) in _PLAIN else _frozen(v, f"{where}[{i}]") for i, v in enumerate(value)
        )
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (str, int, float)):  # an enum's member, say
        return value
    raise ConfigError(
        f"Task.{where}: got {type(value).__name__}, expected what JSON can hold: str, int, float, bool, "
        "None, and lists and dicts of them"
    )


@dataclass(frozen=True)
class Task:
    """One task of a world. Equal ids mean equal tasks, in any process and on any machine.

    Deeply immutable, so that it can be shared: a copy of a task is the task itself.

    Raises:
        ConfigError: There is no such split, or ``params`` holds what JSON cannot.

    Examples:
        >>> task = Task("toy/train/0", "Reach the door.", "train", "toy", {"max_steps": 10})
        >>> Task.from_json(task.to_json()) == task
        True
    """

    id: str
    """Stable name; unique within the world."""
    instruction: str
    """What the agent is asked to do, in plain words."""
    split: str
    """`train`, `eval_id` (same distribution) or `eval_ood` (another one). Decided once, by id."""
    world: str
    """Name of the world."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able; what the world needs to build the task. `max_steps`: the task's own step budget.
    Kept as a `Params`, with tuples for lists; neither can be changed."""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"Task.split: got {self.split!r}, expected one of {', '.join(SPLITS)}"
            )
        if not isinstance(self.params, Mapping):
            raise ConfigError(
                f"Task.params: got {type(self.params).__name__}, expected a dict of what JSON can hold"
            )
        if type(self.params) is not Params:
            object.__setattr__(self, "params", Params(self.params))

    def __hash__(self) -> int:
        return hash((self.world, self.id))

    def __copy__(self) -> Task:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Task:
        return self

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {
                "id": self.id,
                "instruction": self.instruction,
                "split": self.split,
                "world": self.world,
                "params": self.params,
            },
            ensure_ascii=False,
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Inverse of `to_json`."""
        return cls(**json.loads(text))


class LazyTasks(Sequence[Task]):
    """A long sequence of tasks that are built when asked for.

    Args:
        length: How many tasks there are.
        build: Makes task number ``i``; a pure function.
        index: Finds the number of a task id, or None if the sequence has no such task.
    """

    def __init__(
        self, length: int, build: Callable[[int], Task], index: Callable[[str], int | None]
    ) -> None:
        self._length, self._build, self._index = length, build, index

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, i: int) -> Task: ...
    @overload
    def __getitem__(self, i: slice) -> list[Task]: ...
    def __getitem__(self, i: int | slice) -> Task | list[Task]:
        if isinstance(i, slice):
            return [self._build(k) for k in range(*i.indices(self._length))]
        if not -self._length <= i < self._length:
            raise IndexError(f"task {i} of {self._length}")
        return self._build(i % self._length)

    def __iter__(self) -> Iterator[Task]:
        return (self._build(i) for i in range(self._length))

    def find(self, task_id: str) -> Task | None:
        """The task of that id, or None."""
        i = self._index(task_id)
        return None if i is None or not 0 <= i < self._length else self._build(i)


def find_task(tasks: Sequence[Task], task_id: str) -> Task | None:
    """The task of that id in any sequence of tasks, or None."""
    if isinstance(tasks, LazyTasks):
        return tasks.find(task_id)
    return next((t for t in tasks if t.id == task_id), None)
