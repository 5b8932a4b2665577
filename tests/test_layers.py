"""State that a layer did not declare: copied, or refused by name."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gw

from dyna_gym.batching import prepare
from dyna_gym.branching import branch, check_branchable, clone, fresh_rng, restore
from dyna_gym.errors import BranchError
from dyna_gym.wrappers import (
    AbstractStateWrapper,
    DiscreteActions,
    OutcomeReward,
    PromptWrapper,
    ReasoningActionWrapper,
    ReSimSearchWrapper,
    SimRolloutWrapper,
    SuccessReward,
    TaskTimeLimit,
)
from dyna_gym.wrappers.base import LayerWrapper
from tests.worlds import ACTIONS, NoisyEnv, answer

Make = Callable[..., Any]


class Tally:
    """State in an object of somebody's own class."""

    def __init__(self, rng: Any = None) -> None:
        self.n, self.parts, self.rng = 0, [0], rng

    def add(self) -> None:
        self.n += 1
        self.parts[0] += 1


def _count(layer: Any) -> None:
    layer.held += 1


def _array(layer: Any) -> None:
    layer.held[0] += 1


def _nested(layer: Any) -> None:
    layer.held["rows"][0].append(len(layer.held["rows"][0]))


def _dict(layer: Any) -> None:
    layer.held["n"] = layer.held.get("n", 0) + 1


def _frozen_outside(layer: Any) -> None:
    layer.held[1].append(1)


def _replaced(layer: Any) -> None:
    layer.held = [*layer.held, len(layer.held)]


def _late(layer: Any) -> None:
    layer.late = [*getattr(layer, "late", []), 1]


def _gone(layer: Any) -> None:
    if len(layer.held) > 2:
        del layer.held
        layer.held = [99]
    layer.held.append(1)


def _space(layer: Any) -> None:
    layer.observation_space = gym.spaces.Discrete(getattr(layer.observation_space, "n", 1) + 1)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "counter": (lambda: 0, _count),
    "NumPy generator": (lambda: np.random.default_rng(7), lambda x: x.held.random()),
    "other NumPy generator": (
        lambda: np.random.Generator(np.random.MT19937(7)),
        lambda x: x.held.random(),
    ),
    "RandomState": (lambda: np.random.RandomState(7), lambda x: x.held.random()),
    "random.Random": (lambda: random.Random(7), lambda x: x.held.random()),
    "list": (list, lambda x: x.held.append(len(x.held))),
    "dict": (dict, _dict),
    "Counter": (Counter, lambda x: x.held.update("a")),
    "set": (set, lambda x: x.held.add(len(x.held))),
    "deque": (lambda: deque(maxlen=2), lambda x: x.held.append(x.held[-1] + 1 if x.held else 0)),
    "bytearray": (bytearray, lambda x: x.held.append(len(x.held))),
    "array": (lambda: np.zeros(3), _array),
    "nested": (lambda: {"rows": [[]]}, _nested),
    "list in a tuple": (lambda: ("fixed", []), _frozen_outside),
    "object": (Tally, lambda x: x.held.add()),
    "replaced": (list, _replaced),
    "made later": (lambda: None, _late),
    "replaced and changed": (list, _gone),
    "space": (lambda: None, _space),
}


def _look(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, np.random.Generator):
        return repr(copy.deepcopy(value).random(4))
    if isinstance(value, (np.random.RandomState, random.Random)):
        return copy.deepcopy(value).random()
    if isinstance(value, Tally):
        return value.n, list(value.parts), _look(value.rng)
    return copy.deepcopy(value) if not isinstance(value, np.ndarray) else value.tolist()


