"""The clipped policy loss and the KL penalty."""

from __future__ import annotations

from dyna_gym.errors import needs

with needs("train", __name__):
    import torch

MAX_LOG_RATIO = 5.0
"""Bound of the log-ratio inside the KL estimate, in nats."""


def token_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over each row's own tokens: [B, L], [B, L] -> [B]; 0 for a row without tokens."""
    return (values * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


def clipped_surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    clip: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)`` for each token.

    The paper prints pi_ref in the ratio's denominator; the expectation is under pi_old, so that is what stands
    here, as in standard GRPO. The paper's ratio is that of a whole response; it is taken token by token, as
    GRPO implementations do.

    Args:
        logprobs: [B, L] of the present policy.
        old_logprobs: [B, L] of the policy that the update started from.
        advantages: [B], the same for all tokens of a row.
        clip: eps.

    Returns:
        The surrogate [B, L], to be maximised, and whether the clip decided [B, L] (1.0 or 0.0).
    """
    ratio = torch.exp(logprobs - old_logprobs)
    a = advantages.unsqueeze(1)
    plain, clipped = ratio * a, ratio.clamp(1.0 - clip, 1.0 + clip) * a
    return torch.minimum(plain, clipped), (clipped < plain).float()


def kl_estimate(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """KL(pi || pi_ref) a token, by the estimator ``r - 1 - log r`` with ``r = pi_ref / pi``.

    Never negative, of low variance, and unbiased for tokens sampled from pi as long as the log-ratio stays
    below `MAX_LOG_RATIO`. The paper does not name its estimator [NF].

    Args:
        logprobs: [B, L] of the present policy.
        ref_logprobs: [B, L] of the reference.

    Returns:
        [B, L].
    """
    # A token that the reference finds e^5 times as likely would drown all others in the gradient.
    log_ratio = (ref_logprobs - logprobs).clamp(max=MAX_LOG_RATIO)
    return torch.exp(log_ratio) - 1.0 - log_ratio
