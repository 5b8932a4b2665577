"""Solutions are shortest, and every state that can be solved is."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from dyna_gym.envs.sokoban import astar, corral, grid, meet
from dyna_gym.envs.sokoban.bounds import HALVES_UP_TO, LISTS_UP_TO, Estimate, hungarian
from dyna_gym.envs.sokoban.levels import read_levels
from dyna_gym.envs.sokoban.room import ACTIONS, Room, State, is_solved, parse_board, step
from dyna_gym.envs.sokoban.solver import (
    Solution,
    SolverLimit,
    dead_squares,
    distances,
    solve,
)

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "sokoban"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"no level collections in {DATA}")


def random_boards(count: int, seed: int) -> list[tuple[Room, State]]:
    """Boards without regard to whether they can be solved; some have no outer walls."""
    rng = np.random.default_rng(seed)
    made: list[tuple[Room, State]] = []
    while len(made) < count:
        height, width = rng.integers(3, 7, size=2).tolist()
        boxes = int(rng.integers(1, 4))
        free = [cell for cell in range(height * width) if rng.random() < 0.8]
        if len(free) < 2 * boxes + 1:
            continue
        targets = [free[i] for i in rng.permutation(len(free))[:boxes]]
        player, *rest = (free[i] for i in rng.permutation(len(free))[: boxes + 1])
        walls = set(range(height * width)).difference(free)
        made.append((Room(height, width, walls, targets), State(player, frozenset(rest))))
    return made


def fewest(room: Room, state: State, count_walking: bool) -> int | None:
    """Moves, or pushes, of a best solution, by looking at everything."""
    costs, queue = {state: 0}, deque([state])
    while queue:
        now = queue.popleft()
        if is_solved(room, now):
            return costs[now]
        for direction in range(4):
            after, moved, pushed = step(room, now, direction)
            cost = costs[now] + (1 if count_walking else pushed)
            if moved and cost < costs.get(after, 10**9):
                costs[after] = cost
                if count_walking or pushed:
                    queue.append(after)
                else:
                    queue.appendleft(after)
    return None


def replay(room: Room, state: State, solution: Solution) -> None:
    pushes = 0
    for move in solution.moves:
        state, moved, pushed = step(room, state, move)
        pushes += pushed
        assert moved
    assert is_solved(room, state)
    assert pushes == solution.pushes


@pytest.fixture(params=["from one end", "from both ends"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "from both ends":
        monkeypatch.setattr(astar, "ONE_WAY_EXPANSIONS", 0)


@pytest.mark.usefixtures("ends")
def test_fewest_pushes() -> None:
    solvable = 0
    for room, state in random_boards(250, 1):
        best = fewest(room, state, count_walking=False)
        solution = solve(room, state)
        if best is None:
            assert solution is None
        else:
            assert solution is not None
            assert solution.pushes == best
            replay(room, state, solution)
            solvable += 1
    assert 30 < solvable < 220


def test_fewest_moves_and_distances() -> None:
    for room, state in random_boards(250, 2):
        best = fewest(room, state, count_walking=True)
        solution = solve(room, state, objective="moves")
        if best is None:
            assert solution is None
        else:
            assert solution is not None
            assert len(solution.moves) == best
            replay(room, state, solution)
        if len(state.boxes) < 3:
            assert distances(room).get(state) == best


@pytest.mark.parametrize(
    ("module", "name", "without"),
    [
        (grid.Grid, "frozen", lambda self, boxes: 0),
        (meet, "corral_boxes", lambda room, boxes, reach: boxes),
    ],
    ids=["frozen boxes", "corrals"],
)
@pytest.mark.usefixtures("ends")
def test_pruning_cuts_no_solution(
    module: object, name: str, without: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = random_boards(200, 3)
    pruned = [solve(*board) for board in boards]
    monkeypatch.setattr(module, name, without)
    everything = [solve(*board) for board in boards]
    pushes = [None if solution is None else solution.pushes for solution in pruned]
    assert pushes == [None if solution is None else solution.pushes for solution in everything]


def test_frozen_boxes_by_hand() -> None:
    # Two boxes side by side at a wall hold each other; the third can still be pushed.
    room, state = parse_board("######\n#_XX_#\n#_P_O#\n#OXO_#\n######")
    room_grid = grid.grid_of(room, state.player)
    assert room_grid.frozen(room_grid.bits(state.boxes)) == room_grid.bits(frozenset({8, 9}))
    assert solve(room, state) is None
    # At the top wall, which has no target, even a lone box is lost; away from it, none is.
    room, state = parse_board("######\n#__X_#\n#XP_O#\n#_X__#\n#O_O_#\n######")
    room_grid = grid.grid_of(room, state.player)
    assert room_grid.frozen(room_grid.bits(state.boxes)) == room_grid.bits(frozenset({9}))


def test_corral_by_hand() -> None:
    # The box in the door shuts off the right, but the box behind it has to be moved aside first.
    room, state = parse_board("########\n#___#__#\n#_PXXO_#\n#_X_#O_#\n#___#_O#\n########")
    room_grid = grid.grid_of(room, state.player)
    boxes = room_grid.bits(state.boxes)
    reach = grid.flood(
        1 << room_grid.index(state.player), room_grid.floor & ~boxes, room_grid.stride
    )
    chosen = corral.corral_boxes(room_grid, boxes, reach)
    assert chosen == boxes
    # Without that one, the box in the door can only be pushed in: it alone is looked at.
    room, state = parse_board("########\n#___#__#\n#__PXO_#\n#_X_#O_#\n#___#__#\n########")
    room_grid = grid.grid_of(room, state.player)
    boxes = room_grid.bits(state.boxes)
    reach = grid.flood(
        1 << room_grid.index(state.player), room_grid.floor & ~boxes, room_grid.stride
    )
    assert corral.corral_boxes(room_grid, boxes, reach) == 1 << room_grid.index(20)


@pytest.mark.parametrize(
    "board",
    [
        "#####\n#P_X#\n#__O#\n#O_X#\n#####",  # boxes in corners
        "#####\n#XPO#\n#####",  # cannot be pulled
        "######\n#PX#O#\n######",  # a target out of reach
        "#######\n#PXO#√#\n###X#O#\n#######",  # another part of the room is unsolved
        "#######\n#P_X__#\n#__O__#\n#######",  # along a wall, past the target
    ],
)
@pytest.mark.usefixtures("ends")
def test_unsolvable(board: str) -> None:
    assert solve(*parse_board(board)) is None
    assert solve(*parse_board(board), objective="moves") is None


def test_solved_already() -> None:
    assert solve(*parse_board("#P√#")) == Solution((), 0, 0)


def test_parts_that_the_player_cannot_reach_may_be_solved() -> None:
    solution = solve(*parse_board("#######\n#PXO#√#\n#######"))
    assert solution is not None
    assert solution.actions == ("right",)


def test_dead_squares_by_hand() -> None:
    room, _ = parse_board("######\n#__O_#\n#_P__#\n#_X__#\n######")
    names = {divmod(cell, 6) for cell in dead_squares(room)}
    # The corners, and all along the three walls that have no target.
    assert names == {(1, 1), (1, 4), (2, 1), (2, 4), (3, 1), (3, 2), (3, 3), (3, 4)}


def test_distances_by_hand() -> None:
    room, state = parse_board("######\n#P_XO#\n######")
    table = distances(room)
    assert table[state] == 2
    assert table[State(8, frozenset({9}))] == 1
    assert table[State(7, frozenset({10}))] == 0
    assert State(10, frozenset({8})) not in table
    assert all(isinstance(key, State) for key in table)
    with pytest.raises(SolverLimit, match="more than 3 states"):
        distances(room, max_states=3)


def test_limits() -> None:
    board = parse_board("#########\n#P__#___#\n#_X_X_X_#\n#_______#\n#_OOO___#\n#########")
    with pytest.raises(SolverLimit, match="raise max_expansions"):
        solve(*board, max_expansions=3)
    with pytest.raises(SolverLimit, match="raise time_limit_s"):
        solve(*board, time_limit_s=0.0)
    with pytest.raises(ValueError, match="objective: got 'steps', expected one of pushes, moves"):
        solve(*board, objective="steps")


@pytest.mark.parametrize("count", [1, 2, 4, LISTS_UP_TO, LISTS_UP_TO + 2, HALVES_UP_TO + 1])
def test_matchings(count: int) -> None:
    rng = np.random.default_rng(count)
    rows = {cell: tuple(rng.integers(0, 30, count).tolist()) for cell in range(3 * count)}
    estimate = Estimate(rows, (1 << count) - 1 << count, count)
    for _ in range(20):
        cells = rng.permutation(3 * count)[:count].tolist()
        boxes = sum(1 << cell for cell in cells)
        assert estimate(boxes, 0) == hungarian([rows[cell] for cell in cells])


@needs_data
@pytest.mark.parametrize(
    ("name", "every", "boxes"),
    [("boxoban/unfiltered/test/000.txt", 17, 4), ("microban1.sok", 4, 3)],
)
def test_level_collections(name: str, every: int, boxes: int) -> None:
    """A sample: benchmarks/bench_sokoban_solver.py solves all of them."""
    levels = [
        level for level in read_levels(DATA / name)[::every] if len(level.state.boxes) <= boxes
    ]
    assert len(levels) > 15
    for level in levels:
        solution = solve(level.room, level.state, max_expansions=60_000)
        assert solution is not None
        replay(level.room, level.state, solution)


@needs_data
@pytest.mark.parametrize("name", ["microban1", "mgerhardy", "xsokoban"])
def test_published_solutions_win(name: str) -> None:
    levels = {level.name: level for level in read_levels(DATA / f"{name}.sok")}
    lines = (DATA / f"{name}.solutions.tsv").read_text().splitlines()
    directions = {action[0]: direction for direction, action in enumerate(ACTIONS)}
    replayed = 0
    for title, moves in (line.split("\t") for line in lines):
        room, state = levels[title].room, levels[title].state
        for letter in moves:
            state, moved, pushed = step(room, state, directions[letter.lower()])
            assert moved
            assert pushed == letter.isupper()
        assert is_solved(room, state)
        replayed += 1
    assert replayed == len(lines)
