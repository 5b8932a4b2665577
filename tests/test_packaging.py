"""What a wheel holds, what an import costs, and that the links of the checkout stand."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dyna_gym

FOLDERS = ("envs", "wrappers", "trainers")


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def test_listed_packages_are_those_of_the_tree(root: Path, project: dict[str, Any]) -> None:
    found = set()
    for top in ("dyna_gym", *FOLDERS):
        for init in (root / top).rglob("__init__.py"):
            inside = init.parent.relative_to(root)
            linked = (
                inside.parts[0] == "dyna_gym" and inside.parts[1:2] and inside.parts[1] in FOLDERS
            )
            if not linked:
                prefix = () if inside.parts[0] == "dyna_gym" else ("dyna_gym",)
                found.add(".".join((*prefix, *inside.parts)))
    assert set(project["tool"]["setuptools"]["packages"]) == found
    assert len(project["tool"]["setuptools"]["packages"]) == len(found)


def test_every_folder_with_code_is_a_package(root: Path) -> None:
    for top in ("dyna_gym", *FOLDERS):
        for folder, _, files in os.walk(root / top):  # does not follow the links
            if any(name.endswith(".py") for name in files):
                assert "__init__.py" in files, folder


@pytest.mark.parametrize("name", FOLDERS)
def test_links_exist_and_are_relative(root: Path, name: str) -> None:
    link = root / "dyna_gym" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert (link / "__init__.py").is_file()


def test_package_data_exists(root: Path, project: dict[str, Any]) -> None:
    places = {k: root / v for k, v in project["tool"]["setuptools"]["package-dir"].items()}
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        parent = max((p for p in places if f"{package}.".startswith(f"{p}.")), key=len)
        folder = places[parent].joinpath(*package.removeprefix(parent).strip(".").split("."))
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: nothing matches {pattern!r}"


def test_version_is_that_of_the_project(project: dict[str, Any]) -> None:
    assert dyna_gym.__version__ == project["project"]["version"]


def test_scripts_exist(project: dict[str, Any]) -> None:
    assert project["project"]["scripts"] == {"dyna-gym": "dyna_gym.cli:main"}


_COST = """
import sys, time
import gymnasium
before = set(sys.modules)
started = time.perf_counter()
import dyna_gym
cost = time.perf_counter() - started
new = sorted(set(sys.modules) - before)
dyna_gym.make_agent_env  # loads the wrappers
heavy = [m for m in HEAVY if m in sys.modules]
print(repr((new, heavy, cost)))
"""
HEAVY = ("torch", "transformers", "playwright", "textworld", "alfworld", "adbutils", "matplotlib")


def test_import_is_light() -> None:
    code = f"HEAVY = {HEAVY!r}\n{_COST}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new, heavy, cost = eval(done.stdout)
    assert heavy == []
    ours = [m for m in new if m.partition(".")[0] == "dyna_gym"]
    assert "dyna_gym.registration" in ours
    for package in ("envs", "wrappers", "trainers", "policies", "learning", "testing"):
        assert not any(m.startswith(f"dyna_gym.{package}") for m in ours)
    # Counted in modules, not in seconds: a clock says little on a busy machine.
    assert len(new) <= 40, new
    assert cost > 0


def test_ids_can_be_made_without_the_import() -> None:
    make = "gymnasium.make('dyna_gym:DynaGym-Sokoban-v0')"
    code = f"import gymnasium; print({make}.unwrapped.world.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "sokoban\n"


_ALONE = """
import importlib, sys
for name in NAMES:
    for loaded in [m for m in sys.modules if m.partition(".")[0] == "dyna_gym"]:
        del sys.modules[loaded]
    importlib.import_module(f"dyna_gym.{name}")
"""


def test_every_module_of_the_core_can_be_imported_first(root: Path) -> None:
    # An import cycle may hide in one order of imports and show in another.
    names = [
        path.stem for path in sorted((root / "dyna_gym").glob("*.py")) if path.stem != "__init__"
    ]
    names += ["policies", "wrappers", "testing", "wrappers.stack", "policies.simple"]
    code = f"NAMES = {names!r}\n{_ALONE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]


def test_the_core_imports_no_world(root: Path) -> None:
    # Imports point one way: trainers -> wrappers -> envs -> core.
    above = {
        root / "dyna_gym": ("envs", "trainers"),
        root / "envs": ("wrappers", "trainers"),
        root / "wrappers": ("trainers", "envs."),
    }
    for folder, forbidden in above.items():
        for path in folder.rglob("*.py"):
            if (
                path.is_relative_to(root / "dyna_gym")
                and path.relative_to(root).parts[1] in FOLDERS
            ):
                continue
            lines = path.read_text(encoding="utf-8").splitlines()
            imports = [
                x.strip()
                for x in lines
                if x.strip().startswith(("from dyna_gym", "import dyna_gym"))
            ]
            for line in imports:
                for name in forbidden:
                    assert f"dyna_gym.{name}" not in line, f"{path.name}: {line}"
