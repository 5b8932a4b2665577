"""Gymnasium environments and wrappers for LLM agents that learn by imagining.

``import dyna_gym`` registers the ids; then ``gymnasium.make("DynaGym-Sokoban-v0")`` works, as does
``gymnasium.make("dyna_gym:DynaGym-Sokoban-v0")`` without the import.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dyna_gym.registration import register_all

if TYPE_CHECKING:
    from dyna_gym.wrappers.stack import make_agent_env

try:
    __version__ = version("dyna-gym")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__", "make_agent_env", "register_all"]


def _check_links() -> None:
    # In a checkout three folders are symbolic links; Git on Windows and some unpackers write them as text files.
    for name in ("envs", "wrappers", "trainers"):
        link = Path(__file__).with_name(name)
        if not link.is_file():
            continue
        spec = find_spec(f"dyna_gym.{name}")  # an editable installation knows the folder itself
        if spec is None or Path(spec.origin or "").parent != link.parents[1] / name:
            raise ImportError(
                f"{link} is a text file, expected a symbolic link to ../{name}: this copy of the repository was made "
                "without symbolic links. Either install it (`pip install .` in its folder, which needs no links), or "
                "clone it with `git clone -c core.symlinks=true` (on Windows with developer mode switched on)"
            )


_check_links()
register_all()


def __getattr__(name: str) -> Any:
    # Loaded when asked for, so that importing dyna_gym stays cheap.
    if name == "make_agent_env":
        from dyna_gym.wrappers.stack import make_agent_env

        return make_agent_env
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
