"""Checks of who may succeed: agents that do nothing, random ones, and the world's expert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dyna_gym.task import Task
from dyna_gym.testing.common import NONSENSE, NotApplicable, require
from dyna_gym.testing.playing import (
    SECONDS,
    Env,
    Timed,
    all_splits,
    episode_limit,
    listed_actions,
    made,
    mixed_tasks,
    require_text,
    sample_tasks,
    takes_text,
    world_env,
)

Agent = Callable[[Any, dict[str, Any]], Any]


def _episode(env: Env, task: Task, agent: Agent) -> tuple[bool, int, bool]:
    """Play one episode; whether any step said success, its steps, and whether the world ended it."""
    observation, info = env.reset(seed=0, options={"task": task})
    success, limit = False, episode_limit(env, task)
    for step in range(limit):
        observation, _, terminated, truncated, info = env.step(agent(observation, info))
        success = success or bool(info["success"])
        if terminated or truncated:
            own = world_env(env)._last
            return success, step + 1, terminated or bool(own and own.truncated)
    return success, limit, False


def check_idle_agents(
    env_id: str, episodes: int = 5, seconds: float | None = SECONDS, **make_kwargs: Any
) -> str:
    """Doing nothing, or writing nonsense, never succeeds; the step budget ends the episode."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        pairs = [(task, text) for text in NONSENSE for task in mixed_tasks(env, episodes)]
        played = Timed(pairs, seconds)
        for task, text in played:
            success, steps, ended = _episode(env, task, lambda *_, text=text: text)
            require(
                not success,
                f"success on task {task.id} by writing {text!r} {steps} times",
                "no success without a right action",
                "drop the task, or check its goal before the first action",
            )
            budget = world_env(env).step_budget()
            got = f"an episode of {steps} steps, with a budget of {budget}"
            fix = "register the id with dyna_gym.registration.register_world"
            require(budget is None or ended or steps == budget, got, "the budget to end it", fix)
    return f"{played.told('episodes')} of {len(NONSENSE)} idle agents"


def check_random_agent(
    env_id: str, episodes: int = 5, seconds: float | None = SECONDS, **make_kwargs: Any
) -> str:
    """Report how often random admissible actions succeed; always is too often."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        rng = np.random.default_rng(0)

        def agent(observation: Any, info: dict[str, Any]) -> str:
            actions = listed_actions(env, info)
            return actions[int(rng.integers(len(actions)))] if actions else ""

        tasks = Timed(sample_tasks(env, world_env(env).split, 4 * episodes), seconds)
        solved = [_episode(env, task, agent)[0] for task in tasks]
    require(
        not all(solved) or len(solved) < 5,
        f"success of random actions on all of {len(solved)} tasks",
        "tasks that need a plan",
        "make the tasks harder or the step budget smaller",
    )
    rate = sum(solved) / len(solved)
    return f"random admissible actions solve {rate:.0%} of {tasks.told('tasks')}"


def check_expert(
    env_id: str, episodes: int = 5, seconds: float | None = SECONDS, **make_kwargs: Any
) -> str:
    """The world's expert reaches its ``score_floor`` on tasks of each split."""
    with made(env_id, **make_kwargs) as env:
        oracle = getattr(world_env(env), "oracle", None)
        if oracle is None or not takes_text(env):
            raise NotApplicable("the world has no oracle, or its actions are no text")
        tasks = Timed(mixed_tasks(env, episodes), seconds)
        solved: dict[str, list[bool]] = {split: [] for split in all_splits(env)}
        missed = []
        for task in tasks:
            env.reset(seed=0, options={"task": task})
            solved[task.split].append(_episode(env, task, oracle.expert(env))[0])
            missed += [] if solved[task.split][-1] else [task.id]
        rates = {split: sum(s) / len(s) for split, s in solved.items() if s}
        for split, rate in rates.items():
            require(
                rate >= oracle.score_floor,
                f"success {rate:.2f} of the expert on {split}; missed {missed[:3]}",
                f"at least score_floor = {oracle.score_floor}",
                "mend the expert, the task's step budget or the floor",
            )
    told = ", ".join(f"{split} {rate:.0%}" for split, rate in rates.items())
    return f"expert: {told} of {tasks.told('tasks')}"
