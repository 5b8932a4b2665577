"""Gymnasium's own wrappers: each can be branched without a trace, or is refused with a reason."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gw
from gymnasium.spaces import Box, Dict

from dyna_gym.adapters import GYMNASIUM, REFUSED, kind_of, register_adapter
from dyna_gym.branching import branch, check_branchable, clone, restore
from dyna_gym.env import Outcome
from dyna_gym.errors import BranchError
from dyna_gym.spaces import TextBatch, UnicodeText
from dyna_gym.wrappers import SimRolloutWrapper, TaskTimeLimit
from tests.worlds import CounterWorld, NoisyEnv

Wrap = Callable[[Any], Any]


class ArrayWorld(CounterWorld):
    def abstract(self, previous: str | None, action: Any, observation: Any) -> str:
        if isinstance(observation, dict):
            observation = observation["numbers"]
        return f"n={int(np.ravel(observation)[0])} goal=999"


class ArrayEnv(NoisyEnv):
    """Numbers in and out, noisy everywhere, with pictures to render."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}
    world_class = ArrayWorld

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = Box(-100, 100, (4,), np.float64)
        self.action_space = Box(-1, 1, (1,), np.float32)

    def _observation(self) -> Any:
        return np.array([self.n, *self.np_random.random(3)])

    def _apply(self, action: Any) -> Outcome[Any]:
        self.n += round(float(np.ravel(action)[0]) * 3) + int(self.np_random.integers(2))
        reward = float(self.np_random.normal(self.n))
        return Outcome(self._observation(), reward)

    def _set_state(self, state: Any) -> None:
        self.n = state

    def render(self) -> Any:
        return np.full((6, 6, 3), 100 + self.n, np.uint8)


class PictureEnv(ArrayEnv):
    """Observes pictures."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = Box(0, 255, (6, 6, 3), np.uint8)

    def _observation(self) -> Any:
        return self.np_random.integers(100, 100 + max(1, self.n), (6, 6, 3), dtype=np.uint8)


class DictEnv(ArrayEnv):
    """Observes two things."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = Dict(numbers=Box(-100, 100, (4,)), half=Box(-50, 50, (1,)))

    def _observation(self) -> Any:
        numbers = super()._observation().astype(np.float32)
        return {"numbers": numbers, "half": numbers[:1] / 2}


class FarEnv(NoisyEnv):
    """Its goal is out of reach."""

    goal = 999


TEXT, ARRAY, PICTURE, DICT = FarEnv, ArrayEnv, PictureEnv, DictEnv


class Running:
    """A function with state, as people give it to ``Transform...``."""

    def __init__(self) -> None:
        self.total = 0.0

    def __call__(self, value: Any) -> Any:
        self.total += float(np.ravel(value)[0])
        return value * 0 + self.total


