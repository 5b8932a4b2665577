"""The command line: ``dyna-gym envs``, ``dyna-gym check ID``, ``dyna-gym eval ...``.

Each subcommand loads what it needs only when it is called. Exit codes: 0 fine, 1 a check failed,
2 a mistake in the command (one line, no traceback), 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium as gym

from dyna_gym import __version__
from dyna_gym.errors import ConfigError, DynaGymError
from dyna_gym.launch import exit_code, one_line_warnings

Subparsers = Any  # argparse's own type for it is private

_EPILOG = """\
examples:
  dyna-gym envs                                    which ids there are
  dyna-gym check DynaGym-Sokoban-v0                does an env keep its contract?
  dyna-gym check my_package:MyWorld-v0 --json      the same for an env of yours
  dyna-gym eval --help                             play episodes and report success

Train with `python -m dyna_gym.trainers.<name> --help`.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        argv: Arguments without the program's name; default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = _parser(arguments).parse_args(arguments)
    with one_line_warnings():
        return exit_code(lambda: args.run(args))


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        told = " ".join(message.split())
        self.exit(2, f"error: {told} (usage: {self.prog} --help)\n")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dyna-gym",
        description="Environments and wrappers for LLM agents that learn by imagining.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dyna-gym {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_envs(subparsers)
    _add_check(subparsers)
    _add_eval(subparsers, chosen="eval" in arguments)
    return parser


def _command(
    subparsers: Subparsers, name: str, text: str, example: str, run: Callable[[Any], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


# -- envs ------------------------------------------------------------------------------------------

_COLUMNS = ("id", "world", "train / eval_id / eval_ood", "branching", "max steps", "extra")


def _add_envs(subparsers: Subparsers) -> None:
    text = "list the registered ids: world, tasks a split, branching, step budget, extra needed"
    parser = _command(subparsers, "envs", text, "dyna-gym envs", _envs)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _envs(args: argparse.Namespace) -> int:
    from dyna_gym.registration import IDS

    rows = [_env_row(env_id) for env_id in IDS]
    if args.json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return 0
    cells = [_COLUMNS, *(tuple(str(row[c]) for c in _COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())
    for row in rows:
        if row["problem"]:
            print(f"\n{row['id']} cannot be made here: {row['problem']}")
    return 0


def _env_row(env_id: str) -> dict[str, Any]:
    from dyna_gym.errors import MissingExtra
    from dyna_gym.task import SPLITS

    row: dict[str, Any] = dict.fromkeys(_COLUMNS, "?") | {"id": env_id, "problem": None}
    try:
        env = gym.make(env_id)
    except MissingExtra as error:
        return row | {"extra": error.extra, "problem": str(error)}
    except DynaGymError as error:  # such as data that was not downloaded
        return row | {"problem": " ".join(str(error).split())}
    base: Any = env.unwrapped
    splits = [base.world.tasks(split) for split in SPLITS]
    default = env.get_wrapper_attr("_default")
    budgets = {t.params.get("max_steps", default) for tasks in splits for t in tasks}
    row["world"] = base.world.name
    row[_COLUMNS[2]] = " / ".join(f"{len(tasks):,}" for tasks in splits)
    row["branching"] = base.branching
    row["max steps"] = "none" if None in budgets else str(max(budgets))
    row["extra"] = _extra(base.world.name)
    env.close()
    return row


def _extra(world: str) -> str:
    """The optional extra that is named after the world, or ``-``."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        extras = metadata("dyna-gym").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return "-"
    return next((extra for extra in extras if world.startswith(extra)), "-")


# -- check -----------------------------------------------------------------------------------------


def _add_check(subparsers: Subparsers) -> None:
    text = "check that an env keeps the contract (see dyna_gym.testing); exit code 1 if it does not"
    example = "dyna-gym check DynaGym-Sokoban-v0 --episodes 20"
    parser = _command(subparsers, "check", text, example, _check)
    parser.add_argument("id", help="a registered id; for an env of yours module:id")
    parser.add_argument(
        "--episodes",
        type=int,
        default=5,
        metavar="N",
        help="tasks a split that the expert and the idle agents play (default 5)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="time after which a check that plays begins no new episode (default 60)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _check(args: argparse.Namespace) -> int:
    if args.episodes < 1:
        raise ConfigError(f"--episodes: got {args.episodes}, expected a whole number >= 1")
    if not args.seconds > 0:
        raise ConfigError(f"--seconds: got {args.seconds}, expected a number > 0")
    _require_known(args.id)
    from dataclasses import asdict

    from dyna_gym.progress import Progress, say
    from dyna_gym.testing import CHECKS, CheckResult, run_checks

    with Progress(len(CHECKS), args.id, unit="checks") as bar:

        def show(result: CheckResult) -> None:
            say(json.dumps(asdict(result)) if args.json else _line(result))
            bar.update()

        results = run_checks(args.id, episodes=args.episodes, seconds=args.seconds, on_result=show)
    failed = sum(not result.passed for result in results)
    if not args.json:
        passed = sum(result.status == "passed" for result in results)
        skipped = len(results) - passed - failed
        print(f"{args.id}: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def _line(result: Any) -> str:
    mark = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[result.status]
    return f"{mark} {result.name:<22} {result.seconds:6.2f} s  {result.detail}"


def _require_known(env_id: str) -> None:
    import importlib

    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{env_id!r}: the module {module!r} cannot be imported ({error}); "
                "run the command where it can, or install it"
            ) from error
    if name in gym.registry:
        _require_world(name)
        return
    ours = [known for known in gym.registry if known.startswith(("DynaGym", "DreamGym"))]
    near = difflib.get_close_matches(name, ours, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "for an env of yours give module:id"
    raise ConfigError(f"there is no id {name!r}; {hint} (`dyna-gym envs` lists them)")


def _require_world(env_id: str) -> None:
    """An id of another project is a mistake of the user's, not 25 failures of an env."""
    from gymnasium.envs.registration import load_env_creator

    from dyna_gym.env import WorldEnv

    entry_point = gym.spec(env_id).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if isinstance(creator, type) and not issubclass(creator, WorldEnv):
        raise ConfigError(
            f"{env_id!r} is a {creator.__name__}, expected an env of dyna_gym: its class is derived from "
            "dyna_gym.env.WorldEnv (`dyna-gym envs` lists the ids)"
        )


# -- eval ------------------------------------------------------------------------------------------


def _add_eval(subparsers: Subparsers, chosen: bool) -> None:
    text = "play episodes with a policy and report success"
    example = "dyna-gym eval DynaGym-Sokoban-v0 --policy expert --episodes 20"
    parser = _command(subparsers, "eval", text, example, _eval)
    if chosen:  # its arguments are read from the module, which other commands need not load
        from dyna_gym import evaluation

        evaluation.add_arguments(parser)


def _eval(args: argparse.Namespace) -> int:
    from dyna_gym import evaluation

    _require_known(args.id)
    return int(evaluation.run(args))


if __name__ == "__main__":
    sys.exit(main())
