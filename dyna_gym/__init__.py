"""Gymnasium environments and wrappers for LLM agents that learn by imagining.

``import dyna_gym`` registers the ids; then ``gymnasium.make("DynaGym-Sokoban-v0")`` works, as does
``gymnasium.make("dyna_gym:DynaGym-Sokoban-v0")`` without the import.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from dyna_gym.registration import register_all

if TYPE_CHECKING:
    from dyna_gym.wrappers.stack import make_agent_env

try:
    __version__ = version("dyna-gym")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__", "make_agent_env", "register_all"]

register_all()


def __getattr__(name: str) -> Any:
    # Loaded when asked for, so that importing dyna_gym stays cheap.
    if name == "make_agent_env":
        from dyna_gym.wrappers.stack import make_agent_env

        return make_agent_env
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
