"""Stage 2 of Dyna-Mind: Dyna-GRPO (Algorithm 1).

Alternates ``n_t`` steps of simulation improvement with ``n_pi`` steps of policy improvement:

    for N iterations:
        for n_T steps:                                  # simulation improvement
            {tau'}, {tau'_ref} = SimRollout(pi, env, G/2)   # Algorithm 2
            {tau}              = Rollout(pi, env, G/2)
            update pi with GRPO({tau} + {tau'})             # one group of size G
            update pi with GRPO({tau'_ref}) using A_refine
        for n_pi steps:                                 # policy improvement
            {tau} = Rollout(pi, env, G)
            update pi with GRPO({tau})

Choices where the paper says nothing [NF]:

* n_T, n_pi, G, learning rate, clip and KL coefficient are the defaults below; the two updates of
  the first half are two calls of the optimiser, as the algorithm is written.
* tau' holds responses sampled under the prompt *with* futures, trained under the prompt without:
  off-policy. Their old log-probabilities are recomputed under the prompt without futures, so that
  the ratio starts at 1.
* The ratio's denominator is pi_old (the paper prints pi_ref); the ratio is taken token by token.
* Each episode has equal weight, each of its T steps 1/T of it, each token of a response an equal
  share: the ``1/(G T)`` of the objective.
* An episode that runs out of steps pays 0 at its last step, as a failed one.
* Episodes that the machinery spoiled are left out of their group and counted.

Before training and during it, SimRollout is held against standard rollouts: where it is not ahead,
tau' and tau'_ref have nothing to teach, and a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from dyna_gym import make_agent_env
from dyna_gym.errors import ConfigError, DynaGymWarning
from dyna_gym.launch import check_numbers, json_settings, run_trainer
from dyna_gym.learning.advantages import group_advantages, refine_advantages
from dyna_gym.learning.collect import split_failed
from dyna_gym.learning.optimise import Learner
from dyna_gym.learning.rl import (
    Counters,
    draw_tasks,
    episode_figures,
    group_rows,
    learning_rate,
    restore_learner,
    rollout_groups,
    save_learner,
    update_seed,
    zero_advantage_frac,
)
from dyna_gym.learning.rows import Row, episode_rows, fill_old_logprobs
from dyna_gym.policies import PromptForm, TrainablePolicy, choose_form, load_policy
from dyna_gym.progress import Progress
from dyna_gym.runs import RunFolder
from dyna_gym.trajectory import Trajectory


@dataclass
class Args:
    """Dyna-GRPO."""

    policy: str
    """Folder (or name) of the policy to start from; also the KL reference."""
    run: str = "runs/dyna_grpo"
    """Folder of the run."""
    env_id: str = "DynaGym-Sokoban-v0"
    """Which world."""
    settings: str = "{}"
    """Arguments of the world as JSON, such as '{"size": 7}'."""
    advantage: Literal["grpo", "rloo"] = "grpo"
    """How a group's returns become advantages."""
    tokens: int = 800_000
    """Budget: generated tokens, drafts included. The run ends after the update that reaches it."""
    n_t: int = 1
    """Steps of simulation improvement an iteration (n_T)."""
    n_pi: int = 1
    """Steps of policy improvement an iteration (n_pi)."""
    groups: int = 16
    """Tasks an update."""
    group_size: int = 8
    """Episodes a task (G); even, as half of them are SimRollouts."""
    max_depth: int = 5
    """Longest plan that SimRollout tries; the paper's cap."""
    lr: float = 3e-4
    """Peak learning rate; it falls to a tenth over the token budget."""
    warmup: int = 4
    """Updates over which the learning rate grows to its full value; Adam's first steps are noise."""
    clip: float = 0.2
    """eps of the ratio's clip."""
    kl_coef: float = 0.02
    """beta of the KL penalty."""
    minibatch: int = 256
    """Responses an optimiser step."""
    epochs: int = 1
    """Passes over the responses of an update."""
    gate_tasks: int = 64
    """Training tasks on which SimRollout is held against standard rollouts before training; 0: not."""
    train_on_cut: bool = True
    """Train on responses that the token limit cut off, too; see trainers/grpo.py."""
    history: int | None = None
    """Past steps in the prompt (h); default: what the policy was trained with."""
    style: Literal["compact", "full"] | None = None
    """Prompt style; default: what the policy was trained with."""
    seed: int = 0
    """Seed of tasks, sampling and shuffling."""
    resume: bool = False
    """Go on with a run that was stopped."""


