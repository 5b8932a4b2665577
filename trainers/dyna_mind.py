"""The main job: both stages of Dyna-Mind on real Sokoban rooms, and an honest table.

ReSim -> distil -> from that checkpoint, at equal generated tokens, GRPO and Dyna-GRPO side by side.
Then all are evaluated on rooms that no stage has seen, greedily and at temperature 1. Everything is
in the run folder: each stage's metrics and checkpoints, ``curves.png``, ``summary.json``. A run
that was stopped goes on with ``--resume``. With a larger ``--tokens`` a finished one goes on, too:
stage 1 and its evaluation stay, the runs of stage 2 are extended (their learning rates follow the
new budget from there on) and evaluated again.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from dyna_gym.evaluation import paired_difference, play, summarise, table
from dyna_gym.files import read_json, read_rows, write_json
from dyna_gym.launch import (
    check_numbers,
    end_children,
    json_settings,
    pool_worker,
    run_trainer,
    start_child,
)
from dyna_gym.plots import plot_curves
from dyna_gym.policies import AggregatorPolicy, Policy, RandomPolicy, load_policy
from dyna_gym.progress import Progress, counted, say
from dyna_gym.runs import RunFolder, folder_digest
from dyna_gym.trainers import resim
from dyna_gym.trajectory import read_trajectories, write_trajectories

ENV_ID = "DynaGym-Sokoban-v0"
ARMS = ("grpo", "dyna_grpo")

Job = tuple["Args", str, str, str, int, float]
"""One cell of the evaluation: settings, run folder, arm, split, episodes, temperature."""


@dataclass
class Args:
    """ReSim, distillation, GRPO and Dyna-GRPO."""

    run: str = "runs/dyna_mind"
    """Folder of the run."""
    resim: resim.Args = field(default_factory=lambda: resim.Args(eval_episodes=0))
    """Stage 1; its `run` and `seed` are set by this run's."""
    tokens: int = 800_000
    """Generated tokens of each stage-2 run, drafts included."""
    lr: float = 3e-4
    """Peak learning rate of stage 2."""
    eval_id_episodes: int = 500
    """Evaluation tasks of split eval_id."""
    eval_ood_episodes: int = 100
    """Evaluation tasks of split eval_ood."""
    processes: int = 2
    """Processes side by side in stage 2 and in the evaluation, one thread each."""
    seed: int = 0
    """Seed of everything."""
    resume: bool = False
    """Go on with a run that was stopped; of one that has ended, print the table again."""


def main(args: Args) -> dict[str, Any]:
    """Run both stages and evaluate; returns the summary that is also written to the run folder."""
    check_numbers(
        args,
        counts=("tokens", "eval_id_episodes", "eval_ood_episodes", "processes"),
        from_zero=("seed",),
        positive=("lr",),
    )
    resim.check(args.resim)
    with RunFolder(
        args.run,
        asdict(args),
        resume=args.resume,
        free=("processes",),
        growing=("tokens", "eval_id_episodes", "eval_ood_episodes"),
        contents=("resim.policy", "resim.value"),
    ) as run:
        summary = run.summary()
        if summary is None:
            run.begin()
            _stage_1(args, run)
            _stage_2(args, run)
            plot_curves(
                {arm: run.path / arm / "metrics.jsonl" for arm in ARMS}, run.path / "curves.png"
            )
            summary = _evaluate(args, run)
            summary["seconds"] = run.tick()
            run.write_summary(summary)
    print(_report(summary))
    print(f"\nrun folder: {run.path}  (summary.json, curves.png, metrics and checkpoints)")
    return summary


def _stage_1(args: Args, run: RunFolder) -> None:
    # Matrices of this size are not worth a second thread: its barriers cost more than it computes.
    torch.set_num_threads(1)
    settings = {**asdict(args.resim), "run": str(run.path / "distill"), "seed": args.seed}
    settings["search"] = args.resim.search
    resim.main(resim.Args(**{**settings, "resume": True}))
    run.tick()


def _stage_2(args: Args, run: RunFolder) -> None:
    """The trainers as processes of their own, one thread each; their progress is read off their metrics."""
    waiting = list(ARMS)
    running: dict[str, subprocess.Popen[bytes]] = {}
    bars = {
        arm: Progress(args.tokens, f"{arm:<9}", unit="tok", position=i, leave=True)
        for i, arm in enumerate(ARMS)
    }
    try:
        while waiting or running:
            while waiting and len(running) < args.processes:
                arm = waiting.pop(0)
                log = run.path / arm / "log.txt"
                log.parent.mkdir(exist_ok=True)
                log.unlink(missing_ok=True)
                running[arm] = start_child(_command(args, run, arm), log)
            time.sleep(1.0)
            run.tick()
            for arm, process in list(running.items()):
                _show(bars[arm], run.path / arm / "metrics.jsonl")
                if process.poll() is None:
                    continue
                end_children([running.pop(arm)])
                lines = (run.path / arm / "log.txt").read_text(errors="replace").splitlines()
                if process.returncode:
                    end = "\n".join(lines[-15:])
                    raise SystemExit(
                        f"error: {arm} failed; the end of {run.path / arm / 'log.txt'}:\n{end}"
                    )
                for line in lines:
                    if line.startswith("warning: "):
                        say(f"warning ({arm}): {line.removeprefix('warning: ')}")
    finally:
        end_children(running.values())
        for bar in bars.values():
            bar.close()


