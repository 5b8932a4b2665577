"""The main job: both stages of Dyna-Mind on real Sokoban rooms, and an honest table.

ReSim -> distil -> from that checkpoint, at equal generated tokens, GRPO and Dyna-GRPO side by side.
Then all are evaluated on rooms that no stage has seen, greedily and at temperature 1. Everything is
in the run folder: each stage's metrics and checkpoints, ``curves.png``, ``summary.json``. A run
that was stopped goes on with ``--resume``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from dyna_gym.evaluation import paired_difference, play, summarise, table
from dyna_gym.plots import plot_curves
from dyna_gym.policies import AggregatorPolicy, Policy, RandomPolicy, load_policy
from dyna_gym.runs import RunFolder, check_counts, json_settings, run_trainer, write_json
from dyna_gym.trainers import resim
from dyna_gym.trajectory import read_trajectories, write_trajectories

ENV_ID = "DynaGym-Sokoban-v0"
ARMS = ("grpo", "dyna_grpo")


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
    check_counts(
        args,
        **dict.fromkeys(("tokens", "eval_id_episodes", "eval_ood_episodes", "processes"), 1),
        **dict.fromkeys(("lr", "seed"), 0),
    )
    started = time.perf_counter()
    run = RunFolder(args.run, asdict(args), resume=args.resume)
    summary = run.summary()
    if summary is None:
        seconds = {"distill": _timed(lambda: _stage_1(args, run))}
        seconds |= _stage_2(args, run)
        plot_curves(
            {arm: run.path / arm / "metrics.jsonl" for arm in ARMS}, run.path / "curves.png"
        )
        summary = _evaluate(args, run, seconds)
        summary["seconds"] = round(time.perf_counter() - started, 1)
        run.write_summary(summary)
    print(_report(summary))
    print(f"\nrun folder: {run.path}  (summary.json, curves.png, metrics and checkpoints)")
    return summary


def _timed(call: Any) -> float:
    started = time.perf_counter()
    call()
    return round(time.perf_counter() - started, 1)


def _stage_1(args: Args, run: RunFolder) -> None:
    # Matrices of this size are not worth a second thread: its barriers cost more than it computes.
    torch.set_num_threads(1)
    settings = {**asdict(args.resim), "run": str(run.path / "distill"), "seed": args.seed}
    settings["search"] = args.resim.search
    resim.main(resim.Args(**{**settings, "resume": True}))


def _stage_2(args: Args, run: RunFolder) -> dict[str, float]:
    """Both trainers as processes of their own, one thread each; their progress is read off their metrics."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    waiting = [(arm, _command(args, run, arm)) for arm in ARMS]
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    bars = {
        arm: tqdm(total=args.tokens, desc=f"{arm:<9}", unit="tok", unit_scale=True, position=i)
        for i, arm in enumerate(ARMS)
    }
    seconds: dict[str, float] = {}
    try:
        while waiting or running:
            while waiting and len(running) < args.processes:
                arm, command = waiting.pop(0)
                (run.path / arm).mkdir(exist_ok=True)
                with (run.path / arm / "log.txt").open("ab") as log:
                    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
                running[arm] = process, time.perf_counter()
            time.sleep(1.0)
            for arm, (process, since) in list(running.items()):
                _show(bars[arm], run.path / arm / "metrics.jsonl")
                if process.poll() is None:
                    continue
                del running[arm]
                seconds[arm] = round(time.perf_counter() - since, 1)
                log_file = run.path / arm / "log.txt"
                if process.returncode:
                    raise SystemExit(
                        f"{arm} failed; the end of {log_file}:\n"
                        + "\n".join(log_file.read_text(errors="replace").splitlines()[-15:])
                    )
                _tell_warnings(arm, log_file)
    finally:
        for process, _ in running.values():
            process.terminate()
        for bar in bars.values():
            bar.close()
    return seconds


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


def _show(bar: Any, metrics: Path) -> None:
    if not metrics.exists():
        return
    rows = [json.loads(x) for x in metrics.read_text().split("\n")[:-1] if "charts/success" in x]
    if rows:
        bar.set_postfix(success=f"{rows[-1]['charts/success']:.2f}", refresh=False)
        bar.n = rows[-1]["charts/generated_tokens"]
        bar.refresh()


def _tell_warnings(arm: str, log_file: Path) -> None:
    for line in log_file.read_text(errors="replace").splitlines():
        if "DynaGymWarning:" in line:
            tqdm.write(f"warning ({arm}): {line.partition('DynaGymWarning:')[2].strip()}")


def _evaluate(args: Args, run: RunFolder, seconds: dict[str, float]) -> dict[str, Any]:
    jobs = []
    for arm in ("random", "resim", "distill", *ARMS):
        for split, episodes in (
            ("eval_id", args.eval_id_episodes),
            ("eval_ood", args.eval_ood_episodes),
        ):
            for temperature in (1.0, 0.0) if arm not in ("random", "resim") else (1.0,):
                jobs.append((args, str(run.path), arm, split, episodes, temperature))
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork
    summary: dict[str, Any] = {}
    with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
        results = tqdm(
            pool.map(_evaluate_one, jobs), total=len(jobs), desc="evaluation", leave=False
        )
        for (_, _, arm, split, _, temperature), figures in zip(jobs, results, strict=True):
            entry = summary.setdefault(arm, {})
            if temperature == 1.0:
                entry[split] = figures
            else:
                entry[split]["greedy"] = figures
    for arm in ("distill", *ARMS):
        summary[arm]["training"] = {"seconds": seconds.get(arm), **_cost(run, arm)}
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


def _cost(run: RunFolder, arm: str) -> dict[str, Any]:
    path = run.path / arm / "summary.json"
    told = json.loads(path.read_text())
    if arm != "distill":
        return {k: told[k] for k in ("generated_tokens", "env_steps", "lookahead_steps")}
    keys = ("env_steps", "lookahead_steps")
    return {k: sum(r[k] for r in told["resim"]) for k in keys} | {"value": told["value"]}


def _episodes_file(run: Path, arm: str, split: str, temperature: float) -> Path:
    return run / "evaluation" / f"{arm}-{split}-T{temperature:g}.jsonl"


def _evaluate_one(job: tuple[Args, str, str, str, int, float]) -> dict[str, Any]:
    """One cell of the table, in a process of its own; read back if it is there already."""
    args, run, arm, split, episodes, temperature = job
    file = _episodes_file(Path(run), arm, split, temperature)
    figures = file.with_suffix(".json")
    if figures.exists():
        found: dict[str, Any] = json.loads(figures.read_text())
        return found
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
    write_json(figures, told)
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
