"""UnicodeText: what it contains, that it batches, and that shared memory is refused."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_gym.errors import ConfigError
from dyna_gym.spaces import TextBatch, UnicodeText, blank


class Mission(gym.Env[Any, Any]):
    """An env of somebody else's, with text inside a Dict."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Dict(
            {"mission": UnicodeText(50), "n": gym.spaces.Discrete(9)}
        )
        self.action_space = gym.spaces.Discrete(2)
        self.steps = 0

    def _seen(self) -> dict[str, Any]:
        return {"mission": f"étape {self.steps}", "n": self.steps}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._seen(), 0.0, False, False, {}


def test_any_unicode_up_to_the_length_is_contained() -> None:  # COMPLAINTS 33
    space = UnicodeText(12)
    for text in ("", "go to desk 1", "中文 √ 🙂", "\x00\n", "\ud800", "x" * 12):
        assert text in space
    for other in ("x" * 13, None, 1, b"x", ["x"], np.array("x")):
        assert other not in space


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(max_size=20), st.integers(0, 20))
def test_fuzz_contains(text: str, length: int) -> None:
    assert (text in UnicodeText(length)) == (len(text) <= length)


def test_samples_are_contained_seeded_and_varied() -> None:
    a, b = UnicodeText(100, seed=1), UnicodeText(100, seed=1)
    samples = [a.sample() for _ in range(200)]
    assert samples == [b.sample() for _ in range(200)]
    assert all(s in a for s in samples)
    assert len(set(samples)) > 150
    assert not all(s.isascii() for s in samples)
    assert UnicodeText(0, seed=0).sample() == ""


def test_equality_hash_copies_and_repr() -> None:  # COMPLAINTS 34
    space = UnicodeText(7, seed=1)
    assert space == UnicodeText(7, seed=2)
    assert space != UnicodeText(8)
    assert space != gym.spaces.Text(7)
    assert len({space, UnicodeText(7)}) == 1
    assert copy.deepcopy(space) == space == pickle.loads(pickle.dumps(space))
    assert repr(space) == "UnicodeText(7)"


def test_json_round_trip() -> None:  # COMPLAINTS 34
    space = UnicodeText(30)
    texts = ["", "a b", "中文\n"]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(texts)))) == texts


@pytest.mark.parametrize("length", [-1, 1.5, "7", None])
def test_bad_length_is_told(length: Any) -> None:
    with pytest.raises(ConfigError, match="max_length: got"):
        UnicodeText(length)


def test_masks_are_refused() -> None:
    with pytest.raises(ConfigError, match="neither a mask"):
        UnicodeText(3).sample(mask=np.ones(3))
    with pytest.raises(ConfigError, match="neither a mask"):
        TextBatch(UnicodeText(3), 2).sample(probability=np.ones(3))


def test_batches() -> None:  # COMPLAINTS 33
    space = UnicodeText(10, seed=3)
    batch = batch_space(space, 3)
    assert batch == TextBatch(space, 3) != TextBatch(space, 2)
    assert hash(batch) == hash(TextBatch(space, 3))
    assert batch.sample() in batch
    assert ("a", "b") not in batch
    assert ("a", "b", "x" * 11) not in batch
    assert "abc" not in batch
    out = concatenate(space, ["a", "", "c"], create_empty_array(space, 3))
    assert out == ("a", "", "c")
    assert list(iterate(batch, out)) == ["a", "", "c"]
    assert not space.is_np_flattenable


def test_text_inside_a_dict_in_vector_envs() -> None:  # COMPLAINTS 32
    sync = gym.vector.SyncVectorEnv([Mission] * 2)
    other = gym.vector.AsyncVectorEnv([Mission] * 2, shared_memory=False, context="spawn")
    try:
        for vector in (sync, other):
            seen, _ = vector.reset(seed=0)
            assert seen["mission"] == ("étape 0", "étape 0")
            seen = vector.step(np.array([0, 1]))[0]
            assert seen["mission"] == ("étape 1", "étape 1")
            assert seen["n"].tolist() == [1, 1]
    finally:
        sync.close()
        other.close()


