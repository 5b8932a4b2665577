"""TransformersPolicy: any Hugging Face causal chat model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dyna_gym.errors import ConfigError, needs
from dyna_gym.policies.base import Message, text_only
from dyna_gym.policies.causal import CausalPolicy, quiet_files, saved_settings

with needs("train", __name__):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

_MAX_NEW_TOKENS = 512
_OPENING = "<think>"


class TransformersPolicy(CausalPolicy):
    """A Hugging Face causal language model with its chat template.

    Sampling is from the model's own distribution at the given temperature: what a model's
    ``generation_config`` says of top-k, top-p and penalties is left out, so that the
    log-probabilities are those of the distribution sampled from. A response ends with the chat
    template's end of turn, or with any end token that the model's configuration names.

    Args:
        model_name: Name on the Hub, or a folder (such as `save` wrote).
        temperature: Sampling temperature; 0 is greedy.
        max_new_tokens: Longest response, in tokens; default: what `save` wrote, else 512, or half of a smaller
            context.
        seed: Seed of the sampling generator.
        device: Where the model runs; default: ``cuda`` if there is one, else ``cpu``.
        dtype: Weights' type, such as ``float32`` or ``bfloat16``.
        max_batch: Rows generated at once, at most.

    Raises:
        ConfigError: There is no chat template or no end token, or a setting cannot be used.
    """

    kind = "transformers"

    def __init__(
        self,
        model_name: str,
        *,
        temperature: float = 1.0,
        max_new_tokens: int | None = None,
        seed: int = 0,
        device: str | None = None,
        dtype: str = "float32",
        max_batch: int = 16,
    ) -> None:
        weights = getattr(torch, dtype, None)
        if not isinstance(weights, torch.dtype) or not weights.is_floating_point:
            raise ConfigError(
                f"dtype: got {dtype!r}, expected the name of a floating type of torch, such as "
                "'float32' or 'bfloat16'"
            )
        tokenizer = AutoTokenizer.from_pretrained(model_name)
        _check_template(tokenizer, model_name)
        with quiet_files() if Path(model_name).is_dir() else nullcontext():  # downloads show a bar
            model: Any = AutoModelForCausalLM.from_pretrained(model_name, dtype=weights)
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        settings = saved_settings(model_name)
        if max_new_tokens is None:
            max_new_tokens = settings.get("max_new_tokens")
        self._adopt(model, tokenizer, temperature, max_new_tokens, seed, max_batch)
        self._recall(settings)

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        temperature: float = 1.0,
        max_new_tokens: int | None = None,
        seed: int = 0,
        max_batch: int = 16,
    ) -> TransformersPolicy:
        """A policy on a model that is in memory already; it is used as it is, not copied.

        Args:
            model: A Hugging Face causal language model.
            tokenizer: Its tokenizer, with a chat template.
            temperature: Sampling temperature; 0 is greedy.
            max_new_tokens: Longest response, in tokens; default 512, or half of a smaller context.
            seed: Seed of the sampling generator.
            max_batch: Rows generated at once, at most.
        """
        _check_template(tokenizer, type(tokenizer).__name__)
        policy = cls.__new__(cls)
        policy._adopt(model, tokenizer, temperature, max_new_tokens, seed, max_batch)
        return policy

    def _adopt(
        self,
        model: Any,
        tokenizer: Any,
        temperature: float,
        max_new_tokens: int | None,
        seed: int,
        max_batch: int,
    ) -> None:
        self._model = model
        if max_new_tokens is None:
            max_new_tokens = min(_MAX_NEW_TOKENS, (self.context or 2 * _MAX_NEW_TOKENS) // 2)
        self._turn_end, end_ids = _end_tokens(model, tokenizer)
        pad = tokenizer.pad_token_id
        # Whether the template opens the thinking, so that a response does not.
        asked = _render(tokenizer, [{"role": "user", "content": "?"}])
        tail = asked[asked.rfind(_OPENING) :] if asked.rstrip().endswith(_OPENING) else ""
        self._opened = tail
        self._set_up(
            model,
            tokenizer,
            end_ids=end_ids,
            pad_id=self._turn_end if pad is None else pad,
            seed=seed,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            max_batch=max_batch,
        )

    def _encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of the conversation under the chat template, up to where the response begins."""
        return _tokens(
            self.tokenizer, _render(self.tokenizer, text_only(messages, "TransformersPolicy"))
        )

    def encode_response(self, text: str) -> tuple[int, ...]:
        """Tokens of a response, less what the template has opened already, and the end of turn."""
        body = text.removeprefix(self._opened)
        return (*_tokens(self.tokenizer, body), self._turn_end)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response, with what the template opened put back in front."""
        kept = [t for t in token_ids if t not in self._end_ids and t != self._pad]
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        return f"{self._opened}{text}"


def _check_template(tokenizer: Any, name: str) -> None:
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"{name}: got a tokenizer without a chat template, expected that of a chat model. "
            "Use an instruction-tuned model, or set tokenizer.chat_template and use "
            "TransformersPolicy.from_model(model, tokenizer)"
        )


def _render(tokenizer: Any, messages: Sequence[Message], prompt: bool = True) -> str:
    text: str = tokenizer.apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=prompt
    )
    return text


def _tokens(tokenizer: Any, text: str) -> tuple[int, ...]:
    # The template has written all special tokens already.
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, tuple[int, ...]]:
    """The token that ends a turn, and all that end a response."""
    ends: list[int] = []
    for owner in (tokenizer, model.config, getattr(model, "generation_config", None)):
        value = getattr(owner, "eos_token_id", None)
        ends += [] if value is None else [value] if isinstance(value, int) else list(value)
    # What the template itself writes behind a turn: models are tuned to end with it.
    said = "answer"
    turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]
    behind = _tokens(tokenizer, _render(tokenizer, turn, prompt=False).rpartition(said)[2])
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    written = [t for t in behind[:1] if t in special or t in ends]
    ends = list(dict.fromkeys([*written, *ends]))
    if not ends:
        raise ConfigError(
            f"{type(tokenizer).__name__}: got no end token from the tokenizer, the model or the "
            "chat template, expected one; set tokenizer.eos_token"
        )
    return ends[0], tuple(ends)
