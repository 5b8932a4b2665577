"""Stage 1 of Dyna-Mind: ReSim (Algorithm 3), then distillation, in rounds.

Each round searches the real env from every state with rollouts of the current policy, condenses
each search tree into one response, and trains a policy to give that response without searching.

What the paper does not say, and is done so here [NF]:

* b, d, b_train, t_max, h, learning rate, batch, epochs: the defaults below.
* The first round's rollouts are random where the policy starts from scratch (`--policy` empty): it
  cannot write a response yet.
* Rollouts follow the plan of one response (``--follow plan``), b responses a state instead of b *
  d; ``step`` is Algorithm 3 to the letter.
* ``--value oracle`` is the world's exact value, which the paper does not have; it is labelled in
  the summary. A V_nu trained by `trainers/value.py` is used by naming its folder.
* Only episodes that the search solved are distilled.
* A share of the examples teaches refinement (a draft and its true futures -> a better response).
  This is our addition for models that are not pretrained; ``--refine-share 0`` leaves it out.
* From the second round on, the search's answers at the states that the policy's own drafts lead to
  are distilled, too (``--no-on-policy`` leaves them out): a small policy strays from the search's
  states, and a model that is not pretrained has no idea what to do there.
* ``--ablate plain`` distils the actions of the same episodes without the simulated futures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from dyna_gym import make_agent_env
from dyna_gym.errors import ConfigError
from dyna_gym.evaluation import evaluate, summarise, table
from dyna_gym.launch import check_numbers, json_settings, run_trainer
from dyna_gym.learning.optimise import Learner
from dyna_gym.learning.resim_data import (
    SearchSettings,
    refinement_examples,
    resim_episodes,
)
from dyna_gym.learning.rows import Row, minibatches
from dyna_gym.policies import (
    NanoPolicy,
    Policy,
    RandomPolicy,
    TrainablePolicy,
    as_messages,
    choose_form,
    load_policy,
)
from dyna_gym.progress import Progress, say
from dyna_gym.runs import RunFolder
from dyna_gym.trajectory import Trajectory, read_trajectories, write_trajectories
from dyna_gym.values import make_value


@dataclass
class Args:
    """ReSim and distillation."""

    run: str = "runs/resim"
    """Folder of the run."""
    env_id: str = "DynaGym-Sokoban-v0"
    """Which world."""
    settings: str = "{}"
    """Arguments of the world as JSON, such as '{"size": 7}'."""
    policy: str = ""
    """Folder or name of the policy to start from; empty: a NanoPolicy from scratch."""
    rounds: int = 2
    """Rounds of search and distillation."""
    tasks: int = 1500
    """Training tasks a round; each round takes the next ones."""
    n_envs: int = 128
    """Episodes searched at once."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """Breadth, depth and so on."""
    policy_breadth: int = 2
    """Rollouts a state that the policy itself writes, from the second round on; the others stay random."""
    value: str = "oracle"
    """Who values the ends of rollouts: oracle, none, or a folder of a trained V_nu."""
    ablate: Literal["none", "plain"] = "none"
    """`plain`: distil actions without simulated futures."""
    refine_share: float = 0.4
    """Share of a batch that teaches refinement, from the second round on."""
    refine_tasks: int = 1000
    """Training tasks a round for refinement examples."""
    on_policy: bool = True
    """Distil also what the search answers at the states of the refinement examples."""
    steps: int = 1000
    """Optimiser steps a round."""
    batch: int = 64
    """Responses an optimiser step."""
    lr: float = 3e-3
    """Peak learning rate; warm-up over 5 % of a round's steps, cosine to a tenth."""
    history: int = 2
    """Past steps in the prompt (h)."""
    style: Literal["compact", "full"] = "compact"
    """Prompt style: compact for NanoPolicy, full for pretrained models."""
    eval_episodes: int = 100
    """Tasks a split in the evaluation at the end."""
    checkpoint_every: int = 50
    """Optimiser steps between checkpoints."""
    seed: int = 0
    """Seed of weights, data order, search and sampling."""
    resume: bool = False
    """Go on with a run that was stopped."""


def main(args: Args) -> dict[str, Any]:
    """Run stage 1; returns the summary that is also written to the run folder."""
    check(args)
    contents = ("policy", "value")
    with RunFolder(args.run, asdict(args), resume=args.resume, contents=contents) as run:
        return run.summary() or _train(args, run)


