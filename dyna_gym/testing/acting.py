"""Checks of what an agent can write, and of who may succeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dyna_gym.wrappers as layers
from dyna_gym.responses import REASONS
from dyna_gym.task import Task
from dyna_gym.testing.common import (
    HOSTILE_RESPONSES,
    HOSTILE_TEXTS,
    HOSTILE_VALUES,
    NONSENSE,
    ContractError,
    Env,
    NotApplicable,
    all_splits,
    describe,
    episode_limit,
    is_text,
    listed_actions,
    made,
    pick_action,
    require,
    require_equal,
    require_text,
    sample_tasks,
    short,
    world_env,
)

Agent = Callable[[Any, dict[str, Any]], Any]


def _check_info(env: Env, info: dict[str, Any], where: str) -> None:
    fix = "build info in WorldEnv, and pass it on unchanged or extended in wrappers"
    for key in ("task", "admissible_actions", "invalid_reason", "success", "score"):
        require(key in info, f"no info[{key!r}] {where}", "it always there", fix)
    actions, reason, score = info["admissible_actions"], info["invalid_reason"], info["score"]
    require(isinstance(info["task"], Task), f"task {info['task']!r} {where}", "a Task", fix)
    listed = isinstance(actions, tuple) and all(isinstance(a, str) for a in actions)
    require(
        actions is None or listed,
        f"admissible_actions {short(actions)}",
        "tuple of str or None",
        fix,
    )
    require(
        reason is None or reason in REASONS,
        f"invalid_reason {reason!r} {where}",
        "None or a code of dyna_gym.responses.REASONS",
        "use one of its codes or add a new one there",
    )
    require(isinstance(info["success"], bool), f"success {info['success']!r}", "a bool", fix)
    good = isinstance(score, float) and 0.0 <= score <= 1.0
    require(good, f"score {score!r} {where}", "a float in [0, 1]", "scale the world's score")
    require("error" not in info, f"error {short(info.get('error'))} {where}", "no failure", fix)


def check_info(env_id: str, **make_kwargs: Any) -> str:
    """``info`` has all its keys, with the right types, at reset and at every step."""
    with made(env_id, **make_kwargs) as env:
        rng = np.random.default_rng(0)
        observation, info = env.reset(seed=0)
        _check_info(env, info, "at reset")
        for i in range(60):
            action = pick_action(env, observation, info, rng)
            listed = info["admissible_actions"]
            observation, reward, terminated, truncated, info = env.step(action)
            where = f"at step {i} (action {short(action, 40)})"
            _check_info(env, info, where)
            fix = "return plain Python values"
            require(type(reward) is float, f"reward {reward!r} {where}", "a float", fix)
            for flag in (terminated, truncated):
                require(type(flag) is bool, f"flag {flag!r} {where}", "a bool", fix)
            inside = env.observation_space.contains(observation)
            got = f"observation {short(observation)} {where}"
            require(inside, got, "one in observation_space", "make the space wide enough")
            if listed and action in listed:
                got = f"{info['invalid_reason']!r} for the admissible {action!r}"
                require(info["invalid_reason"] is None, got, "None", "accept what you list")
            if action == "":
                require(
                    info["invalid_reason"] is not None,
                    "invalid_reason None for an empty action",
                    "a code such as 'empty_action'",
                    "refuse it in World.parse_action",
                )
            if terminated or truncated:
                observation, info = env.reset()
                _check_info(env, info, "at reset")
    return "60 steps, all keys and types"


def _step_hostile(env: Env, text: Any, observation: Any) -> Any:
    try:
        observation, _, terminated, truncated, info = env.step(text)
    except Exception as error:
        raise ContractError(
            f"got: step({short(text, 60)}) raises {type(error).__name__}: {short(str(error))}; "
            "expected: no exception for anything that an agent can write; what to do: return an "
            "Outcome with invalid_reason and the state unchanged"
        ) from error
    require(
        "error" not in info,
        f"step({short(text, 60)}) set info['error']",
        "invalid_reason: the agent failed, not the machinery",
        "raise MachineryError only for machines",
    )
    if terminated or truncated:
        observation, _ = env.reset()
    return observation


def check_hostile_text(env_id: str, **make_kwargs: Any) -> str:
    """No text, however odd, and no value that is not text makes ``step`` raise."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        observation, _ = env.reset(seed=0)
        for text in HOSTILE_TEXTS:
            observation = _step_hostile(env, text, observation)
        for value in HOSTILE_VALUES:
            env.reset(seed=0)
            info = env.step(value)[4]
            got = f"invalid_reason None for step({value!r})"
            require(info["invalid_reason"] is not None, got, "a code", "accept strings only")
    return f"{len(HOSTILE_TEXTS)} texts and {len(HOSTILE_VALUES)} other values"


