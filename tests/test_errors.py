"""Each wrong setting is one `ConfigError` where it is given: got, expected, what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import dyna_gym
from dyna_gym import registration
from dyna_gym.errors import ConfigError
from dyna_gym.wrappers import (
    AbstractStateWrapper,
    DiscreteActions,
    OutcomeReward,
    PromptWrapper,
    ReasoningActionWrapper,
    RecordTrajectories,
    ReSimSearchWrapper,
    RetryFailedEpisodes,
    SimRolloutWrapper,
    SuccessReward,
    TaskTimeLimit,
)
from tests.conftest import SOKOBAN

Make = Callable[..., gym.Env[Any, Any]]
FOREIGN = "CartPole-v1"
LAYERS: Mapping[str, Callable[[Any], Any]] = {
    layer.__name__: layer
    for layer in (
        AbstractStateWrapper,
        DiscreteActions,
        OutcomeReward,
        PromptWrapper,
        ReasoningActionWrapper,
        ReSimSearchWrapper,
        RetryFailedEpisodes,
        SimRolloutWrapper,
        SuccessReward,
        TaskTimeLimit,
    )
}
LAYERS = {**LAYERS, "RecordTrajectories": lambda env: RecordTrajectories(env, "unused.jsonl")}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("env", ["x", None, 5, "foreign"])
def test_a_layer_over_what_is_no_env_of_ours(name: str, env: Any) -> None:
    told = "expected a Gymnasium env"
    if env == "foreign":
        env, told = gym.make(FOREIGN), "CartPoleEnv, expected a dyna_gym WorldEnv"
    with pytest.raises(ConfigError, match=told):
        LAYERS[name](env)


TEXT_LAYERS = (
    "DiscreteActions",
    "ReasoningActionWrapper",
    "SimRolloutWrapper",
    "ReSimSearchWrapper",
)


@pytest.mark.parametrize("name", TEXT_LAYERS)
def test_a_layer_over_responses_or_numbers(name: str, make: Make, make_agent: Make) -> None:
    with pytest.raises(ConfigError, match="takes whole responses"):
        LAYERS[name](make_agent("Counter"))
    with pytest.raises(ConfigError, match="expected text"):
        LAYERS[name](make("Number"))


@pytest.mark.parametrize("arguments", [{"step": "x"}, {"success": None}, {"failure": float("nan")}])
def test_wrong_rewards(make: Make, arguments: dict[str, Any]) -> None:
    (name, value), *_ = arguments.items()
    with pytest.raises(ConfigError, match=f"{name}: got {value!r}, expected a finite number"):
        OutcomeReward(make("Counter"), **arguments)


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"lookahead": 5}, "lookahead: got 5, expected a dict"),
    ({"lookahead": [1]}, r"lookahead: got \[1\], expected a dict"),
    ({"lookahead": {"maxdepth": 3}}, "'maxdepth'; did you mean 'max_depth'"),
    ({"lookahead": {"max_depth": 0}}, "max_depth: got 0"),
    ({"lookahead": {"max_depth": 2.5}}, r"max_depth: got 2\.5"),
    ({"lookahead": {"simulator": FOREIGN}}, "'CartPole-v1' is a CartPoleEnv"),
    ({"lookahead": {"simulator": "Nope-v0"}}, "simulator: got 'Nope-v0', expected a registered id"),
    ({"lookahead": {"simulator": 5}}, "simulator: got 5"),
    (
        {"lookahead": {"simulator": SOKOBAN, "simulator_settings": {"sized": 3}}},
        "'sized'; did you mean 'size'",
    ),
    ({"lookahead": {"simulator_settings": "x"}}, "simulator_settings: got 'x', expected a dict"),
    ({"response": "simrollout"}, "response: got 'simrollout', expected one of"),
    ({"reward": "x"}, "reward: got 'x', expected one of"),
    ({"style": "x"}, "style: got 'x', expected one of"),
    ({"history": -1}, "history: got -1"),
    ({"history": "3"}, "history: got '3'"),
    ({"sized": 3}, "settings: got the unknown name 'sized'; did you mean 'size'"),
    ({"tasks": "sokoban/train/0"}, "tasks: got 'sokoban/train/0', expected a list"),
    ({"tasks": 5}, "tasks: got 5, expected a list"),
    ({"tasks": [1.5]}, "tasks: got a task of type float"),
    ({"tasks": ["nobody"]}, "tasks: no task 'nobody' in world"),
    ({"max_steps": "x"}, "max_steps: got 'x'"),
]


@pytest.mark.parametrize(("settings", "told"), SETTINGS, ids=lambda value: str(value)[:50])
def test_wrong_settings_of_an_agent_env(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        dyna_gym.make_agent_env(SOKOBAN, **{"response": "sim_rollout", **settings})


@pytest.mark.parametrize("layer", ["plain", "resim"])
@pytest.mark.parametrize(
    "lookahead",
    [{"breadth": 0}, {"follow": "x"}, {"proposer": 5}, {"value": None}, {"seed": -1}, {"x": 1}],
    ids=str,
)
def test_wrong_settings_of_a_search(layer: str, lookahead: dict[str, Any]) -> None:
    (name,) = lookahead
    told = "looks at nothing" if layer == "plain" else name
    with pytest.raises(ConfigError, match=told):
        dyna_gym.make_agent_env(SOKOBAN, response=layer, lookahead=lookahead)


@pytest.mark.parametrize("env_id", [FOREIGN, "Nope-v0", 5, None])
def test_an_id_that_is_none_of_ours(env_id: Any) -> None:
    with pytest.raises(ConfigError, match="env_id: "):
        dyna_gym.make_agent_env(env_id)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("x", "options: got 'x', expected a dict"),
        ([], r"options: got \[\], expected a dict"),
        ({"tsak": 1}, "tsak"),
        ({"tasks": [1]}, "for one env use 'task'"),
        ({"state": "n=0"}, "need the 'task'"),
        ({"task": 0, "history": ()}, "needs the 'state'"),
        ({"task": 0, "state": 5}, "got the state 5"),
        ({"task": 0, "state": "n=0 goal=2", "history": "x"}, "got 'x' in the history"),
    ],
    ids=str,
)
def test_wrong_options(make: Make, options: Any, told: str) -> None:
    env = make("Anywhere")
    with pytest.raises(ConfigError, match=told):
        env.reset(options=options)
    env.reset(seed=0)  # nothing was lost


@pytest.mark.parametrize("mode", [5, "", "rgb", b"ansi", ["ansi"], True])
def test_wrong_render_modes(mode: Any) -> None:
    with pytest.raises(ConfigError, match="render_mode: got "):
        gym.make(SOKOBAN, render_mode=mode)


def test_a_window_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install pygame"):
        gym.make(SOKOBAN, render_mode="human")


@pytest.mark.parametrize("path", [5, None, "folder"])
def test_wrong_files_to_record_to(make: Make, tmp_path: Path, path: Any) -> None:
    with pytest.raises(ConfigError, match="path: got "):
        RecordTrajectories(make("Counter"), tmp_path if path == "folder" else path)


@pytest.mark.parametrize("numbers", [np.int64(2), np.int32(2)])
def test_whole_numbers_of_numpy_are_whole_numbers(numbers: Any) -> None:
    lookahead = {"max_depth": numbers}
    env = dyna_gym.make_agent_env(SOKOBAN, response="sim_rollout", lookahead=lookahead)
    env.reset(seed=0)
