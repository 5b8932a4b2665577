"""Errors of dyna_gym, one type a boundary.

Every message says what was got, what was expected and what to do next. Nothing that an *agent*
writes raises: a bad action is reported in ``info["invalid_reason"]``. What raises is a mistake of the
person who wrote the program, or a machine that failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "train": (
        "torch",
        "transformers",
        "tokenizers",
        "accelerate",
        "safetensors",
        "tyro",
        "matplotlib",
    )
}
"""Packages that modules of dyna_gym import, by the optional extra that installs them."""


class DynaGymError(Exception):
    """Base of all errors that dyna_gym raises itself."""


class DynaGymWarning(UserWarning):
    """Base of all warnings of dyna_gym; our own tests turn them into errors."""


class ConfigError(DynaGymError, ValueError):
    """A setting cannot be used as given."""


class UnknownTask(DynaGymError, KeyError):
    """``options={"task": ...}`` names a task that this env does not have."""

    def __str__(self) -> str:
        """KeyError would show the message quoted, with its newlines escaped."""
        return str(self.args[0]) if self.args else ""


class TaskTypeError(DynaGymError, TypeError):
    """``options={"task": ...}`` or ``tasks=`` is given something that cannot name a task."""


class StateMismatch(DynaGymError, ValueError):
    """A snapshot was restored in an env of another kind or configuration."""


class BranchError(DynaGymError, TypeError):
    """A layer of the stack cannot be branched: stepping ahead below it would leave traces."""


class MachineryError(DynaGymError, RuntimeError):
    """A browser, a device or an endpoint failed.

    A world raises this out of its hooks; `WorldEnv` tries again where that does no harm and then truncates
    the episode with ``info["error"]``, so that machinery failure is never scored as the agent's failure.

    Args:
        message: What failed.
        code: Short kind of the failure, for ``info["error_code"]``: `machinery`, `timeout`, `judge` …
        retry: Whether nothing has happened in the world yet, so that the same action may be taken again.
            Asked for actions only; starting, judging and listing actions are repeatable anyway.
    """

    def __init__(self, message: str, *, code: str = "machinery", retry: bool = False) -> None:
        super().__init__(message)
        self.code, self.retry = code, retry


class ReplayDiverged(MachineryError):
    """Re-running the recorded actions did not show the recorded observations."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="diverged")


class TrainingDiverged(DynaGymError, ArithmeticError):
    """Losses, gradients or weights went to NaN or infinity; the last healthy checkpoint is kept."""


class MissingExtra(DynaGymError, ImportError):
    """A package of an optional extra is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f'Install it with: pip install "dyna-gym[{extra}]"'
        )
        self.package, self.extra = package, extra


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Imports of an optional extra stand in here.

    Raises:
        MissingExtra: One of its packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS[extra]:
            raise
        raise MissingExtra(package, extra, purpose) from error
