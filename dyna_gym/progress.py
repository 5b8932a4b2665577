"""Progress: a bar on a terminal, a few lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

LOG_SECONDS = 10.0
LOG_SHARE = 0.05
"""A log gets a line of a bar when so many seconds have passed and so much more is done."""


class Progress:
    """Something that is being counted up; the one progress display of the package.

    On a terminal it is a bar of tqdm's. Where standard error goes to a file or a pipe, a bar would write
    thousands of lines: there a line is written at most every `LOG_SECONDS` and every `LOG_SHARE`.

    Args:
        total: Where it ends.
        label: What is being done; None shows nothing.
        initial: How much is done already.
        unit: Of what.
        position: Line of the bar, where several are shown.
        leave: Whether the bar stays when it is full.
    """

    def __init__(
        self,
        total: int,
        label: str | None,
        *,
        initial: int = 0,
        unit: str = "it",
        position: int | None = None,
        leave: bool = False,
    ) -> None:
        self.done, self.total, self._label, self._unit = initial, total, label, unit
        self._figures: dict[str, str] = {}
        self._started = self._told_at = time.monotonic()
        self._told = initial
        self._bar: Any = None
        if label is not None and is_terminal():
            self._bar = tqdm(
                total=total,
                desc=label,
                initial=initial,
                unit=unit,
                unit_scale=total >= 100_000,
                position=position,
                leave=leave,
                file=sys.stderr,
            )

    def update(self, count: int = 1, **figures: float) -> None:
        """Count up, and show figures beside it."""
        self.to(self.done + count, **figures)

    def to(self, done: int, **figures: float) -> None:
        """Set the count; see `update`."""
        step, self.done = done - self.done, done
        self._figures |= {name: f"{value:.3g}" for name, value in figures.items()}
        if self._bar is not None:
            if self._figures:
                self._bar.set_postfix(self._figures, refresh=False)
            self._bar.update(step)
        elif self._label is not None:
            self._log()

    def _log(self) -> None:
        now = time.monotonic()
        enough = self.done - self._told >= LOG_SHARE * self.total
        if now - self._told_at < LOG_SECONDS or not enough:
            return
        self._told_at, self._told = now, self.done
        share = 100 * self.done / max(1, self.total)
        figures = "".join(f", {name} {value}" for name, value in self._figures.items())
        count = f"{self.done:,} of {self.total:,} {self._unit}"
        line = f"{self._label}: {share:.0f} % ({count}), {now - self._started:.0f} s{figures}"
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        """For ``with``, which closes the bar."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the bar."""
        self.close()


def counted(items: Iterable[T], total: int, label: str | None, unit: str = "it") -> Iterator[T]:
    """Go over items and count them."""
    with Progress(total, label, unit=unit) as progress:
        for item in items:
            yield item
            progress.update()


def is_terminal() -> bool:
    """Whether somebody watches standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(line: str) -> None:
    """Print a line on standard output without breaking a bar."""
    if is_terminal():
        tqdm.write(line, file=sys.stdout)
    else:
        print(line)
    sys.stdout.flush()