CASES: dict[str, tuple[type[Any], Wrap]] = {
    "AddRenderObservation": (ARRAY, lambda e: gw.AddRenderObservation(e, render_only=False)),
    "AddWhiteNoise": (ARRAY, lambda e: gw.AddWhiteNoise(e, 0.5)),
    "Autoreset": (TEXT, gw.Autoreset),
    "ClipAction": (ARRAY, gw.ClipAction),
    "ClipReward": (ARRAY, lambda e: gw.ClipReward(e, -1.0, 1.0)),
    "DelayObservation": (TEXT, lambda e: gw.DelayObservation(e, 2)),
    "DelayObservation of arrays": (ARRAY, lambda e: gw.DelayObservation(e, 2)),
    "DiscretizeAction": (ARRAY, lambda e: gw.DiscretizeAction(e, 5)),
    "DiscretizeObservation": (ARRAY, lambda e: gw.DiscretizeObservation(e, 5)),
    "DtypeObservation": (PICTURE, lambda e: gw.DtypeObservation(e, np.int32)),
    "FilterObservation": (DICT, lambda e: gw.FilterObservation(e, ["numbers"])),
    "FlattenObservation": (DICT, gw.FlattenObservation),
    "FrameStackObservation": (TEXT, lambda e: gw.FrameStackObservation(e, 3)),
    "FrameStackObservation of zeros": (
        TEXT,
        lambda e: gw.FrameStackObservation(e, 3, padding_type="zero"),
    ),
    "FrameStackObservation of arrays": (ARRAY, lambda e: gw.FrameStackObservation(e, 3)),
    "FrameStackObservation of dicts": (DICT, lambda e: gw.FrameStackObservation(e, 2)),
    "FrameStackObservation of stacks": (
        TEXT,
        lambda e: gw.FrameStackObservation(gw.FrameStackObservation(e, 2), 2),
    ),
    "GrayscaleObservation": (PICTURE, gw.GrayscaleObservation),
    "MaxAndSkipObservation": (ARRAY, lambda e: gw.MaxAndSkipObservation(e, 2)),
    "NormalizeObservation": (ARRAY, gw.NormalizeObservation),
    "NormalizeReward": (ARRAY, gw.NormalizeReward),
    "ObstructView": (ARRAY, lambda e: gw.ObstructView(e, 0.3, 2)),
    "OrderEnforcing": (TEXT, gw.OrderEnforcing),
    "PassiveEnvChecker": (TEXT, gw.PassiveEnvChecker),
    "RecordEpisodeStatistics": (ARRAY, gw.RecordEpisodeStatistics),
    "RenderCollection": (ARRAY, lambda e: gw.RenderCollection(e, pop_frames=False)),
    "RepeatAction": (TEXT, lambda e: gw.RepeatAction(e, 2)),
    "RescaleAction": (
        ARRAY,
        lambda e: gw.RescaleAction(e, np.float32(0.0), np.float32(1.0)),
    ),
    "RescaleObservation": (
        ARRAY,
        lambda e: gw.RescaleObservation(e, np.float64(0.0), np.float64(1.0)),
    ),
    "ReshapeObservation": (ARRAY, lambda e: gw.ReshapeObservation(e, (2, 2))),
    "ResizeObservation": (PICTURE, lambda e: gw.ResizeObservation(e, (3, 3))),
    "StickyAction": (ARRAY, lambda e: gw.StickyAction(e, 0.5, (1, 3))),
    "StickyAction of texts": (TEXT, lambda e: gw.StickyAction(e, 0.5)),
    "TimeAwareObservation": (
        TEXT,
        lambda e: gw.TimeAwareObservation(gw.TimeLimit(e, 20), flatten=False),
    ),
    "TimeLimit": (TEXT, lambda e: gw.TimeLimit(e, 6)),
    "TransformAction": (ARRAY, lambda e: gw.TransformAction(e, lambda a: -a, None)),
    "TransformAction with state": (ARRAY, lambda e: gw.TransformAction(e, Running(), None)),
    "TransformObservation": (TEXT, lambda e: gw.TransformObservation(e, str.upper, None)),
    "TransformObservation with state": (
        ARRAY,
        lambda e: gw.TransformObservation(e, Running(), None),
    ),
    "TransformReward": (ARRAY, lambda e: gw.TransformReward(e, lambda r: 2 * r)),
    "TransformReward with state": (ARRAY, lambda e: gw.TransformReward(e, Running())),
}
LIMIT = 12
"""Steps of an episode."""
PICTURES = ("AddRenderObservation", "AddWhiteNoise", "ObstructView", "RenderCollection")


def build(case: str) -> Any:
    env_type, wrap = CASES[case]
    name = case.split(" ")[0]
    if not hasattr(gw, name):
        pytest.skip(f"this Gymnasium has no {name}")
    try:
        base = env_type(render_mode="rgb_array" if name in PICTURES else None)
        return wrap(TaskTimeLimit(base))
    except gym.error.DependencyNotInstalled as error:
        pytest.skip(str(error))


def actions(env: Any, seed: int, count: int) -> list[Any]:
    if isinstance(env.action_space, UnicodeText):
        rng = np.random.default_rng(seed)
        return [("dec", "dec", "wait", "inc")[i] for i in rng.integers(4, size=count)]
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k != "t"}  # t: seconds
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def walk(env: Any, todo: list[Any]) -> list[Any]:
    rows = []
    for action in todo:
        *row, info = env.step(action)
        rows.append(plain([*row, info["state"], info.get("episode", {})]))
        if env.render_mode is not None:
            rows.append(plain(env.render()))
        if not isinstance(env, gw.Autoreset) and (row[2] or row[3]):
            break
    return rows


def held(layer: Any) -> dict[str, Any]:
    """All that an object holds, in a form that can be compared."""
    found: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if isinstance(value, (gw.utils.RunningMeanStd, Running)):
            found[name] = held(value)
        elif isinstance(value, (np.ndarray, list, tuple, deque, int, float, str, type(None))):
            found[name] = repr(plain(list(value) if isinstance(value, deque) else value))
    found.pop("stacked_obs", None)  # written anew at each step
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_branch_leaves_no_trace(case: str) -> None:
    env, control = build(case), build(case)
    check_branchable(env)
    for each in (env, control):
        each.reset(seed=1)
        walk(each, actions(env, 0, 2))
    before = held(env)
    for number in range(3):
        with branch(env, rng="fresh", stream=number) as below:
            walk(below, actions(env, number, (2, LIMIT - 2, LIMIT + 2)[number]))
        assert held(env) == before
    with branch(env, rng="same") as below:
        ahead = walk(below, actions(env, 7, LIMIT))
    after = walk(env, actions(env, 7, LIMIT))
    assert after == walk(control, actions(env, 7, LIMIT))
    assert after == ahead