def test_shared_memory_is_refused_by_name() -> None:  # COMPLAINTS 32
    with pytest.raises(ValueError, match="shared_memory=False"):
        gym.vector.AsyncVectorEnv([Mission] * 2)


def test_gymnasium_text_is_what_it_must_not_be() -> None:  # COMPLAINTS 33
    assert not issubclass(UnicodeText, gym.spaces.Text)
    assert "go to desk 1" not in gym.spaces.Text(200)


class Even(gym.Space[int]):
    """A space of somebody else's, which has no zero array."""

    def __init__(self) -> None:
        super().__init__((), np.int64)

    def sample(self, mask: Any = None, probability: Any = None) -> int:
        return 2 * int(self.np_random.integers(1_000))

    def contains(self, x: Any) -> bool:
        return isinstance(x, int) and x % 2 == 0


SPACES: dict[str, gym.Space[Any]] = {
    "unicode": UnicodeText(5),
    "batch": TextBatch(UnicodeText(5), 3),
    "text": gym.spaces.Text(7, min_length=2, charset="xyz"),
    "box": gym.spaces.Box(-1.0, 1.0, (2, 3)),
    "box above zero": gym.spaces.Box(np.array([2, -3]), np.array([4, -1]), dtype=np.int64),
    "unbounded box": gym.spaces.Box(-np.inf, np.inf, (2,)),
    "image": gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": gym.spaces.Discrete(3, start=5),
    "binary": gym.spaces.MultiBinary((2, 2)),
    "multi": gym.spaces.MultiDiscrete([2, 3], start=[4, -1]),
    "tuple": gym.spaces.Tuple([UnicodeText(3), gym.spaces.Discrete(2)]),
    "dict": gym.spaces.Dict(
        {"page": UnicodeText(3), "shot": gym.spaces.Box(0, 255, (2, 2, 3), np.uint8)}
    ),
    "sequence": gym.spaces.Sequence(gym.spaces.Discrete(2)),
    "stacked sequence": gym.spaces.Sequence(gym.spaces.Box(3.0, 4.0, (2,)), stack=True),
    "graph": gym.spaces.Graph(gym.spaces.Box(1.0, 2.0, (3,)), gym.spaces.Discrete(3, start=1)),
    "graph without edges": gym.spaces.Graph(gym.spaces.Box(1.0, 2.0, (3,)), None),
    "one of": gym.spaces.OneOf([gym.spaces.Box(1.0, 2.0), gym.spaces.Discrete(2)]),
    "somebody else's": Even(),
    "inside a dict": gym.spaces.Dict({"n": Even(), "page": UnicodeText(3)}),
}


@pytest.mark.parametrize("kind", SPACES)
def test_a_blank_is_contained_and_always_the_same(kind: str) -> None:
    space = SPACES[kind]
    space.seed(7)
    expected = copy.deepcopy(space).sample()
    value = blank(space)
    assert value in space
    assert repr(blank(space)) == repr(value) == repr(blank(copy.deepcopy(space)))
    assert repr(space.sample()) == repr(expected), "the space's own generator was drawn from"


def test_every_space_of_gymnasium_has_a_blank() -> None:
    kinds = {getattr(gym.spaces, name) for name in gym.spaces.__all__} - {gym.Space}
    spaces = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, gym.Space)}
    assert spaces <= {type(space) for space in SPACES.values()}


def test_a_blank_is_as_near_to_nothing_as_the_space_allows() -> None:
    assert blank(SPACES["tuple"]) == ("", 0)
    assert blank(SPACES["discrete"]) == 5
    assert blank(SPACES["box above zero"]).tolist() == [2, -1]
    assert blank(SPACES["dict"])["page"] == ""
    assert not blank(SPACES["dict"])["shot"].any()