def odd(base: Any, kind: str, **declared: Any) -> Any:
    """A subclass of a wrapper with state that it does not declare."""
    first, change = KINDS[kind]

    def __init__(self: Any, env: Any, **settings: Any) -> None:
        base.__init__(self, env, **settings)
        self.held = first()

    def step(self: Any, action: Any) -> Any:
        change(self)
        return base.step(self, action)

    def look(self: Any) -> Any:
        return _look(self.held), getattr(self, "late", None), self.observation_space

    members = {"__init__": __init__, "step": step, "look": look, **declared}
    return type(f"Odd{base.__name__}", (base,), members)


BASES: dict[str, Any] = {
    "LayerWrapper": LayerWrapper,
    "TaskTimeLimit": TaskTimeLimit,
    "OutcomeReward": OutcomeReward,
    "AbstractStateWrapper": AbstractStateWrapper,
    "PromptWrapper": PromptWrapper,
    "ReasoningActionWrapper": ReasoningActionWrapper,
    "SimRolloutWrapper": SimRolloutWrapper,
    "ReSimSearchWrapper": ReSimSearchWrapper,
}


def stack(make: Make, base: str, kind: str, **declared: Any) -> tuple[Any, str]:
    """A stack with an odd layer in it, and what it is stepped with."""
    env = make("Noisy")
    if base == "PromptWrapper":
        env = ReasoningActionWrapper(env)
    settings = {"depth": 2, "breadth": 2} if base == "ReSimSearchWrapper" else {}
    env = odd(BASES[base], kind, **declared)(env, **settings)
    agents = ("PromptWrapper", "ReasoningActionWrapper", "SimRolloutWrapper", "ReSimSearchWrapper")
    return env, answer("dec", "dec") if base in agents else "dec"


def shown(result: Any) -> Any:
    observation, reward, terminated, truncated, info = result
    search = info.get("search")
    listed = info["admissible_actions"]
    return observation, reward, terminated, truncated, info["state"], listed, search


