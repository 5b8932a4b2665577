"""Policies: text in, responses out. Heavy ones load when they are asked for."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dyna_gym.errors import ConfigError, DynaGymError
from dyna_gym.policies.base import Message, Policy, TrainablePolicy, as_messages
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
    "RandomPolicy",
    "TrainablePolicy",
    "TransformersPolicy",
    "as_messages",
    "load_policy",
    "make_policy",
]


_HEAVY = {"NanoPolicy": "nano", "TransformersPolicy": "transformers"}
"""Classes whose modules import torch, and those modules."""


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HEAVY[name]}"), name)


def load_policy(folder: str | Path, **settings: Any) -> TrainablePolicy:
    """Load what `TrainablePolicy.save` wrote, or any Hugging Face causal chat model.

    Args:
        folder: The folder (or, for a Hugging Face model, its name).
        settings: Passed on to the policy: ``temperature``, ``max_new_tokens``, ``seed`` and so on.
    """
    marker = Path(folder) / "policy.json"
    kind = json.loads(marker.read_text())["kind"] if marker.exists() else "transformers"
    if kind == "nano":
        return __getattr__("NanoPolicy").load(folder, **settings)
    if kind == "transformers":
        try:
            return __getattr__("TransformersPolicy")(str(folder), **settings)
        except (OSError, ValueError) as error:
            if isinstance(error, DynaGymError):
                raise
            told = str(error).split("\n", 1)[0]
            raise ConfigError(
                f"policy: got {str(folder)!r}, expected a folder that a policy was saved to or the name of "
                f"a Hugging Face model ({told})"
            ) from error
    raise ConfigError(f"{marker}: got kind {kind!r}, expected 'nano' or 'transformers'")


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
    return load_policy(name, seed=seed, **settings)
