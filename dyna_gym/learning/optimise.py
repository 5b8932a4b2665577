"""The optimiser step: supervised and policy-gradient updates on accelerate."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dyna_gym.errors import DynaGymWarning, TrainingDiverged, needs
from dyna_gym.learning.losses import clipped_surrogate, kl_estimate, token_mean
from dyna_gym.learning.rows import Row, fill_old_logprobs, minibatches, pad
from dyna_gym.policies.base import TrainablePolicy

with needs("train", __name__):
    import torch
    from accelerate import Accelerator


MAX_SKIPPED = 5
"""Steps in a row without a finite loss and gradient after which a training has diverged."""


class StepGuard:
    """Takes optimiser steps whose loss and gradient are finite; skips, counts and tells the others.

    Args:
        optimizer: The optimiser.
        backward: Computes the gradients of a loss.
        clip: Clips the gradients, and returns their norm before.
    """

    def __init__(
        self,
        optimizer: Any,
        backward: Callable[[torch.Tensor], None],
        clip: Callable[[], Any],
    ) -> None:
        self._optimizer, self._backward, self._clip = optimizer, backward, clip
        self.skipped = 0
        """Steps skipped so far."""
        self._in_a_row = 0

    def step(self, loss: torch.Tensor) -> float | None:
        """Take a step.

        Returns:
            The gradients' norm before clipping; None if the step was skipped, which leaves weights and optimiser as
            they were.

        Raises:
            TrainingDiverged: Too many steps in a row were skipped.
        """
        self._optimizer.zero_grad()
        self._backward(loss)
        norm = float(self._clip())
        if math.isfinite(norm) and math.isfinite(float(loss.detach())):
            self._optimizer.step()
            self._in_a_row = 0
            return norm
        self._optimizer.zero_grad()
        self.skipped += 1
        self._in_a_row += 1
        told = f"a step with loss {float(loss.detach()):g} and gradient norm {norm:g}"
        if self._in_a_row == 1:
            warnings.warn(f"{told} was skipped", DynaGymWarning, stacklevel=4)
        if self._in_a_row >= MAX_SKIPPED:
            raise TrainingDiverged(
                f"the training has diverged: {told} is the {self._in_a_row}th in a row to be skipped. The last "
                "checkpoint is kept; go on from it with a lower learning rate"
            )
        return None


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
        self._guard = StepGuard(self.optimizer, self.accelerator.backward, self._clip)

    def _clip(self) -> Any:
        weights = list(self.policy.parameters())
        return self.accelerator.clip_grad_norm_(weights, self.max_grad_norm)

    @property
    def skipped(self) -> int:
        """Optimiser steps that were skipped so far, because their loss or gradient was not finite."""
        return self._guard.skipped

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the steps to come."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def imitate(self, rows: Sequence[Row]) -> float:
        """One step of next-token NLL on given responses (distillation).

        Returns:
            Mean loss a token, in nats; where it is not finite, the step was skipped.

        Raises:
            TrainingDiverged: Too many steps in a row were skipped.
        """
        logprobs, mask = self.policy.score(
            [r.prompt_ids for r in rows], [r.token_ids for r in rows]
        )
        loss = -(logprobs * mask).sum() / mask.sum()
        self._guard.step(loss)
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
            ``grad_norm``, each a mean over the optimiser steps that were taken, and ``skipped_steps``, the number of
            those that were not, because their loss or gradient was not finite.

        Raises:
            TrainingDiverged: Too many steps in a row were skipped.
        """
        names = ("policy_loss", "kl", "approx_kl", "clip_fraction", "grad_norm")
        if not any(r.advantage for r in rows):
            return dict.fromkeys((*names, "skipped_steps"), 0.0)
        skipped = self.skipped
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
                figures = self._reinforce_step(chunk, scale, clip, kl_coef)
                if figures is not None:
                    seen.append(figures)
        means = np.mean(seen, axis=0).tolist() if seen else [0.0] * len(names)
        told = dict(zip(names, means, strict=True))
        return {**told, "skipped_steps": float(self.skipped - skipped)}

    def _reinforce_step(
        self, rows: Sequence[Row], scale: float, clip: float, kl_coef: float
    ) -> list[float] | None:
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
        norm = self._guard.step(kl_coef * kl - objective)
        if norm is None:
            return None
        with torch.no_grad():
            approx = (kl_estimate(old, logprobs) * mask).sum() / mask.sum()
            fraction = (clipped * mask).sum() / mask.sum()
        values = -objective.detach(), kl.detach(), approx, fraction
        return [*map(float, values), norm]
