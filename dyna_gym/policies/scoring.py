"""Log-probabilities of given responses, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyna_gym.errors import needs

with needs("train", __name__):
    import torch


def score_rows(
    model: Any,
    prompt_ids: Sequence[Sequence[int]],
    token_ids: Sequence[Sequence[int]],
    pad_id: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `dyna_gym.policies.base.TrainablePolicy.score`.

    Prompt and response stand one behind the other without a gap, padding at the right end, so that
    no attention mask is needed: a causal model never looks right. The returned mask is made from
    lengths, not from the padding token, which may be the end token too.
    """
    device = next(model.parameters()).device
    rows = len(prompt_ids)
    width = max(len(p) + len(t) for p, t in zip(prompt_ids, token_ids, strict=True))
    length = max(len(t) for t in token_ids)
    ids = torch.full((rows, width), pad_id, dtype=torch.long)
    at = torch.zeros((rows, length), dtype=torch.long)
    target = torch.zeros((rows, length), dtype=torch.long)
    mask = torch.zeros((rows, length))
    for i, (prompt, tokens) in enumerate(zip(prompt_ids, token_ids, strict=True)):
        p, t = len(prompt), len(tokens)
        ids[i, : p + t] = torch.tensor([*prompt, *tokens])
        at[i, :t] = torch.arange(p - 1, p - 1 + t)  # position p-1 predicts the first response token
        target[i, :t] = torch.tensor(list(tokens), dtype=torch.long)
        mask[i, :t] = 1.0
    ids, at, target, mask = ids.to(device), at.to(device), target.to(device), mask.to(device)
    logits = _logits_at(model, ids, at).float()
    logprobs = torch.log_softmax(logits, dim=-1)
    chosen = torch.gather(logprobs, 2, target.unsqueeze(-1)).squeeze(-1)
    return chosen * mask, mask


def _logits_at(model: Any, ids: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Logits [B, L, V] at the positions ``at`` [B, L].

    A whole prompt's logits may be larger than the model. So the positions are picked in front of
    the head, by a hook, which leaves to the model whatever it does behind it (scaling, capping).
    """
    picked = []

    def pick(head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        picked.append(True)
        hidden = inputs[0]  # [B, W, H]
        return torch.gather(hidden, 1, at.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))

    handle = model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        logits = model(input_ids=ids, use_cache=False).logits
    finally:
        handle.remove()
    if not picked:  # a model that applies its head's weights by itself
        logits = torch.gather(logits, 1, at.unsqueeze(-1).expand(-1, -1, logits.shape[-1]))
    return logits
