"""The losses: values worked by hand, references in loops, gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dyna_gym.learning.losses import (
    MAX_LOG_RATIO,
    clipped_surrogate,
    kl_estimate,
    token_mean,
)

E = math.exp
LOGS = st.floats(-6, 0)


def test_token_mean() -> None:
    values = torch.tensor([[1.0, 2.0, 100.0], [4.0, 100.0, 100.0], [100.0, 100.0, 100.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert token_mean(values, mask).tolist() == [1.5, 4.0, 0.0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "clipped"),
    [
        (1.0, 2.0, 2.0, False),
        (1.1, 2.0, 2.2, False),
        (1.5, 2.0, 2.4, True),  # no gain beyond 1 + eps
        (0.5, 2.0, 1.0, False),  # a fall below 1 - eps is felt in full
        (0.5, -2.0, -1.6, True),  # no gain below 1 - eps
        (1.5, -2.0, -3.0, False),  # a rise beyond 1 + eps is felt in full
        (1.5, 0.0, 0.0, False),
    ],
)
def test_surrogate_by_hand(ratio: float, advantage: float, value: float, clipped: bool) -> None:
    found, decided = clipped_surrogate(
        torch.tensor([[math.log(0.1 * ratio)]]),
        torch.tensor([[math.log(0.1)]]),
        torch.tensor([advantage]),
        0.2,
    )
    assert found.item() == pytest.approx(value, abs=1e-5)
    assert decided.item() == float(clipped)


@given(
    st.lists(st.tuples(LOGS, LOGS), min_size=6, max_size=6),
    st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    st.sampled_from([0.1, 0.2, 0.3]),
)
def test_surrogate_against_the_reference(
    logs: list[tuple[float, float]], advantages: tuple[float, float], clip: float
) -> None:
    new = torch.tensor([a for a, _ in logs], dtype=torch.float64).reshape(2, 3)
    old = torch.tensor([b for _, b in logs], dtype=torch.float64).reshape(2, 3)
    found, _ = clipped_surrogate(new, old, torch.tensor(advantages, dtype=torch.float64), clip)
    for i in range(2):
        for j in range(3):
            rho, a = E(float(new[i, j] - old[i, j])), advantages[i]
            inside = min(max(rho, 1 - clip), 1 + clip)
            assert float(found[i, j]) == pytest.approx(min(rho * a, inside * a), abs=1e-9)


def test_gradient_at_ratio_one_is_the_policy_gradient() -> None:
    """d/dtheta of the surrogate at pi = pi_old is A * d log pi."""
    logits = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.5, -0.5]], dtype=torch.float64)
    chosen, advantages = torch.tensor([[2], [0]]), torch.tensor([1.7, -0.4], dtype=torch.float64)
    gradients = []
    for plain in (True, False):
        weights = logits.clone().requires_grad_()
        logp = torch.log_softmax(weights, -1).gather(1, chosen)
        if plain:
            objective = (logp[:, 0] * advantages).sum()
        else:
            objective = clipped_surrogate(logp, logp.detach(), advantages, 0.2)[0].sum()
        objective.backward()
        gradients.append(weights.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    # By hand for the first row: A * (1[chosen] - p).
    p = torch.softmax(logits[0], -1)
    assert gradients[1] is not None
    torch.testing.assert_close(
        gradients[1][0], 1.7 * (torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64) - p)
    )


@pytest.mark.parametrize(("ratio", "advantage"), [(1.5, 2.0), (0.5, -2.0)])
def test_no_gradient_where_the_clip_decides(ratio: float, advantage: float) -> None:
    new = torch.tensor([[math.log(0.1 * ratio)]], requires_grad=True)
    old = torch.tensor([[math.log(0.1)]])
    clipped_surrogate(new, old, torch.tensor([advantage]), 0.2)[0].sum().backward()
    assert new.grad is not None
    assert new.grad.item() == 0.0


def test_kl_by_hand() -> None:
    # r = 0.5 / 0.25 = 2: 2 - 1 - log 2; r = 1: 0; r = 0.1 / 0.4 = 1/4: 1/4 - 1 + log 4
    found = kl_estimate(torch.tensor([0.25, 0.3, 0.4]).log(), torch.tensor([0.5, 0.3, 0.1]).log())
    expected = [1 - math.log(2), 0.0, -0.75 + math.log(4)]
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


@given(LOGS, LOGS)
def test_kl_is_never_negative(log_p: float, log_q: float) -> None:
    p, q = torch.tensor([log_p], dtype=torch.float64), torch.tensor([log_q], dtype=torch.float64)
    found = float(kl_estimate(p, q))
    assert found >= -1e-12  # rounding
    log_ratio = min(math.log(E(log_q) / E(log_p)), MAX_LOG_RATIO)
    assert found == pytest.approx(E(log_ratio) - 1 - log_ratio, abs=1e-9)


def test_kl_of_an_outlier_is_bounded() -> None:
    """One token that the reference finds e^20 times as likely must not drown all others."""
    p = torch.tensor([-20.0], requires_grad=True)
    found = kl_estimate(p, torch.tensor([0.0]))
    assert found.item() == pytest.approx(math.exp(MAX_LOG_RATIO) - 1 - MAX_LOG_RATIO, rel=1e-5)


def test_kl_estimate_is_unbiased() -> None:
    """Its exact expectation under pi is KL(pi || pi_ref), not the other direction."""
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    expected = float((p * (p / q).log()).sum())
    assert float((p * kl_estimate(p.log(), q.log())).sum()) == pytest.approx(expected)
    assert expected != pytest.approx(float((q * (q / p).log()).sum()), rel=0.05)
