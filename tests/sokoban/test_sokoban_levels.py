"""Level files and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dyna_gym.envs.sokoban.levels import read_levels
from dyna_gym.envs.sokoban.render import render_rgb
from dyna_gym.envs.sokoban.room import parse_board, render_board

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "sokoban"
COUNTS = {
    "boxoban/medium/train/000.txt": 1_000,
    "boxoban/unfiltered/test/000.txt": 1_000,
    "boxoban/unfiltered/train/000.txt": 1_000,
    "mgerhardy.sok": 1,
    "microban1.sok": 155,
    "tutorial.sok": 3,
    "xsokoban.sok": 90,
}


def read(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    path = tmp_path / "some.sok"
    path.write_text(text, encoding="utf-8")
    return [(level.name, render_board(level.room, level.state)) for level in read_levels(path)]


def test_letters_titles_and_other_text(tmp_path: Path) -> None:
    text = (
        "A collection\nAuthor: somebody\n\n; first\n  #####\n###@ $.#\n#  -_ *#\n #######\n"
        "Title: the one above\n\n#####\n#+$ #\n#####\n; third\n;\n#####\n#@$.#\n#####\n"
    )
    levels = read(tmp_path, text)
    assert levels[0] == ("first", "########\n###P_XO#\n#_____√#\n########")
    assert levels[1] == ("some 2", "#####\n#SX_#\n#####")
    assert levels[2][0] == "some 3"


def test_run_lengths(tmp_path: Path) -> None:
    assert read(tmp_path, "5#|#@$.#|5#\n") == [("some 1", "#####\n#PXO#\n#####")]


def test_outside_becomes_wall_and_shut_in_boxes_stay(tmp_path: Path) -> None:
    text = "   ####\n   #* #\n########\n#@$.# #\n#####*#\n    ###\n"
    assert read(tmp_path, text)[0][1] == (
        "########\n####√###\n########\n#PXO####\n#####√##\n########"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("; one\n####\n#@$#\n####\n", "line 2, level 'one': got 1 boxes and 0 targets"),
        ("#####\n#@$.#\n#####\n\n#####\n# $.#\n#####\n", "line 5, level 'some 2': got 0 players"),
        ("#####\n#@$.#\n#x###\n", "line 3: got the letter 'x'"),
        ("#####\n#@$. \n#####\n", "line 1, level 'some 1': got an open board"),
        ("nothing here\n", "got no level"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


@pytest.mark.skipif(not DATA.exists(), reason=f"no level collections in {DATA}")
def test_collections_load() -> None:
    counts = {name: len(read_levels(DATA / name)) for name in COUNTS}
    assert counts == COUNTS
    with pytest.raises(ValueError, match="got no level"):
        read_levels(DATA / "README.maps")


def test_picture() -> None:
    room, state = parse_board("#####\n#PXO#\n#_√_#\n#####")
    picture = render_rgb(room, state)
    assert picture.shape == (4 * 24, 5 * 24, 3)
    assert picture.dtype == np.uint8
    assert render_rgb(room, state, tile=16).shape == (4 * 16, 5 * 16, 3)
    tiles = {picture[r : r + 24, c : c + 24].tobytes() for r in (24, 48) for c in (0, 24, 48, 72)}
    assert len(tiles) == 6  # wall, player, box, target, floor, box on target
    picture[:] = 0  # the caller's own: the tiles are not touched
    assert render_rgb(room, state).any()
    with pytest.raises(ValueError, match="tile: got 4, expected a whole number of at least 8"):
        render_rgb(room, state, tile=4)
