"""Run folders: refusal to overwrite, resuming, atomic checkpoints, curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dyna_gym.errors import ConfigError
from dyna_gym.plots import plot_curves
from dyna_gym.runs import RunFolder, json_settings, write_json


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "a.json", {"x": [1, 2]})
    assert json.loads((tmp_path / "deep" / "a.json").read_text()) == {"x": [1, 2]}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["{", "[1]", "7", ""])
def test_bad_settings_say_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        json_settings(text)


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    RunFolder(tmp_path / "r", {"lr": 1.0, "steps": 3})
    with pytest.raises(ConfigError, match="--resume"):
        RunFolder(tmp_path / "r", {"lr": 1.0, "steps": 3})
    with pytest.raises(ConfigError, match=r"lr: 1\.0 -> 2\.0"):
        RunFolder(tmp_path / "r", {"lr": 2.0, "steps": 3}, resume=True)
    RunFolder(tmp_path / "r", {"lr": 1.0, "steps": 9}, resume=True, free=("steps",))


def test_a_checkpoint_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "r", {})
    run.save_checkpoint(1, lambda path: (path / "w").write_text("one") and None)

    def crash(path: Path) -> None:
        (path / "w").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run.save_checkpoint(2, crash)
    assert run.checkpoint is not None
    assert (run.checkpoint / "w").read_text() == "one"
    run.save_checkpoint(2, lambda path: (path / "w").write_text("two") and None)
    assert (run.checkpoint / "w").read_text() == "two"
    assert len(list((tmp_path / "r").glob("checkpoint-*"))) == 1


def test_metrics_survive_a_cut_line_and_can_be_rewound(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "r", {})
    for step in (1, 2, 3):
        run.log(step, charts__success=step / 10)
    with run.metrics_path.open("a") as file:
        file.write('{"step": 4, "charts/suc')
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    run.rewind(2)
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert run.metrics()[1]["charts/success"] == 0.2


def test_curves_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "r", {})
    plot_curves({"empty": run.metrics_path}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    run.log(1, losses__nll=2.0)
    run.log(2, losses__nll=1.0)
    run.write_summary({"done": True})
    assert (tmp_path / "r" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert run.summary() == {"done": True}
