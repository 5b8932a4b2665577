"""Training rows: one a response, token in, token out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dyna_gym.errors import needs
from dyna_gym.policies.base import TrainablePolicy, as_messages
from dyna_gym.trajectory import Trajectory

with needs("train", __name__):
    import torch


@dataclass
class Row:
    """One response under one prompt."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    old_logprobs: tuple[float, ...] | None = None
    """Of each token under the policy that the update starts from; None: to be recomputed."""
    advantage: float = 0.0
    weight: float = 1.0
    """Share of the row in the objective."""


def episode_rows(
    trajectory: Trajectory,
    advantage: float,
    weight: float,
    policy: TrainablePolicy,
    prompts: str = "sampled",
    cut: bool = True,
) -> list[Row]:
    """Rows of all steps of an episode.

    Args:
        trajectory: The episode.
        advantage: The same for every step and token (Dyna-Mind, GRPO objective).
        weight: Weight of the episode; each of its T steps gets ``weight / T`` (the 1/T of the objective).
        policy: Encodes the prompts without futures.
        prompts: `sampled` trains the responses under the prompts that they were sampled from (standard
            rollouts, and tau'_ref of Algorithm 2); `plain` under the prompts without futures (tau'). The
            latter are off-policy: no source says how their ratio is formed [NF]; here the old
            log-probabilities are recomputed under the prompt without futures.
        cut: Take responses that the token limit cut off, too [NF]. Left out, the other steps keep their shares.

    Returns:
        One row a step that has tokens.
    """
    rows = []
    for t in trajectory.transitions:
        share = weight / len(trajectory.transitions)
        tokens = t.response.token_ids
        if not tokens or (t.response.finish == "length" and not cut):
            continue
        if prompts == "plain" and t.plain_prompt is not None:
            prompt_ids = policy.encode(as_messages(t.plain_prompt))
            rows.append(Row(prompt_ids, tokens, None, advantage, share))
        else:
            # Scores are at temperature 1: a ratio to another temperature's would not start at 1.
            old = t.response.logprobs if policy.temperature == 1.0 else None
            rows.append(Row(t.response.prompt_ids, tokens, old, advantage, share))
    return rows


@torch.no_grad()
def fill_old_logprobs(rows: Sequence[Row], policy: TrainablePolicy, batch: int = 256) -> None:
    """Compute, in place, the old log-probabilities that rows lack."""
    pending = sorted((r for r in rows if r.old_logprobs is None), key=lambda r: len(r.token_ids))
    for start in range(0, len(pending), batch):
        chunk = pending[start : start + batch]
        logprobs, _ = policy.score([r.prompt_ids for r in chunk], [r.token_ids for r in chunk])
        for row, values in zip(chunk, logprobs.tolist(), strict=True):
            row.old_logprobs = tuple(values[: len(row.token_ids)])


def minibatches(
    count: int, size: int, rng: np.random.Generator, lengths: Sequence[int] | None = None
) -> list[np.ndarray]:
    """Shuffled index batches; with ``lengths``, rows of similar length share a batch (less padding)."""
    order = rng.permutation(count)
    if lengths is None:
        return [order[i : i + size] for i in range(0, count, size)]
    # Sorting within chunks of a few batches keeps the batches random enough.
    batches = []
    for start in range(0, count, size * 8):
        chunk = sorted(order[start : start + size * 8], key=lambda i: lengths[i])
        batches += [np.array(chunk[i : i + size]) for i in range(0, len(chunk), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def pad(rows: Sequence[Sequence[float]], width: int) -> torch.Tensor:
    """Right-padded float tensor [len(rows), width]."""
    out = torch.zeros((len(rows), width))
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out
