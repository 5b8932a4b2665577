"""Worlds that a model plays: each step asks it one question, and many envs can ask together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dyna_gym.env import ActT, WorldEnv
from dyna_gym.errors import MachineryError
from dyna_gym.outcome import ObsT, Outcome


class Engine(ABC):
    """A model that plays worlds. Envs whose engines are equal are answered in one call."""

    @abstractmethod
    def reply(self, requests: Sequence[Any]) -> list[Any]:
        """Answer many requests in one call of the model.

        Args:
            requests: What `ModelEnv.request` gave, of any envs.

        Returns:
            One reply a request; in place of a reply that could not be had a `MachineryError`.

        Raises:
            MachineryError: No reply could be had.
        """


class ModelEnv(WorldEnv[ObsT, ActT]):
    """A world whose step is one question to a model.

    A step is ``request(action)``, the engine's reply, and what follows from it. Between the two stand
    wrappers, so who steps many envs (`dyna_gym.batching`) asks all stacks for their requests first, gets
    all replies in one call, hands them to the envs with `expect`, and then steps each stack as ever:
    `step` finds its reply there. A step that finds none asks by itself; the result is the same.

    A world implements `_request` and `_receive` instead of `_apply`, and sets ``engine``.
    """

    engine: Engine

    @abstractmethod
    def _request(self, action: ActT, rng: np.random.Generator) -> Any | None:
        """What to ask the engine when ``action`` is taken now; None where no question is needed.

        Changes nothing. The same state, action and random numbers give an equal request.

        Args:
            action: What the agent wrote.
            rng: Where the engine's randomness comes from; what is drawn goes into the request.
        """

    @abstractmethod
    def _receive(self, action: ActT, reply: Any | None) -> Outcome[ObsT]:
        """Go on as the engine replied; ``reply`` is None where `_request` was."""

    _expected: tuple[tuple[Any, Any], ...] = ()

    def request(self, action: ActT) -> Any | None:
        """What the next step will ask if it takes ``action``; None if it asks nothing. Changes nothing."""
        if self._last is None or self._last.terminated or self._failure is not None:
            return None
        ahead = np.random.Generator(type(self.np_random.bit_generator)())
        ahead.bit_generator.state = self.np_random.bit_generator.state
        return self._request(action, ahead)

    def expect(self, replies: Sequence[tuple[Any, Any]]) -> None:
        """Have replies at hand.

        Args:
            replies: (request, reply) pairs; a `MachineryError` as reply is raised by the step that asks.
        """
        self._expected = tuple(replies)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode."""
        self._expected = ()
        return super().reset(seed=seed, options=options)

    def _apply(self, action: ActT) -> Outcome[ObsT]:
        request = self._request(action, self.np_random)
        return self._receive(action, None if request is None else self._ask(request))

    def _ask(self, request: Any) -> Any:
        at_hand = next((i for i, (known, _) in enumerate(self._expected) if known == request), None)
        if at_hand is None:
            (reply,) = self.engine.reply([request])
        else:
            reply = self._expected[at_hand][1]
            self._expected = self._expected[:at_hand] + self._expected[at_hand + 1 :]
        if isinstance(reply, MachineryError):
            raise reply
        return reply
