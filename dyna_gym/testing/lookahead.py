"""Checks of what a draft may do: look ahead, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dyna_gym.errors import MachineryError
from dyna_gym.responses import format_response
from dyna_gym.testing.common import NotApplicable, describe, require, require_equal
from dyna_gym.testing.playing import (
    SECONDS,
    Env,
    Timed,
    deterministic,
    listed_actions,
    made,
    require_text,
    sample_tasks,
    world_env,
)
from dyna_gym.wrappers import SimRolloutWrapper

SEEDS = 40
COMMON = 0.2
"""Share of seeds in which the second most common outcome must come for the dynamics to count as noisy."""


def _require_branching(env_id: str, make_kwargs: dict[str, Any]) -> None:
    with made(env_id, **make_kwargs) as env:
        require_text(env)
        if world_env(env).branching == "none":
            raise NotApplicable('branching = "none"')


def _draft(env: Env, info: dict[str, Any], length: int = 5) -> str:
    action = listed_actions(env, info)[0]
    return format_response(None, [action] * length, action)


def check_drafts_are_not_judged(env_id: str, **make_kwargs: Any) -> str:
    """A plan that reaches the step budget is tried without asking the judge; the episode's end asks once."""
    _require_branching(env_id, make_kwargs)
    # With a limit that the plan runs into. It stands below TaskTimeLimit, which judges at the end.
    with made(env_id, **{**make_kwargs, "max_episode_steps": 2}) as below:
        base = world_env(below)
        asked: list[str] = []
        judge = base._finalize

        def counted() -> Any:
            asked.append("asked")
            judgement = judge()  # which may fail, and is asked again then
            asked[-1] = "judged"
            return judgement

        base._finalize = counted  # type: ignore[method-assign]
        env = SimRolloutWrapper(below)
        _, info = env.reset(seed=0)
        draft = _draft(env, info)
        fix = "leave finalize() to WorldEnv, and judge in _finalize() only"
        ended = False
        while not ended:
            _, _, _, ended, info = env.step(draft)
            got = f"the judge was asked {len(asked)} times for a draft"
            require(not asked, got, "never: nothing of a draft has happened", fix)
            require(not ended, "an episode that a draft ended", "drafts never end one", fix)
            _, _, terminated, truncated, info = env.step("<action></action>")
            ended = terminated or truncated
            require("error" not in info, f"error {info.get('error')}", "none", fix)
        got = f"{asked.count('judged')} judgements of an episode"
        require(asked.count("judged") <= 1, got, "one, at the end", fix)
    return "drafts that reach the limit ask no judge"


def check_drafts_hide_noise(
    env_id: str, seconds: float | None = SECONDS, **make_kwargs: Any
) -> str:
    """Where the next state is a matter of chance, a draft does not show which one it will be."""
    _require_branching(env_id, make_kwargs)
    with made(env_id, **make_kwargs) as below:
        task = sample_tasks(below, world_env(below).split, 1)[0]
        env = SimRolloutWrapper(below)
        came: list[str] = []
        foretold = 0
        seeds = Timed(range(SEEDS), seconds)
        for seed in seeds:
            _, info = env.reset(seed=seed, options={"task": task})
            draft = _draft(env, info, 1)
            futures = env.step(draft)[4]["futures"]
            came.append(env.step(draft)[4]["state"])
            foretold += bool(futures) and futures[0][1] == came[-1]
        counts = Counter(came).most_common(2)
        chance = len(counts) > 1 and counts[1][1] >= COMMON * len(came)
        if not chance or len(came) < SEEDS // 2 or not deterministic(env):
            return f"the first step of a task is no matter of chance ({seeds.told('seeds')})"
        require(
            foretold < len(came),
            f"{foretold} of {len(came)} drafts foretold the outcome of chance",
            "other noise in drafts than in the episode",
            "draw from self.np_random only: branches are given another state of it",
        )
    return f"drafts foretold {foretold} of {len(came)} outcomes of chance"


def check_broken_draft(env_id: str, **make_kwargs: Any) -> str:
    """If the machinery cannot put the env back after a draft, the episode ends with ``info["error"]``."""
    _require_branching(env_id, make_kwargs)
    with made(env_id, **make_kwargs) as below:
        base = world_env(below)
        if base.branching != "snapshot":
            raise NotApplicable("a replay world looks ahead in a second instance")
        base.backoff_s = 0.0
        env = SimRolloutWrapper(below)
        _, info = env.reset(seed=0)

        def broken(state: Any) -> None:
            raise MachineryError("the check has broken the machine")

        base._set_state = broken  # type: ignore[method-assign]
        fix = "leave restore_state() to WorldEnv, and raise MachineryError in _set_state only"
        before = describe(base.observe()[0])
        result = env.step(_draft(env, info))
        if not result[3]:  # it may be told by the step after the draft, which must not act
            result = env.step(_draft(env, info))
        del base._set_state
        _, reward, terminated, truncated, info = result
        got = f"reward {reward}, terminated {terminated}, truncated {truncated}"
        right = (reward, terminated, truncated) == (0.0, False, True)
        require(right, got, "reward 0 and truncation", fix)
        require(bool(info.get("error")), "no info['error']", "it there", fix)
        what = "the observation before the draft and after the failure"
        require_equal(before, describe(base.observe()[0]), what, fix)
        _, info = env.reset(seed=0)
        require("error" not in info, "an error after the next reset", "a new episode", fix)
    return "a broken machine in a draft ends in info['error']"
