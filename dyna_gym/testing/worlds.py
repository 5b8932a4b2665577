"""Checks of the World: its tasks, its texts and its grammar."""

from __future__ import annotations

from typing import Any

from dyna_gym.responses import REASONS
from dyna_gym.task import SPLITS, Task
from dyna_gym.testing.common import (
    HOSTILE_TEXTS,
    HOSTILE_VALUES,
    ContractError,
    all_splits,
    describe,
    made,
    require,
    require_text,
    sample_tasks,
    short,
    world_env,
)
from dyna_gym.wrappers import AbstractStateWrapper


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


def check_world_texts(env_id: str, **make_kwargs: Any) -> str:
    """World and env agree on first states and admissible actions; digests are single lines."""
    with made(env_id, **make_kwargs) as bare:
        require_text(bare)
        world = world_env(bare).world
        env = AbstractStateWrapper(bare)
        count = 0
        for split in all_splits(bare):
            for task in sample_tasks(bare, split, 3):
                state, info = env.reset(seed=0, options={"task": task})
                expected = world.initial_abstract(task)
                fix = (
                    "initial_abstract(task) must be what abstract() makes of the first observation"
                )
                require(state == expected, f"first state {short(state)}", short(expected), fix)
                got, expected_actions = info["admissible_actions"], world.admissible(state)
                fix = "let the env's _admissible ask the world"
                same = got == expected_actions
                require(same, f"admissible {short(got)}", short(expected_actions), fix)
                digest = world.digest(state)
                one_line = bool(digest) and digest.splitlines() == [digest] and "|" not in digest
                fix = "digests stand in <sim> lines: one line, without '|'"
                require(one_line, f"digest {short(digest)}", "one line of text", fix)
                equal = world.same_state(digest, digest)
                require(equal, "same_state(d, d) is False", "True", "mend same_state")
                actions = world.candidates(state)
                fix = "override candidates() where the set is unbounded"
                require(len(actions) > 0, "no candidates in a first state", "some", fix)
                for action in actions:
                    parsed = world.parse_action(action)
                    fix = "parse_action must read what admissible and candidates list"
                    require(
                        parsed.action == action and parsed.reason is None,
                        f"{parsed} for the listed {action!r}",
                        f"the action {action!r} without a reason",
                        fix,
                    )
                count += 1
        for text in (*HOSTILE_TEXTS, *HOSTILE_VALUES):
            try:
                parsed = world.parse_action(text)
            except Exception as error:
                raise ContractError(
                    f"got: parse_action({short(text, 60)}) raises {type(error).__name__}: {error}; "
                    "expected: a ParsedAction; what to do: return a reason code"
                ) from error
            readable = (parsed.action is None) == (parsed.reason is not None)
            known = parsed.reason is None or parsed.reason in REASONS
            fix = "either an action, or None with a code of dyna_gym.responses.REASONS"
            require(readable and known, f"{describe(parsed)} for {short(text, 60)}", fix, "mend it")
    return f"{count} tasks"
