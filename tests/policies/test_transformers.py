"""TransformersPolicy on a tiny random Llama with a byte tokenizer and a chat template."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from dyna_gym.errors import ConfigError, MissingExtra
from dyna_gym.learning.rows import episode_rows
from dyna_gym.policies import TransformersPolicy, load_policy
from dyna_gym.policies.base import TrainablePolicy
from dyna_gym.responses import Response
from dyna_gym.task import Task
from dyna_gym.trajectory import Trajectory, Transition
from tests.policies.tiny import OPENING_TEMPLATE, TEMPLATE, chat, ids, llama, tiny_policy, tokenizer

PROMPTS = chat("up", "go up, then left and up again", "\u00fcber \u2713\nup")
INFOS: list[dict[str, Any]] = [{}] * len(PROMPTS)


def scores(policy: TrainablePolicy, responses: list[Response]) -> torch.Tensor:
    with torch.no_grad():
        return policy.score([r.prompt_ids for r in responses], [r.token_ids for r in responses])[0]


# -- prompts and the chat template -----------------------------------------------------------------


def test_prompt_is_the_chat_template(policy: Any) -> None:
    messages = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "up"},
        {"role": "assistant", "content": "left"},
        {"role": "user", "content": "down"},
    ]
    expected = (
        "<|system|>rules<|end|><|user|>up<|end|><|assistant|>left<|end|><|user|>down<|end|>"
        "<|assistant|>"
    )
    encoded = policy.encode(messages)
    assert policy.tokenizer.decode(encoded) == expected
    special = set(policy.tokenizer.all_special_ids)
    assert sum(i in special for i in encoded) == 9  # each of them one token
    again = policy.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )
    assert list(encoded) == list(again["input_ids"])


def test_response_prompt_ids_are_the_encoded_prompt(policy: Any) -> None:
    for messages, response in zip(PROMPTS, policy.act(PROMPTS, INFOS), strict=True):
        assert response.prompt_ids == policy.encode(messages)


def test_no_chat_template(tmp_path: Path) -> None:
    words = tokenizer(template=None)
    with pytest.raises(
        ConfigError, match=r"without a chat template, expected .* Use an instruction"
    ):
        TransformersPolicy.from_model(llama(len(words)), words)
    llama(len(words)).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="without a chat template"):
        TransformersPolicy(str(tmp_path))


@pytest.mark.parametrize("dtype", ["int64", "float33", "nn"])
def test_bad_dtype(dtype: str) -> None:
    with pytest.raises(ConfigError, match=r"dtype: got .* expected"):
        TransformersPolicy("nowhere", dtype=dtype)


def test_a_template_may_open_the_thinking() -> None:
    policy = tiny_policy(OPENING_TEMPLATE)
    encoded = policy.encode(PROMPTS[0])
    assert policy.tokenizer.decode(encoded).endswith("<|assistant|><think>\n")
    text = "<think>\nup\n</think>\n<action>up</action>"
    tokens = policy.encode_response(text)
    whole = policy.tokenizer.decode(encoded + tokens)
    assert whole.count("<think>") == 1
    assert policy.decode(tokens) == text


def test_a_response_without_thinking(policy: Any) -> None:
    text = "<think>\nup\n</think>\n<action>up</action>"
    tokens = policy.encode_response(text)
    assert policy.decode(tokens) == text
    assert policy.tokenizer.decode(tokens) == text + "<|end|>"


# -- sampling and scoring --------------------------------------------------------------------------


@pytest.mark.parametrize("pad", [None, "<|eos|>", "<|end|>", "<|user|>"])
def test_sampled_logprobs_are_scores(pad: str | None) -> None:
    """Also where the padding token is an end token: the mask is made from lengths (row 68)."""
    policy = tiny_policy(pad=pad, max_new_tokens=40)
    responses = policy.act(PROMPTS * 10, INFOS * 10)
    assert {r.finish for r in responses} == {"stop", "length"}
    assert len({len(r.token_ids) for r in responses}) > 5
    with torch.no_grad():
        logprobs, mask = policy.score(
            [r.prompt_ids for r in responses], [r.token_ids for r in responses]
        )
    assert mask.sum(1).tolist() == [len(r.token_ids) for r in responses]  # end tokens count
    for row, response in zip(logprobs, responses, strict=True):
        n = len(response.logprobs)
        torch.testing.assert_close(row[:n], torch.tensor(response.logprobs), atol=1e-4, rtol=0)
        assert (row[:n] < 0).all()
        assert not row[n:].any()


def test_pad_may_be_the_end_token_in_training_too() -> None:
    """An end token is learned: its gradient is not masked away."""
    policy = tiny_policy(pad="<|end|>")
    prompt, end = policy.encode(PROMPTS[0]), policy.encode_response("")
    logprobs, mask = policy.score([prompt, prompt], [end, policy.encode_response("up up")])
    assert mask.sum(1).tolist() == [1.0, 4.0]
    logprobs[0].sum().backward()
    assert sum(float(p.grad.abs().sum()) for p in policy.parameters()) > 0


def test_all_end_tokens_end_a_response() -> None:
    policy = tiny_policy(max_new_tokens=60)
    ends = {policy.tokenizer.convert_tokens_to_ids(t) for t in ("<|end|>", "<|eos|>")}
    last = set()
    for response in policy.act(PROMPTS * 10, INFOS * 10):
        assert not ends & set(response.token_ids[:-1])
        assert (response.token_ids[-1] in ends) == (response.finish == "stop")
        last.add(response.token_ids[-1])
    assert ends <= last


def test_end_tokens_of_the_generation_config() -> None:
    words = tokenizer()
    model = llama(len(words))
    model.generation_config = GenerationConfig(eos_token_id=[5, 6])
    policy = TransformersPolicy.from_model(model, words, max_new_tokens=60)
    for response in policy.act(PROMPTS * 5, INFOS * 5):
        assert not {5, 6} & set(response.token_ids[:-1])


def test_no_hidden_settings_of_generation() -> None:
    """A generation config with top-k and penalties does not shape what is sampled."""
    plain = tiny_policy()
    shaped = tiny_policy()
    shaped.model.generation_config = GenerationConfig(
        do_sample=True, top_k=1, top_p=0.1, repetition_penalty=5.0, temperature=0.1
    )
    assert ids(plain.act(PROMPTS, INFOS)) == ids(shaped.act(PROMPTS, INFOS))


def test_greedy_does_not_depend_on_the_batch() -> None:
    policy = tiny_policy(temperature=0.0)
    together = policy.act(PROMPTS, INFOS)
    alone = [policy.act([p], [{}])[0] for p in PROMPTS]
    in_twos = tiny_policy(temperature=0.0, max_batch=2).act(PROMPTS, INFOS)
    assert ids(together) == ids(alone)
    assert ids(together) == ids(in_twos)


def test_seeded_sampling_is_reproducible() -> None:
    first = ids(tiny_policy(seed=3).act(PROMPTS, INFOS))
    policy = tiny_policy(seed=3)
    assert ids(policy.act(PROMPTS, INFOS)) == first
    assert ids(policy.act(PROMPTS, INFOS)) != first
    policy.seed(3)
    assert ids(policy.act(PROMPTS, INFOS)) == first


def test_length_limit() -> None:
    policy = tiny_policy(max_new_tokens=2)
    found = policy.act(PROMPTS * 5, INFOS * 5)
    assert {r.finish for r in found} >= {"length"}
    assert all(len(r.token_ids) == 2 for r in found if r.finish == "length")


# -- token in, token out (COMPLAINTS 69) -----------------------------------------------------------


def test_sampled_tokens_are_never_encoded_again(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``u`` + ``p`` and ``up`` are one text; trained is what was sampled."""
    u, p, up = (policy.tokenizer.convert_tokens_to_ids(t) for t in ("u", "p", "up"))
    end = policy.encode_response("")[0]
    assert policy.encode_response("up") == (up, end)
    sampled = (u, p, end)
    assert policy.decode(sampled) == "up"
    prompt = policy.encode(PROMPTS[0])
    response = Response(policy.decode(sampled), prompt, sampled, (-1.0, -2.0, -3.0))
    episode = Trajectory(
        Task("t", "", "train", "toy"), [Transition("up", response, plain_prompt="plain")]
    )
    for name in ("encode", "encode_response"):
        monkeypatch.setattr(policy, name, lambda *_: pytest.fail("something was encoded again"))
    row = episode_rows(episode, 1.0, 1.0, policy)[0]
    assert (row.prompt_ids, row.token_ids) == (prompt, sampled)
    assert row.old_logprobs == (-1.0, -2.0, -3.0)


