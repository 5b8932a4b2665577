"""Batched generation against a reference without batch, cache and mask."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection
from itertools import combinations
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
)

from dyna_gym.policies.decoding import _is_plain, _pick, generate
from dyna_gym.policies.scoring import score_rows
from tests.policies.tiny import llama, naive_greedy, seeded

VOCABULARY = 40
PROMPTS = [[5, 6, 7], [8] * 11, [9, 10, 11, 12, 13, 14, 15], [16], [17, 18], [19] * 14]
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.15,
}


def run(model: Any, seed: int = 0, **settings: Any) -> list[tuple[list[int], list[float]]]:
    settings = {"max_new_tokens": 20, "temperature": 0.0, "end_ids": (), "pad_id": 0, **settings}
    generator = torch.Generator().manual_seed(seed)
    return generate(model, PROMPTS, generator=generator, **settings)


def cut(row: list[int], ends: Collection[int]) -> list[int]:
    """The row up to its first end token, which is part of it."""
    return row[: next((i + 1 for i, t in enumerate(row) if t in ends), len(row))]


def sliding() -> Any:
    """All layers see 6 tokens back."""
    return seeded(lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6)))


def hybrid() -> Any:
    """Every other layer sees 6 tokens back; logits are capped behind the head."""
    config = Gemma2Config(
        **SMALL,
        head_dim=8,
        sliding_window=6,
        final_logit_softcapping=1.5,
        attn_logit_softcapping=None,
    )
    return seeded(lambda: Gemma2ForCausalLM(config))


def learned() -> Any:
    """Learned positions instead of rotary ones."""
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, initializer_range=0.15
    )
    return seeded(lambda: GPT2LMHeadModel(config))


def alibi() -> Any:
    """No positions but a bias that grows with the distance."""
    config = BloomConfig(
        vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.15
    )
    return seeded(lambda: BloomForCausalLM(config))


MODELS = {
    "sdpa": lambda: llama(VOCABULARY),
    "eager": lambda: llama(VOCABULARY, attn_implementation="eager"),
    "sliding": sliding,
    "hybrid": hybrid,
    "learned": learned,
    "alibi": alibi,
}


@pytest.mark.parametrize("name", MODELS)
def test_greedy_is_the_reference(name: str) -> None:
    model = MODELS[name]()
    for prompt, (tokens, _) in zip(PROMPTS, run(model), strict=True):
        assert tokens == naive_greedy(model, prompt, 20)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_sampled_logprobs_are_scores(name: str, temperature: float) -> None:
    model = MODELS[name]()
    found = run(model, temperature=temperature)
    with torch.no_grad():
        scores, mask = score_rows(model, PROMPTS, [t for t, _ in found], pad_id=0)
    assert mask.sum() == 20 * len(PROMPTS)
    torch.testing.assert_close(scores, torch.tensor([logs for _, logs in found]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["sdpa", "sliding", "hybrid"])
def test_taking_finished_rows_out_changes_nothing(name: str, temperature: float) -> None:
    model = MODELS[name]()
    free = [tokens for tokens, _ in run(model, temperature=temperature)]
    pairs = combinations(sorted({t for row in free for t in row}), 2)
    # End tokens that end the rows at as many different places as can be.
    ends = max(pairs, key=lambda pair: len({len(cut(row, pair)) for row in free}))
    expected = [cut(row, ends) for row in free]
    assert len({len(row) for row in expected}) >= 3
    for share in (0.0, 0.5, 1.0):
        found = run(model, temperature=temperature, end_ids=ends, compact_below=share)
        assert [tokens for tokens, _ in found] == expected
        assert [len(logs) for _, logs in found] == [len(row) for row in expected]


@pytest.mark.parametrize("name", MODELS)
def test_the_fast_way_is_for_plain_models(name: str) -> None:
    assert _is_plain(MODELS[name]().config) == (name in ("sdpa", "eager"))


def test_temperature_shapes_logprobs() -> None:
    """The kept log-probabilities are of the distribution that was sampled from."""
    model = llama(VOCABULARY)
    for prompt, (tokens, logs) in zip(PROMPTS, run(model, temperature=0.5), strict=True):
        with torch.no_grad():
            ids = torch.tensor([[*prompt, *tokens]])
            logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / 0.5, -1)[torch.arange(len(tokens)), tokens]
        torch.testing.assert_close(expected, torch.tensor(logs), atol=1e-4, rtol=0)


def test_pick_follows_the_distribution() -> None:
    probabilities = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    n = 20_000
    draws = (torch.arange(n, dtype=torch.float64) + 0.5) / n  # every quantile once
    chosen = _pick(probabilities.log().expand(n, -1), draws)
    counts = Counter(chosen.tolist())
    assert set(counts) == {1, 3, 4}
    for token, share in ((1, 0.5), (3, 0.2), (4, 0.3)):
        assert counts[token] / n == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("draw", [0.0, 1.0 - 2**-53])
def test_pick_at_the_edges_takes_no_impossible_token(draw: float) -> None:
    logp = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).log()
    chosen = _pick(logp, torch.tensor([draw], dtype=torch.float64))
    assert chosen.tolist() == [1 if draw == 0.0 else 2]


def test_no_deprecated_call() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(llama(VOCABULARY))
