"""Checks of the World: its tasks, its texts and its grammar."""

from __future__ import annotations

from typing import Any

from dyna_gym.responses import REASONS
from dyna_gym.task import SPLITS, Task
from dyna_gym.testing.common import (
    HOSTILE_TEXTS,
    HOSTILE_VALUES,
    ContractError,
    require,
    short,
)
from dyna_gym.testing.playing import made, require_text, sample_tasks, world_env


def check_splits(env_id: str, **make_kwargs: Any) -> str:
    """Ids are unique, splits are disjoint, and a task says which split and world it is of."""
    with made(env_id, **make_kwargs) as env:
        base = world_env(env)
        ids: dict[str, str] = {}
        for split in SPLITS:
            for task in base.world.tasks(split):
                got = f"task {task.id!r} of {task.world!r}, {task.split!r} in tasks({split!r})"
                right = task.split == split and task.world == base.world.name
                fix = "decide the split once, by the task's id, never by position"
                require(right, got, f"split {split!r}, world {base.world.name!r}", fix)
                other = ids.setdefault(task.id, split)
                got = f"task {task.id!r} in {other!r} and {split!r}"
                require(other == split, got, "disjoint splits", fix)
            count = sum(other == split for other in ids.values())
            length = len(base.world.tasks(split))
            got = f"{count} different ids for {length} tasks of {split!r}"
            require(count == length, got, "unique ids", "name each task once")
            for task in sample_tasks(env, split, 20):
                try:
                    again = Task.from_json(task.to_json())
                except (TypeError, ValueError) as error:
                    raise ContractError(
                        f"got: task {task.id!r} is no JSON ({error}); expected: JSON-able params; "
                        "what to do: keep numbers, strings, lists and dicts in params"
                    ) from error
                fix = "keep params JSON-able"
                require(again == task, f"{short(again)} from JSON", f"{short(task)}", fix)
                found = base.lookup_task(task.id)
                require(found == task, f"{short(found)} by id", f"{short(task)}", "find it by id")
    sizes = {split: list(ids.values()).count(split) for split in SPLITS}
    return ", ".join(f"{split} {size}" for split, size in sizes.items())


def check_grammar(env_id: str, **make_kwargs: Any) -> str:
    """`World.parse_action` reads or refuses whatever an agent writes, with a reason that is known."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        world = world_env(env).world
        for text in (*HOSTILE_TEXTS, *HOSTILE_VALUES):
            try:
                parsed = world.parse_action(text)
            except Exception as error:
                raise ContractError(
                    f"got: parse_action({short(text, 60)}) raises {type(error).__name__}: {error}; "
                    "expected: a ParsedAction; what to do: return a reason code"
                ) from error
            readable = (parsed.action is None) == (parsed.reason is not None)
            known = parsed.reason is None or parsed.reason in {**REASONS, **world.reasons}
            fix = "either an action, or None with a code of REASONS or of the world's own `reasons`"
            require(readable and known, f"{parsed} for {short(text, 60)}", fix, "mend it")
    return f"{len(HOSTILE_TEXTS)} texts and {len(HOSTILE_VALUES)} other values"
