"""Share of a level file that the Sokoban solver solves within a time limit, and how fast.

Every solution is replayed with `step` before it counts. Without ``--levels``, rooms of our own generator
are solved. Reference: the pushes of published solutions, where ``--solutions`` names a file of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from dyna_gym.envs.sokoban.generate import RoomConfig, generate_room
from dyna_gym.envs.sokoban.levels import Level, read_levels
from dyna_gym.envs.sokoban.room import is_solved, step
from dyna_gym.envs.sokoban.solver import Solution, SolverLimit, solve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levels", type=Path, help="level file (default: 200 generated rooms)")
    parser.add_argument(
        "--solutions", type=Path, help="lines of: name, tab, solution in LURD letters"
    )
    parser.add_argument("--objective", choices=("pushes", "moves"), default="pushes")
    parser.add_argument("--limit-s", type=float, default=5.0, help="seconds a level")
    parser.add_argument("--first", type=int, help="only so many levels")
    args = parser.parse_args()

    levels = read_levels(args.levels) if args.levels else generated(200)
    levels = levels[: args.first]
    published = read_solutions(args.solutions)
    seconds: list[float] = []
    unsolved: list[str] = []
    gained = lost = 0
    for level in tqdm(levels, unit="level"):
        started = time.perf_counter()
        try:
            solution = solve(
                level.room, level.state, objective=args.objective, time_limit_s=args.limit_s
            )
        except SolverLimit as error:
            unsolved.append(f"{level.name}: {error}")
            continue
        seconds.append(time.perf_counter() - started)
        if solution is None:
            unsolved.append(f"{level.name}: has no solution")
            continue
        replay(level, solution)
        if level.name in published:
            difference = solution.pushes - published[level.name]
            gained += difference < 0
            lost += difference > 0
    solved = len(levels) - len(unsolved)
    print(
        f"solved {solved} of {len(levels)} ({solved / len(levels):.1%}) within {args.limit_s:g} s each"
    )
    if seconds:
        print(f"seconds: median {statistics.median(seconds):.4f}, max {max(seconds):.3f}")
    if published:
        print(f"pushes against the published solutions: fewer in {gained} levels, more in {lost}")
    for line in unsolved:
        print(f"unsolved  {line}")


def generated(count: int) -> list[Level]:
    config = RoomConfig(height=10, width=10, boxes=4)
    rooms = (generate_room(config, np.random.default_rng(seed)) for seed in range(count))
    return [Level(f"generated {seed}", room, state) for seed, (room, state) in enumerate(rooms)]


def read_solutions(path: Path | None) -> dict[str, int]:
    """Pushes of the published solution, by the level's name."""
    if path is None:
        return {}
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {
        line[0]: sum(letter.isupper() for letter in line[1]) for line in lines if len(line) == 2
    }


def replay(level: Level, solution: Solution) -> None:
    state, pushes = level.state, 0
    for move in solution.moves:
        state, moved, pushed = step(level.room, state, move)
        pushes += pushed
        if not moved:
            raise SystemExit(f"{level.name}: the solution walks into something")
    if not is_solved(level.room, state) or pushes != solution.pushes:
        raise SystemExit(f"{level.name}: the solution does not solve the level")


if __name__ == "__main__":
    main()
