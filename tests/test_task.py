"""Task: deeply immutable, shared, and JSON."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyna_gym.errors import ConfigError
from dyna_gym.task import Task
from tests.worlds import TO_TWO

Make = Callable[..., Any]

NESTED = {"n": [1, [2, {"x": 3}]], "sub": {"list": [], "none": None}, "ok": True, "text": "ü"}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "set": lambda params: params.__setitem__("max_steps", 1),
    "delete": lambda params: params.__delitem__("ok"),
    "update": lambda params: params.update(ok=False),
    "or": lambda params: params.__ior__({"ok": False}),
    "pop": lambda params: params.pop("ok"),
    "popitem": lambda params: params.popitem(),
    "setdefault": lambda params: params.setdefault("max_steps", 1),
    "clear": lambda params: params.clear(),
    "nested dict": lambda params: params["sub"].update(x=1),
    "nested list": lambda params: params["n"].append(3),
    "list in a list": lambda params: params["n"][1].append(3),
    "dict in a list": lambda params: params["n"][1][1].clear(),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_task_cannot_be_changed_by_who_reads_it(kind: str) -> None:
    given = copy.deepcopy(NESTED)
    task = Task("a", "", "train", "toy", given)
    given["n"].append("later")  # type: ignore[union-attr]
    with pytest.raises((TypeError, AttributeError)):
        CHANGES[kind](task.params)
    assert json.loads(json.dumps(task.params)) == NESTED


def test_copies_of_a_task() -> None:
    task = Task("a", "", "train", "toy", NESTED)
    assert copy.deepcopy(task) is task is copy.copy(task)
    assert copy.deepcopy({"task": task})["task"].params is task.params
    for again in (pickle.loads(pickle.dumps(task)), Task.from_json(task.to_json())):
        assert again == task
        assert hash(again) == hash(task)
        with pytest.raises(TypeError, match="cannot be changed"):
            again.params["x"] = 1
    assert dataclasses.asdict(task)["params"] == task.params
    more = dataclasses.replace(task, id="b", params={**task.params, "max_steps": 3})
    assert more.params["max_steps"] == 3
    assert "max_steps" not in task.params


def test_the_budget_of_an_env_cannot_be_changed_through_info(make: Make) -> None:
    env = make("Counter")
    info = env.reset(seed=0, options=TO_TWO)[1]
    with pytest.raises(TypeError, match="the params of a Task cannot be changed"):
        info["task"].params["max_steps"] = 1
    assert env.unwrapped.step_budget() == 12


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"x": {1, 2}}, r"Task\.params\['x'\]: got set"),
        ({"x": [0, {"y": np.zeros(2)}]}, r"Task\.params\['x'\]\[1\]\['y'\]: got ndarray"),
        ({1: "x"}, "got the key 1, expected str"),
        ({"x": {2: 1}}, r"Task\.params\['x'\]: got the key 2"),
        ([1], "got list, expected a dict"),
        (None, "got NoneType, expected a dict"),
    ],
)
def test_params_that_json_cannot_hold_are_told(params: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Task("a", "", "train", "toy", params)


def test_numpy_numbers_in_params_become_plain_ones() -> None:
    task = Task("a", "", "train", "toy", {"n": np.int64(3), "xs": [np.float32(0.5)]})
    assert Task.from_json(task.to_json()) == task
    assert type(task.params["n"]) is int