def main(args: Args) -> str:
    """Train; returns the folder of the trained policy."""
    check_numbers(
        args,
        counts=("tokens", "groups", "group_size", "minibatch", "epochs", "max_depth"),
        from_zero=("n_t", "n_pi", "warmup", "gate_tasks", "seed"),
        positive=("lr", "clip"),
        not_negative=("kl_coef",),
    )
    if args.group_size % 2 or args.group_size < 4:
        raise ConfigError(f"group_size: got {args.group_size}, expected an even number >= 4")
    if args.n_t + args.n_pi == 0:
        raise ConfigError("n_t, n_pi: got 0 and 0, expected one above 0")
    with RunFolder(
        args.run, asdict(args), resume=args.resume, growing=("tokens",), contents=("policy",)
    ) as run:
        return _train(args, run)


def _train(args: Args, run: RunFolder) -> str:
    policy = load_policy(run.checkpoint or args.policy)
    policy.prompt_form = form = choose_form(policy, args.style, args.history)
    reference = load_policy(args.policy).copy()
    learner = Learner(policy, lr=args.lr, reference=reference)
    counters = Counters()
    if run.checkpoint is not None:
        counters = restore_learner(run.checkpoint, learner)
    plain = _make_envs(args, form, "plain", args.group_size)
    refine = _make_envs(args, form, "sim_rollout", args.group_size // 2)
    policy.check_world(plain[0].unwrapped.world)
    tasks = plain[0].unwrapped.tasks
    run.begin()
    if counters.update == 0 and args.gate_tasks:
        gate(args, run, policy, plain, refine, draw_tasks(tasks, args.gate_tasks, _rng(args, -1)))
    done = counters.generated_tokens
    bar = Progress(args.tokens, "Dyna-GRPO", initial=done, unit="tok", leave=True)
    while counters.generated_tokens < args.tokens:
        rng = _rng(args, counters.update)
        seed = update_seed(args.seed, counters.update)
        spent = counters.generated_tokens / args.tokens
        learner.set_lr(learning_rate(args.lr, counters.update, args.warmup, spent))
        chosen = draw_tasks(tasks, args.groups, rng)
        if counters.update % (args.n_t + args.n_pi) < args.n_t:
            metrics = improve_simulation(
                args, run, learner, plain, refine, chosen, seed, rng, counters
            )
        else:
            metrics = improve_policy(args, run, learner, plain, chosen, seed, rng, counters)
        counters.update += 1
        run.log(
            counters.update,
            **metrics,
            charts__generated_tokens=counters.generated_tokens,
            charts__env_steps=counters.env_steps,
            charts__lookahead_steps=counters.lookahead_steps,
        )
        run.save_checkpoint(counters.update, lambda path: save_learner(path, learner, counters))
        success, sim = metrics["charts/success"], metrics["charts/sim_score"]
        bar.to(counters.generated_tokens, success=success, sim=sim)
    bar.close()
    policy.save(str(run.path / "policy"))
    run.write_summary(vars(counters))
    return str(run.path / "policy")


def improve_simulation(
    args: Args,
    run: RunFolder,
    learner: Learner,
    plain: Sequence[Any],
    refine: Sequence[Any],
    tasks: Sequence[Any],
    seed: int,
    rng: np.random.Generator,
    counters: Counters,
) -> dict[str, float]:
    """One step of the first half of Algorithm 1."""
    policy, half = learner.policy, args.group_size // 2
    sim_groups = rollout_groups(refine, policy, tasks, half, seed)  # tau', tau'_ref
    std_groups = rollout_groups(plain, policy, tasks, half, seed + 1)  # tau
    episodes = [e for group in (*sim_groups, *std_groups) for e in group]
    counters.count(episodes)
    run.save_trajectories(counters.update + 1, episodes)

    rows: list[Row] = []  # tau and tau', one group of size G
    ref_rows: list[Row] = []  # tau'_ref
    advantages, refined, standard = [], [], []
    for sim_group, std_group in zip(sim_groups, std_groups, strict=True):
        sims, _ = split_failed(sim_group)
        stds, _ = split_failed(std_group)
        both = [*stds, *sims]
        found = group_advantages([e.total_reward for e in both], args.advantage)
        advantages.append(found)
        standard += list(found[: len(stds)])
        refined += list(found[len(stds) :])
        for episode, a in zip(both, found, strict=True):
            weight = 1.0 / (len(tasks) * len(both))
            rows += episode_rows(
                episode, float(a), weight, policy, prompts="plain", cut=args.train_on_cut
            )
        a_refine = refine_advantages(
            [e.total_reward for e in sims],
            [e.success for e in sims],
            [e.total_reward for e in stds],
        )
        for episode, a in zip(sims, a_refine, strict=True):
            weight = 1.0 / (len(tasks) * len(sims))
            ref_rows += episode_rows(episode, float(a), weight, policy, cut=args.train_on_cut)

    gap = refine_gap(sim_groups, policy)
    settings = {"clip": args.clip, "kl_coef": args.kl_coef, "minibatch": args.minibatch}
    losses = learner.reinforce(rows, rng, epochs=args.epochs, **settings)  # type: ignore[arg-type]
    ref_losses = learner.reinforce(ref_rows, rng, epochs=args.epochs, **settings)  # type: ignore[arg-type]

    sim_figures, std_figures = episode_figures(sim_groups), episode_figures(std_groups)
    return {
        **{f"charts/{k}": v for k, v in std_figures.items()},
        **{f"sim_rollout/{k}": v for k, v in sim_figures.items()},
        **{f"losses/{k}": v for k, v in losses.items()},
        **{f"losses_refine/{k}": v for k, v in ref_losses.items()},
        "charts/zero_advantage_frac": zero_advantage_frac(advantages),
        "sim_rollout/mean_advantage": float(np.mean(refined)) if refined else 0.0,
        "standard/mean_advantage": float(np.mean(standard)) if standard else 0.0,
        "sim_rollout/refine_advantage_frac": float(np.mean([r.advantage > 0 for r in ref_rows]))
        if ref_rows
        else 0.0,
        "sim_rollout/logp_refine_minus_plain": gap,
        "charts/phase": 0.0,
    }


def improve_policy(
    args: Args,
    run: RunFolder,
    learner: Learner,
    plain: Sequence[Any],
    tasks: Sequence[Any],
    seed: int,
    rng: np.random.Generator,
    counters: Counters,
) -> dict[str, float]:
    """One step of the second half of Algorithm 1: plain GRPO."""
    groups = rollout_groups(plain, learner.policy, tasks, args.group_size, seed)
    episodes = [e for group in groups for e in group]
    counters.count(episodes)
    run.save_trajectories(counters.update + 1, episodes)
    rows, advantages = group_rows(groups, args.advantage, learner.policy, cut=args.train_on_cut)
    losses = learner.reinforce(
        rows,
        rng,
        clip=args.clip,
        kl_coef=args.kl_coef,
        minibatch=args.minibatch,
        epochs=args.epochs,
    )
    return {
        **{f"charts/{k}": v for k, v in episode_figures(groups).items()},
        **{f"losses/{k}": v for k, v in losses.items()},
        "charts/zero_advantage_frac": zero_advantage_frac(advantages),
        "charts/phase": 1.0,
    }


def refine_gap(groups: Sequence[Sequence[Trajectory]], policy: TrainablePolicy) -> float:
    """Mean of ``log p(a | s_refine) - log p(a | s)`` over refined responses, in nats a response.

    How much the futures in the prompt speak for what was answered; near 0 the policy does not use them.
    """
    episodes = [e for group in groups for e in group if e.error is None]
    rows = [r for e in episodes for r in episode_rows(e, 0.0, 1.0, policy, prompts="plain")]
    fill_old_logprobs(rows, policy)
    sampled = [
        sum(t.response.logprobs) for e in episodes for t in e.transitions if t.response.token_ids
    ]
    gaps = [s - sum(r.old_logprobs or ()) for s, r in zip(sampled, rows, strict=True)]
    return float(np.mean(gaps)) if gaps else 0.0


def gate(
    args: Args,
    run: RunFolder,
    policy: TrainablePolicy,
    plain: Sequence[Any],
    refine: Sequence[Any],
    tasks: Sequence[Any],
) -> None:
    """Hold SimRollout against standard rollouts, on training tasks, and warn where it is not ahead."""
    with torch.inference_mode():
        seed = update_seed(args.seed, 0, 2)
        sim = episode_figures(rollout_groups(refine, policy, tasks, 2, seed, "SimRollout"))
        std = episode_figures(rollout_groups(plain, policy, tasks, 2, seed, "standard rollouts"))
    run.log(
        0,
        **{f"gate/sim_rollout_{k}": v for k, v in sim.items()},
        **{f"gate/standard_{k}": v for k, v in std.items()},
    )
    if sim["success"] <= std["success"]:
        warnings.warn(
            f"SimRollout solves {sim['success']:.2f} of the training tasks, standard rollouts {std['success']:.2f}: "
            "the policy does not make use of true futures, so Dyna-GRPO's first half has nothing to teach. "
            "Teach refinement in stage 1 (trainers/resim.py --refine-share), or use rooms where looking "
            "ahead pays",
            DynaGymWarning,
            stacklevel=2,
        )


def _make_envs(args: Args, form: PromptForm, response: str, size: int) -> list[Any]:
    lookahead = {"max_depth": args.max_depth} if response == "sim_rollout" else None
    return [
        make_agent_env(
            args.env_id,
            response=response,
            lookahead=lookahead,
            **asdict(form),
            **json_settings(args.settings),
        )
        for _ in range(args.groups * size)
    ]


def _rng(args: Args, update: int) -> np.random.Generator:
    return np.random.default_rng(update_seed(args.seed, max(update, 0), 1 if update >= 0 else 3))


if __name__ == "__main__":
    run_trainer(main, Args, __doc__)
