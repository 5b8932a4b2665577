"""Run folders: configuration, metrics, checkpoints and summary, written so that nothing is lost.

Files are written beside their place and moved there in one step, so that a reader, or a run that goes on after
a kill, never sees half of one.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dyna_gym.errors import ConfigError, DynaGymError
from dyna_gym.trajectory import Trajectory, write_trajectories

TRAJECTORIES_EVERY = 10
"""Updates between those whose episodes a run keeps."""


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write a JSON file, all or nothing."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.part{os.getpid()}")
    partial.write_text(json.dumps(data, indent=2, default=str) + "\n", encoding="utf-8")
    os.replace(partial, target)


def json_settings(text: str) -> dict[str, Any]:
    """Read settings that were given as JSON on a command line.

    Raises:
        ConfigError: It is no JSON object.

    Examples:
        >>> json_settings('{"size": 7}')
        {'size': 7}
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"settings: got {text!r}, expected JSON ({error})") from None
    if not isinstance(found, dict):
        raise ConfigError(f"settings: got {text!r}, expected a JSON object such as {{}}")
    return found


def check_counts(args: Any, **least: float) -> None:
    """Check the numbers among a trainer's settings before anything is made of them.

    Args:
        args: The settings.
        least: Name of a setting -> its least value.

    Raises:
        ConfigError: One is no number, or below its least value.
    """
    for name, bound in least.items():
        value = getattr(args, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= bound:
            raise ConfigError(f"{name}: got {value!r}, expected a number >= {bound}")


def run_trainer(main: Callable[[Any], Any], args: type, description: str | None) -> None:
    """Run a trainer from the command line; a wrong setting is told in one line, without a traceback."""
    import tyro

    try:
        main(tyro.cli(args, description=description))
    except DynaGymError as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


class RunFolder:
    """One run on disk: ``config.json``, ``metrics.jsonl``, ``checkpoint/``, ``summary.json``.

    Args:
        path: The folder.
        config: Settings of the run.
        resume: Go on with a run that is there. Without it, a folder that holds a run is refused.
        free: Names of settings that may differ when resuming (such as a larger budget).

    Raises:
        ConfigError: The folder holds a run and ``resume`` is not set, or holds one with other settings.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: dict[str, Any],
        *,
        resume: bool = False,
        free: tuple[str, ...] = (),
    ) -> None:
        self.path = Path(path)
        self._started = time.monotonic()
        config = json.loads(json.dumps(config, default=str))
        stored = self.path / "config.json"
        if stored.exists():
            if not resume:
                raise ConfigError(
                    f"{self.path} holds a run already; add --resume to go on with it, or choose another --run"
                )
            before = json.loads(stored.read_text(encoding="utf-8"))
            changed = sorted(
                k
                for k in before.keys() | config.keys()
                if k not in (*free, "resume", "run") and before.get(k) != config.get(k)
            )
            if changed:
                told = ", ".join(f"{k}: {before.get(k)!r} -> {config.get(k)!r}" for k in changed)
                raise ConfigError(
                    f"{self.path} holds a run with other settings ({told}); use the same or choose another --run"
                )
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(stored, config)

    # -- metrics ----------------------------------------------------------------------------------

    @property
    def metrics_path(self) -> Path:
        """``metrics.jsonl``: one line an update."""
        return self.path / "metrics.jsonl"

    def log(self, step: int, **metrics: float) -> None:
        """Append one line of metrics; keys as in ``charts/success`` are given with ``__`` for ``/``."""
        row = {"step": step, "seconds": round(time.monotonic() - self._started, 2)}
        row |= {k.replace("__", "/"): v for k, v in metrics.items()}
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All lines so far; one that was cut off by a crash is left out."""
        if not self.metrics_path.exists():
            return []
        lines = self.metrics_path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def rewind(self, step: int) -> None:
        """Drop the metrics of updates after ``step``, which will be done again."""
        kept = [row for row in self.metrics() if row["step"] <= step]
        partial = self.metrics_path.with_suffix(".part")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(partial, self.metrics_path)

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
        return self.path / json.loads(pointer.read_text(encoding="utf-8"))["folder"]

    def save_checkpoint(self, step: int, write: Any) -> None:
        """Write a checkpoint and make it the newest, in one step.

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
        """``summary.json``, if the run has ended."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