def check(args: Args) -> None:
    """Check all settings, before anything is written.

    Raises:
        ConfigError: One cannot be used.
    """
    check_numbers(
        args,
        counts=("rounds", "tasks", "n_envs", "steps", "batch", "checkpoint_every"),
        from_zero=("policy_breadth", "refine_tasks", "history", "eval_episodes", "seed"),
        positive=("lr",),
        shares=("refine_share",),
    )
    check_numbers(args.search, counts=("breadth", "depth", "keep"))
    if args.search.follow not in ("plan", "step"):
        raise ConfigError(f"search.follow: got {args.search.follow!r}, expected plan or step")
    env = _make_env(args)
    make_value(args.value, env.unwrapped.world, getattr(env.unwrapped, "oracle", None))
    if args.policy:
        load_policy(args.policy, world=env.unwrapped.world)
    env.close()


def _train(args: Args, run: RunFolder) -> dict[str, Any]:
    envs = [_make_env(args) for _ in range(args.n_envs)]
    policy, done = _restore(args, run, envs[0])
    policy.prompt_form = choose_form(policy, args.style, args.history)
    policy.check_world(envs[0].unwrapped.world)
    run.begin()
    learner = Learner(policy, lr=args.lr)
    if done:
        assert run.checkpoint is not None
        learner.optimizer.load_state_dict(torch.load(run.checkpoint / "optimizer.pt"))
    for number in range(done // args.steps, args.rounds):
        plain, refine = _data(args, run, number, envs, policy)
        rows = [_rows(plain, policy), _rows(refine, policy)]
        batches = _batches(args, number, rows)
        bar = Progress(args.steps, f"distil, round {number + 1}/{args.rounds}", unit="steps")
        for k in range(args.steps):
            batch = next(
                batches
            )  # drawn even when skipped, so that a resumed run sees the same order
            step = number * args.steps + k + 1
            if step <= done:
                continue
            learner.set_lr(args.lr * _schedule(k / args.steps))
            loss = learner.imitate(batch)
            bar.to(k + 1, loss=loss)
            if step % args.checkpoint_every == 0 or k + 1 == args.steps:
                skipped = learner.skipped
                run.log(step, losses__nll=loss, losses__skipped_steps=skipped, charts__round=number)
                run.save_checkpoint(step, lambda path: _write(path, policy, learner))
        bar.close()
    policy.save(str(run.path / "policy"))
    summary = _evaluate(args, run, policy, envs[0])
    run.write_summary(summary)
    return summary


def _make_env(args: Args) -> Any:
    return make_agent_env(
        args.env_id, history=args.history, style=args.style, **json_settings(args.settings)
    )


def _restore(args: Args, run: RunFolder, env: Any) -> tuple[TrainablePolicy, int]:
    """The policy to go on with, and how many optimiser steps it has had."""
    if run.checkpoint is not None:
        state = json.loads((run.checkpoint / "state.json").read_text())
        return load_policy(run.checkpoint, seed=args.seed), state["step"]
    if args.policy:
        return load_policy(args.policy, seed=args.seed), 0
    return NanoPolicy(env.unwrapped.world, seed=args.seed), 0


def _write(path: Path, policy: TrainablePolicy, learner: Learner) -> None:
    policy.save(str(path))
    torch.save(learner.optimizer.state_dict(), path / "optimizer.pt")
    step = int(path.name.removesuffix(".part").rpartition("-")[2])
    (path / "state.json").write_text(json.dumps({"step": step}))


class _Mixed(Policy):
    """Some rollouts of each state by the policy, the others at random."""

    def __init__(self, policy: Policy, other: Policy, breadth: int, own: int) -> None:
        self._policy, self._other, self._breadth, self._own = policy, other, breadth, own

    def act(self, messages: Sequence[Any], infos: Sequence[dict[str, Any]]) -> list[Any]:
        """Rows come in runs of ``breadth`` a state; the first ones are the policy's."""
        mine = [i % self._breadth < self._own for i in range(len(messages))]
        answers: list[Any] = [None] * len(messages)
        for policy, wanted in ((self._policy, True), (self._other, False)):
            rows = [i for i, m in enumerate(mine) if m is wanted]
            if rows:
                found = policy.act([messages[i] for i in rows], [infos[i] for i in rows])
                for i, answer in zip(rows, found, strict=True):
                    answers[i] = answer
        return answers


def _data(
    args: Args, run: RunFolder, number: int, envs: Sequence[Any], policy: TrainablePolicy
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Episodes of all rounds so far; those of this round are made, or read if they are there."""
    world, tasks = envs[0].unwrapped.world, envs[0].unwrapped.tasks
    value = make_value(args.value, world, getattr(envs[0].unwrapped, "oracle", None))
    first, total = number * args.tasks, len(tasks)
    path = run.path / f"resim-{number}.jsonl"
    seeds = np.random.SeedSequence([args.seed, number]).spawn(4)
    rng = np.random.default_rng(seeds[0])
    random = RandomPolicy(
        int(seeds[1].generate_state(1)[0]), args.search.depth, vary=True, world=world
    )
    proposer: Policy = random
    own = min(args.policy_breadth, args.search.breadth)
    if (number > 0 or args.policy) and own:
        policy.seed(int(seeds[2].generate_state(1)[0]))
        proposer = _Mixed(policy, random, args.search.breadth, own)
    if not path.exists():
        episodes = resim_episodes(
            envs,
            [tasks[i % total] for i in range(first, first + args.tasks)],
            proposer,
            value,
            args.search,
            rng,
            plain=args.ablate == "plain",
            seed=args.seed,
            progress=f"ReSim, round {number + 1}/{args.rounds}",
        )
        write_trajectories(path, episodes)
    refine_path = run.path / f"refine-{number}.jsonl"
    searched_path = run.path / f"on-policy-{number}.jsonl"
    teach = number > 0 and args.refine_share > 0 and args.ablate == "none"
    if teach and not refine_path.exists():
        examples, searched = refinement_examples(
            envs,
            [tasks[i % total] for i in range(first, first + args.refine_tasks)],
            policy,
            random,
            value,
            args.search,
            np.random.default_rng(seeds[3]),
            style=args.style,
            seed=args.seed,
            progress=f"refinement, round {number + 1}/{args.rounds}",
        )
        write_trajectories(searched_path, searched)
        write_trajectories(refine_path, examples)
    plain = [
        e
        for k in range(number + 1)
        for e in read_trajectories(run.path / f"resim-{k}.jsonl")
        if e.success and e.error is None
    ]
    if teach and args.on_policy:
        plain += read_trajectories(searched_path)
    return plain, list(read_trajectories(refine_path)) if teach else []


def _rows(episodes: Sequence[Trajectory], policy: TrainablePolicy) -> list[Row]:
    return [
        Row(policy.encode(as_messages(t.prompt)), policy.encode_response(t.response.text))
        for e in episodes
        for t in e.transitions
    ]


def _batches(args: Args, number: int, rows: Sequence[list[Row]]) -> Iterator[list[Row]]:
    """Endless batches: a fixed share of refinement examples, the rest plain ones."""
    rng = np.random.default_rng([args.seed, number, 7])
    share = args.refine_share if rows[1] else 0.0
    sizes = [args.batch - round(args.batch * share), round(args.batch * share)]
    streams = [_cycle(r, n, rng) for r, n in zip(rows, sizes, strict=True) if n]
    while True:
        # Batches of one kind each, in the ratio of the shares, have less padding than mixed ones.
        yield [row for stream in streams for row in next(stream)]


def _cycle(rows: list[Row], size: int, rng: np.random.Generator) -> Iterator[list[Row]]:
    if not rows:
        raise ConfigError(
            "no episode was solved by the search: nothing to distil. Raise search.breadth"
        )
    lengths = [len(r.prompt_ids) + len(r.token_ids) for r in rows]
    while True:
        for batch in minibatches(len(rows), size, rng, lengths):
            yield [rows[i] for i in batch]


def _schedule(progress: float) -> float:
    if progress < 0.05:
        return progress / 0.05
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (progress - 0.05) / 0.95))


def _evaluate(args: Args, run: RunFolder, policy: TrainablePolicy, env: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for split in ("eval_id", "eval_ood") if args.eval_episodes else ():
        for temperature in (0.0, 1.0):
            name = f"{split} T={temperature:g}"
            found[name] = evaluate(
                policy,
                args.env_id,
                split=split,
                episodes=args.eval_episodes,
                temperature=temperature,
                style=args.style,
                history=args.history,
                settings=json_settings(args.settings),
                seed=args.seed,
                progress=f"evaluation, {name}",
            )
    rounds = [
        summarise(list(read_trajectories(run.path / f"resim-{k}.jsonl")))
        for k in range(args.rounds)
    ]
    say(table({**found, **{f"ReSim, round {k}": r for k, r in enumerate(rounds)}}))
    return {"evaluation": found, "resim": rounds, "value": args.value}


if __name__ == "__main__":
    run_trainer(main, Args, __doc__)
