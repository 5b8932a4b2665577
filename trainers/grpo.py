"""GRPO and RLOO on whole episodes: the policy-improvement half of Dyna-Mind, and its baseline.

One update: ``groups`` tasks, ``group_size`` episodes each, group advantages, one pass of the
clipped objective with a KL penalty to the policy that the run started from.

Choices where the paper says nothing [NF]:

* The ratio's denominator is pi_old (the paper prints pi_ref); the ratio is taken token by token.
* Each episode has equal weight, each of its T steps 1/T of it, each token of a response an equal
  share: the ``1/(G T)`` of the objective.
* An episode that runs out of steps pays 0 at its last step, as a failed one.
* Group size, learning rate, clip, KL coefficient and batch are the defaults below.
* Episodes that the machinery spoiled are left out of their group and counted.
* Responses that the token limit cut off are trained on (``--no-train-on-cut`` leaves them out);
  their share is ``charts/cut_frac``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from dyna_gym import make_agent_env
from dyna_gym.launch import check_numbers, json_settings, run_trainer
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
from dyna_gym.policies import choose_form, load_policy
from dyna_gym.progress import Progress
from dyna_gym.runs import RunFolder


@dataclass
class Args:
    """GRPO or RLOO."""

    policy: str
    """Folder (or name) of the policy to start from; also the KL reference."""
    run: str = "runs/grpo"
    """Folder of the run."""
    env_id: str = "DynaGym-Sokoban-v0"
    """Which world."""
    settings: str = "{}"
    """Arguments of the world as JSON, such as '{"size": 7}'."""
    advantage: Literal["grpo", "rloo"] = "grpo"
    """How a group's returns become advantages."""
    tokens: int = 800_000
    """Budget: generated tokens, drafts included. The run ends after the update that reaches it."""
    groups: int = 16
    """Tasks an update."""
    group_size: int = 8
    """Episodes a task (G)."""
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
    train_on_cut: bool = True
    """Train on responses that the token limit cut off, too. With ``--no-train-on-cut`` they are left out of the loss,
    as in DAPO: a good start is not punished for its length, but nothing teaches the policy to come to an end."""
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
        counts=("tokens", "groups", "group_size", "minibatch", "epochs"),
        from_zero=("warmup", "seed"),
        positive=("lr", "clip"),
        not_negative=("kl_coef",),
    )
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
    envs = [
        make_agent_env(args.env_id, **asdict(form), **json_settings(args.settings))
        for _ in range(args.groups * args.group_size)
    ]
    policy.check_world(envs[0].unwrapped.world)  # type: ignore[attr-defined]
    tasks = envs[0].unwrapped.tasks  # type: ignore[attr-defined]
    run.begin()
    bar = Progress(args.tokens, "GRPO", initial=counters.generated_tokens, unit="tok", leave=True)
    while counters.generated_tokens < args.tokens:
        rng = np.random.default_rng(update_seed(args.seed, counters.update, 1))
        spent = counters.generated_tokens / args.tokens
        learner.set_lr(learning_rate(args.lr, counters.update, args.warmup, spent))
        groups = rollout_groups(
            envs,
            policy,
            draw_tasks(tasks, args.groups, rng),
            args.group_size,
            update_seed(args.seed, counters.update),
        )
        rows, advantages = group_rows(groups, args.advantage, policy, cut=args.train_on_cut)
        losses = learner.reinforce(
            rows,
            rng,
            clip=args.clip,
            kl_coef=args.kl_coef,
            minibatch=args.minibatch,
            epochs=args.epochs,
        )
        counters.count([e for group in groups for e in group])
        counters.update += 1
        run.save_trajectories(counters.update, [e for group in groups for e in group])
        figures = episode_figures(groups)
        run.log(
            counters.update,
            **{f"charts/{k}": v for k, v in figures.items()},
            **{f"losses/{k}": v for k, v in losses.items()},
            charts__zero_advantage_frac=zero_advantage_frac(advantages),
            charts__generated_tokens=counters.generated_tokens,
            charts__env_steps=counters.env_steps,
            charts__lookahead_steps=counters.lookahead_steps,
        )
        run.save_checkpoint(counters.update, lambda path: save_learner(path, learner, counters))
        done = counters.generated_tokens
        bar.to(done, success=figures["success"], sim=figures["sim_score"])
    bar.close()
    policy.save(str(run.path / "policy"))
    run.write_summary(vars(counters))
    return str(run.path / "policy")


if __name__ == "__main__":
    run_trainer(main, Args, __doc__)
