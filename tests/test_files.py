"""Files: whole or not at all, torn lines, values from NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyna_gym.errors import ConfigError, DynaGymWarning
from dyna_gym.files import append_line, read_json, read_rows, to_json, write_json


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "a.json", {"x": [1, 2]})
    assert json.loads((tmp_path / "deep" / "a.json").read_text()) == {"x": [1, 2]}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.json"]
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="Circular"):
        write_json(tmp_path / "deep" / "a.json", endless)
    assert read_json(tmp_path / "deep" / "a.json") == {"x": [1, 2]}


@pytest.mark.parametrize("text", [None, "", "{", "\x00\x00"])
def test_a_file_that_is_no_json_is_a_clear_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match=r"a\.json: expected a JSON file"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(0.1), 0.1),
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(0.5), 0.5),
        ({np.int64(1): np.float32(1)}, {"1": 1.0}),
        ({"deep": [{np.int64(1): (np.bool_(False),)}]}, {"deep": [{"1": [False]}]}),
        (Path("a"), "a"),
        ({1, 2}, [1, 2]),
    ],
)
def test_values_come_back_as_what_they_were(value: Any, back: Any) -> None:
    found = json.loads(to_json({"x": value}))["x"]
    assert found == back
    assert type(found) is type(back)


@pytest.mark.parametrize("tail", ["", '{"n": 3, "te', "\x00" * 70_000, "x" * 200_000])
def test_a_torn_line_is_dropped_by_reading_and_mended_by_appending(
    tmp_path: Path, tail: str
) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n' + tail)
    assert [row["n"] for row in read_rows(path)] == [1, 2]
    append_line(path, '{"n": 4}')
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [1, 2, 4]


def test_a_file_that_is_one_torn_line_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"n"')
    append_line(path, "{}")
    assert path.read_text() == "{}\n"


def test_a_broken_line_in_the_middle_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"n": 1}\n{"n": {"n": 2}\n{"n": 3}\n')
    with pytest.warns(DynaGymWarning, match="1 lines are no JSON .*line 2"):
        assert [row["n"] for row in read_rows(path)] == [1, 3]


def test_several_processes_may_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    code = "import sys; from dyna_gym.files import append_line\n"
    code += "for i in range(200): append_line(sys.argv[1], sys.argv[2] * 5000)"
    command = [sys.executable, "-c", code, str(path)]
    writers = [subprocess.Popen([*command, letter]) for letter in "ab"]
    assert [w.wait() for w in writers] == [0, 0]
    assert sorted(path.read_text().splitlines()) == ["a" * 5000] * 200 + ["b" * 5000] * 200