def test_a_template_that_rewrites_history_does_not_change_rows() -> None:
    """It strips the thinking of earlier turns; a row keeps the prompt it was sampled from."""
    stripping = TEMPLATE.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
    policy = tiny_policy(stripping)
    first = policy.act(PROMPTS[:1], [{}])[0]
    turns = [
        *PROMPTS[0],
        {"role": "assistant", "content": "<think>long</think>up"},
        {"role": "user", "content": "and now?"},
    ]
    second = policy.act([turns], [{}])[0]
    assert "long" not in policy.tokenizer.decode(second.prompt_ids)
    episode = Trajectory(
        Task("t", "", "train", "toy"), [Transition("", first), Transition("", second)]
    )
    rows = episode_rows(episode, 1.0, 1.0, policy)
    for row, response in zip(rows, (first, second), strict=True):
        assert row.prompt_ids == response.prompt_ids
        n = len(response.logprobs)
        torch.testing.assert_close(
            scores(policy, [response])[0, :n],
            torch.tensor(response.logprobs),
            atol=1e-4,
            rtol=0,
        )


# -- files and imports -----------------------------------------------------------------------------


def test_saved_and_loaded(tmp_path: Path) -> None:
    policy = tiny_policy(temperature=0.0, max_new_tokens=9)
    policy.save(str(tmp_path))
    again = load_policy(tmp_path, temperature=0.0)
    assert type(again) is TransformersPolicy
    assert again.max_new_tokens == 9
    assert ids(again.act(PROMPTS, INFOS)) == ids(policy.act(PROMPTS, INFOS))
    assert load_policy(tmp_path, max_new_tokens=4).max_new_tokens == 4


