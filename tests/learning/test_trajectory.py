"""Trajectories on disk and as flat records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_gym.errors import DynaGymWarning
from dyna_gym.responses import Response
from dyna_gym.task import Task
from dyna_gym.trajectory import (
    Trajectory,
    Transition,
    read_trajectories,
    to_records,
    write_trajectories,
)

TASK = Task(
    "toy/train/0", "Reach the d\u00f6\u00f6r.", "train", "toy", {"max_steps": 3, "sizes": [1, 2]}
)


def response(text: str = "up", n: int = 2) -> Response:
    return Response(text, (1, 2, 3), tuple(range(n)), (-0.25,) * n, "length", {"note": [1]})


def episode() -> Trajectory:
    first = Transition(
        prompt="with futures\n\u221a",
        response=response("line\u2028break \u00fc", 3),
        reward=-0.1,
        state="##\n#P",
        action="up",
        plain_prompt="plain",
        draft=response("draft", 4),
        futures=(("up", "P a1"), ("left", "P a0")),
        lookahead_steps=2,
        sim_score=0.5,
    )
    last = Transition("p", response(), 10.0, terminated=True, invalid_reason="no_action")
    return Trajectory(TASK, [first, last], True, 1.0, 7, "sim_rollout")


def failed() -> Trajectory:
    return Trajectory(TASK, [], error="MachineryError: gone")


def test_figures_of_an_episode() -> None:
    made = episode()
    assert made.total_reward == pytest.approx(9.9)
    assert made.tokens == 3 + 4 + 2
    assert made.lookahead_steps == 2
    assert made.sim_score == 0.5  # the mean over steps that have one
    assert made.transitions[0].refine_prompt == "with futures\n\u221a"
    assert made.transitions[1].refine_prompt is None
    empty = failed()
    assert (empty.total_reward, empty.tokens, empty.sim_score) == (0, 0, None)


def test_json_round_trip() -> None:
    for made in (episode(), failed()):
        line = made.to_json()
        assert "\n" not in line
        again = Trajectory.from_json(line)
        assert again == made
        for t, back in zip(made.transitions, again.transitions, strict=True):
            assert back.response.extra == t.response.extra  # left out of ==
            assert type(back.response.token_ids) is tuple
            assert type(back.futures) is tuple


@given(st.text(st.characters(codec=None, categories=None), max_size=20))
def test_any_text_that_a_model_writes_survives(text: str) -> None:
    """Lone surrogates, line separators, control characters."""
    made = Trajectory(TASK, [Transition(text, Response(text), draft=Response(text))])
    line = made.to_json()
    assert "\n" not in line
    assert "\r" not in line
    line.encode("utf-8")
    assert Trajectory.from_json(line) == made


def test_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "made" / "episodes.jsonl"
    odd = Trajectory(TASK, [Transition("a\rb\x85c\u2028d\ud800", Response("\r\n"))])
    made = [episode(), failed(), odd]
    write_trajectories(path, made)
    assert list(read_trajectories(path)) == made
    assert [p.name for p in path.parent.iterdir()] == ["episodes.jsonl"]
    write_trajectories(path, iter(made[:1]))
    assert list(read_trajectories(path)) == made[:1]


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_trajectories(path, [episode()])

    def broken() -> Iterator[Trajectory]:
        yield failed()
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_trajectories(path, broken())
    assert list(read_trajectories(path)) == [episode()]


@pytest.mark.parametrize("cut", [1, 2, 50, 400])
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "episodes.jsonl"
    write_trajectories(path, [episode(), episode(), episode()])
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read_trajectories(path)) == [episode(), episode()]


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_trajectories(path, [])
    assert list(read_trajectories(path)) == []


def test_records() -> None:
    records = to_records([episode(), failed(), episode()])
    assert [r["step"] for r in records] == [0, 1, 0, 1]
    expected: dict[str, Any] = {
        "task_id": "toy/train/0",
        "split": "train",
        "step": 0,
        "prompt": "with futures\n\u221a",
        "response": "line\u2028break \u00fc",
        "reward": -0.1,
        "success": True,
    }
    assert records[0] == expected
    assert {frozenset(r) for r in records} == {frozenset(expected)}  # one set of columns
    json.dumps(records)


def test_values_from_numpy_come_back_as_what_they_were() -> None:
    response = Response(
        "r",
        token_ids=tuple(np.arange(3)),
        logprobs=tuple(np.float32([-0.5, -1.5, 0])),
        extra={"entropy": np.float32(0.5), "mask": np.array([True, False])},
    )
    step = Transition(
        "p", response, np.float32(0.1), terminated=np.bool_(True), lookahead_steps=np.int64(7)
    )
    made = Trajectory(
        TASK, [step], success=np.bool_(False), score=np.float64(0.5), seed=np.int64(3)
    )
    back = Trajectory.from_json(made.to_json())
    assert back == made
    found = back.transitions[0]
    assert found.response.extra == {"entropy": 0.5, "mask": [True, False]}
    for value, kind in (
        (found.reward, float),
        (found.terminated, bool),
        (found.lookahead_steps, int),
        (found.response.token_ids[0], int),
        (found.response.logprobs[0], float),
        (back.success, bool),
        (back.score, float),
        (back.seed, int),
    ):
        assert type(value) is kind


def test_a_broken_line_in_the_middle_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_trajectories(path, [episode(), failed()])
    first, second = path.read_text(encoding="utf-8").split("\n")[:2]
    path.write_text(f"{first[:50]}{first}\n{second}\n", encoding="utf-8")
    with pytest.warns(DynaGymWarning, match="1 lines are no JSON"):
        assert list(read_trajectories(path)) == [failed()]
