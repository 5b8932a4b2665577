"""Policies: text in, responses out. Heavy ones load when they are asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dyna_gym.errors import ConfigError, DynaGymError, MissingExtra
from dyna_gym.files import read_json
from dyna_gym.policies.base import (
    Message,
    Policy,
    PromptForm,
    TrainablePolicy,
    as_messages,
    choose_form,
)
from dyna_gym.policies.simple import AggregatorPolicy, ExpertPolicy, RandomPolicy
from dyna_gym.world import World

if TYPE_CHECKING:
    from dyna_gym.policies.nano import NanoPolicy
    from dyna_gym.policies.transformers import TransformersPolicy

__all__ = [
    "AggregatorPolicy",
    "ExpertPolicy",
    "Message",
    "NanoPolicy",
    "Policy",
    "PromptForm",
    "RandomPolicy",
    "TrainablePolicy",
    "TransformersPolicy",
    "as_messages",
    "choose_form",
    "load_policy",
    "make_policy",
]


BASELINES = ("random", "expert", "aggregate")
"""Policies without a model, by name."""

_HEAVY = {"NanoPolicy": "nano", "TransformersPolicy": "transformers"}
"""Classes whose modules import torch, and those modules."""


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HEAVY[name]}"), name)
    except MissingExtra as error:  # say what was asked for, not which module met the gap
        raise MissingExtra(error.package, error.extra, name) from error


def load_policy(
    folder: str | Path, *, world: World | None = None, **settings: Any
) -> TrainablePolicy:
    """Load what `TrainablePolicy.save` wrote, or any Hugging Face causal chat model.

    Args:
        folder: The folder (or, for a Hugging Face model, its name).
        world: The world that it is to act in, which is checked; None: not known yet.
        settings: Passed on to the policy: ``temperature``, ``max_new_tokens``, ``seed`` and so on.

    Raises:
        ConfigError: It cannot be loaded, or was made for another world.
    """
    marker = Path(folder) / "policy.json"
    told = read_json(marker) if marker.exists() else {"kind": "transformers"}
    kind = told.get("kind") if isinstance(told, dict) else told
    if kind == "nano":
        policy = __getattr__("NanoPolicy").load(folder, **settings)
    elif kind == "transformers":
        policy = _load_transformers(str(folder), settings)
    else:
        raise ConfigError(f"{marker}: got kind {kind!r}, expected 'nano' or 'transformers'")
    if world is not None:
        policy.check_world(world)
    return policy


def _load_transformers(name: str, settings: dict[str, Any]) -> TrainablePolicy:
    kind = __getattr__("TransformersPolicy")
    try:
        return kind(name, **settings)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, DynaGymError):
            raise
        told = str(error).split("\n", 1)[0]
        raise ConfigError(
            f"policy: got {name!r}, expected a folder that a policy was saved to or the name of "
            f"a Hugging Face model ({told})"
        ) from error


def make_policy(
    name: str, *, world: World, envs: Any = (), seed: int = 0, **settings: Any
) -> Policy:
    """A policy by name: ``random``, ``expert``, ``aggregate``, or a folder of a saved one.

    Args:
        name: Which.
        world: The world that is acted in.
        envs: The envs, which the expert needs.
        seed: Seed of the policy's generator.
        settings: Passed on to `load_policy`.

    Raises:
        ConfigError: There is no such policy.
    """
    if name == "random":
        return RandomPolicy(seed, int(settings.get("plan_length", 1)), world=world)
    if name == "aggregate":
        return AggregatorPolicy()
    if name == "expert":
        if not envs:
            raise ConfigError("the policy 'expert' needs the envs that it acts in")
        oracle = getattr(envs[0].unwrapped, "oracle", None)
        if oracle is None:
            raise ConfigError(f"the world {world.name!r} has no expert")
        return ExpertPolicy(oracle, envs)
    if not Path(name).is_dir():
        raise ConfigError(
            f"policy: got {name!r}, expected 'random', 'expert', 'aggregate' or an existing folder "
            "of a saved policy"
        )
    return load_policy(name, world=world, seed=seed, **settings)
