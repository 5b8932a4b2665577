"""Learner against a reference of the objective: one row at a time, no batch, no mask, no padding."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dyna_gym.errors import DynaGymWarning, TrainingDiverged
from dyna_gym.learning.optimise import MAX_SKIPPED, Learner
from dyna_gym.learning.rows import Row, episode_rows, fill_old_logprobs, minibatches, pad
from dyna_gym.policies.base import TrainablePolicy
from dyna_gym.responses import Response
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory, Transition
from tests.policies.tiny import nano

TASK = Task("t", "", "train", "toy")
CLIP, BETA = 0.2, 0.3


def token_logprobs(policy: TrainablePolicy, row: Row) -> torch.Tensor:
    """Of each token of the response, from one plain pass over one row."""
    ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
    logits = policy.model(input_ids=ids, use_cache=False).logits[0]
    found = []
    for j, token in enumerate(row.token_ids):
        position = len(row.prompt_ids) + j - 1
        found.append(torch.log_softmax(logits[position], -1)[token])
    return torch.stack(found)


def make_episodes(policy: TrainablePolicy, lengths: Sequence[int]) -> list[Trajectory]:
    """Episodes of these numbers of steps, with random prompts and responses of varied lengths."""
    rng = np.random.default_rng(0)
    size = policy.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    episodes = []
    for steps in lengths:
        transitions = []
        for _ in range(steps):
            prompt, tokens = (
                tuple(rng.integers(3, size, n).tolist()) for n in rng.integers(1, 9, 2)
            )
            row = Row(prompt, tokens)
            with torch.no_grad():
                true = token_logprobs(policy, row).tolist()
            # Off the present policy by up to 60 %, so that the clip decides at times.
            old = tuple(
                float(x + d) for x, d in zip(true, rng.uniform(-0.5, 0.5, 99), strict=False)
            )
            transitions.append(Transition("", Response("", prompt, tokens, old)))
        episodes.append(Trajectory(TASK, transitions))
    return episodes


def naive_objective(
    policy: TrainablePolicy,
    episodes: Sequence[Trajectory],
    advantages: Sequence[float],
    reference: TrainablePolicy | None,
) -> torch.Tensor:
    """1/G sum_i 1/T_i sum_t, mean over tokens, of the clipped term minus beta KL."""
    total = torch.zeros(())
    for episode, advantage in zip(episodes, advantages, strict=True):
        for t in episode.transitions:
            row = Row(t.response.prompt_ids, t.response.token_ids)
            new = token_logprobs(policy, row)
            ref = None
            if reference is not None:
                with torch.no_grad():
                    ref = token_logprobs(reference, row)
            for j, old in enumerate(t.response.logprobs):
                rho = torch.exp(new[j] - old)
                inside = torch.clamp(rho, 1 - CLIP, 1 + CLIP)
                term = torch.minimum(rho * advantage, inside * advantage)
                if ref is not None:
                    term = term - BETA * (torch.exp(ref[j] - new[j]) - 1 - (ref[j] - new[j]))
                share = len(episodes) * len(episode.transitions) * len(row.token_ids)
                total = total + term / share
    return total


def gradients(policy: TrainablePolicy) -> list[torch.Tensor]:
    return [p.grad.clone() for p in policy.parameters() if p.grad is not None]


def other_policy() -> TrainablePolicy:
    """A reference that is not the policy."""
    return nano(seed=5).copy()


def all_rows(
    policy: TrainablePolicy, episodes: Sequence[Trajectory], advantages: Sequence[float]
) -> list[Row]:
    rows: list[Row] = []
    for episode, advantage in zip(episodes, advantages, strict=True):
        rows += episode_rows(episode, advantage, 1 / len(episodes), policy)
    return rows


def reinforce(learner: Learner, rows: Sequence[Row], minibatch: int = 99, **settings: Any) -> Any:
    settings = {"clip": CLIP, "kl_coef": BETA, **settings}
    return learner.reinforce(rows, np.random.default_rng(0), minibatch=minibatch, **settings)


# -- reinforce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_reference", [False, True])
def test_reinforce_is_the_gradient_of_the_objective(with_reference: bool) -> None:
    policy = nano()
    reference = other_policy() if with_reference else None
    episodes, advantages = make_episodes(policy, [1, 3, 2]), [1.5, -0.7, 0.0]
    objective = naive_objective(policy, episodes, advantages, reference)
    (-objective).backward()
    expected = gradients(policy)
    assert max(float(g.abs().max()) for g in expected) > 1e-3

    learner = Learner(policy, lr=0.0, max_grad_norm=1e9, reference=reference)
    found = reinforce(learner, all_rows(policy, episodes, advantages))
    for mine, naive in zip(gradients(policy), expected, strict=True):
        torch.testing.assert_close(mine, naive, atol=1e-6, rtol=1e-4)
    loss = found["policy_loss"] + BETA * found["kl"]
    assert loss == pytest.approx(-objective.item(), abs=1e-5)
    norm = torch.sqrt(sum((g**2).sum() for g in expected))  # type: ignore[arg-type]
    assert found["grad_norm"] == pytest.approx(float(norm), rel=1e-3)
    assert 0 < found["clip_fraction"] < 1


@pytest.mark.parametrize("minibatch", [1, 2, 4, 6, 100])
def test_minibatches_add_up_to_the_objective(minibatch: int) -> None:
    """Rows of different weight in steps of different size; lr 0, so that all see one policy."""
    policy, reference = nano(), other_policy()
    episodes, advantages = make_episodes(policy, [1, 3, 2]), [1.5, -0.7, 0.4]
    learner = Learner(policy, lr=0.0, reference=reference)
    found = reinforce(learner, all_rows(policy, episodes, advantages), minibatch)
    expected = -naive_objective(policy, episodes, advantages, reference).item()
    assert found["policy_loss"] + BETA * found["kl"] == pytest.approx(expected, abs=1e-5)


def test_episodes_weigh_the_same_whatever_their_length() -> None:
    policy = nano()
    for lengths in ([1, 5], [4, 2]):
        rows = all_rows(policy, make_episodes(policy, lengths), [1.0, -1.0])
        for sign in (1.0, -1.0):
            assert sum(r.weight for r in rows if r.advantage == sign) == pytest.approx(0.5)
        assert sum(r.weight for r in rows) == pytest.approx(1.0)


def test_nothing_changes_without_advantages() -> None:
    policy = nano()
    before = [p.detach().clone() for p in policy.parameters()]
    learner = Learner(policy, lr=0.1, weight_decay=0.1, reference=other_policy())
    rows = all_rows(policy, make_episodes(policy, [2, 2]), [0.0, 0.0])
    assert set(reinforce(learner, rows).values()) == {0.0}
    assert set(reinforce(learner, []).values()) == {0.0}
    for now, then in zip(policy.parameters(), before, strict=True):
        assert torch.equal(now, then)
        assert now.grad is None


def test_reinforce_makes_good_responses_likelier() -> None:
    policy = nano()
    episodes = make_episodes(policy, [1, 1])
    rows = all_rows(policy, episodes, [1.0, -1.0])
    for row in rows:
        row.old_logprobs = None  # to be filled in: the ratio starts at 1
    with torch.no_grad():
        good, bad = (float(token_logprobs(policy, r).sum()) for r in rows)
    learner = Learner(policy, lr=1e-3)
    found = reinforce(learner, rows, epochs=3)
    assert found["approx_kl"] > 0
    with torch.no_grad():
        assert float(token_logprobs(policy, rows[0]).sum()) > good
        assert float(token_logprobs(policy, rows[1]).sum()) < bad


def test_kl_pulls_towards_the_reference() -> None:
    policy, reference = nano(), other_policy()
    rows = all_rows(policy, make_episodes(policy, [2, 2]), [1e-9, 0.0])
    for row in rows:
        row.old_logprobs = None
    learner = Learner(policy, lr=2e-3, reference=reference)
    kl = [reinforce(learner, rows, kl_coef=1.0)["kl"] for _ in range(15)]
    assert kl[-1] < 0.8 * kl[0]


def test_the_reference_is_not_trained() -> None:
    policy = nano()
    reference = policy.copy()
    before = [p.clone() for p in reference.parameters()]
    learner = Learner(policy, lr=1e-2, reference=reference)
    reinforce(learner, all_rows(policy, make_episodes(policy, [2, 2]), [1.0, -1.0]))
    for now, then in zip(reference.parameters(), before, strict=True):
        assert torch.equal(now, then)
    for now, then in zip(policy.parameters(), before, strict=True):
        assert not torch.equal(now, then)


# -- imitate ----------------------------------------------------------------------------------------


def test_imitate_is_the_mean_over_response_tokens() -> None:
    """Prompt tokens and padding have no part in the loss."""
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [3, 2]), [0.0, 0.0])
    total = torch.cat([token_logprobs(policy, r) for r in rows])
    expected = -total.sum() / sum(len(r.token_ids) for r in rows)
    expected.backward()
    naive = gradients(policy)
    learner = Learner(policy, lr=0.0, max_grad_norm=1e9)
    assert learner.imitate(rows) == pytest.approx(expected.item(), abs=1e-5)
    for mine, wanted in zip(gradients(policy), naive, strict=True):
        torch.testing.assert_close(mine, wanted, atol=1e-6, rtol=1e-4)


def test_imitate_learns() -> None:
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [3]), [0.0])
    learner = Learner(policy, lr=3e-3)
    losses = [learner.imitate(rows) for _ in range(30)]
    assert losses[0] > 3.0
    assert losses[-1] < 0.7 * losses[0]


def test_gradients_are_clipped_and_the_rate_can_be_set() -> None:
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [2]), [0.0])
    learner = Learner(policy, lr=0.0, max_grad_norm=1e-3)
    learner.imitate(rows)
    norm = torch.sqrt(sum((g**2).sum() for g in gradients(policy)))  # type: ignore[arg-type]
    assert float(norm) == pytest.approx(1e-3, rel=1e-2)
    before = [p.detach().clone() for p in policy.parameters()]
    learner.set_lr(1e-2)
    learner.imitate(rows)
    moved = [
        not torch.equal(now, then) for now, then in zip(policy.parameters(), before, strict=True)
    ]
    assert all(moved)


# -- steps that are not finite ----------------------------------------------------------------------

Poison = Callable[[TrainablePolicy], None]


def _nan_loss(policy: TrainablePolicy) -> None:
    score = policy.score

    def spoiled(*args: Any) -> Any:
        logprobs, mask = score(*args)
        return logprobs * float("nan"), mask

    policy.score = spoiled  # type: ignore[method-assign]


def _infinite_loss(policy: TrainablePolicy) -> None:
    score = policy.score

    def spoiled(*args: Any) -> Any:
        logprobs, mask = score(*args)
        return logprobs + float("inf"), mask

    policy.score = spoiled  # type: ignore[method-assign]


def _nan_gradient(policy: TrainablePolicy) -> None:
    weight = next(iter(policy.parameters()))
    weight.register_hook(lambda grad: grad * float("nan"))


def _infinite_gradient(policy: TrainablePolicy) -> None:
    weight = next(iter(policy.parameters()))
    weight.register_hook(lambda grad: grad.clone().fill_(float("inf")))


POISONS = [_nan_loss, _infinite_loss, _nan_gradient, _infinite_gradient]


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("kind", ["imitate", "reinforce"])
def test_a_step_that_is_not_finite_is_skipped_counted_and_told(poison: Poison, kind: str) -> None:
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [2, 2]), [1.0, -1.0])
    learner = Learner(policy, lr=1e-2)
    learner.imitate(rows)  # the optimiser has moments now
    before = [p.detach().clone() for p in policy.parameters()]
    moments = copy.deepcopy(learner.optimizer.state_dict())
    poison(policy)
    found = {"skipped_steps": 1.0}
    update = (
        learner.imitate
        if kind == "imitate"
        else lambda rows: found.update(reinforce(learner, rows))
    )
    with pytest.warns(DynaGymWarning, match=r"step with loss .* was skipped"):
        update(rows)
    assert found["skipped_steps"] == 1
    assert all(math.isfinite(v) for v in found.values())
    assert learner.skipped == 1
    for now, then in zip(policy.parameters(), before, strict=True):
        assert torch.equal(now, then)
    after = learner.optimizer.state_dict()
    for key, state in moments["state"].items():
        assert all(torch.equal(state[k], after["state"][key][k]) for k in state)


@pytest.mark.filterwarnings("ignore::dyna_gym.errors.DynaGymWarning")
@pytest.mark.parametrize("poison", POISONS)
def test_a_few_in_a_row_end_the_training(poison: Poison) -> None:
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [2]), [1.0])
    learner = Learner(policy, lr=1e-3)
    poison(policy)
    for _ in range(MAX_SKIPPED - 1):
        learner.imitate(rows)
    with pytest.raises(TrainingDiverged, match="5th in a row"):
        learner.imitate(rows)


@pytest.mark.filterwarnings("ignore::dyna_gym.errors.DynaGymWarning")
def test_single_bad_steps_do_not_end_it_and_means_are_of_good_ones() -> None:
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [2, 2, 2]), [1.0, -1.0, 0.5])
    learner, bad, calls = Learner(policy, lr=1e-3), [True], [0]
    weight = next(iter(policy.parameters()))

    def every_other(grad: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return grad * float("nan") if bad[0] and calls[0] % 2 else grad

    weight.register_hook(every_other)
    found = [reinforce(learner, rows, minibatch=1) for _ in range(3)]
    assert sum(f["skipped_steps"] for f in found) == learner.skipped == 9
    assert all(math.isfinite(v) for f in found for v in f.values())
    assert all(bool(torch.isfinite(p).all()) for p in policy.parameters())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path, value: float) -> None:
    policy = nano()
    policy.save(str(tmp_path / "policy"))
    before = (tmp_path / "policy" / "model.safetensors").read_bytes()
    with torch.no_grad():
        next(iter(policy.parameters()))[0, 0] = value
    with pytest.raises(TrainingDiverged, match="not finite"):
        policy.save(str(tmp_path / "policy"))
    assert (tmp_path / "policy" / "model.safetensors").read_bytes() == before


# -- rows -------------------------------------------------------------------------------------------


def test_old_logprobs_are_filled_where_missing() -> None:
    policy = nano()
    rows = all_rows(policy, make_episodes(policy, [4]), [1.0])
    kept = rows[0].old_logprobs
    for row in rows[1:]:
        row.old_logprobs = None
    fill_old_logprobs(rows, policy, batch=2)
    assert rows[0].old_logprobs == kept
    with torch.no_grad():
        for row in rows[1:]:
            assert row.old_logprobs == pytest.approx(token_logprobs(policy, row).tolist(), abs=1e-5)


def test_logprobs_of_another_temperature_are_no_old_logprobs() -> None:
    """Scores are at temperature 1, so a ratio to log-probabilities at 0.5 would not start at 1."""
    policy = nano(temperature=0.5)
    rows = all_rows(policy, make_episodes(policy, [2]), [1.0])
    assert [r.old_logprobs for r in rows] == [None, None]


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize(("count", "size"), [(0, 3), (1, 3), (7, 3), (64, 4), (5, 99)])
def test_minibatches_hold_each_row_once(count: int, size: int, lengths: bool) -> None:
    given = list(range(count, 0, -1)) if lengths else None
    found = minibatches(count, size, np.random.default_rng(0), given)
    assert sorted(np.concatenate([*found, []]).tolist()) == list(range(count))
    assert all(0 < len(b) <= size for b in found)


def test_pad() -> None:
    assert pad([(1.0,), (2.0, 3.0), ()], 3).tolist() == [[1, 0, 0], [2, 3, 0], [0, 0, 0]]
