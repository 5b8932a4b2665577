"""The optimiser step: supervised and policy-gradient updates on accelerate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dyna_gym.errors import needs
from dyna_gym.learning.losses import clipped_surrogate, kl_estimate, token_mean
from dyna_gym.learning.rows import Row, fill_old_logprobs, minibatches, pad
from dyna_gym.policies.base import TrainablePolicy

with needs("train", __name__):
    import torch
    from accelerate import Accelerator


@dataclass
class Learner:
    """A policy and its optimiser.

    Args:
        policy: What is trained.
        lr: Learning rate (AdamW).
        max_grad_norm: Gradients are clipped to this norm.
        weight_decay: AdamW's.
        reference: Frozen policy of the KL penalty; None for no penalty.
    """

    policy: TrainablePolicy
    lr: float
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    reference: TrainablePolicy | None = None
    optimizer: Any = field(init=False)
    accelerator: Accelerator = field(init=False)

    def __post_init__(self) -> None:
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())
        optimizer = torch.optim.AdamW(
            list(self.policy.parameters()),
            lr=self.lr,
            betas=(0.9, 0.98),
            weight_decay=self.weight_decay,
        )
        self.optimizer = self.accelerator.prepare(optimizer)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the steps to come."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _step(self, loss: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        norm = self.accelerator.clip_grad_norm_(list(self.policy.parameters()), self.max_grad_norm)
        self.optimizer.step()
        return float(norm)

    def imitate(self, rows: Sequence[Row]) -> float:
        """One step of next-token NLL on given responses (distillation).

        Returns:
            Mean loss a token, in nats.
        """
        logprobs, mask = self.policy.score(
            [r.prompt_ids for r in rows], [r.token_ids for r in rows]
        )
        loss = -(logprobs * mask).sum() / mask.sum()
        self._step(loss)
        return float(loss.detach())

    def reinforce(
        self,
        rows: Sequence[Row],
        rng: np.random.Generator,
        *,
        clip: float,
        kl_coef: float,
        minibatch: int,
        epochs: int = 1,
    ) -> dict[str, float]:
        """One update with the clipped objective: ``epochs`` passes over shuffled minibatches.

        Rows without advantage still feel the KL penalty. With no rows, or none with an advantage, nothing
        changes.

        Args:
            rows: Responses with advantage, weight and old log-probabilities.
            rng: Shuffles.
            clip: eps of the ratio's clip.
            kl_coef: beta of the KL penalty.
            minibatch: Rows an optimiser step.
            epochs: Passes over the rows.

        Returns:
            ``policy_loss``, ``kl`` (to the reference), ``approx_kl`` (to the old policy), ``clip_fraction``,
            ``grad_norm``, each a mean over the optimiser steps.
        """
        names = ("policy_loss", "kl", "approx_kl", "clip_fraction", "grad_norm")
        if not any(r.advantage for r in rows):
            return dict.fromkeys(names, 0.0)
        fill_old_logprobs(rows, self.policy)
        total = sum(r.weight for r in rows)
        seen: list[list[float]] = []
        for _ in range(epochs):
            lengths = [len(r.prompt_ids) + len(r.token_ids) for r in rows]
            batches = minibatches(len(rows), minibatch, rng, lengths)
            for batch in batches:
                chunk = [rows[i] for i in batch]
                # Scaled so that the steps of a pass add up to the objective, each of full size.
                scale = len(batches) / total
                seen.append(self._reinforce_step(chunk, scale, clip, kl_coef))
        return dict(zip(names, np.mean(seen, axis=0).tolist(), strict=True))

    def _reinforce_step(
        self, rows: Sequence[Row], scale: float, clip: float, kl_coef: float
    ) -> list[float]:
        prompts, tokens = [r.prompt_ids for r in rows], [r.token_ids for r in rows]
        logprobs, mask = self.policy.score(prompts, tokens)
        old = pad([r.old_logprobs or () for r in rows], logprobs.shape[1]).to(logprobs.device)
        advantages = torch.tensor([r.advantage for r in rows], device=logprobs.device).float()
        weights = torch.tensor([r.weight for r in rows], device=logprobs.device).float() * scale
        surrogate, clipped = clipped_surrogate(logprobs, old, advantages, clip)
        objective = (token_mean(surrogate, mask) * weights).sum()
        kl = torch.zeros(())
        if self.reference is not None and kl_coef > 0:
            with torch.no_grad():
                ref, _ = self.reference.score(prompts, tokens)
            kl = (token_mean(kl_estimate(logprobs, ref), mask) * weights).sum()
        norm = self._step(kl_coef * kl - objective)
        with torch.no_grad():
            approx = (kl_estimate(old, logprobs) * mask).sum() / mask.sum()
            fraction = (clipped * mask).sum() / mask.sum()
        values = -objective.detach(), kl.detach(), approx, fraction
        return [*map(float, values), norm]
