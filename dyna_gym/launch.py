"""How programs start and stop: settings, one line for a mistake, signals, and processes that end together."""

from __future__ import annotations

import contextlib
import io
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from dyna_gym.errors import (
    ConfigError,
    DynaGymError,
    DynaGymWarning,
    MachineryError,
    TrainingDiverged,
    needs,
)

_FOLLOWS = "DYNA_GYM_FOLLOWS_STDIN"
"""Set in children: they end when their standard input does, which their parent holds open."""

GRACE_SECONDS = 20.0
"""How long a process that was asked to stop may take."""


# -- settings --------------------------------------------------------------------------------------


def json_settings(text: str | None, name: str = "settings") -> dict[str, Any]:
    """Read settings that were given as JSON on a command line.

    Raises:
        ConfigError: It is no JSON object.

    Examples:
        >>> json_settings('{"size": 7}')
        {'size': 7}
        >>> json_settings(None)
        {}
    """
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}: got {text!r}, expected JSON ({error})") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: got {text!r}, expected a JSON object such as {{}}")
    return found


def check_numbers(
    args: Any,
    *,
    counts: Sequence[str] = (),
    from_zero: Sequence[str] = (),
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    shares: Sequence[str] = (),
) -> None:
    """Check the numbers among a program's settings before anything is made of them.

    Args:
        args: The settings.
        counts: Names of those that are whole numbers >= 1.
        from_zero: Whole numbers >= 0.
        positive: Finite numbers > 0.
        not_negative: Finite numbers >= 0.
        shares: Numbers from 0 to 1.

    Raises:
        ConfigError: One is something else. ``seed``, a whole number, must also be below 2**32.
    """
    for names, whole, least, most, told in (
        (counts, True, 1, math.inf, "a whole number >= 1"),
        (from_zero, True, 0, math.inf, "a whole number >= 0"),
        (positive, False, 5e-324, sys.float_info.max, "a finite number > 0"),
        (not_negative, False, 0, sys.float_info.max, "a finite number >= 0"),
        (shares, False, 0, 1, "a number from 0 to 1"),
    ):
        for name in names:
            value = getattr(args, name)
            kinds = (int,) if whole else (int, float)
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not least <= value <= most
            ):
                raise ConfigError(f"{name}: got {value!r}, expected {told}")
            if name == "seed" and value >= 2**32:
                raise ConfigError(f"seed: got {value}, expected a whole number below 2**32")


# -- command lines ---------------------------------------------------------------------------------


def run_trainer(main: Callable[[Any], Any], args: type, description: str | None) -> None:
    """Run a trainer from the command line.

    A mistake in the settings is one line and exit code 2; a failure of the training itself one line and 1; SIGTERM
    and SIGHUP end the process in order, with its children, and 128 plus their number.
    """
    follow_parent()
    stop_on_signals()

    def call() -> None:
        main(_parse(args, description))

    with one_line_warnings():
        sys.exit(exit_code(call))


def exit_code(call: Callable[[], int | None]) -> int:
    """Call, and return its exit code; what goes wrong is told in one line on standard error."""
    try:
        code = call()
        sys.stdout.flush()  # here, where a reader that has gone can still be told
        return code or 0
    except BrokenPipeError:  # who read our output has gone: `... | head`
        with contextlib.suppress(OSError):  # nor does the interpreter write what is left
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13  # as a shell tells SIGPIPE
    except (DynaGymError, gym.error.Error, OSError) as error:
        return tell_error(error)
    except KeyboardInterrupt:
        return 130


def tell_error(error: Exception) -> int:
    """Print the one line of an error; returns 1 where no other setting would have helped, else 2."""
    ours = isinstance(error, (DynaGymError, gym.error.Error))
    text = str(error) if ours else f"{type(error).__name__}: {error}"
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return 1 if isinstance(error, (MachineryError, TrainingDiverged)) else 2


def _parse(args: type, description: str | None) -> Any:
    with needs("train", __name__):
        import tyro
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):  # where tyro draws boxes of many lines
            return tyro.cli(args, description=description)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        text = re.sub(r"[─-╿]", " ", told.getvalue())
        text = " ".join(text.partition("For full helptext")[0].split())
        raise ConfigError(f"{text} (--help tells all settings)") from None


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Warnings of dyna_gym as one line each on standard error, without the place in the code."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, DynaGymWarning):
                print(f"warning: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


# -- signals ---------------------------------------------------------------------------------------


def stop_on_signals() -> None:
    """From now on SIGTERM and SIGHUP leave through every ``finally``, so that children are ended, too."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        # Who started us with nohup wants us to go on.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not break off the tidying up
    raise SystemExit(128 + number)


# -- processes that end together -------------------------------------------------------------------


def start_child(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that uses `run_trainer`, one thread, its output in a file; it ends when this process does.

    Even when this process is killed: the operating system then closes the pipe that is the child's input.
    """
    environment = {**os.environ, _FOLLOWS: "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment
        )


def end_children(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ask programs to stop, wait until they have, and kill those that have not."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def follow_parent() -> None:
    """In a child of `start_child`: stop when the parent is gone, however it went."""
    if os.environ.pop(_FOLLOWS, None):
        threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)


def pool_worker() -> None:
    """Initializer of the workers of a process pool: they end with the process that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches them, too; the parent ends them
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
