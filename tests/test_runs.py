"""Run folders: refusal to overwrite, resuming, locks, atomic checkpoints, curves."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyna_gym.errors import ConfigError
from dyna_gym.plots import plot_curves
from dyna_gym.runs import RunFolder


def begun(path: Path, config: dict[str, Any] | None = None, **settings: Any) -> RunFolder:
    """A run folder that is being written to."""
    run = RunFolder(path, config or {}, **settings)
    run.begin()
    return run


def test_nothing_is_written_before_a_run_begins(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "r", {"lr": 1.0}):
        pass  # here a trainer loads its policy, and may fail
    assert not (tmp_path / "r").exists()
    with begun(tmp_path / "r", {"lr": 2.0}) as run:
        assert json.loads((run.path / "config.json").read_text())["lr"] == 2.0


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r"
    settings: dict[str, Any] = {"lr": 1.0, "steps": 3, "inner": {"depth": 2}}
    begun(path, settings).close()
    with pytest.raises(ConfigError, match="--resume"):
        RunFolder(path, settings)
    with pytest.raises(ConfigError, match=r"lr: 1\.0 -> 2\.0"):
        RunFolder(path, {**settings, "lr": 2.0}, resume=True)
    with pytest.raises(ConfigError, match=r"inner\.depth: 2 -> 3"):
        RunFolder(path, {**settings, "inner": {"depth": 3}}, resume=True)
    begun(path, {**settings, "steps": 9}, resume=True, free=("steps",)).close()
    begun(path, {**settings, "steps": 10}, resume=True, growing=("steps",)).close()
    with pytest.raises(ConfigError, match=r"steps: 10 -> 9.*steps may grow"):
        RunFolder(path, {**settings, "steps": 9}, resume=True, growing=("steps",))
    # A refusal lets go of the folder.
    begun(path, {**settings, "steps": 10}, resume=True).close()


@pytest.mark.parametrize("taken", ["itself", "above"])
def test_a_file_is_no_run_folder(tmp_path: Path, taken: str) -> None:
    (tmp_path / "file").write_text("mine")
    path = tmp_path / "file" if taken == "itself" else tmp_path / "file" / "deep"
    with pytest.raises(ConfigError, match="run: "):
        begun(path)
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(ConfigError, match="empty name"):
        RunFolder("", {})


def test_a_larger_budget_takes_the_summary_away(tmp_path: Path) -> None:
    grow: dict[str, Any] = {"resume": True, "growing": ("tokens",)}
    with begun(tmp_path / "r", {"tokens": 10}) as run:
        run.write_summary({"done": 10})
    with RunFolder(tmp_path / "r", {"tokens": 10}, **grow) as run:
        assert run.summary() == {"done": 10}
    with RunFolder(tmp_path / "r", {"tokens": 20}, **grow) as run:
        assert run.summary() is None
    assert (tmp_path / "r" / "summary.json").exists()  # not begun: as it was
    begun(tmp_path / "r", {"tokens": 20}, **grow).close()
    with RunFolder(tmp_path / "r", {"tokens": 20}, **grow) as run:
        assert run.summary() is None  # killed before it ended: still not finished


SPELLINGS = {
    "relative": lambda path: os.path.relpath(path),
    "slash": lambda path: f"{path}/",
    "dots": lambda path: f"{path.parent}/./x/../{path.name}",
    "link": lambda path: _link(path),
    "moved": lambda path: path.rename(path.with_name("moved")),
}


def _link(path: Path) -> Path:
    link = path.with_name(f"{path.name}-link")
    link.symlink_to(path)
    return link


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("what", ["run", "policy"])
def test_folders_may_be_moved_and_spelled_otherwise(
    tmp_path: Path, spelling: str, what: str
) -> None:
    (tmp_path / "x").mkdir()
    folders = {"run": tmp_path / "run", "policy": tmp_path / "policy"}
    folders["policy"].mkdir()
    (folders["policy"] / "weights").write_text("w")

    def config() -> dict[str, Any]:
        return {"policy": str(folders["policy"]), "run": str(folders["run"]), "lr": 1}

    with begun(folders["run"], config(), contents=("policy",)) as run:
        run.save_checkpoint(1, lambda path: (path / "w").write_text("one") and None)
    folders[what] = Path(SPELLINGS[spelling](folders[what]))
    with begun(folders["run"], config(), contents=("policy",), resume=True) as run:
        assert run.checkpoint is not None
        assert (run.checkpoint / "w").read_text() == "one"
    (folders["policy"] / "weights").write_text("other")
    with pytest.raises(ConfigError, match=r"policy: .* held something else"):
        RunFolder(folders["run"], config(), contents=("policy",), resume=True)


HOLD = """
import sys, time
from dyna_gym.runs import RunFolder
run = RunFolder(sys.argv[1], {}, resume=True)
run.begin()
print("mine", flush=True)
time.sleep(60)
"""


def test_two_processes_cannot_have_one_folder_and_a_dead_one_has_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "r")]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with pytest.raises(ConfigError, match=f"in use by another run .process {other.pid}"):
            RunFolder(tmp_path / "r", {}, resume=True)
    finally:
        other.kill()
        other.communicate()
    begun(tmp_path / "r", {}, resume=True).close()


def test_a_lock_waits_for_a_process_that_is_about_to_end(tmp_path: Path) -> None:
    code = HOLD.replace("sleep(60)", "sleep(1)")
    command = [sys.executable, "-c", code, str(tmp_path / "r")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        begun(tmp_path / "r", {}, resume=True).close()


def test_two_fresh_starts_meet_at_the_lock(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "r", {}), RunFolder(tmp_path / "r", {})
    first.begin()
    with pytest.raises(ConfigError, match="in use"):
        second.begin()
    first.close()
    with pytest.raises(ConfigError, match="has just begun"):
        second.begin()
    second.close()


def test_a_checkpoint_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    with begun(tmp_path / "r") as run:
        run.save_checkpoint(1, lambda path: (path / "w").write_text("one") and None)

        def crash(path: Path) -> None:
            (path / "w").write_text("half")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            run.save_checkpoint(2, crash)
        assert run.checkpoint is not None
        assert (run.checkpoint / "w").read_text() == "one"
    with begun(tmp_path / "r", resume=True) as run:
        assert not list((tmp_path / "r").glob("*.part*"))
        run.save_checkpoint(2, lambda path: (path / "w").write_text("two") and None)
        assert run.checkpoint is not None
        assert (run.checkpoint / "w").read_text() == "two"
        assert len(list((tmp_path / "r").glob("checkpoint-*"))) == 1


@pytest.mark.parametrize(("saved", "kept"), [(None, []), (1, [0, 1]), (3, [0, 1, 2, 3])])
def test_a_run_that_goes_on_has_no_doubled_or_torn_rows(
    tmp_path: Path, saved: int | None, kept: list[int]
) -> None:
    with begun(tmp_path / "r") as run:
        for step in range(4):
            run.log(step, charts__success=step / 10)
            if step == saved:
                run.save_checkpoint(step, lambda path: None)
    with run.metrics_path.open("a") as file:
        file.write('{"step": 4, "charts/suc')
    assert [row["step"] for row in run.metrics()] == [0, 1, 2, 3]
    with begun(tmp_path / "r", resume=True) as run:
        assert [row["step"] for row in run.metrics()] == kept
        run.log(9, charts__success=0.9)
    rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [*kept, 9]
    assert rows[-1]["charts/success"] == 0.9


def test_seconds_go_on_counting(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        with begun(tmp_path / "r", resume=True) as run:
            time.sleep(0.2)
            run.log(step)
            run.save_checkpoint(step, lambda path: None)
    seconds = [row["seconds"] for row in run.metrics()]
    assert seconds[0] >= 0.2
    assert all(b > a + 0.19 for a, b in itertools.pairwise(seconds))


def test_metrics_from_numpy_come_back_as_numbers(tmp_path: Path) -> None:
    figures: dict[str, Any] = {
        "single": np.float32(0.1),
        "double": np.float64(0.1),
        "whole": np.int64(3),
        "flag": np.bool_(True),
        "array": np.arange(3),
        "nan": np.float32("nan"),
    }
    with begun(tmp_path / "r") as run:
        run.log(np.int64(1), **figures)  # type: ignore[arg-type]
        run.write_summary({"by seed": {np.int64(7): figures["single"]}})
        row = run.metrics()[0]
    assert row["step"] == 1
    assert {k: type(row[k]) for k in figures} == {
        "single": float,
        "double": float,
        "whole": int,
        "flag": bool,
        "array": list,
        "nan": float,
    }
    assert row["single"] == float(np.float32(0.1))
    assert (row["whole"], row["flag"], row["array"]) == (3, True, [0, 1, 2])
    assert run.summary() == {"by seed": {"7": float(np.float32(0.1))}}


def test_curves_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    with begun(tmp_path / "r") as run:
        plot_curves({"empty": run.metrics_path}, tmp_path / "none.png")
        assert not (tmp_path / "none.png").exists()
        run.log(1, losses__nll=2.0)
        run.log(2, losses__nll=1.0)
        run.write_summary({"done": True})
    assert (tmp_path / "r" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert run.summary() == {"done": True}
