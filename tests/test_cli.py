"""The command line: output, exit codes, and one line for a user's mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dyna_gym
from dyna_gym import cli, testing
from dyna_gym.registration import IDS
from dyna_gym.testing import CheckResult
from tests.conftest import ROOT, SOKOBAN
from tests.policies.tiny import nano


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def two_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cheap checks instead of all."""
    few = (testing.check_same_seed, testing.check_idle_agents)
    original = testing.run_checks

    def run_checks(env_id: str, **settings: Any) -> list[CheckResult]:
        return original(env_id, checks=few, **settings)

    monkeypatch.setattr(testing, "run_checks", run_checks)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["envs", "--help"], ["check", "--help"], ["eval", "--help"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 0
        out = capsys.readouterr().out
        assert "example" in out
        assert "dyna-gym" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"dyna-gym {dyna_gym.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["check"],
        ["check", SOKOBAN, "--nope"],
        ["check", SOKOBAN, "--episodes", "x"],
        ["eval", SOKOBAN, "--temperatures", "warm"],
        ["eval", SOKOBAN, "--splits", "test"],
    ],
)
def test_usage_errors_exit_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "usage: dyna-gym" in err


def test_envs_lists_every_id(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "envs")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(IDS) <= rows.keys()
    assert "10,000 / 1,000 / 1,000" in rows[SOKOBAN]
    assert "snapshot" in rows[SOKOBAN]


def test_envs_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "envs", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in rows] == list(IDS)


def test_envs_tells_which_extra_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dyna_gym.errors import ConfigError, MissingExtra

    for error, told in (
        (MissingExtra("textworld", "alfworld", "ALFWorld"), 'pip install "dyna-gym[alfworld]"'),
        (ConfigError("no data in /x"), "no data in /x"),
    ):
        monkeypatch.setattr(
            cli.gym, "make", lambda env_id, error=error: (_ for _ in ()).throw(error)
        )
        code, out, _ = run(capsys, "envs")
        assert code == 0
        assert told in out


def test_check_passes(capsys: pytest.CaptureFixture[str], two_checks: None) -> None:
    code, out, _ = run(capsys, "check", SOKOBAN, "--episodes", "1")
    assert code == 0
    assert "ok   same_seed" in out
    assert out.endswith(f"{SOKOBAN}: 2 passed, 0 failed, 0 skipped\n")
    assert "12 episodes of 4 idle agents" in out  # one task a split


def test_check_fails(capsys: pytest.CaptureFixture[str], two_checks: None) -> None:
    code, out, _ = run(capsys, "check", "tests.broken:DynaBroken-Hackable-v0")
    assert code == 1
    assert "FAIL idle_agents" in out
    assert "what to do: drop the task" in out


