"""What all policies on a Hugging Face causal language model share."""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dyna_gym.errors import ConfigError, needs
from dyna_gym.policies.base import Message, TrainablePolicy
from dyna_gym.policies.decoding import generate
from dyna_gym.policies.scoring import score_rows
from dyna_gym.responses import Response

with needs("train", __name__):
    import torch
    from transformers.utils import logging

SETTINGS_FILE = "policy.json"


class CausalPolicy(TrainablePolicy):
    """Sampling, scoring, saving and copying; a subclass says how text becomes tokens.

    Token in, token out: the sampled ids and their log-probabilities are kept, and nothing that was
    sampled is ever encoded again.
    """

    kind: str
    """Name in the saved settings, by which `dyna_gym.policies.load_policy` finds the class."""

    def _set_up(
        self,
        model: Any,
        tokenizer: Any,
        *,
        end_ids: Sequence[int],
        pad_id: int,
        seed: int,
        temperature: float,
        max_new_tokens: int,
        max_batch: int,
    ) -> None:
        for name, value, least in (
            ("temperature", temperature, 0),
            ("max_new_tokens", max_new_tokens, 1),
            ("max_batch", max_batch, 1),
        ):
            if not value >= least:
                raise ConfigError(f"{name}: got {value!r}, expected a number of at least {least}")
        self._model = model.eval()  # sampling and scoring must agree: no dropout in either
        self.tokenizer = tokenizer
        self.temperature, self.max_new_tokens = float(temperature), int(max_new_tokens)
        self._max_batch = int(max_batch)
        self._end_ids, self._pad = tuple(end_ids), pad_id
        device = next(model.parameters()).device
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def seed(self, seed: int) -> None:
        """Seed the sampling generator."""
        self._generator.manual_seed(seed)

    @property
    def model(self) -> torch.nn.Module:
        """The Hugging Face module."""
        return self._model

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """All weights."""
        return self._model.parameters()

    @abstractmethod
    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a conversation, ready for the response to follow."""

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        """Generate a response for each row."""
        prompts = [self.encode(m) for m in messages]
        responses: list[Response] = []
        for start in range(0, len(prompts), self._max_batch):
            chunk = prompts[start : start + self._max_batch]
            rows = generate(
                self._model,
                chunk,
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature,
                generator=self._generator,
                end_ids=self._end_ids,
                pad_id=self._pad,
            )
            for prompt, (tokens, logprobs) in zip(chunk, rows, strict=True):
                finish = "stop" if tokens[-1] in self._end_ids else "length"
                text = self.decode(tokens)
                responses.append(Response(text, prompt, tuple(tokens), tuple(logprobs), finish))
        return responses

    def score(
        self, prompt_ids: Sequence[Sequence[int]], token_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `TrainablePolicy.score`."""
        return score_rows(self._model, prompt_ids, token_ids, self._pad)

    def save(self, folder: str) -> None:
        """Write weights (safetensors), config and tokenizer."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        with quiet_files():
            self._model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)
        settings = {"kind": self.kind, "max_new_tokens": self.max_new_tokens}
        (path / SETTINGS_FILE).write_text(json.dumps(settings))

    def copy(self) -> Self:
        """A frozen copy."""
        other = copy.copy(self)
        other._model = copy.deepcopy(self._model).requires_grad_(False)
        other._generator = torch.Generator(device=self._generator.device).manual_seed(0)
        return other


@contextmanager
def quiet_files() -> Iterator[None]:
    """Reading and writing models without progress bars, and with the global generator as it was."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        if shown:
            logging.enable_progress_bar()


def saved_settings(folder: str | Path) -> dict[str, Any]:
    """What `CausalPolicy.save` wrote beside the weights; empty if it did not write the folder."""
    file = Path(folder) / SETTINGS_FILE
    return json.loads(file.read_text()) if file.exists() else {}
