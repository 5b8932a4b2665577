"""Progress: a bar on a terminal, few lines in a log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dyna_gym import progress
from dyna_gym.progress import Progress, counted


class Clock:
    """Time that passes when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize(("seconds", "most"), [(1, 0), (100, 10), (10_000, 20)])
def test_a_log_gets_a_line_in_ten_seconds_and_five_per_cent(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: int,
    most: int,
) -> None:
    clock = Clock(monkeypatch)
    with Progress(3_406, "distil", unit="steps") as bar:
        for _ in range(3_406):
            clock.now += seconds / 3_406
            bar.update(loss=0.123456)
    lines = capsys.readouterr().err.splitlines()
    assert 0.8 * most <= len(lines) <= most
    for line in lines:
        assert re.fullmatch(r"distil: \d+ % \([\d,]+ of 3,406 steps\), \d+ s, loss 0\.123", line)


def test_no_label_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    for _ in counted(range(10), 10, None):
        clock.now += 100
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    assert list(counted(range(3), 3, "evaluation")) == [0, 1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert "evaluation:" in err
    assert "\r" in err


def test_every_bar_of_the_package_is_this_one(root: Path) -> None:
    for folder in ("dyna_gym", "envs", "wrappers", "trainers"):
        for path in (root / folder).rglob("*.py"):
            if path.name != "progress.py":
                assert "tqdm" not in path.read_text(encoding="utf-8"), path
