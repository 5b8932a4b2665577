"""Without an optional extra, or without the links of the checkout, the error says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dyna_gym.errors import EXTRAS
from tests.conftest import SOKOBAN

INSTALL = 'pip install "dyna-gym[train]"'

# Read by Python when it starts; there is no package of the extra in this process.
BLOCK = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS["train"]!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[str, str]:
    """Environment of a Python without the extra ``train``."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(BLOCK)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{root}"}


def python(
    words: list[str], environment: dict[str, str], cwd: Path | None = None
) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=cwd
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["resim", "value", "grpo", "dyna_grpo", "dyna_mind"])
def test_a_trainer_without_its_extra_is_one_line(bare: dict[str, str], name: str) -> None:
    code, out, err = python(["-m", f"dyna_gym.trainers.{name}", "--help"], bare)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("error: a trainer needs the package 'torch'")
    assert INSTALL in err


def test_eval_without_the_extra(bare: dict[str, str], tmp_path: Path) -> None:
    words = ["-m", "dyna_gym.cli", "eval", SOKOBAN, "--episodes", "1", "--splits", "eval_id"]
    code, out, _ = python(words, bare)  # the baselines need no model
    assert code == 0
    assert "random eval_id" in out
    for kind in ("nano", "transformers"):
        (tmp_path / "policy.json").write_text(f'{{"kind": "{kind}"}}')
        code, out, err = python([*words, "--policy", str(tmp_path)], bare)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert INSTALL in err


WALK = """
import importlib, pkgutil, dyna_gym, dyna_gym.policies
from dyna_gym.errors import MissingExtra
for name in sorted(m.name for m in pkgutil.walk_packages(dyna_gym.__path__, "dyna_gym.", onerror=lambda n: None)):
    try:
        importlib.import_module(name)
    except MissingExtra as error:
        assert error.extra == "train", error
        print("extra", name)
    else:
        print("light", name)
"""


def test_every_module_can_be_imported_or_names_the_extra(bare: dict[str, str]) -> None:
    code, out, err = python(["-c", WALK], bare)
    assert code == 0, err
    kinds = {name: kind for kind, name in map(str.split, out.splitlines())}
    assert {kinds[f"dyna_gym.{m}"] for m in ("policies", "evaluation", "cli", "runs")} == {"light"}
    heavy = ("trainers", "policies.nano", "policies.transformers", "learning.optimise")
    assert {kinds[f"dyna_gym.{m}"] for m in heavy} == {"extra"}


@pytest.mark.parametrize("name", ["NanoPolicy", "TransformersPolicy"])
def test_policies_name_the_extra(bare: dict[str, str], name: str) -> None:
    code, _, err = python(["-c", f"from dyna_gym.policies import {name}"], bare)
    assert code == 1
    assert "dyna_gym.errors.MissingExtra: " in err
    assert INSTALL in err.splitlines()[-1]


@pytest.fixture(scope="module")
def without_links(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A copy of the repository as Git makes it where there are no symbolic links."""
    copy = tmp_path_factory.mktemp("copy") / "repository"
    ignore = shutil.ignore_patterns("__pycache__", "tests", "runs", "build", ".*")
    shutil.copytree(root, copy, symlinks=True, ignore=ignore)
    for name in ("envs", "wrappers", "trainers"):
        link = copy / "dyna_gym" / name
        assert link.is_symlink()
        text = os.readlink(link)
        link.unlink()
        link.write_text(text)
    return copy


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "import dyna_gym"],
        ["-c", "import gymnasium; gymnasium.make('dyna_gym:DynaGym-Sokoban-v0')"],
        ["-m", "dyna_gym.cli", "envs"],
        ["-m", "dyna_gym.trainers.grpo", "--help"],
    ],
)
def test_a_checkout_without_links_says_what_to_do(without_links: Path, words: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(without_links)}
    code, _, err = python(words, environment, cwd=without_links)
    assert code == 1
    assert "is a text file, expected a symbolic link to ../envs" in err.splitlines()[-1]
    assert "pip install ." in err
    assert "core.symlinks=true" in err


def test_installing_a_checkout_without_links_mends_it(without_links: Path, tmp_path: Path) -> None:
    """What that error recommends."""
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = python([*words, "--target", str(tmp_path), str(without_links)], dict(os.environ))
    if done[0] and "No module named" in done[2]:
        pytest.skip("neither pip nor setuptools is installed here")
    assert done[0] == 0, done[2]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "import gymnasium; print(gymnasium.make('dyna_gym:DynaGym-Sokoban-v0').unwrapped.world.name)"
    assert python(["-c", code], environment, cwd=tmp_path)[:2] == (0, "sokoban\n")