def _command(args: Args, run: RunFolder, arm: str) -> list[str]:
    settings: dict[str, Any] = {
        "policy": run.path / "distill" / "policy",
        "run": run.path / arm,
        "tokens": args.tokens,
        "lr": args.lr,
        "seed": args.seed,
        "settings": args.resim.settings,
        "history": args.resim.history,
    }
    words = [word for k, v in settings.items() for word in (f"--{k}", str(v))]
    return [sys.executable, "-m", f"dyna_gym.trainers.{arm}", *words, "--resume"]


def _show(bar: Progress, metrics: Path) -> None:
    rows = list(read_rows(metrics)) if metrics.exists() else []
    if rows and "charts/generated_tokens" in rows[-1]:
        bar.to(rows[-1]["charts/generated_tokens"], success=rows[-1]["charts/success"])


def _evaluate(args: Args, run: RunFolder) -> dict[str, Any]:
    jobs = []
    for arm in ("random", "resim", "distill", *ARMS):
        for split, episodes in (
            ("eval_id", args.eval_id_episodes),
            ("eval_ood", args.eval_ood_episodes),
        ):
            for temperature in (1.0, 0.0) if arm not in ("random", "resim") else (1.0,):
                jobs.append((args, str(run.path), arm, split, episodes, temperature))
    summary: dict[str, Any] = {}
    results = counted(_in_processes(jobs, args.processes), len(jobs), "evaluation", "cells")
    for (_, _, arm, split, _, temperature), figures in zip(jobs, results, strict=True):
        entry = summary.setdefault(arm, {})
        if temperature == 1.0:
            entry[split] = figures
        else:
            entry[split]["greedy"] = figures
    for arm in ("distill", *ARMS):
        seconds = read_json(run.path / arm / "clock.json")
        summary[arm]["training"] = {**seconds, **_cost(run, arm)}
    summary["differences"] = {
        f"{b} - {a}": paired_difference(
            list(read_trajectories(_episodes_file(run.path, a, "eval_id", 1.0))),
            list(read_trajectories(_episodes_file(run.path, b, "eval_id", 1.0))),
            seed=args.seed,
        )
        for a, b in (("distill", "grpo"), ("distill", "dyna_grpo"), ("grpo", "dyna_grpo"))
    }
    summary["config"] = asdict(args)
    return summary


def _in_processes(jobs: list[Job], processes: int) -> Iterator[dict[str, Any]]:
    """Figures of each job, in order; whatever ends this process ends the workers."""
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork
    pool = ProcessPoolExecutor(processes, context, initializer=pool_worker)
    try:
        yield from pool.map(_evaluate_one, jobs)
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _cost(run: RunFolder, arm: str) -> dict[str, Any]:
    path = run.path / arm / "summary.json"
    told = read_json(path)
    if arm != "distill":
        return {k: told[k] for k in ("generated_tokens", "env_steps", "lookahead_steps")}
    keys = ("env_steps", "lookahead_steps")
    return {k: sum(r[k] for r in told["resim"]) for k in keys} | {"value": told["value"]}


def _episodes_file(run: Path, arm: str, split: str, temperature: float) -> Path:
    return run / "evaluation" / f"{arm}-{split}-T{temperature:g}.jsonl"


def _evaluate_one(job: Job) -> dict[str, Any]:
    """One cell of the table, in a process of its own; read back if it is there already."""
    args, run, arm, split, episodes, temperature = job
    file = _episodes_file(Path(run), arm, split, temperature)
    cell = file.with_suffix(".json")
    # A run that was extended has another policy, and so another cell.
    of = {"policy": folder_digest(Path(run) / arm / "policy"), "episodes": episodes}
    of |= {"policy": arm} if arm in ("random", "resim") else {}
    if cell.exists():
        found = read_json(cell)
        if found["of"] == of:
            return dict(found["figures"])
    torch.set_num_threads(1)
    policy: Policy
    response, lookahead = "plain", None
    if arm == "random":
        policy = RandomPolicy(args.seed)
    elif arm == "resim":
        policy, response = AggregatorPolicy(), "resim"
        search = args.resim.search
        lookahead = {"value": args.resim.value, "breadth": search.breadth, "depth": search.depth}
        episodes = min(episodes, 100)
    else:
        policy = load_policy(Path(run) / arm / "policy")
    started = time.perf_counter()
    trajectories = play(
        policy,
        ENV_ID,
        split=split,
        episodes=episodes,
        response=response,
        temperature=temperature,
        style="compact",
        history=args.resim.history,
        lookahead=lookahead,
        settings=json_settings(args.resim.settings),
        seed=args.seed,
    )
    told = {**summarise(trajectories), "seconds": round(time.perf_counter() - started, 2)}
    write_trajectories(file, trajectories)
    write_json(cell, {"of": of, "figures": told})
    return told


def _report(summary: dict[str, Any]) -> str:
    rows = {}
    for arm in ("random", "resim", "distill", *ARMS):
        for split in ("eval_id", "eval_ood"):
            entry = summary[arm][split]
            note = " (search)" if arm == "resim" else ""
            rows[f"{arm}{note} {split} T=1"] = entry
            if "greedy" in entry:
                rows[f"{arm} {split} greedy"] = entry["greedy"]
    lines = [table(rows), "", "paired differences on eval_id at T=1 (95 % bootstrap over tasks):"]
    for name, d in summary["differences"].items():
        for figure in ("success", "sim_score"):
            low, high = d[f"{figure}_ci"]
            lines.append(f"  {name:<20} {figure:<10} {d[figure]:+.3f}  [{low:+.3f}, {high:+.3f}]")
    return "\n".join(lines)


if __name__ == "__main__":
    run_trainer(main, Args, __doc__)
