"""Tiny random models and tokenizers, made here: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dyna_gym.envs.sokoban.world import SokobanWorld
from dyna_gym.policies import NanoPolicy, TransformersPolicy
from dyna_gym.responses import Response

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
OPENING_TEMPLATE = TEMPLATE.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}")
SPECIAL = ("<|end|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>")


def tokenizer(template: str | None = TEMPLATE, pad: str | None = None) -> Any:
    """Bytes and one merge (``u`` + ``p``), so that one text has several tokenisations."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate([*alphabet, "up"])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[("u", "p")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|eos|>",
        pad_token=pad,
        additional_special_tokens=[s for s in SPECIAL if s != "<|eos|>"],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = template
    return fast


def seeded(make: Any, seed: int = 0) -> Any:
    """A random model, without a trace in torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


def llama(vocabulary: int, seed: int = 0, **settings: Any) -> Any:
    """A random Llama; weights large enough that its distribution is far from flat."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=None,
        **settings,
    )
    return seeded(lambda: LlamaForCausalLM(config), seed)


def tiny_policy(template: str | None = TEMPLATE, pad: str | None = None, **settings: Any) -> Any:
    """A `TransformersPolicy` in memory."""
    words = tokenizer(template, pad)
    settings = {"max_new_tokens": 24, **settings}
    return TransformersPolicy.from_model(llama(len(words)), words, **settings)


def nano(**settings: Any) -> NanoPolicy:
    """A tiny `NanoPolicy` for default Sokoban."""
    settings = {"hidden": 32, "layers": 2, "max_new_tokens": 24, **settings}
    return NanoPolicy(SokobanWorld(), **settings)


def chat(*texts: str) -> list[list[dict[str, Any]]]:
    """One conversation of one message for each text."""
    return [[{"role": "user", "content": text}] for text in texts]


def ids(responses: Sequence[Response]) -> list[tuple[int, ...]]:
    """Their tokens (equal runs may differ in the last bits of log-probabilities)."""
    return [r.token_ids for r in responses]


def naive_greedy(model: Any, prompt: Sequence[int], steps: int) -> list[int]:
    """Reference: no batch, no cache, no mask; the whole text is read again for each token."""
    read = list(prompt)
    with torch.no_grad():
        for _ in range(steps):
            logits = model(input_ids=torch.tensor([read]), use_cache=False).logits[0, -1]
            read.append(int(logits.argmax()))
    return read[len(prompt) :]
