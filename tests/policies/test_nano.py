"""NanoPolicy: sampling, scoring, the closed vocabulary, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dyna_gym
from dyna_gym.errors import ConfigError
from dyna_gym.policies import AggregatorPolicy, RandomPolicy, as_messages, load_policy
from dyna_gym.responses import parse_response
from dyna_gym.task import SPLITS
from tests.policies.tiny import chat, ids, naive_greedy, nano

ID = "DynaGym-Sokoban-v0"
PROMPTS = chat(
    "P b2 X c3 O d4 #\n",
    "P b2 X c3 O d4 # b3 c1 d1 d2 e4\n",
    "<sim> up -> P b2 X c3 | left -> P b1 X c3 </sim>\nP c2 X c3 O d4 #\n",
)
INFOS: list[dict[str, Any]] = [{}] * len(PROMPTS)


def scores(policy: Any, responses: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        found: tuple[torch.Tensor, torch.Tensor] = policy.score(
            [r.prompt_ids for r in responses], [r.token_ids for r in responses]
        )
    return found


def test_sampled_logprobs_are_scores(small: Any) -> None:
    responses = small.act(PROMPTS * 8, INFOS * 8)
    logprobs, mask = scores(small, responses)
    for row, kept, response in zip(logprobs, mask, responses, strict=True):
        n = len(response.token_ids)
        assert kept.tolist() == [1.0] * n + [0.0] * (len(kept) - n)
        torch.testing.assert_close(row[:n], torch.tensor(response.logprobs), atol=1e-4, rtol=0)
        assert not row[n:].any()


def test_greedy_does_not_depend_on_the_batch() -> None:
    policy = nano(temperature=0.0)
    together = policy.act(PROMPTS, INFOS)
    alone = [policy.act([p], [{}])[0] for p in PROMPTS]
    in_twos = nano(temperature=0.0, max_batch=2).act(PROMPTS, INFOS)
    assert ids(together) == ids(alone)
    assert ids(together) == ids(in_twos)
    for response in together:
        n = len(response.token_ids)
        reference = naive_greedy(policy.model, response.prompt_ids, n)
        assert list(response.token_ids) == reference


def test_scores_do_not_depend_on_the_batch(small: Any) -> None:
    responses = small.act(PROMPTS, INFOS)
    together, _ = scores(small, responses)
    for row, response in zip(together, responses, strict=True):
        alone, _ = scores(small, [response])
        torch.testing.assert_close(row[: alone.shape[1]], alone[0], atol=1e-5, rtol=0)


def test_seeded_sampling_is_reproducible() -> None:
    first = ids(nano(seed=3).act(PROMPTS, INFOS))
    policy = nano(seed=3)
    assert ids(policy.act(PROMPTS, INFOS)) == first
    assert ids(policy.act(PROMPTS, INFOS)) != first
    policy.seed(3)
    assert ids(policy.act(PROMPTS, INFOS)) == first


def test_length_limit() -> None:
    policy = nano(max_new_tokens=3)
    ends = policy.encode_response("")
    for response in policy.act(PROMPTS * 20, INFOS * 20):
        ended = response.token_ids[-1:] == ends
        assert len(response.token_ids) <= 3
        assert response.finish == ("stop" if ended else "length")
        assert ended or len(response.token_ids) == 3


def test_saved_and_loaded(tmp_path: Path) -> None:
    policy = nano(temperature=0.0, max_new_tokens=7)
    policy.save(str(tmp_path / "made" / "here"))
    again = load_policy(tmp_path / "made" / "here", temperature=0.0)
    assert type(again) is type(policy)
    assert again.max_new_tokens == 7
    assert ids(again.act(PROMPTS, INFOS)) == ids(policy.act(PROMPTS, INFOS))
    assert load_policy(tmp_path / "made" / "here", max_new_tokens=5).max_new_tokens == 5


def test_copy_is_frozen_and_apart() -> None:
    policy = nano(temperature=0.0)
    before = ids(policy.act(PROMPTS, INFOS))
    other = policy.copy()
    assert not any(p.requires_grad for p in other.parameters())
    assert all(p.requires_grad for p in policy.parameters())
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(-1.5)
    assert ids(policy.act(PROMPTS, INFOS)) != before
    assert ids(other.act(PROMPTS, INFOS)) == before


@pytest.mark.parametrize(
    "settings", [{"hidden": 30}, {"temperature": -1.0}, {"max_new_tokens": 0}, {"max_batch": 0}]
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"got .* expected"):
        nano(**settings)


# -- the closed vocabulary -------------------------------------------------------------------------


def texts(split: str, history: int) -> tuple[set[str], set[str]]:
    """Prompts and responses of random play in both lookahead layers."""
    prompts, responses = set(), set()
    rng = np.random.default_rng(0)
    random = RandomPolicy(seed=0, plan_length=5, vary=True)
    for layer, policy in (("sim_rollout", random), ("resim", AggregatorPolicy())):
        settings: dict[str, Any] = {"lookahead": {"proposer": "random"}} if layer == "resim" else {}
        env = dyna_gym.make_agent_env(
            ID, style="compact", history=history, response=layer, split=split, **settings
        )
        for _ in range(4):
            prompt, info = env.reset(seed=int(rng.integers(2**31)))
            for _ in range(6):
                response = policy.act([as_messages(prompt)], [info])[0]
                prompts.add(prompt)
                responses.add(response.text)
                prompt, _, terminated, truncated, info = env.step(response.text)
                if terminated or truncated:
                    break
        env.close()
    return prompts, responses


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("history", [0, 2])
def test_vocabulary_covers_all_texts(small: Any, split: str, history: int) -> None:
    prompts, responses = texts(split, history)
    assert len(prompts) > 20
    unknown = small.tokenizer.unk_token_id
    for prompt in prompts:
        encoded = small.encode(as_messages(prompt))
        assert unknown not in encoded
        assert small.tokenizer.decode(encoded) == prompt + "<think>\n"
    for text in responses:
        encoded = small.encode_response(text)
        assert unknown not in encoded
        if text.startswith("<think>"):
            assert small.decode(encoded) == text
        else:  # a policy without thinking: the prompt has opened it all the same
            assert small.decode(encoded) == "<think>\n" + text


def test_an_invalid_step_in_the_history_is_covered(small: Any) -> None:
    env = dyna_gym.make_agent_env(ID, style="compact", history=2)
    env.reset(seed=0)
    for response in (
        "nonsense",
        "<action>fly</action>",
        "<think>",
        "<action>",
        "<action></action>",
    ):
        prompt = env.step(response)[0]
        assert "invalid" in prompt
        assert small.tokenizer.unk_token_id not in small.encode(as_messages(prompt))


def test_tokens_are_words(small: Any) -> None:
    """A thing in a cell, an action with its arrow, a tag cost one token each."""
    text = "<think>\n<sim> up -> P b2 X c3 | value 0.4 </sim>\n</think>\n<plan>\nup\n</plan>\n"
    text += "<action>up</action>"
    encoded = small.encode_response(text)
    assert len(encoded) == 13
    assert small.decode(encoded) == text
    assert parse_response(small.decode(encoded)).action == "up"


def test_what_is_not_covered_is_unknown_and_never_lost(small: Any) -> None:
    """A character each, line ends included."""
    encoded = small.tokenizer("\u00e9!\r", add_special_tokens=False)["input_ids"]
    assert encoded == [small.tokenizer.unk_token_id] * 3
