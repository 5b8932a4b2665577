"""One runnable algorithm a file: ``python -m dyna_gym.trainers.<name> --help``."""

import sys
from importlib.util import find_spec

from dyna_gym.errors import EXTRAS, MissingExtra


def _missing() -> str | None:
    for package in EXTRAS["train"]:
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return package
    return None


# Told before a trainer runs, not when it first draws a curve.
if (_package := _missing()) is not None:
    _error = MissingExtra(_package, "train", "a trainer")
    if sys.argv[:1] == ["-m"]:  # python -m dyna_gym.trainers.x: on a command line one line will do
        print(f"error: {_error}", file=sys.stderr)
        sys.exit(2)
    raise _error