def test_check_as_json(capsys: pytest.CaptureFixture[str], two_checks: None) -> None:
    code, out, _ = run(capsys, "check", "tests.broken:DynaBroken-Hackable-v0", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [row["status"] for row in rows]) == (1, ["passed", "failed"])
    assert rows[1].keys() == {"name", "status", "detail", "seconds"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["check", "DynaGym-Sokobn-v0"], "did you mean 'DynaGym-Sokoban-v0'?"),
        (["check", "qqqq"], "there is no id 'qqqq'"),
        (["check", "no_such_module:X-v0"], "the module 'no_such_module' cannot be imported"),
        (["check", SOKOBAN, "--episodes", "0"], "--episodes: got 0"),
        (["check", "CartPole-v1"], "'CartPole-v1' is a CartPoleEnv, expected an env of dyna_gym"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert told in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("DynaGym-Sokobn-v0", "did you mean 'DynaGym-Sokoban-v0'?"),
        ("CartPole-v1", "'CartPole-v1' is a CartPoleEnv, expected an env of dyna_gym"),
        ("ID --episodes 0", "episodes: got 0, expected a whole number >= 1"),
        ("ID --episodes -3", "episodes: got -3"),
        ("ID --temperatures -1", "temperatures: got -1.0, expected finite numbers >= 0"),
        ("ID --temperatures 1 nan", "temperatures: got nan"),
        ("ID --temperatures inf", "temperatures: got inf"),
        ("ID --seed -1", "seed: got -1, expected a whole number >= 0"),
        ("ID --seed 4294967296", "seed: got 4294967296"),
        ("ID --history -1", "history: got -1"),
        ("ID --settings [1]", "settings: got '[1]', expected a JSON object"),
        ("ID --settings {", "settings: got '{', expected JSON"),
        ('ID --settings {"foo":7}', "settings: got the unknown name 'foo'; expected size, boxes"),
        (
            'ID --settings {"history":3}',
            "settings: got ['history'], expected arguments of the world",
        ),
        ('ID --settings {"response":"x","style":1}', "settings: got ['response', 'style']"),
        ('ID --settings {"size":-1}', "got -1, expected a whole number"),
        ('ID --settings {"split":"x"}', "split: got 'x'"),
        ("ID --lookahead 7", "lookahead: got '7', expected a JSON object"),
        ('ID --lookahead {"max_depth":7}', "response='plain' looks at nothing"),
        (
            'ID --response sim_rollout --lookahead {"foo":7}',
            "lookahead: got the unknown name 'foo'",
        ),
        ('ID --response sim_rollout --lookahead {"max_depth":-7}', "max_depth: got -7"),
        ("ID --policy nowhere", "expected 'random', 'expert', 'aggregate' or an existing folder"),
        ("ID --policy FILE", "expected 'random', 'expert', 'aggregate' or an existing folder"),
        ("ID --policy aggregate", "add --response resim"),
        ("ID --out FILE", "cannot write to the folder"),
        ("ID --out FILE/deep", "cannot write to the folder"),
        ("ID --out /proc/nowhere", "cannot write to the folder"),
    ],
)
def test_mistakes_in_eval_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, told: str
) -> None:
    (tmp_path / "file").write_text("mine")
    words = words.replace("ID", SOKOBAN).replace("FILE", str(tmp_path / "file"))
    code, out, err = run(capsys, "eval", *words.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert told in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


BROKEN_POLICIES: dict[str, dict[str, str]] = {
    "empty folder": {},
    "no JSON": {"policy.json": "{"},
    "a list": {"policy.json": "[]"},
    "unknown kind": {"policy.json": '{"kind": "other"}'},
    "no weights": {"policy.json": '{"kind": "nano"}'},
    "torn weights": {
        "policy.json": '{"kind": "nano"}',
        "model.safetensors": "x",
        "config.json": "{}",
    },
    "weights without a configuration": {"config.json": "{}"},
    "torn transformers": {"policy.json": '{"kind": "transformers"}', "config.json": "{}"},
}


@pytest.mark.parametrize("kind", BROKEN_POLICIES)
def test_folders_that_hold_no_policy_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    if kind == "weights without a configuration":
        nano().save(str(tmp_path))
    for name, text in BROKEN_POLICIES[kind].items():
        (tmp_path / name).write_text(text)
    code, out, err = run(capsys, "eval", SOKOBAN, "--policy", str(tmp_path), "--episodes", "1")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert str(tmp_path) in err


@pytest.mark.parametrize("words", ["envs", f"check {SOKOBAN} --episodes 1"])
def test_a_reader_that_goes_away_is_no_error(words: str) -> None:
    command = [sys.executable, "-u", "-m", "dyna_gym.cli", *words.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if "check" in words:
            assert process.stdout.readline()
        process.stdout.close()  # as `head -1` does
        assert process.stderr.read() == ""
    assert process.returncode == 141  # SIGPIPE, as a shell tells it


def test_interrupts_are_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(testing, "run_checks", interrupted)
    code, out, err = run(capsys, "check", SOKOBAN)
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_eval_runs(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", SOKOBAN, "--policy", "expert", "--episodes", "2", "--splits", "train"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "train" in out


def test_the_command_line_is_light() -> None:
    code = (
        "import sys, gymnasium; before = set(sys.modules); import dyna_gym.cli;"
        "print(sorted(m for m in set(sys.modules) - before if m.startswith('dyna_gym')))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert "dyna_gym.cli" in out
    for heavy in ("testing", "evaluation", "wrappers", "policies", "envs"):
        assert f"dyna_gym.{heavy}" not in out
