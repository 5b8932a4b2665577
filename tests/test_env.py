"""WorldEnv: tasks, options, bad actions, failing machinery, and the step budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from dyna_gym.branching import branch
from dyna_gym.env import observation_digest
from dyna_gym.errors import ConfigError, UnknownTask
from dyna_gym.task import LazyTasks, Task, find_task
from tests.worlds import CounterEnv, CounterWorld, FlakyEnv

Make = Callable[..., Any]


# -- tasks -----------------------------------------------------------------------------------------


def test_the_option_picks_the_task_whatever_the_seed(make: Make) -> None:
    env = make("Counter")
    for seed in (None, 0, 1):
        _, info = env.reset(seed=seed, options={"task": "counter/train/7"})
        assert info["task"].id == "counter/train/7"


def test_tasks_of_other_splits_and_own_tasks_can_be_picked(make: Make) -> None:
    env = make("Counter")
    assert env.reset(options={"task": "counter/eval_ood/0"})[0] == "n=0 goal=5"
    own = Task("mine", "Count.", "train", "counter", {"goal": 9, "start": 4})
    observation, info = env.reset(options={"task": own})
    assert (observation, info["task"]) == ("n=4 goal=9", own)


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("counter/train/99", "ids look like 'counter/train/0'"),
        (Task("x", "", "train", "sokoban"), "of world 'sokoban', expected one of 'counter'"),
        (12, "got task 12, expected a number below 12"),
        (-1, "got task -1, expected a number below 12"),
    ],
)
def test_unknown_tasks_are_told_and_change_nothing(make: Make, task: Any, told: str) -> None:
    env = make("Counter")
    _, info = env.reset(seed=0)
    with pytest.raises(UnknownTask, match=told) as caught:
        env.reset(options={"task": task})
    assert not str(caught.value).startswith(("'", '"'))
    assert env.unwrapped.task == info["task"]


@pytest.mark.parametrize("task", [5, np.int64(5), "counter/train/5"])
def test_a_task_is_picked_by_number_or_id(make: Make, task: Any) -> None:
    assert make("Counter").reset(options={"task": task})[1]["task"].id == "counter/train/5"


@pytest.mark.parametrize("task", [True, 5.0, b"x", ["counter/train/0"], np.array([1, 2])])
def test_a_task_of_a_wrong_type_is_a_type_error(make: Make, task: Any) -> None:
    env = make("Counter")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="expected a Task, a task id"):
        env.reset(options={"task": task})


def test_unknown_options_are_told(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"unknown keys \['tsk'\], expected only 'task'"):
        make("Counter").reset(options={"tsk": "counter/train/0"})


def test_the_callers_options_are_not_changed(make: Make) -> None:
    options = {"task": "counter/train/1"}
    make("Counter").reset(options=options)
    assert options == {"task": "counter/train/1"}


def test_tasks_argument_narrows_what_is_drawn(make: Make) -> None:
    env = make("Counter", tasks=["counter/train/3", "counter/eval_id/0"])
    drawn = {env.reset(seed=s)[1]["task"].id for s in range(20)}
    assert drawn == {"counter/train/3", "counter/eval_id/0"}
    assert [t.id for t in env.unwrapped.tasks] == ["counter/train/3", "counter/eval_id/0"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"split": "test"}, "split: got 'test', expected one of train, eval_id, eval_ood"),
        ({"max_steps": 0}, "max_steps: got 0"),
        ({"max_steps": "9"}, "max_steps: got '9'"),
        ({"render_mode": "human"}, "render_mode: got 'human'"),
        ({"tasks": []}, r"tasks: got \[\], expected a list"),
    ],
)
def test_bad_settings_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CounterEnv(**settings)


def test_split_decides_what_is_drawn(make: Make) -> None:
    env = make("Counter", split="eval_ood")
    assert {env.reset(seed=s)[1]["task"].split for s in range(10)} == {"eval_ood"}


def test_lazy_tasks_behave_as_a_sequence() -> None:
    tasks = LazyTasks(
        5,
        lambda i: Task(f"t/{i}", "", "train", "toy"),
        lambda task_id: int(task_id[2:]) if task_id.startswith("t/") else None,
    )
    assert len(tasks) == 5
    assert [t.id for t in tasks] == [f"t/{i}" for i in range(5)]
    assert tasks[-1].id == "t/4"
    assert [t.id for t in tasks[1:3]] == ["t/1", "t/2"]
    assert find_task(tasks, "t/3") == tasks[3]
    assert find_task(tasks, "t/5") is None is find_task(tasks, "x")
    for i in (5, -6):
        with pytest.raises(IndexError):
            tasks[i]


def test_tasks_are_frozen_hashable_json_and_know_their_splits() -> None:
    task = Task("a", "Do ü.", "eval_id", "toy", {"n": [1, 2]})
    assert Task.from_json(task.to_json()) == task
    assert len({task, Task.from_json(task.to_json())}) == 1
    with pytest.raises(AttributeError):
        task.id = "b"  # type: ignore[misc]
    with pytest.raises(ConfigError, match="got 'dev', expected one of"):
        Task("a", "", "dev", "toy")


# -- steps -----------------------------------------------------------------------------------------


def test_bad_actions_change_nothing_count_and_say_why(make: Make) -> None:
    env = make("Counter", max_steps=3)
    env.reset(seed=0)
    for text, reason in (("", "empty_action"), ("incinc", "unknown_action")):
        observation, reward, terminated, truncated, info = env.step(text)
        assert (observation[:3], reward, terminated, truncated) == ("n=0", 0.0, False, False)
        assert info["invalid_reason"] == reason
    info = env.step("wait")[4]
    assert info["invalid_reason"] is None
    assert env.unwrapped.observe()[1]["success"] is False


def test_info_at_reset(make: Make) -> None:
    _, info = make("Counter").reset(seed=0)
    assert info.keys() == {
        "task",
        "state",
        "admissible_actions",
        "invalid_reason",
        "success",
        "score",
    }
    assert info["admissible_actions"] == ("inc", "dec", "wait")


def test_stepping_at_the_wrong_time_is_told() -> None:
    env = CounterEnv()
    for call in (lambda: env.step("inc"), env.observe, env.clone_state):
        with pytest.raises(gym.error.ResetNeeded, match=r"call env\.reset\(\) first"):
            call()
    env.reset(options={"task": "counter/train/0"})
    env.step("inc")
    assert env.step("inc")[2]
    with pytest.raises(gym.error.ResetNeeded, match="has terminated"):
        env.step("inc")
    env.reset()
    env.step("inc")


def test_observe_is_what_step_returned(make: Make) -> None:
    env = make("Counter").unwrapped
    env.reset(seed=0)
    observation, _, _, _, info = env.step("dec")
    assert env.observe() == (observation, info)


# -- failing machinery -----------------------------------------------------------------------------


def test_a_failure_that_passes_is_not_seen(make: Make) -> None:
    env = make("Flaky", fail_at=[0, 1, 3])  # twice at reset, once at the first step
    observation, info = env.reset(seed=0)
    assert observation[:3] == "n=0"
    assert "error" not in info
    observation, _, _, truncated, info = env.step("dec")
    assert (observation[:4], truncated) == ("n=-1", False)
    assert "error" not in info
    assert env.unwrapped.calls == 5


def test_a_failure_that_stays_truncates_and_is_never_scored(make: Make) -> None:
    env = make("Flaky", fail_at=range(2, 99))
    env.reset(seed=0)
    env.step("dec")
    calls = env.unwrapped.calls
    observation, reward, terminated, truncated, info = env.step("inc")
    assert (observation[:4], reward, terminated, truncated) == ("n=-1", 0.0, False, True)
    assert info["error"] == "MachineryError: call 4 failed"
    assert (info["invalid_reason"], info["success"]) == (None, False)
    assert info["admissible_actions"] is None
    assert env.unwrapped.calls - calls == 3  # retries=2: bounded
    env.step("inc")
    assert env.unwrapped.calls - calls == 3  # given up: the machine is left alone
    assert env.unwrapped.observe()[1]["error"] == info["error"]


def test_a_failure_after_a_bad_action_is_not_the_agents(make: Make) -> None:
    env = make("Flaky", fail_at=range(2, 99))
    env.reset(seed=0)
    assert env.step("fly")[4]["invalid_reason"] == "unknown_action"
    assert env.step("inc")[4]["invalid_reason"] is None


def test_retries_are_a_setting() -> None:
    env = FlakyEnv(fail_at=range(99), retries=0)
    env.reset(seed=0)
    assert env.calls == 1


def test_a_failure_at_reset_truncates_the_first_step(make: Make) -> None:
    env = make("Flaky", fail_at=range(3))
    observation, info = env.reset(seed=0)
    assert (observation, info["error"]) == ("", "MachineryError: call 2 failed")
    assert env.step("inc")[1:4] == (0.0, False, True)
    _, info = env.reset(seed=0)  # the machine is back
    assert "error" not in info
    assert not env.step("inc")[3]


def test_other_exceptions_are_bugs_and_come_through() -> None:
    class Buggy(CounterEnv):
        def _apply(self, action: str) -> Any:
            raise ZeroDivisionError

    env = Buggy()
    env.reset(seed=0)
    with pytest.raises(ZeroDivisionError):
        env.step("inc")


def test_a_failure_inside_a_branch_stays_there(make: Make) -> None:
    env = make("Flaky", fail_at=range(1, 4))
    env.reset(seed=0)
    with branch(env) as below:
        assert below.step("inc")[4]["error"]
    assert "error" not in env.step("dec")[4]


def test_a_failing_replay_shows_as_error_of_the_next_step() -> None:
    class FlakyReplay(FlakyEnv):
        branching = "replay"

    env, other = FlakyReplay(), FlakyReplay(fail_at=range(9))
    env.reset(seed=0)
    other.restore_state(env.clone_state())
    assert other.step("inc")[1:4] == (0.0, False, True)
    assert "error" in other.observe()[1]
    assert other.calls == 3


# -- budgets ---------------------------------------------------------------------------------------


def steps_until_the_end(env: Any, **settings: Any) -> tuple[int, Any]:
    env.reset(seed=0, **settings)
    for count in range(1, 100):
        result = env.step("wait")
        if result[2] or result[3]:
            return count, result
    return 100, None


def test_budget_is_the_envs_else_the_tasks(make: Make) -> None:
    assert steps_until_the_end(make("Counter"))[0] == 12
    assert steps_until_the_end(make("Counter", max_steps=4))[0] == 4
    free = Task("free", "Count.", "train", "counter", {"goal": 3, "start": 0})
    assert steps_until_the_end(make("Counter"), options={"task": free})[0] == 100


def test_a_default_budget_for_tasks_without_one(make: Make) -> None:
    from dyna_gym.wrappers import TaskTimeLimit

    free = Task("free", "Count.", "train", "counter", {"goal": 3, "start": 0})
    env = TaskTimeLimit(CounterEnv(), default=6)
    assert steps_until_the_end(env, options={"task": free})[0] == 6
    assert steps_until_the_end(env)[0] == 12
    with pytest.raises(ConfigError, match="default: got 0"):
        TaskTimeLimit(CounterEnv(), default=0)


def test_truncation_judges_worlds_that_are_judged_at_the_end(make: Make) -> None:
    env = make("Judged", max_steps=2)
    env.reset(options={"task": "counter/train/0"})
    assert env.step("inc")[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step("inc")
    assert (reward, terminated, truncated) == (5.0, False, True)
    assert (info["success"], info["score"]) == (True, 1.0)
    _, result = steps_until_the_end(env)
    assert (result[1], result[4]["success"], result[4]["score"]) == (0.0, False, 0.25)


def test_no_judgement_after_a_failure(make: Make) -> None:
    env = make("Flaky", fail_at=range(2, 9), max_steps=2)
    env.unwrapped.finalize = lambda: pytest.fail("judged a failed episode")
    env.reset(seed=0)
    env.step("wait")
    assert "error" in env.step("wait")[4]


def test_success_on_the_last_step_is_a_termination(make: Make) -> None:
    env = make("Counter", max_steps=2)
    env.reset(options={"task": "counter/train/0"})
    env.step("inc")
    assert env.step("inc")[1:4] == (1.0, True, False)


# -- small things ----------------------------------------------------------------------------------


def test_digests_of_observations() -> None:
    a = observation_digest("text \ud800")
    assert a == observation_digest("text \ud800") != observation_digest("text")
    zeros = np.zeros((2, 3))
    assert observation_digest(zeros) != observation_digest(zeros.reshape(3, 2))


def test_candidates_must_be_given_where_the_set_is_unbounded() -> None:
    class Unbounded(CounterWorld):
        def admissible(self, state: str) -> None:
            return None

    with pytest.raises(NotImplementedError, match=r"must override candidates\(\)"):
        Unbounded().candidates("n=0 goal=1")
    assert CounterWorld().candidates("n=0 goal=1") == ("inc", "dec", "wait")
    with pytest.raises(NotImplementedError, match="TransformersPolicy"):
        CounterWorld().vocabulary()