def test_a_plain_hugging_face_folder_loads(tmp_path: Path) -> None:
    policy = tiny_policy(temperature=0.0)
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    again = load_policy(tmp_path, temperature=0.0)
    assert again.max_new_tokens == 256  # half of its context
    again.max_new_tokens = policy.max_new_tokens
    assert ids(again.act(PROMPTS, INFOS)) == ids(policy.act(PROMPTS, INFOS))


def test_unknown_kind(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text('{"kind": "other"}')
    with pytest.raises(ConfigError, match="kind 'other', expected"):
        load_policy(tmp_path)


def test_copy_is_frozen_and_apart() -> None:
    policy = tiny_policy(temperature=0.0)
    before = ids(policy.act(PROMPTS, INFOS))
    other = policy.copy()
    assert not any(p.requires_grad for p in other.parameters())
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(-1.5)
    assert ids(policy.act(PROMPTS, INFOS)) != before
    assert ids(other.act(PROMPTS, INFOS)) == before


def test_packages_load_when_needed_and_missing_ones_are_named() -> None:
    """In a process of its own, where torch cannot be imported."""
    code = """
import sys
import dyna_gym, dyna_gym.policies
assert not {"torch", "transformers", "tokenizers"} & set(sys.modules)
sys.modules["torch"] = None
for name in ("NanoPolicy", "TransformersPolicy"):
    try:
        getattr(dyna_gym.policies, name)
    except dyna_gym.errors.MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count('pip install "dyna-gym[train]"') == 2
    assert "TransformersPolicy needs the package 'torch'" in done.stdout
    assert issubclass(MissingExtra, ImportError)
