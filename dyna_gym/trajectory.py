"""Trajectories: the one format that collectors, buffers, SFT sets, trainers and reports read.

On disk a JSONL file, one episode a line; pictures are PNG files in a folder beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dyna_gym.files import append_line, read_rows, to_json
from dyna_gym.images import ImageFolder, data_url, from_data_url
from dyna_gym.responses import Response
from dyna_gym.task import Task

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class Transition:
    """One executed step of an agent.

    A SimRollout step is one transition: the response is the refined one, which was executed.
    """

    prompt: str
    """What the executed response was sampled from (with SimRollout: the prompt with futures)."""
    response: Response
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    state: str = ""
    """The world's state before the step, as text."""
    action: str | None = None
    """The world action that was executed; None if the response had none."""
    invalid_reason: str | None = None
    plain_prompt: str | None = None
    """SimRollout: the prompt without futures, from which the draft was sampled."""
    draft: Response | None = None
    futures: tuple[tuple[str, str], ...] = ()
    """SimRollout: (action, real digest) of the draft's plan."""
    lookahead_steps: int = 0
    """Env steps that were taken in branches for this step."""
    sim_score: float | None = None
    """Simulation score of the response that was produced without futures; None if not measured."""
    image: np.ndarray | None = field(default=None, compare=False)
    """What the agent was shown beside the prompt: uint8 [height, width, 3]; None in worlds of text."""

    @property
    def refine_prompt(self) -> str | None:
        """SimRollout: the prompt with futures."""
        return self.prompt if self.draft is not None else None


@dataclass
class Trajectory:
    """One episode."""

    task: Task
    transitions: list[Transition] = field(default_factory=list)
    success: bool = False
    score: float = 0.0
    seed: int | None = None
    mode: str = "plain"
    """Response layer that made it: `plain`, `sim_rollout` or `resim`."""
    error: str | None = None
    """Failure of the machinery; such an episode is never trained on."""

    @property
    def total_reward(self) -> float:
        """Sum of the rewards, R(tau) of the paper."""
        return sum(t.reward for t in self.transitions)

    @property
    def sim_score(self) -> float | None:
        """Mean simulation score of the steps that have one."""
        scores = [t.sim_score for t in self.transitions if t.sim_score is not None]
        return sum(scores) / len(scores) if scores else None

    @property
    def tokens(self) -> int:
        """Generated tokens, drafts included."""
        return sum(
            len(t.response.token_ids) + (len(t.draft.token_ids) if t.draft else 0)
            for t in self.transitions
        )

    @property
    def lookahead_steps(self) -> int:
        """Env steps taken in branches."""
        return sum(t.lookahead_steps for t in self.transitions)

    def to_json(self, save_image: Callable[[np.ndarray], str] = data_url) -> str:
        """One line of JSON.

        Args:
            save_image: Puts a picture somewhere and names it; by default it is in the line itself.
        """
        data = asdict(replace(self, transitions=[replace(t, image=None) for t in self.transitions]))
        data["task"] = json.loads(self.task.to_json())
        for row, transition in zip(data["transitions"], self.transitions, strict=True):
            if transition.image is None:
                del row["image"]
            else:
                row["image"] = save_image(transition.image)
        line = to_json(data, ensure_ascii=False)
        if line.isascii() or not _SURROGATE.search(line):
            return line
        return to_json(data)  # what a model writes need not be valid Unicode

    @classmethod
    def from_json(
        cls, line: str, load_image: Callable[[str], np.ndarray] = from_data_url
    ) -> Trajectory:
        """Inverse of `to_json`; ``load_image`` that of its ``save_image``."""
        return cls._from_dict(json.loads(line), load_image)

    @classmethod
    def _from_dict(
        cls, data: dict[str, Any], load_image: Callable[[str], np.ndarray]
    ) -> Trajectory:
        for row in data["transitions"]:
            if "image" in row:
                row["image"] = load_image(row["image"])
        data["task"] = Task(**data["task"])
        data["transitions"] = [_transition(t) for t in data["transitions"]]
        return cls(**data)


def _response(data: dict[str, Any]) -> Response:
    lists = {k: tuple(data[k]) for k in ("prompt_ids", "token_ids", "logprobs")}
    return Response(**{**data, **lists})


def _transition(data: dict[str, Any]) -> Transition:
    data = dict(data)
    data["response"] = _response(data["response"])
    if data.get("draft") is not None:
        data["draft"] = _response(data["draft"])
    data["futures"] = tuple((a, d) for a, d in data["futures"])
    return Transition(**data)


def write_trajectories(path: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> None:
    """Write a JSONL file, all or nothing."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    with partial.open("w", encoding="utf-8") as file:
        for trajectory in trajectories:
            file.write(trajectory.to_json(ImageFolder(target).save) + "\n")
    os.replace(partial, target)


def append_trajectory(path: str | os.PathLike[str], trajectory: Trajectory) -> None:
    """Append an episode to a JSONL file; a crash loses at most this one."""
    append_line(path, trajectory.to_json(ImageFolder(Path(path)).save))


def read_trajectories(path: str | os.PathLike[str]) -> Iterator[Trajectory]:
    """Read a JSONL file; a last line that was cut off by a crash is left out."""
    images = ImageFolder(Path(path))
    for row in read_rows(path):
        yield Trajectory._from_dict(row, images.load)


def to_records(trajectories: Iterable[Trajectory]) -> list[dict[str, Any]]:
    """One flat dict a step, as `datasets.Dataset.from_list` takes them."""
    return [
        {
            "task_id": trajectory.task.id,
            "split": trajectory.task.split,
            "step": step,
            "prompt": t.prompt,
            "response": t.response.text,
            "reward": t.reward,
            "success": trajectory.success,
        }
        for trajectory in trajectories
        for step, t in enumerate(trajectory.transitions)
    ]
