"""Run folders: configuration, metrics, checkpoints and summary, written so that nothing is lost.

A run survives its users: it can be killed at any moment, moved, named by another path, resumed, and given a
larger budget. One process at a time has the folder. What is wrong with the settings is told before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dyna_gym.errors import ConfigError
from dyna_gym.files import (
    FolderLock,
    append_line,
    read_json,
    read_rows,
    to_json,
    write_json,
    write_text,
)
from dyna_gym.trajectory import Trajectory, write_trajectories

TRAJECTORIES_EVERY = 10
"""Updates between those whose episodes a run keeps."""

_NO_SETTINGS = ("run", "resume")
"""What says where a run is and how it was started, not what it does."""


class RunFolder:
    """One run on disk: ``config.json``, ``metrics.jsonl``, ``checkpoint-…/``, ``summary.json``.

    Made, it has looked at the folder and written nothing: then comes all that may fail (loading the policy, making the
    envs), then `begin`. It is a context manager; leaving it lets go of the folder.

    Args:
        path: The folder.
        config: Settings of the run.
        resume: Go on with a run that is there. Without it, a folder that holds a run is refused.
        free: Settings that may differ when resuming, because they do not change what the run does.
        growing: Settings that may be larger when resuming: a finished run goes on to the larger budget.
        contents: Settings that may name a folder, which is told by what it holds: it may have been moved, but not
            changed.

    Raises:
        ConfigError: The folder holds a run and ``resume`` is not set, or holds one with other settings, is in use by
            another process, or cannot be one.

    Examples:
        >>> import tempfile
        >>> with RunFolder(tempfile.mkdtemp() + "/run", {"lr": 0.1}) as run:
        ...     run.begin()
        ...     run.log(1, losses__nll=2.0)
        ...     [row["losses/nll"] for row in run.metrics()]
        [2.0]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: dict[str, Any],
        *,
        resume: bool = False,
        free: Sequence[str] = (),
        growing: Sequence[str] = (),
        contents: Sequence[str] = (),
    ) -> None:
        if not os.fspath(path):
            raise ConfigError("run: got an empty name, expected a folder")
        self.path = Path(path)
        self._resume, self._free, self._growing = resume, free, growing
        self._config = json.loads(to_json(config))
        settings = _flat(self._config)
        self._config["contents"] = {k: folder_digest(settings.get(k)) for k in contents}
        self._contents = contents
        self._before: dict[str, Any] | None = None
        self._lock: FolderLock | None = None
        self._started, self._seconds, self._begun = time.monotonic(), 0.0, False
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"run: got the file {self.path}, expected a folder or a new name")
        if self._stored.exists():
            self._lock = FolderLock(self.path)
            try:
                self._before = self._check()
            except BaseException:
                self.close()
                raise

    @property
    def _stored(self) -> Path:
        return self.path / "config.json"

    def _check(self) -> dict[str, Any]:
        """Compare with the run that is there; returns its settings."""
        if not self._resume:
            raise ConfigError(
                f"{self.path} holds a run already; add --resume to go on with it, or choose another --run"
            )
        before, now = _flat(read_json(self._stored)), _flat(self._config)
        told: list[str] = []
        for key in sorted(before.keys() | now.keys()):
            old: Any = before.get(key)
            new: Any = now.get(key)
            if old == new or key.rpartition(".")[2] in _NO_SETTINGS or key in self._free:
                continue
            if key in self._contents:
                continue  # its content is compared, under its own key
            if key in self._growing and new > old:  # numbers, which were checked
                continue
            if key.startswith("contents."):
                name = key.removeprefix("contents.")
                told.append(
                    f"{name}: {before.get(name)!r} held something else than {now.get(name)!r}"
                )
            else:
                told.append(f"{key}: {old!r} -> {new!r}")
        if told:
            grow = f"; {', '.join(self._growing)} may grow" if self._growing else ""
            raise ConfigError(
                f"{self.path} holds a run with other settings ({'; '.join(told)}); use the same{grow}, or choose "
                "another --run"
            )
        return before

    def _grown(self) -> bool:
        """Whether a run is given more than it was when it was last written."""
        now, before = _flat(self._config), self._before
        return before is not None and any(before.get(k) != now.get(k) for k in self._growing)

    def begin(self) -> None:
        """Take the folder and write the settings: from here on there is a run.

        What a kill left behind is put in order: metrics of updates that no checkpoint stands behind are dropped, and so
        is the summary of a run that is now given a larger budget.
        """
        if self._lock is None:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = FolderLock(self.path)
            except OSError as error:
                raise ConfigError(f"run: cannot write to {self.path} ({error})") from None
            if self._stored.exists():
                raise ConfigError(
                    f"{self.path}: another run has just begun here; choose another --run"
                )
        if self._grown():
            (self.path / "summary.json").unlink(missing_ok=True)
        write_json(self._stored, self._config)
        self._before = _flat(self._config)
        for left in self.path.glob("*.part*"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        pointer = self.path / "checkpoint.json"
        self._rewind(read_json(pointer)["step"] if pointer.exists() else None)
        clock = self.path / "clock.json"
        self._seconds = read_json(clock)["seconds"] if clock.exists() else 0.0
        self._started, self._begun = time.monotonic(), True

    def close(self) -> None:
        """Let go of the folder."""
        if self._begun:
            self.tick()
            self._begun = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunFolder:
        """Use it in a ``with``."""
        return self

    def __exit__(self, *error: object) -> None:
        """Let go of the folder."""
        self.close()

    # -- metrics ----------------------------------------------------------------------------------

    @property
    def metrics_path(self) -> Path:
        """``metrics.jsonl``: one line an update."""
        return self.path / "metrics.jsonl"

    def log(self, step: int, **metrics: float) -> None:
        """Append one line of metrics; keys as in ``charts/success`` are given with ``__`` for ``/``."""
        row = {"step": step, "seconds": self.tick()}
        row |= {k.replace("__", "/"): v for k, v in metrics.items()}
        append_line(self.metrics_path, to_json(row))

    def tick(self) -> float:
        """Seconds that the run has taken, those before it was resumed included; noted on disk."""
        seconds = round(self._seconds + time.monotonic() - self._started, 2)
        write_json(self.path / "clock.json", {"seconds": seconds})
        return seconds

    def metrics(self) -> list[dict[str, Any]]:
        """All lines so far."""
        return list(read_rows(self.metrics_path)) if self.metrics_path.exists() else []

    def _rewind(self, step: int | None) -> None:
        """Drop the metrics of updates that will be done again: those after ``step``, or all."""
        if self.metrics_path.exists():
            kept = [row for row in self.metrics() if step is not None and row["step"] <= step]
            write_text(self.metrics_path, "".join(to_json(row) + "\n" for row in kept))

    def save_trajectories(self, step: int, trajectories: Iterable[Trajectory]) -> None:
        """Keep the episodes of an update, of every ``TRAJECTORIES_EVERY``-th and the first."""
        if step == 1 or step % TRAJECTORIES_EVERY == 0:
            write_trajectories(self.path / "trajectories" / f"{step:06d}.jsonl", trajectories)

    # -- checkpoints ------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Path | None:
        """The newest complete checkpoint, if there is one."""
        pointer = self.path / "checkpoint.json"
        if not pointer.exists():
            return None
        return self.path / read_json(pointer)["folder"]

    def save_checkpoint(self, step: int, write: Any) -> None:
        """Write a checkpoint and make it the newest, in one step; the one before stays if that fails.

        Args:
            step: Number of the update that it stands after.
            write: Called with the folder to write to.
        """
        name = f"checkpoint-{step:06d}"
        partial = self.path / f"{name}.part"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write(partial)
        shutil.rmtree(self.path / name, ignore_errors=True)
        os.replace(partial, self.path / name)
        write_json(self.path / "checkpoint.json", {"folder": name, "step": step})
        for old in self.path.glob("checkpoint-*"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)

    # -- summary ----------------------------------------------------------------------------------

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Draw ``curves.png`` and write ``summary.json``: the run has ended."""
        from dyna_gym.plots import plot_curves

        if self.metrics_path.exists():
            plot_curves({self.path.name: self.metrics_path}, self.path / "curves.png")
        write_json(self.path / "summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        """``summary.json``, if the run has ended; None if it is to go on to a larger budget."""
        path = self.path / "summary.json"
        if self._grown() or not path.exists():
            return None
        found: dict[str, Any] = read_json(path)
        return found


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    return dict(_pairs(config, prefix))


def _pairs(config: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _pairs(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def folder_digest(name: Any) -> str:
    """What a folder holds, as a short hash; for anything that is no folder, the name itself."""
    folder = Path(str(name))
    if not str(name) or not folder.is_dir():
        return str(name)
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{digest.hexdigest()[:24]}"