def check_hostile_responses(env_id: str, **make_kwargs: Any) -> str:
    """The same, for whole responses through each response layer."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        kinds = ["plain"] if world_env(env).branching == "none" else ["plain", "sim_rollout"]
    for kind in kinds:
        env = layers.make_agent_env(env_id, response=kind, **make_kwargs)
        observation: Any = env.reset(seed=0)[0]
        for text in (*HOSTILE_RESPONSES, *HOSTILE_TEXTS, *HOSTILE_VALUES):
            for _ in range(2 if kind == "sim_rollout" else 1):  # as a draft and as the answer
                observation = _step_hostile(env, text, observation)
        env.close()
    return f"{len(HOSTILE_RESPONSES)} responses through {' and '.join(kinds)}"


def _episode(env: Env, task: Task, agent: Agent) -> tuple[bool, int]:
    """Play one episode; whether any step said success, and how many there were."""
    observation, info = env.reset(seed=0, options={"task": task})
    success, limit = False, episode_limit(env, task)
    for step in range(limit):
        observation, _, terminated, truncated, info = env.step(agent(observation, info))
        success = success or bool(info["success"])
        if terminated or truncated:
            return success, step + 1
    return success, limit


def check_idle_agents(env_id: str, episodes: int = 5, **make_kwargs: Any) -> str:
    """Doing nothing, or writing nonsense, never succeeds; the step budget ends the episode."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        tasks = [task for split in all_splits(env) for task in sample_tasks(env, split, episodes)]
        for task in tasks:
            for text in NONSENSE:
                success, steps = _episode(env, task, lambda *_, text=text: text)
                require(
                    not success,
                    f"success on task {task.id} by writing {text!r} {steps} times",
                    "no success without a right action",
                    "drop the task, or check its goal before the first action",
                )
                budget = world_env(env).step_budget()
                got = f"an episode of {steps} steps, with a budget of {budget}"
                fix = "register the id with TaskTimeLimit"
                require(budget is None or steps == budget, got, "the budget to end it", fix)
    return f"{len(tasks)} tasks, {len(NONSENSE)} idle agents"


def check_random_agent(env_id: str, episodes: int = 5, **make_kwargs: Any) -> str:
    """Report how often random admissible actions succeed; always is too often."""
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        rng = np.random.default_rng(0)

        def agent(observation: Any, info: dict[str, Any]) -> str:
            actions = listed_actions(env, observation, info)
            return actions[int(rng.integers(len(actions)))] if actions else ""

        tasks = sample_tasks(env, world_env(env).split, 4 * episodes)
        rate = sum(_episode(env, task, agent)[0] for task in tasks) / len(tasks)
    require(
        rate < 1.0 or len(tasks) < 5,
        f"success of random actions on all of {len(tasks)} tasks",
        "tasks that need a plan",
        "make the tasks harder or the step budget smaller",
    )
    return f"random admissible actions solve {rate:.0%} of {len(tasks)} tasks"


def check_expert(env_id: str, episodes: int = 5, **make_kwargs: Any) -> str:
    """The world's expert reaches its ``score_floor`` on tasks of each split."""
    told = []
    with made(env_id, **make_kwargs) as env:
        oracle = getattr(world_env(env), "oracle", None)
        if oracle is None or not is_text(env):
            raise NotApplicable("the world has no oracle, or the env does not speak text")
        for split in all_splits(env):
            tasks = sample_tasks(env, split, episodes)
            solved = []
            for task in tasks:
                env.reset(seed=0, options={"task": task})
                solved.append(_episode(env, task, oracle.expert(env))[0])
            rate = sum(solved) / len(solved)
            missed = [task.id for task, good in zip(tasks, solved, strict=True) if not good]
            require(
                rate >= oracle.score_floor,
                f"success {rate:.2f} of the expert on {split}; missed {missed[:3]}",
                f"at least score_floor = {oracle.score_floor}",
                "mend the expert, the task's step budget or the floor",
            )
            told.append(f"{split} {rate:.0%}")
    return f"expert: {', '.join(told)} of {episodes} tasks each"


def check_returned_values(env_id: str, **make_kwargs: Any) -> str:
    """What was returned is not changed later, nor is the env by a caller who changes it."""
    fix = "return new objects, not the env's own buffers"
    with made(env_id, **make_kwargs) as env:
        rng = np.random.default_rng(0)
        observation, info = env.reset(seed=0)
        kept = [(observation, info, describe((observation, info)))]
        for _ in range(6):
            action = pick_action(env, observation, info, rng)
            observation, _, terminated, truncated, info = env.step(action)
            kept.append((observation, info, describe((observation, info))))
            if terminated or truncated:
                break
        env.reset(seed=1)
        for i, (observation, info, then) in enumerate(kept):
            what = f"observation and info of step {i}, when returned and later,"
            require_equal(then, describe((observation, info)), what, fix)
        _, info = env.reset(seed=2)
        before = describe(world_env(env).observe())
        info.clear()
        after = describe(world_env(env).observe())
        require_equal(before, after, "the env before and after the caller emptied info", fix)
    return f"{len(kept)} results unchanged later"
