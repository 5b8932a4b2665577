"""What a policy is: text in, responses out; and what a trainer needs besides."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dyna_gym.errors import ConfigError, DynaGymWarning
from dyna_gym.generators import generator_state, set_generator_state
from dyna_gym.responses import Response

if TYPE_CHECKING:
    import torch

    from dyna_gym.world import World

Message = dict[str, Any]
"""``{"role": "system" | "user" | "assistant", "content": str | list}``.

A content with pictures is a list of parts, as chat templates take them: ``{"type": "image", "image": uint8
array [height, width, 3]}`` and ``{"type": "text", "text": str}``.
"""


def as_messages(observation: Any) -> list[Message]:
    """The messages of an agent env's observation: a prompt, a prompt and its picture, or messages already."""
    if isinstance(observation, str):
        return [{"role": "user", "content": observation}]
    if isinstance(observation, Mapping):
        parts = [
            {"type": "image", "image": observation["image"]},
            {"type": "text", "text": observation["prompt"]},
        ]
        return [{"role": "user", "content": parts}]
    return list(observation)


def prompt_of(observation: Any) -> tuple[str, Any]:
    """Text and picture (or None) of an agent env's observation."""
    if isinstance(observation, Mapping):
        return observation["prompt"], observation["image"]
    return str(observation), None


def text_only(messages: Sequence[Message], who: str) -> Sequence[Message]:
    """The messages, for a policy that cannot see.

    Raises:
        ConfigError: One has a picture, which the policy would not see.
    """
    for message in messages:
        if not isinstance(message["content"], str):
            raise ConfigError(
                f"{who} got a message with a picture and reads text only; use a policy that takes images, or "
                "a world without"
            )
    return messages


class Policy(ABC):
    """Anything that answers prompts. A trainer does not know which policy it has."""

    @abstractmethod
    def act(
        self, messages: Sequence[Sequence[Message]], infos: Sequence[dict[str, Any]]
    ) -> list[Response]:
        """Answer a batch of prompts, in one call of the model.

        Args:
            messages: One conversation a row.
            infos: The env's ``info`` of each row.

        Returns:
            One response a row.
        """

    def seed(self, seed: int) -> None:  # noqa: B027 - a policy without randomness has nothing to do
        """Seed the policy's own generator."""

    def clone_rng(self) -> dict[str, Any]:
        """State of the policy's own randomness: of every generator among its attributes.

        A policy that keeps its randomness elsewhere overrides this and `restore_rng`.
        """
        found = {k: generator_state(v) for k, v in vars(self).items()}
        return {k: state for k, state in found.items() if state is not None}

    def restore_rng(self, state: dict[str, Any]) -> None:
        """Inverse of `clone_rng`; also for another instance of the same policy."""
        for name, own in state.items():
            set_generator_state(getattr(self, name), own)


@dataclass(frozen=True)
class PromptForm:
    """How prompts are written; a policy reads best what it was trained on."""

    style: str = "full"
    """`full` or `compact`; see `dyna_gym.prompts`."""
    history: int = 2
    """Past steps in the prompt, at most (h)."""


def choose_form(policy: Any, style: str | None = None, history: int | None = None) -> PromptForm:
    """How to write the prompts of a policy: as it was trained, or as told by hand.

    Args:
        policy: Any policy; what it was trained on, if it knows, is the default.
        style: Style told by hand, or None.
        history: Past steps told by hand, or None.

    Warns:
        DynaGymWarning: What is told by hand contradicts what the policy was trained on.
    """
    own: PromptForm | None = getattr(policy, "prompt_form", None)
    base = own or PromptForm()
    form = PromptForm(
        base.style if style is None else style, base.history if history is None else history
    )
    if own is not None and form != own:
        warnings.warn(
            f"the policy was trained on prompts of style {own.style!r} with history {own.history}, and now gets "
            f"{form.style!r} with {form.history}: expect it to do worse. Leave style and history out to use its own",
            DynaGymWarning,
            stacklevel=2,
        )
    return form


class TrainablePolicy(Policy):
    """A policy whose responses can be scored and whose parameters can be trained."""

    temperature: float
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int
    """Longest response, in tokens."""
    prompt_form: PromptForm | None = None
    """How the prompts were written that it was trained on; saved with it. None: not known."""

    def check_world(self, world: World) -> None:
        """Check that the policy can read and write the texts of a world.

        Raises:
            ConfigError: It was made for another one.
        """

    @abstractmethod
    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a conversation, ready for the response to follow."""

    @abstractmethod
    def encode_response(self, text: str) -> tuple[int, ...]:
        """Token ids of a response that someone else wrote (distillation), end token included."""

    @abstractmethod
    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response's tokens, without special tokens."""

    @abstractmethod
    def score(
        self, prompt_ids: Sequence[Sequence[int]], token_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of given responses, with gradients, at temperature 1.

        Args:
            prompt_ids: Prompt of each of B rows.
            token_ids: Response of each row, at most L tokens.

        Returns:
            ``logprobs`` [B, L] (natural log; 0 where there is no token) and ``mask`` [B, L] (1.0 for
            a token of the policy, 0.0 for padding).
        """

    @abstractmethod
    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """What an optimiser trains."""

    @property
    @abstractmethod
    def model(self) -> torch.nn.Module:
        """The module that holds the parameters (what accelerate prepares)."""

    @abstractmethod
    def save(self, folder: str) -> None:
        """Write weights and tokenizer; the inverse is `dyna_gym.policies.load_policy`."""

    @abstractmethod
    def copy(self) -> TrainablePolicy:
        """A frozen copy, for instance as the KL reference."""
