"""Files that survive a crash: written whole or not at all, appended to line by line, locked by one process.

Everything that dyna_gym keeps on disk goes through here: a reader, or a run that goes on after a kill, never
sees half a file, and a line that a kill cut off is never glued to the next one.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from dyna_gym.errors import ConfigError, DynaGymWarning

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:
    msvcrt = None  # type: ignore[assignment]

PathLike = str | os.PathLike[str]


# -- JSON ------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """What `json.dumps` shall write for a value that it does not know: NumPy's as numbers and lists.

    Examples:
        >>> plain(np.float32(0.5)), plain(np.arange(2)), plain(np.True_)
        (0.5, [0, 1], True)
    """
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


def to_json(data: Any, **settings: Any) -> str:
    """`json.dumps` for what programs hold: NumPy values, paths, sets.

    Examples:
        >>> to_json({"success": np.float64(0.5), "steps": np.int64(3)})
        '{"success": 0.5, "steps": 3}'
    """
    try:
        return json.dumps(data, default=plain, **settings)
    except TypeError:  # a key that is no JSON key, such as np.int64(3)
        return json.dumps(_plain_keys(data), default=plain, **settings)


def _plain_keys(data: Any) -> Any:
    if isinstance(data, dict):
        known = (str, int, float, type(None))
        return {k if isinstance(k, known) else str(k): _plain_keys(v) for k, v in data.items()}
    return [_plain_keys(v) for v in data] if isinstance(data, (list, tuple)) else data


def write_text(path: PathLike, text: str) -> None:
    """Write a file, all or nothing; its folder is made."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.part{os.getpid()}")
    partial.write_text(text, encoding="utf-8", errors="surrogatepass")
    os.replace(partial, target)


def check_writable(folder: PathLike) -> None:
    """Check, before anything is computed, that files can be written to a folder; it is made.

    Raises:
        ConfigError: They cannot.
    """
    probe = Path(folder) / f".probe{os.getpid()}"
    try:
        write_text(probe, "")
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"cannot write to the folder {str(folder)!r} ({error})") from None


def write_json(path: PathLike, data: Any) -> None:
    """Write a JSON file, all or nothing."""
    write_text(path, to_json(data, indent=2) + "\n")


def read_json(path: PathLike) -> Any:
    """Read a JSON file that `write_json` wrote.

    Raises:
        ConfigError: It cannot be read, or is no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected a JSON file, and it cannot be read ({error})"
        ) from None


# -- lines -----------------------------------------------------------------------------------------


def append_line(path: PathLike, line: str) -> None:
    """Append a line in one write; a last line that a crash cut off is taken out first.

    Several processes may append to one file. Its folder is made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a+b") as file, _exclusive(file):
        _drop_torn_line(file)
        file.write(f"{line}\n".encode("utf-8", "surrogatepass"))
        file.flush()


def _drop_torn_line(file: IO[bytes]) -> None:
    end = file.seek(0, os.SEEK_END)
    at = end
    while at:
        start = max(0, at - 65536)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            at = start + found + 1
            break
        at = start
    if at < end:
        file.truncate(at)
        file.seek(0, os.SEEK_END)


@contextmanager
def _exclusive(file: IO[bytes]) -> Iterator[None]:
    """Nobody else who asks for it has the file meanwhile; file systems without locks go without."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
    yield  # closing the file lets go


def read_rows(path: PathLike) -> Iterator[Any]:
    """The JSON values of a file of lines.

    A last line that was cut off by a crash, or is being written, is left out in silence; a broken one in the
    middle, which only another program can have written, is left out and told.
    """
    broken = []
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or not line.strip():
                continue
            try:
                value = json.loads(line.decode("utf-8", "surrogatepass"))
            except ValueError:
                broken.append(number)
                continue
            yield value
    if broken:
        warnings.warn(
            f"{path}: {len(broken)} lines are no JSON and were left out (the first is line {broken[0]})",
            DynaGymWarning,
            stacklevel=2,
        )


# -- locks -----------------------------------------------------------------------------------------


class FolderLock:
    """A folder that one process uses; the operating system lets go of it when that process dies.

    Args:
        folder: The folder; it must exist.
        patience: Seconds to wait for another process, which may be about to end.

    Raises:
        ConfigError: Another run uses the folder.
    """

    def __init__(self, folder: PathLike, patience: float = 3.0) -> None:
        self.path = Path(folder) / ".lock"
        self._file: IO[bytes] | None = self.path.open("a+b")
        deadline = time.monotonic() + patience
        while not self._try():
            if time.monotonic() > deadline:
                self._file.seek(0)
                who = self._file.read(200).decode(errors="replace").strip() or "another process"
                self.release()
                raise ConfigError(
                    f"{folder} is in use by another run ({who}); wait for it to end, stop it, or choose "
                    "another --run"
                )
            time.sleep(0.1)
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()}".encode())
        self._file.flush()

    def _try(self) -> bool:
        assert self._file is not None
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif msvcrt is not None:  # pragma: no cover - Windows
                self._file.seek(2**30)  # a byte behind the text, which others can still read
                msvcrt.locking(self._file.fileno(), msvcrt.LK_NBLCK, 1)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            warnings.warn(
                f"{self.path.parent} cannot be locked ({error}): see to it that no other run uses it",
                DynaGymWarning,
                stacklevel=4,
            )
        return True

    def release(self) -> None:
        """Let go; harmless when done again."""
        if self._file is not None:
            self._file.close()
            self._file = None
