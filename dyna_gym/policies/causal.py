"""What all policies on a Hugging Face causal language model share."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from dyna_gym.errors import ConfigError, DynaGymWarning, TrainingDiverged, needs
from dyna_gym.files import read_json, write_json
from dyna_gym.policies.base import Message, PromptForm, TrainablePolicy
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
        if self.context is not None and max_new_tokens >= self.context:
            raise ConfigError(
                f"max_new_tokens: got {max_new_tokens}, expected less than the model's context of {self.context} "
                "tokens, in which the prompt must have room, too"
            )
        self.counts: Counter[str] = Counter()
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

    @property
    def context(self) -> int | None:
        """Tokens that the model can read, prompt and response together; None where it does not say."""
        config = self._model.config.get_text_config(decoder=True)
        return getattr(config, "max_position_embeddings", None)

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a conversation, ready for the response to follow."""
        return self._encode_all([messages])[0]

    @abstractmethod
    def _encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a conversation, whatever its length."""

    def _encode_all(self, conversations: Sequence[Sequence[Message]]) -> list[tuple[int, ...]]:
        """Encode, and tell once of each kind what the model cannot read as it is.

        A prompt that leaves no room for a response in the model's context loses its beginning. `counts` goes on
        counting: ``prompts``, ``unknown_prompts``, ``unknown_tokens``, ``long_prompts``.
        """
        prompts = [self._encode(messages) for messages in conversations]
        unk = self.tokenizer.unk_token_id
        unknown = [] if unk is None else [n for p in prompts if (n := p.count(unk))]
        room = None if self.context is None else max(1, self.context - self.max_new_tokens)
        long = [] if room is None else [n for p in prompts if (n := len(p)) > room]
        if unknown and not self.counts["unknown_prompts"]:
            told = (
                f"{sum(unknown):,} of {sum(map(len, prompts)):,} tokens of {len(prompts):,} prompts"
            )
            warnings.warn(
                f"{told} are unknown to the policy, which reads {self.tokenizer.unk_token!r} in their place: the "
                "prompts are of another style, history or world than it was made for. This is told once",
                DynaGymWarning,
                stacklevel=3,
            )
        if long and not self.counts["long_prompts"]:
            warnings.warn(
                f"{len(long):,} of {len(prompts):,} prompts are longer than {room:,} tokens (up to {max(long):,}), "
                f"which is what {self.max_new_tokens:,} new tokens leave of a context of {self.context:,}: their "
                "beginnings are cut off. This is told once",
                DynaGymWarning,
                stacklevel=3,
            )
        self.counts.update(
            prompts=len(prompts),
            unknown_prompts=len(unknown),
            unknown_tokens=sum(unknown),
            long_prompts=len(long),
        )
        return prompts if room is None else [p[-room:] for p in prompts]

    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        """Generate a response for each row."""
        prompts = self._encode_all(messages)
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
        """Write weights (safetensors), config and tokenizer, and what the policy knows of itself.

        Raises:
            TrainingDiverged: A weight is NaN or infinite; nothing is written.
        """
        check_finite(self._model)
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        with quiet_files():
            self._model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)
        form = None if self.prompt_form is None else asdict(self.prompt_form)
        settings = {
            "kind": self.kind,
            "max_new_tokens": self.max_new_tokens,
            "context": self.context,
        }
        write_json(path / SETTINGS_FILE, {**settings, "prompt_form": form, **self._more_settings()})

    def _more_settings(self) -> dict[str, Any]:
        return {}

    def _recall(self, settings: dict[str, Any]) -> None:
        """Take what `save` wrote."""
        form = settings.get("prompt_form")
        self.prompt_form = None if form is None else PromptForm(**form)

    def copy(self) -> Self:
        """A frozen copy."""
        other = copy.copy(self)
        other._model = copy.deepcopy(self._model).requires_grad_(False)
        other._generator = torch.Generator(device=self._generator.device).manual_seed(0)
        other.counts = Counter()
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
    if not file.exists():
        return {}
    found = read_json(file)
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: got {found!r}, expected what a policy's `save` wrote")
    return found


def check_finite(model: torch.nn.Module) -> None:
    """Check that no weight is NaN or infinite.

    Raises:
        TrainingDiverged: One is.
    """
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise TrainingDiverged(
                f"the weights {name} are not finite: the training has diverged and they are not saved. Go on from "
                "an earlier checkpoint with a lower learning rate"
            )