@pytest.mark.parametrize("rng", ["same", "fresh"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["LayerWrapper", "TaskTimeLimit"])
def test_undeclared_state_is_as_before_after_a_branch(
    make: Make, base: str, kind: str, rng: Any
) -> None:
    env, action = stack(make, base, kind)
    env.reset(seed=0)
    env.step(action)
    held, before = env.held, env.look()
    for _ in range(2):
        with branch(env, rng=rng) as below:
            for _ in range(3):
                below.step(action)
            assert env.look() != before
        assert env.look() == before
    if kind not in ("counter", "replaced", "replaced and changed", "object", "list in a tuple"):
        assert env.held is held, "who holds the same object sees another state"
        assert _look(held) == before[0]


@pytest.mark.parametrize("kind", ["counter", "list", "NumPy generator", "made later"])
@pytest.mark.parametrize("base", BASES)
def test_a_subclass_of_any_wrapper_goes_on_as_if_there_had_been_no_branch(
    make: Make, base: str, kind: str
) -> None:
    (env, action), (control, _) = stack(make, base, kind), stack(make, base, kind)
    for each in (env, control):
        each.reset(seed=0)
        each.step(action)
    with branch(env, rng="fresh") as below:
        for _ in range(3):
            below.step(action)
    for _ in range(4):
        assert shown(env.step(action)) == shown(control.step(action))
        assert env.look() == control.look()


@pytest.mark.parametrize("pickled", [False, True], ids=["state", "pickled state"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_instance_goes_on_the_same(make: Make, kind: str, pickled: bool) -> None:
    (env, action), (other, _) = stack(make, "LayerWrapper", kind), stack(make, "LayerWrapper", kind)
    env.reset(seed=0)
    env.step(action)
    saved = clone(env)
    restore(other, pickle.loads(pickle.dumps(saved)) if pickled else saved)
    assert other.look() == env.look()
    for _ in range(3):
        assert shown(env.step(action)) == shown(other.step(action))
        assert env.look() == other.look()
    if kind != "counter":
        assert other.held is not env.held or env.held is None, "two envs share their state"


@pytest.mark.parametrize(
    "kind", ["NumPy generator", "list", "dict", "set", "deque", "array", "bytearray"]
)
def test_what_is_changed_in_place_is_copied_though_it_was_declared(make: Make, kind: str) -> None:
    env, action = stack(make, "LayerWrapper", kind, _changing=("held",))
    env.reset(seed=0)
    env.step(action)
    before = env.look()
    with branch(env) as below:
        below.step(action)
    assert env.look() == before


def test_what_is_made_in_a_branch_is_gone_after_it(make: Make) -> None:
    class Noting(LayerWrapper):
        def step(self, action: Any) -> Any:
            if action == "inc":
                self.last = action
            return self.env.step(action)

    env = Noting(make("Counter"))
    env.reset(seed=0)
    with branch(env) as below:
        below.step("inc")
    assert not hasattr(env, "last")


def test_what_a_branch_gave_to_its_caller_is_left_alone(make: Make) -> None:
    class Handing(LayerWrapper):
        given: Any = None

        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self.given = np.full(2, self.unwrapped.n)  # made anew, and handed out
            return observation, reward, terminated, truncated, {**info, "given": self.given}

    env = Handing(make("Counter"))
    env.reset(seed=0)
    first = env.step("dec")[4]["given"]
    with branch(env) as below:
        ahead = below.step("dec")[4]["given"]
    assert (first.tolist(), ahead.tolist()) == ([-1, -1], [-2, -2])
    assert env.given.tolist() == [-1, -1]


def test_declarations_of_base_classes_count(make: Make) -> None:
    class Deeper(PromptWrapper):
        _changing = ("mine",)  # without PromptWrapper's own
        mine = 0

    env = Deeper(ReasoningActionWrapper(make("Counter")))
    env.reset(seed=0)
    env.step(answer("dec"))
    before = env.present()
    with branch(env) as below:
        below.step(answer("inc"))
        assert env.present() != before
    assert env.present() == before


def test_slots_are_state_too(make: Make) -> None:
    class Slotted(LayerWrapper):
        __slots__ = ("late", "rows")

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.rows: list[int] = []

        def step(self, action: Any) -> Any:
            self.rows.append(1)
            self.late = len(self.rows)
            return self.env.step(action)

    env = Slotted(make("Counter"))
    env.reset(seed=0)
    with branch(env) as below:
        below.step("dec")
        assert env.rows == [1]
    assert env.rows == []
    assert not hasattr(env, "late")


# -- what layers share, and what they point to -----------------------------------------------------


class Sharing(LayerWrapper):
    """Two names for one list, and a helper that draws from the layer's own generator."""

    def __init__(self, env: Any, rows: list[int] | None = None) -> None:
        super().__init__(env)
        self.rows: list[int] = [] if rows is None else rows
        self.also = self.rows
        self.rng = np.random.default_rng(3)
        self.helper = Tally(self.rng)

    def step(self, action: Any) -> Any:
        self.rows.append(int(self.helper.rng.integers(100)))
        return self.env.step(action)


def test_what_attributes_share_stays_shared(make: Make) -> None:
    env, other = Sharing(make("Counter")), Sharing(make("Counter"))
    env.reset(seed=0)
    saved = clone(env)
    with branch(env) as below:
        below.step("dec")
    restore(other, saved)
    for each in (env, other):
        assert each.rows is each.also
        assert each.helper.rng is each.rng
        each.step("dec")
        each.rng.integers(100)
    assert env.rows == other.rows != []
    assert env.rows is not other.rows


def test_what_layers_share_stays_shared(make: Make) -> None:
    rows: list[int] = []
    inner = Sharing(make("Counter"), rows)
    env = Sharing(inner, rows)
    env.reset(seed=0)
    env.step("dec")
    with branch(env) as below:
        below.step("dec")
        assert len(rows) == 4
    assert len(rows) == 2
    assert inner.rows is env.rows is rows


class Pointing(LayerWrapper):
    """Points into the stack."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.mutable: list[Any] = []

    def reset(self, **settings: Any) -> Any:
        result = self.env.reset(**settings)
        base = self.unwrapped
        self.mutable = [base, self, self.env, base.world, base.np_random, self.look]
        return result

    def look(self) -> int:
        return int(self.mutable[0].n)


def test_what_points_into_the_stack_points_into_the_other_stack(make: Make) -> None:
    env, other = Pointing(make("Noisy")), Pointing(make("Noisy"))
    env.reset(seed=0)
    restore(other, clone(env))
    base = other.unwrapped
    expected = [base, other, other.env, base.world, base.np_random]
    assert all(a is b for a, b in zip(other.mutable, expected, strict=False))
    other.step("dec")
    assert other.mutable[5]() == base.n == -1
    assert env.mutable[5]() == 0
    with branch(env) as below:
        below.step("inc")
    assert env.mutable[0] is env.unwrapped


def test_fixed_attributes_are_left_alone(make: Make) -> None:
    class WithModel(LayerWrapper):
        _fixed = ("model",)

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.model = threading.Lock()  # cannot be copied

    class WithTwo(WithModel):
        _fixed = ("other_model",)  # and its base class's

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.other_model = threading.Lock()

    env, other = WithTwo(make("Counter")), WithTwo(make("Counter"))
    env.reset(seed=0)
    models = env.model, other.model
    restore(other, clone(env))
    assert (env.model, other.model) == models


UNCOPIABLE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "iterator": lambda: (i for i in range(3)),
    "file": lambda: Path(__file__).open(encoding="utf-8"),  # noqa: SIM115
}


@pytest.mark.parametrize("kind", UNCOPIABLE)
def test_what_cannot_be_copied_is_refused_by_name(make: Make, kind: str) -> None:
    class Holding(LayerWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.handle = UNCOPIABLE[kind]()

    env = Holding(make("Counter"))
    try:
        env.reset(seed=0)
        for call in (SimRolloutWrapper, check_branchable, clone):
            with pytest.raises(BranchError, match=r"the wrapper Holding .* attribute 'handle'"):
                call(env)
    finally:
        getattr(env.handle, "close", lambda: None)()


def test_a_layer_can_refuse_with_its_reason(make: Make) -> None:
    class Printing(LayerWrapper):
        _refusal = "it prints each step"

    class Derived(Printing):
        pass

    with pytest.raises(BranchError, match="the wrapper Derived cannot be branched: it prints"):
        SimRolloutWrapper(Derived(make("Counter")))


# -- randomness of layers --------------------------------------------------------------------------


class Noise(LayerWrapper):
    """Rewards with noise of the layer's own, from generators that stand in different places."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.rng = np.random.default_rng(1)
        self.helper = Tally(np.random.Generator(np.random.Philox(2)))
        self.python = random.Random(3)
        self.old = np.random.RandomState(4)

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = self.env.step(action)
        drawn = (self.rng.random(), self.helper.rng.random(), self.python.random(), self.old.rand())
        return observation, drawn, terminated, truncated, info


def test_fresh_branches_do_not_show_the_noise_of_layers(make: Make) -> None:
    env = Noise(make("Counter"))
    env.reset(seed=0)
    env.step("dec")

    def ahead(**settings: Any) -> Any:
        with branch(env, **settings) as below:
            return [below.step("dec")[1] for _ in range(3)]

    same, fresh = ahead(rng="same"), ahead(rng="fresh")
    for a, b in zip(zip(*same, strict=True), zip(*fresh, strict=True), strict=True):
        assert set(a).isdisjoint(b)
    assert fresh == ahead(rng="fresh")
    assert fresh != ahead(rng="fresh", stream=1)
    saved = clone(env)
    restore(env, fresh_rng(saved, 0))
    assert [env.step("dec")[1] for _ in range(3)] == fresh
    restore(env, saved)
    assert [env.step("dec")[1] for _ in range(3)] == same


# -- our own wrappers ------------------------------------------------------------------------------


class VaryingEnv(NoisyEnv):
    """Its admissible actions change, and its steps are few."""

    def __init__(self) -> None:
        super().__init__(max_steps=4)

    def _admissible(self) -> tuple[str, ...] | None:
        return ACTIONS if self.n % 2 else ACTIONS[::-1]


OURS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "TaskTimeLimit": (TaskTimeLimit, ["dec", "wait", "?"]),
    "OutcomeReward": (OutcomeReward, ["dec", "inc", "?"]),
    "SuccessReward": (SuccessReward, ["dec", "inc", "?"]),
    "AbstractStateWrapper": (AbstractStateWrapper, ["dec", "inc", "?"]),
    "DiscreteActions": (DiscreteActions, [1, 1, 5]),
    "ReasoningActionWrapper": (ReasoningActionWrapper, [answer("dec"), "?"]),
    "PromptWrapper": (
        lambda env: PromptWrapper(ReasoningActionWrapper(env)),
        [answer("dec"), "?", answer("inc")],
    ),
    "SimRolloutWrapper": (SimRolloutWrapper, [answer("dec", "dec", "inc"), "?", answer("inc")]),
    "ReSimSearchWrapper": (
        lambda env: ReSimSearchWrapper(env, depth=2, breadth=2),
        [answer("dec"), "?", answer("inc")],
    ),
}


def _declared(layer_type: Any, name: str) -> set[str]:
    return {x for base in layer_type.__mro__ for x in vars(base).get(name, ())}


@pytest.mark.parametrize("kind", OURS)
def test_our_wrappers_declare_all_that_they_change(kind: str) -> None:
    build, actions = OURS[kind]
    env = build(VaryingEnv())
    changing, fixed = _declared(type(env), "_changing"), _declared(type(env), "_fixed")
    quiet = set(vars(env)) - changing - fixed - {"env", "_cached_spec"}
    assert changing <= set(vars(env)), "declared, but there is no such attribute"
    env.reset(seed=0)
    kept: list[tuple[str, Any, Any]] = []
    still = {name: (vars(env)[name], copy.deepcopy(vars(env)[name])) for name in quiet}

    def check() -> None:
        assert set(vars(env)) - changing - fixed - {"env", "_cached_spec"} == quiet
        for name, (value, before) in still.items():
            assert vars(env)[name] is value, f"{name} was replaced"
            assert value == before, f"{name} was changed"

    for action in actions * 2:
        for name in changing:
            value = vars(env)[name]
            kept.append((name, value, copy.deepcopy(value)))
        prepare([env], [action])
        check()
        env.step(action)
        check()
    for name, value, before in kept:
        assert value == before, f"{name} was changed in place"


@pytest.mark.parametrize("kind", OURS)
def test_our_wrappers_leave_no_trace(kind: str) -> None:
    build, actions = OURS[kind]
    env, control = build(VaryingEnv()), build(VaryingEnv())
    for each in (env, control):
        each.reset(seed=2)
        each.step(actions[0])
        prepare([each], [actions[0]])
    with branch(env, rng="fresh") as below:
        for action in actions[::-1]:
            below.step(action)
    for action in actions * 2:
        assert shown(env.step(action)) == shown(control.step(action))


def test_statistics_of_a_long_run_are_copied_as_they_are(make: Make) -> None:
    env = gw.RecordEpisodeStatistics(make("Counter", max_steps=1), buffer_length=3)
    for seed in range(5):
        env.reset(seed=seed)
        env.step("wait")
    before = list(env.time_queue), list(env.return_queue), env.episode_count
    queue = env.return_queue
    env.reset(seed=9)
    with branch(env) as below:
        below.step("wait")
        assert env.episode_count == 6
    assert (list(env.time_queue), list(env.return_queue), env.episode_count) == before
    assert env.return_queue is queue
    assert queue.maxlen == 3
