"""The lockstep collector, and the rows that are made of its episodes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dyna_gym.errors import ConfigError
from dyna_gym.learning.collect import collect, split_failed
from dyna_gym.learning.rows import episode_rows
from dyna_gym.policies import RandomPolicy, as_messages
from dyna_gym.policies.base import Message, Policy
from dyna_gym.responses import Response, format_response, parse_response
from tests.policies.tiny import nano

ID = "DynaGym-Sokoban-v0"
ACTIONS = ("up", "down", "left", "right")
Make = Callable[..., Any]


class Scripted(Policy):
    """Plans of three actions that depend on the prompt only; its responses have tokens."""

    def __init__(self) -> None:
        self.coder = nano()
        self.batches: list[int] = []

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        self.batches.append(len(messages))
        return [self._one(m, info) for m, info in zip(messages, infos, strict=True)]

    def _one(self, messages: Sequence[Message], info: dict[str, Any]) -> Response:
        number = zlib.crc32(str(messages[-1]["content"]).encode())
        plan = [ACTIONS[number >> shift & 3] for shift in (0, 2, 4)]
        actions = info["admissible_actions"]
        plan = [a if a in actions else actions[number % len(actions)] for a in plan]
        text = format_response("", plan, plan[0])
        tokens = self.coder.encode_response(text)
        return Response(text, self.coder.encode(messages), tokens, (-0.5,) * len(tokens))


def tasks_of(env: Any, *numbers: int) -> list[Any]:
    return [env.unwrapped.tasks[n] for n in numbers]


def envs_of(make_agent: Make, count: int, name: str = ID, **settings: Any) -> list[Any]:
    return [make_agent(name, style="compact", history=0, **settings) for _ in range(count)]


# -- order, groups, lockstep ------------------------------------------------------------------------


def test_order_is_that_of_the_tasks(make_agent: Make) -> None:
    """Though episodes end in another order than they start in."""
    envs = [make_agent("Counter") for _ in range(3)]
    tasks = tasks_of(envs[0], 5, 2, 9, 0, 2, 7, 1)
    found = collect(envs, RandomPolicy(seed=0), tasks, seed=40)
    assert [e.task for e in found] == tasks
    assert [e.seed for e in found] == list(range(40, 47))
    assert len({len(e.transitions) for e in found}) > 1
    for episode in found:
        assert episode.mode == "plain"
        last = episode.transitions[-1]
        assert last.terminated or last.truncated
        assert not any(t.terminated or t.truncated for t in episode.transitions[:-1])
        assert episode.success == last.terminated


def test_what_is_recorded_is_what_happens(make_agent: Make) -> None:
    """The recorded responses, played again, give the recorded prompts and rewards."""
    env = envs_of(make_agent, 1)[0]
    tasks = tasks_of(env, 3)
    episode = collect([env], RandomPolicy(seed=1), tasks, seed=7)[0]
    prompt, info = env.reset(seed=7, options={"task": tasks[0]})
    for t in episode.transitions:
        assert (t.prompt, t.state) == (prompt, info["observation"])
        prompt, reward, terminated, truncated, info = env.step(t.response.text)
        assert (t.reward, t.terminated, t.truncated) == (reward, terminated, truncated)
        assert (t.action, t.invalid_reason) == (info["action"], info["invalid_reason"])
    assert (episode.success, episode.score) == (info["success"], info["score"])
    assert episode.total_reward == sum(t.reward for t in episode.transitions)


def test_groups_start_from_equal_prompts(make_agent: Make) -> None:
    envs = envs_of(make_agent, 3)
    tasks = [t for t in tasks_of(envs[0], 4, 8) for _ in range(4)]
    found = collect(envs, RandomPolicy(seed=0), tasks)
    groups = [found[:4], found[4:]]
    for group in groups:
        assert len({e.transitions[0].prompt for e in group}) == 1
        assert len({tuple(t.action for t in e.transitions) for e in group}) > 1
    assert groups[0][0].transitions[0].prompt != groups[1][0].transitions[0].prompt


@pytest.mark.parametrize("response", ["plain", "sim_rollout"])
def test_the_number_of_envs_does_not_matter(make_agent: Make, response: str) -> None:
    """With a policy that looks at the prompt only."""
    seen = []
    for count in (1, 2, 5, 9):
        envs = envs_of(make_agent, count, response=response)
        tasks = tasks_of(envs[0], 0, 1, 2, 3, 0, 1)
        seen.append([e.to_json() for e in collect(envs, Scripted(), tasks)])
    assert all(other == seen[0] for other in seen)


def test_one_call_for_all_that_are_alive(make_agent: Make) -> None:
    envs = envs_of(make_agent, 4)
    policy = Scripted()
    found = collect(envs, policy, tasks_of(envs[0], *range(6)))
    assert policy.batches[0] == 4
    assert sum(policy.batches) == sum(len(e.transitions) for e in found)
    assert len(policy.batches) < sum(policy.batches) / 2


def test_no_envs_and_no_tasks(make_agent: Make) -> None:
    with pytest.raises(ConfigError, match="got no envs"):
        collect([], Scripted(), [])
    assert collect(envs_of(make_agent, 1), Scripted(), []) == []


# -- failed machinery -------------------------------------------------------------------------------


class Counting(Policy):
    """Counts up, and knows nothing else."""

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        assert not any(i.get("error") for i in infos)  # nobody is asked after a failure
        return [Response(format_response(None, ["inc"], "inc"))] * len(infos)


@pytest.mark.parametrize("response", ["plain", "sim_rollout"])
def test_failed_episodes_are_marked_and_left_out(make_agent: Make, response: str) -> None:
    """One env fails at a reset and in the middle of an episode, and goes on with the next task."""
    # Calls: reset 0; 1 or, with the look ahead, 2 a step. Each task takes two steps.
    steps = 4 if response == "sim_rollout" else 2
    length = 1 + steps  # calls of an episode
    fail_at = [length, length + 1 + steps]  # the 2nd episode at its reset, the 3rd in its last step
    env = make_agent("Flaky", response=response, fail_at=fail_at, retries=0)
    task = env.unwrapped.tasks[0]
    found = collect([env], Counting(), [task] * 4, measure=False)
    assert [e.error is None for e in found] == [True, False, False, True]
    assert [len(e.transitions) for e in found] == [2, 0, 2, 2]
    assert [e.success for e in found] == [True, False, False, True]
    assert "call" in str(found[1].error)
    last = found[2].transitions[-1]
    assert last.truncated
    assert last.reward == 0.0
    good, failed = split_failed(found)
    assert good == [found[0], found[3]]
    assert failed == 2


def test_failures_are_tried_again_first(make_agent: Make) -> None:
    env = make_agent("Flaky", fail_at=[1, 2], retries=2)
    found = collect([env], Counting(), [env.unwrapped.tasks[0]], measure=False)
    assert split_failed(found) == (found, 0)


def test_all_failed(make_agent: Make) -> None:
    env = make_agent("Flaky", fail_at=range(99), retries=0)
    found = collect([env], Counting(), list(env.unwrapped.tasks[:3]))
    assert [e.task for e in found] == list(env.unwrapped.tasks[:3])
    assert split_failed(found) == ([], 3)


# -- SimRollout and its rows ------------------------------------------------------------------------


def test_a_sim_rollout_step_is_one_transition(make_agent: Make) -> None:
    env = envs_of(make_agent, 1, response="sim_rollout")[0]
    policy = Scripted()
    tasks = tasks_of(env, 3)
    episode = collect([env], policy, tasks)[0]
    world = env.unwrapped.world
    assert episode.mode == "sim_rollout"
    assert sum(policy.batches) == 2 * len(
        episode.transitions
    )  # a draft and a refined response each

    plain = make_agent(ID, style="compact", history=0)
    prompt, info = plain.reset(options={"task": tasks[0]})
    for t in episode.transitions:
        assert t.draft is not None
        assert t.plain_prompt == prompt  # the draft saw what a plain agent sees
        assert t.state == info["observation"]
        assert t.prompt.endswith(prompt)
        assert t.prompt != prompt
        assert t.refine_prompt == t.prompt
        plan = parse_response(t.draft.text).plan
        assert tuple(a for a, _ in t.futures) == plan[: len(t.futures)]
        assert t.lookahead_steps == len(t.futures) > 0
        assert t.action == parse_response(t.response.text).action  # the refined one was executed
        assert t.sim_score == 0.0  # its drafts imagine nothing
        prompt, reward, _, _, info = plain.step(t.response.text)
        assert t.reward == reward
        if t.draft.text == t.response.text:
            assert t.futures[0][1] == world.digest(info["observation"])
    assert episode.success == info["success"]


def test_counts_include_drafts(make_agent: Make) -> None:
    env = envs_of(make_agent, 1, response="sim_rollout")[0]
    episode = collect([env], Scripted(), tasks_of(env, 3))[0]
    drafts = [t.draft for t in episode.transitions if t.draft is not None]
    responses = [t.response for t in episode.transitions]
    assert episode.tokens == sum(len(r.token_ids) for r in [*drafts, *responses])
    assert episode.tokens > sum(len(r.token_ids) for r in responses) > 0
    assert episode.lookahead_steps == sum(len(t.futures) for t in episode.transitions)


def test_rows_of_sim_rollout(make_agent: Make) -> None:
    """The same tokens twice: tau' under the plain prompt, tau'_ref under the prompt with futures."""
    env = envs_of(make_agent, 1, response="sim_rollout")[0]
    policy = Scripted()
    episode = collect([env], policy, tasks_of(env, 3))[0]
    steps = len(episode.transitions)
    assert steps > 1
    plain = episode_rows(episode, 1.0, 0.5, policy.coder, prompts="plain")
    refined = episode_rows(episode, 1.0, 0.5, policy.coder)
    for t, tau, tau_ref in zip(episode.transitions, plain, refined, strict=True):
        assert tau.token_ids == tau_ref.token_ids == t.response.token_ids
        assert tau.prompt_ids == policy.coder.encode(as_messages(t.plain_prompt))
        assert tau_ref.prompt_ids == policy.coder.encode(as_messages(t.prompt))
        assert tau.prompt_ids != tau_ref.prompt_ids
        assert tau.old_logprobs is None  # off-policy: computed anew under the plain prompt
        assert tau_ref.old_logprobs == t.response.logprobs
        assert tau.weight == tau_ref.weight == pytest.approx(0.5 / steps)
        assert tau.advantage == tau_ref.advantage == 1.0


def test_rows_of_plain_episodes_are_the_same_either_way(make_agent: Make) -> None:
    env = envs_of(make_agent, 1)[0]
    policy = Scripted()
    episode = collect([env], policy, tasks_of(env, 3))[0]
    assert episode_rows(episode, 1.0, 1.0, policy.coder, prompts="plain") == episode_rows(
        episode, 1.0, 1.0, policy.coder
    )


# -- the simulation score ---------------------------------------------------------------------------


class Imagining(Policy):
    """Imagines that its first action leads to where it really leads, and its second to nowhere."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self.envs = envs

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        found = []
        for info in infos:
            n = int(info["observation"].split()[0][2:])
            think = f"<sim> inc -> n {n + 1} | inc -> n 99 </sim>"
            found.append(Response(format_response(think, ["inc", "inc"], "inc")))
        return found


@pytest.mark.parametrize("response", ["plain", "sim_rollout"])
def test_simulation_score(make_agent: Make, response: str) -> None:
    env = make_agent("Counter", response=response)
    task = env.unwrapped.tasks[2]  # four steps
    policy = Imagining([env])
    episode = collect([env], policy, [task])[0]
    # In the last step the plan ends with the episode, after its first action.
    assert [t.sim_score for t in episode.transitions] == [0.5, 0.5, 0.5, 1.0]
    assert episode.sim_score == pytest.approx(0.625)
    unmeasured = collect([env], policy, [task], measure=False)[0]
    assert unmeasured.sim_score is None
    if response == "plain":
        assert episode.lookahead_steps == 0  # measuring is not counted


def test_no_simulation_score_where_nothing_can_be_branched(make_agent: Make) -> None:
    env = make_agent("Posting")
    assert collect([env], Counting(), [env.unwrapped.tasks[0]])[0].sim_score is None
