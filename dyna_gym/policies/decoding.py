"""Batched generation with a KV cache, which keeps what was sampled and how likely it was."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any

from dyna_gym.errors import needs

with needs("train", __name__):
    import torch
    from transformers import Cache, DynamicCache
    from transformers.cache_utils import DynamicLayer

COMPACT_BELOW = 0.75
"""Finished rows are taken out of the batch once less than this share of its rows is alive."""

_GROWTH = 16
"""Tokens by which a cache's buffer grows: near-contiguous reads, few copies."""


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator,
    end_ids: Collection[int],
    pad_id: int,
    compact_below: float = COMPACT_BELOW,
) -> list[tuple[list[int], list[float]]]:
    """Sample one response for each prompt.

    Nothing but the temperature shapes the distribution: no top-k, top-p or penalty, whatever the
    model's own generation settings say.

    Args:
        model: A Hugging Face causal language model.
        prompts: Token ids; of any lengths, at least one token each.
        max_new_tokens: Longest response.
        temperature: 0 is greedy.
        generator: Source of randomness.
        end_ids: Tokens that end a response; part of it.
        pad_id: Any token; masked out, and may be one of the end tokens.
        compact_below: See `COMPACT_BELOW`; 0 keeps finished rows in the batch.

    Returns:
        Token ids and log-probabilities (of the distribution sampled from) of each response.
    """
    count = len(prompts)
    decoder = _Decoder(model, prompts, pad_id)
    ends = torch.tensor(sorted(end_ids), device=decoder.device)
    # One number a row and step, drawn for all, so that taking rows out does not shift the others'.
    draws = _uniform(max_new_tokens, count, generator) if temperature > 0 else None
    draws = draws if draws is None else draws.to(decoder.device)
    tokens = torch.zeros((max_new_tokens, count), dtype=torch.long, device=decoder.device)
    logprobs = torch.zeros((max_new_tokens, count), device=decoder.device)
    lengths = torch.full((count,), max_new_tokens, device=decoder.device)
    rows = torch.arange(count, device=decoder.device)  # of the prompts, those still in the batch
    done = torch.zeros(count, dtype=torch.bool, device=decoder.device)
    logits = decoder.prefill()
    for step in range(max_new_tokens):
        logp = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
        if draws is None:
            chosen = logp.argmax(dim=-1)
        else:
            chosen = _pick(logp, draws[step, rows])
        tokens[step, rows] = chosen
        logprobs[step, rows] = torch.gather(logp, 1, chosen[:, None])[:, 0]
        ended = torch.isin(chosen, ends) & ~done
        lengths[rows[ended]] = step + 1
        done |= ended
        alive = len(done) - int(done.sum())
        if step + 1 == max_new_tokens or not alive:
            break
        if alive < compact_below * len(rows):
            kept = (~done).nonzero()[:, 0]
            rows, chosen, done = rows[kept], chosen[kept], done[kept]
            decoder.keep(kept)
        logits = decoder.step(chosen)
    found = []
    for row, logs, n in zip(tokens.T.tolist(), logprobs.T.tolist(), lengths.tolist(), strict=True):
        found.append((row[:n], logs[:n]))
    return found


def _uniform(steps: int, rows: int, generator: torch.Generator) -> torch.Tensor:
    size = (steps, rows)
    return torch.rand(size, dtype=torch.float64, device=generator.device, generator=generator)


def _pick(logp: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
    """The token at which the distribution function passes ``draw``, for each row.

    Faster than `torch.multinomial`, which draws a number for each token of the vocabulary.
    """
    below = logp.exp().cumsum(dim=-1, dtype=torch.float64)
    # Scaled by the total, which rounding keeps from 1. "right" never stops where nothing is added,
    # that is, at a token of probability 0.
    at = torch.searchsorted(below, draw[:, None] * below[:, -1:], right=True)[:, 0]
    return at.clamp(max=logp.shape[1] - 1)


class _Decoder:
    """A model in the middle of decoding: its cache, masks and positions."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], pad_id: int) -> None:
        self._model = model
        self.device = next(model.parameters()).device
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), pad_id, dtype=torch.long)
        seen = torch.zeros((len(prompts), longest), dtype=torch.long)
        for i, prompt in enumerate(
            prompts
        ):  # padding on the left: all rows go on at the same place
            ids[i, longest - len(prompt) :] = torch.tensor(list(prompt))
            seen[i, longest - len(prompt) :] = 1
        self._ids, self._seen = ids.to(self.device), seen.to(self.device)
        self._position = torch.zeros(0)
        config = model.config.get_text_config(decoder=True)
        self._plain = _is_plain(config)
        self._cache = (
            Cache(layers=[_BufferLayer() for _ in range(config.num_hidden_layers)])
            if self._plain
            else DynamicCache(config=config)
        )
        # Its name has changed in transformers 5; the old one is about to go.
        named = "cache" in inspect.signature(model.forward).parameters
        self._cache_name = "cache" if named else "past_key_values"
        self._mask = torch.zeros(0)

    def prefill(self) -> torch.Tensor:
        """Read the prompts; logits [B, V] of the next token."""
        positions = (self._seen.cumsum(1) - 1).clamp(min=0)
        logits = self._forward(self._ids, self._seen, positions)
        self._position = positions[:, -1:]
        if self._plain:
            # A ready-made additive mask spares the model from building one at each token.
            dtype = self._model.dtype
            mask = torch.zeros(self._seen.shape, dtype=dtype, device=self.device)
            mask.masked_fill_(self._seen == 0, torch.finfo(dtype).min)
            self._mask = mask
        return logits

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read one token of each row; logits [B, V] of the next."""
        self._position = self._position + 1
        if self._plain:
            self._mask = torch.nn.functional.pad(self._mask, (0, 1))
            mask = self._mask[:, None, None, :]
        else:
            self._seen = mask = torch.nn.functional.pad(self._seen, (0, 1), value=1)
        return self._forward(tokens[:, None], mask, self._position)

    def keep(self, rows: torch.Tensor) -> None:
        """Take all other rows out of the batch."""
        self._position, self._seen = self._position[rows], self._seen[rows]
        self._mask = self._mask[rows] if self._plain else self._mask
        self._cache.batch_select_indices(rows)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        output = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: self._cache},
        )
        return output.logits[:, -1].float()


def _is_plain(config: Any) -> bool:
    """Whether each layer sees all tokens before it, positions are rotary and masks may be 4-D.

    Other models are decoded with their own cache and their own masks: slower, and always right.
    """
    return (
        set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and getattr(config, "sliding_window", None) is None
        and bool(getattr(config, "rope_parameters", None))
        and not getattr(config, "alibi", False)
        and config._attn_implementation in ("sdpa", "eager")
    )


class _BufferLayer(DynamicLayer):
    """A cache layer with room to write into; `DynamicLayer` copies everything at each token."""

    keys: torch.Tensor
    values: torch.Tensor
    _room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append, and return all that is filled."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.keys.shape[-2] if self.keys.numel() else 0
        end = start + key_states.shape[-2]
        if self._room is None or self._room[0].shape[2] < end:
            self._room = (
                _grown(key_states, self.keys, start, end),
                _grown(value_states, self.values, start, end),
            )
        keys, values = self._room
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows of these numbers."""
        super().batch_select_indices(indices)
        self._room = None


def _grown(new: torch.Tensor, filled: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """A buffer for more than ``end`` tokens, with what is filled already."""
    shape = (new.shape[0], new.shape[1], end + _GROWTH, new.shape[3])
    room = new.new_empty(shape)
    if start:
        room[:, :, :start] = filled
    return room
