"""The lockstep collector: single envs, one policy call for all that are alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from dyna_gym.batching import prepare
from dyna_gym.errors import ConfigError
from dyna_gym.policies.base import Policy, as_messages, prompt_of
from dyna_gym.progress import Progress
from dyna_gym.responses import Response
from dyna_gym.simulation import can_measure, draft_score, simulation_scores
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory, Transition


class _Slot:
    """One env and the episode that it is in."""

    def __init__(self, index: int, env: gym.Env[Any, Any]) -> None:
        self.index, self.env = index, env
        self.number = -1
        self.trajectory: Trajectory | None = None
        self.shown: Any = None
        self.info: dict[str, Any] = {}
        self.draft: tuple[str, Response] | None = None

    def start(self, number: int, task: Task, seed: int) -> None:
        self.number, self.draft = number, None
        self.shown, self.info = self.env.reset(seed=seed, options={"task": task})
        mode = "resim" if "search" in self.info else "plain"
        if "phase" in self.info:
            mode = "sim_rollout"
        self.trajectory = Trajectory(task, seed=seed, mode=mode, error=self.info.get("error"))

    def advance(self, response: Response, sim_score: float | None) -> bool:
        """Step the env with the response; whether the episode has ended."""
        trajectory, before = self.trajectory, self.info
        prompt, image = prompt_of(self.shown)
        assert trajectory is not None
        self.shown, reward, terminated, truncated, self.info = self.env.step(response.text)
        if self.info.get("phase") == "refine" and not (terminated or truncated):
            self.draft = (prompt, response)
            return False
        plain, draft = self.draft or (None, None)
        world = self.env.unwrapped.world  # type: ignore[attr-defined]
        futures = before.get("futures", ())
        trajectory.transitions.append(
            Transition(
                prompt=prompt,
                response=response,
                reward=float(reward),
                terminated=terminated,
                truncated=truncated,
                state=before["state"],
                action=self.info["action"],
                invalid_reason=self.info["invalid_reason"],
                plain_prompt=plain,
                draft=draft,
                futures=tuple((a, world.digest(s)) for a, s in futures),
                lookahead_steps=int(before.get("lookahead_steps", 0)),
                sim_score=sim_score,
                image=image,
            )
        )
        self.draft = None
        trajectory.success, trajectory.score = self.info["success"], self.info["score"]
        trajectory.error = self.info.get("error")
        return terminated or truncated


def collect(
    envs: Sequence[gym.Env[Any, Any]],
    policy: Policy,
    tasks: Sequence[Task],
    *,
    seed: int = 0,
    measure: bool = True,
    progress: str | None = None,
) -> list[Trajectory]:
    """Play one episode of each task.

    Envs are stepped in lockstep with one call of the policy for all that are in an episode; an env whose
    episode has ended takes the next task at once. A group is a task given several times.

    Args:
        envs: Agent envs of one kind (`dyna_gym.make_agent_env`).
        policy: Who answers.
        tasks: One episode each.
        seed: Seed of the episodes' own randomness; episode ``i`` is reset with ``seed + i``.
        measure: Whether to measure the simulation score of each response (in branches, whose steps are not
            counted as lookahead). Left out where the world cannot be branched.
        progress: Label of a progress bar, or None for no bar.

    Returns:
        One trajectory a task, in the order of the tasks. Those with ``error`` set are of failed machinery
        and must not be learned from.
    """
    if not envs:
        raise ConfigError("collect() got no envs, expected at least one")
    measure = measure and can_measure(envs[0])
    done: list[Trajectory | None] = [None] * len(tasks)
    slots = [_Slot(i, env) for i, env in enumerate(envs[: len(tasks)])]
    queue = iter(range(len(tasks)))
    bar = Progress(len(tasks), progress, unit="episodes")

    def finish(slot: _Slot) -> None:
        done[slot.number] = slot.trajectory
        bar.update()

    def next_task(slot: _Slot) -> bool:
        for number in queue:
            slot.start(number, tasks[number], seed + number)
            if not slot.info.get("error"):
                return True
            finish(slot)  # the machinery failed at reset: nothing to play
        return False

    live = [slot for slot in slots if next_task(slot)]
    while live:
        responses = policy.act(
            [as_messages(slot.shown) for slot in live],
            [{**slot.info, "slot": slot.index} for slot in live],
        )
        texts = [response.text for response in responses]
        scores = _measured(live, texts) if measure else [None] * len(live)
        prepare([slot.env for slot in live], texts)
        still = []
        for slot, response, score in zip(live, responses, scores, strict=True):
            if not slot.advance(response, score):
                still.append(slot)
                continue
            finish(slot)
            if next_task(slot):
                still.append(slot)
        live = still
    bar.close()
    return [t for t in done if t is not None]


def _measured(slots: Sequence[_Slot], texts: Sequence[str]) -> list[float | None]:
    """Simulation scores, before the responses are given: of drafts when they are refined."""
    scores: list[float | None] = [None] * len(slots)
    plain = [i for i, slot in enumerate(slots) if slot.info.get("phase") is None]
    found = simulation_scores([slots[i].env for i in plain], [texts[i] for i in plain])
    for i, score in zip(plain, found, strict=True):
        scores[i] = score
    for i, slot in enumerate(slots):
        if slot.info.get("phase") == "refine":
            scores[i] = draft_score(slot.env, slot.info)
    return scores


def split_failed(trajectories: Sequence[Trajectory]) -> tuple[list[Trajectory], int]:
    """Those to learn from, and how many the machinery spoiled."""
    good = [t for t in trajectories if t.error is None]
    return good, len(trajectories) - len(good)