@pytest.mark.parametrize("case", CASES)
def test_a_second_instance_goes_on_the_same(case: str) -> None:
    env, other = build(case), build(case)
    env.reset(seed=2)
    walk(env, actions(env, 1, 3))
    restore(other, clone(env))
    todo = actions(env, 5, 8)
    assert walk(env, todo) == walk(other, todo)


def test_every_wrapper_of_gymnasium_is_known() -> None:
    names = set(gw.__all__) - {"vector"}  # wrappers of vector envs, which have no branches
    assert not names - GYMNASIUM.keys() - REFUSED.keys()
    assert not GYMNASIUM.keys() & REFUSED.keys()
    assert {case.split(" ")[0] for case in CASES} == set(GYMNASIUM)


@pytest.mark.parametrize("name", REFUSED)
def test_the_others_are_refused_with_the_reason(name: str) -> None:
    layer = type(name, (), {"__module__": "gymnasium.wrappers.somewhere"})()
    with pytest.raises(
        BranchError, match=f"the wrapper {name} cannot be branched: {REFUSED[name]}"
    ):
        kind_of(layer)


def test_the_page_lists_them_all(root: Path) -> None:
    page = (root / "docs" / "branching.md").read_text(encoding="utf-8")
    for name in GYMNASIUM:
        assert f"`{name}`" in page
    for name, reason in REFUSED.items():
        assert f"`{name}`" in page
        assert reason in page


# -- subclasses and namesakes ----------------------------------------------------------------------


class Counting(gw.TimeLimit):
    """A subclass of one of Gymnasium's wrappers, with more state."""

    seen = 0

    def step(self, action: Any) -> Any:
        self.seen += 1
        return super().step(action)


class TimeLimit(gym.Wrapper[Any, Any, Any, Any]):
    """Somebody else's, of the same name."""


@pytest.mark.parametrize("wrap", [lambda e: Counting(e, 9), TimeLimit])
def test_what_is_not_gymnasiums_own_class_is_refused(wrap: Wrap) -> None:
    env = wrap(NoisyEnv())
    env.reset(seed=0)
    for call in (check_branchable, clone, SimRolloutWrapper):
        with pytest.raises(BranchError, match=f"the wrapper {type(env).__name__} cannot be"):
            call(env)


def test_registered_wrappers_are_copied_whole() -> None:
    class Theirs(Counting):
        def __init__(self, env: Any) -> None:
            super().__init__(env, 9)
            self.rows: list[int] = []
            self.model = open  # no state
            self.lock = (i for i in range(3))  # cannot be copied

        def step(self, action: Any) -> Any:
            self.rows.append(self.seen)
            return super().step(action)

    register_adapter(Theirs, fixed=("lock",))
    env = Theirs(NoisyEnv())
    env.reset(seed=0)
    env.step("dec")
    with branch(env) as below:
        below.step("dec")
        assert (env.seen, env.rows, env._elapsed_steps) == (2, [0, 1], 2)
    assert (env.seen, env.rows, env._elapsed_steps) == (1, [0], 1)


# -- text in Gymnasium's wrappers ------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["reset", "zero", "n=7 goal=2"])
def test_frames_of_text(padding: str) -> None:
    env = gw.FrameStackObservation(NoisyEnv(), 3, padding_type=padding)
    assert env.observation_space == TextBatch(UnicodeText(100), 3)
    first, _ = env.reset(seed=0, options={"task": "counter/train/0"})
    now = "n=0 goal=2"
    filled = {"reset": now, "zero": "", "n=7 goal=2": "n=7 goal=2"}[padding]
    assert first == (filled, filled, now)
    assert first in env.observation_space
    assert env.step("dec")[0] == (filled, now, "n=-1 goal=2")


def test_delayed_text() -> None:
    env = gw.DelayObservation(NoisyEnv(), 2)
    assert env.reset(seed=0, options={"task": "counter/train/0"})[0] == ""
    assert [env.step("dec")[0] for _ in range(3)] == ["", "n=0 goal=2", "n=-1 goal=2"]


def test_frames_of_frames_and_delayed_frames() -> None:
    env = gw.DelayObservation(gw.FrameStackObservation(NoisyEnv(), 2), 1)
    assert env.reset(seed=0, options={"task": "counter/train/0"})[0] == ("", "")
    assert env.step("dec")[0] == ("n=0 goal=2", "n=0 goal=2")
    env = gw.FrameStackObservation(gw.FrameStackObservation(NoisyEnv(), 2), 2)
    observation = env.reset(seed=0)[0]
    assert observation in env.observation_space
    assert len(observation) == len(observation[0]) == 2
    assert env.observation_space.sample() in env.observation_space
