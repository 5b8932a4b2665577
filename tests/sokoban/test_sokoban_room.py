"""Rules, texts and symmetries of rooms."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_gym.envs.sokoban.room import (
    ACTIONS,
    Room,
    State,
    canonical_layout,
    canonical_walls,
    cell_name,
    digest,
    is_solved,
    layout_bucket,
    parse_board,
    render_board,
    step,
)

UP, DOWN, LEFT, RIGHT = range(4)


def play(board: str, *directions: int) -> tuple[str, list[bool], list[bool]]:
    room, state = parse_board(board)
    moves, pushes = [], []
    for direction in directions:
        state, moved, pushed = step(room, state, direction)
        moves.append(moved)
        pushes.append(pushed)
    return render_board(room, state), moves, pushes


@st.composite
def boards(draw: st.DrawFn) -> tuple[Room, State]:
    height, width = draw(st.integers(1, 6)), draw(st.integers(3, 6))
    cells = draw(st.permutations(range(height * width)))
    boxes = draw(st.integers(1, min(3, height * width - 1)))
    walls = draw(st.integers(0, height * width - boxes - 1))
    free = cells[walls:]
    targets = draw(st.permutations(free))[:boxes]
    return Room(height, width, cells[:walls], targets), State(
        free[0], frozenset(free[1 : boxes + 1])
    )


def turned(room: Room, state: State) -> tuple[Room, State]:
    """A quarter turn, by another way than the code's."""
    rows = [list(row) for row in render_board(room, state).split("\n")]
    return parse_board("\n".join("".join(row) for row in zip(*rows[::-1], strict=True)))


def mirrored(room: Room, state: State) -> tuple[Room, State]:
    return parse_board("\n".join(row[::-1] for row in render_board(room, state).split("\n")))


def test_actions_are_up_down_left_right() -> None:
    board = "#####\n#___#\n#_P_#\n#X_O#\n#####"
    after = [play(board, direction)[0] for direction in range(4)]
    assert ACTIONS == ("up", "down", "left", "right")
    assert after == [
        "#####\n#_P_#\n#___#\n#X_O#\n#####",
        "#####\n#___#\n#___#\n#XPO#\n#####",
        "#####\n#___#\n#P__#\n#X_O#\n#####",
        "#####\n#___#\n#__P#\n#X_O#\n#####",
    ]


def test_push_onto_target_and_off_again() -> None:
    board = "#######\n#PX_O_#\n#######"
    assert play(board, RIGHT) == ("#######\n#_PXO_#\n#######", [True], [True])
    assert play(board, RIGHT, RIGHT)[0] == "#######\n#__P√_#\n#######"
    assert play(board, RIGHT, RIGHT, RIGHT)[0] == "#######\n#___SX#\n#######"
    last, moved, pushed = play(board, RIGHT, RIGHT, RIGHT, RIGHT, LEFT)
    assert last == "#######\n#__POX#\n#######"
    assert moved == [True, True, True, False, True]
    assert pushed == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("board", "direction"),
    [
        ("####\n#P_#\n#XO#\n####", UP),  # a wall
        ("####\n#P_#\n#XO#\n####", DOWN),  # a box against a wall
        ("#######\n#PXXOO#\n#######", RIGHT),  # two boxes
        ("PXO", LEFT),  # the edge of a grid without walls
        ("OPX", RIGHT),  # a box at that edge
        ("O__\nX_P\n___", RIGHT),  # not round the corner into the next row
    ],
)
def test_blocked_returns_the_same_object(board: str, direction: int) -> None:
    room, state = parse_board(board)
    after, moved, pushed = step(room, state, direction)
    assert after is state
    assert (moved, pushed) == (False, False)


def test_step_changes_nothing_that_was_there() -> None:
    room, state = parse_board("#####\n#PXO#\n#####")
    boxes = set(state.boxes)
    step(room, state, RIGHT)
    assert state == State(6, frozenset(boxes))
    with pytest.raises(AttributeError, match="cannot be changed"):
        room.width = 3  # type: ignore[misc]


def test_is_solved() -> None:
    assert is_solved(*parse_board("#P√#"))
    assert not is_solved(*parse_board("#PXO#"))
    assert not is_solved(*parse_board("#P√XO#"))


@given(boards())
def test_parse_undoes_render(board: tuple[Room, State]) -> None:
    assert parse_board(render_board(*board)) == board
    spaced = "\n".join(" ".join(row) for row in render_board(*board).split("\n"))
    assert parse_board(f"\n{spaced}\t\n") == board


def test_short_rows_end_in_walls() -> None:
    assert parse_board("#####\n#PXO\n#") == parse_board("#####\n#PXO#\n#####")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty text, expected rows"),
        ("#XO#", "got 0 players, expected exactly one"),
        ("PXOP", "got 2 players"),
        ("PXXO", "got 2 boxes and 1 targets.* too few targets: add targets"),
        ("PXOO", "got 1 boxes and 2 targets.* too few boxes: add boxes"),
        ("P__", "got no box"),
        ("#P$.#", r"glyph '\$' in row 0, column 2"),
        ("PXO\n\n___", "row 1 is empty"),
    ],
)
def test_bad_boards(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_board(text)


@given(boards())
@settings(max_examples=60)
def test_eight_symmetries_have_one_form(board: tuple[Room, State]) -> None:
    views = [board]
    for _ in range(3):
        views.append(turned(*views[-1]))
    views += [mirrored(*view) for view in views]
    assert len({canonical_walls(room) for room, _ in views}) == 1
    assert len({canonical_layout(*view) for view in views}) == 1
    assert len({layout_bucket(room) for room, _ in views}) == 1


def test_forms_tell_rooms_apart() -> None:
    walls = [f"###\n#P_\n{row}" for row in ("XO_", "XO#", "#XO")]
    assert len({canonical_walls(parse_board(text)[0]) for text in walls}) == 3
    # 2x3 and 1x6 hold the same cells in the same order.
    assert canonical_walls(Room(2, 3, (), ())) != canonical_walls(Room(1, 6, (), ()))
    same_walls = [parse_board(text) for text in ("PXO", "XPO", "P√_")]
    assert len({canonical_walls(room) for room, _ in same_walls}) == 1
    assert len({canonical_layout(*board) for board in same_walls}) == 3


def test_buckets_are_what_they_always_were() -> None:
    """The splits hang on these numbers: a change would move tasks from one split to another."""
    board = parse_board("######\n#P__##\n#_X_O#\n#__###\n#____#\n######")
    assert layout_bucket(board[0]) == 7
    assert layout_bucket(board[0], 10, board[1]) == 1
    assert layout_bucket(board[0], 1) == 0


def test_cell_names_and_digest() -> None:
    room, state = parse_board("#######\n#PX_O_#\n#_X__O#\n#######")
    assert digest(room, state) == "P b1 X b2 c2"
    assert digest(*parse_board("#√P√#")) == "P a2 X a1 a3 solved"
    tall = Room(60, 12, (), ())
    names = [cell_name(tall, row * 12 + 11) for row in (0, 25, 26, 51, 52)]
    assert names == ["a11", "z11", "aa11", "az11", "ba11"]


def test_rooms_copy_and_pickle() -> None:
    room, state = parse_board("#####\n#PXO#\n#####")
    assert copy.deepcopy(room) is room
    again = pickle.loads(pickle.dumps((room, state)))
    assert again == (room, state)
    assert hash(again[0]) == hash(room)
    assert step(again[0], again[1], RIGHT) == step(room, state, RIGHT)
    assert room == Room(np.int64(3), np.int64(5), map(np.int64, room.walls), room.targets)
