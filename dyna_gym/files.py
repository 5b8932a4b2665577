"""Files that survive a crash: lines are appended whole, and what a crash cut off is dropped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK = 65_536


def append_line(path: str | os.PathLike[str], line: str) -> None:
    """Append one line in one write; a last line that a crash cut off is dropped first.

    Args:
        path: The file; made if it is not there, with its folder.
        line: Text without a newline in it.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a+b") as file:
        whole = _whole_lines(file)
        if whole != file.seek(0, os.SEEK_END):
            file.truncate(whole)
        file.write(line.encode("utf-8") + b"\n")


def _whole_lines(file: BinaryIO) -> int:
    """Length of a file up to and with its last newline."""
    end = file.seek(0, os.SEEK_END)
    at = end
    while at > 0:
        start = max(0, at - _BLOCK)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + int(found) + 1
        at = start
    return 0


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """All whole lines of a file, without their newlines; one that a crash cut off is left out."""
    with Path(path).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1].decode("utf-8")
