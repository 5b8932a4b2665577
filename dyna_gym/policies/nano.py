"""NanoPolicy: a Llama-class model of a few 100,000 weights, from scratch, for a laptop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dyna_gym.errors import ConfigError, needs
from dyna_gym.policies.base import Message, text_only
from dyna_gym.policies.causal import CausalPolicy, saved_settings
from dyna_gym.policies.vocabulary import build_tokenizer
from dyna_gym.world import World

with needs("train", __name__):
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_PROMPT_END = "<think>\n"
"""The prompt ends with what every response begins with, like a chat template that opens it."""


class NanoPolicy(CausalPolicy):
    """A small Llama (Hugging Face's own class) over a world's closed vocabulary.

    For prompts of style ``compact``. Generation is batched, with a KV cache; the sampled token ids
    and their log-probabilities are kept.

    Args:
        world: The world whose vocabulary the tokenizer has.
        seed: Seed of the weights and of the sampling generator.
        hidden: Width of the model.
        layers: Number of layers.
        heads: Attention heads a layer.
        temperature: Sampling temperature; 0 is greedy.
        max_new_tokens: Longest response, in tokens.
        max_batch: Rows generated at once, at most.
    """

    kind = "nano"

    def __init__(
        self,
        world: World,
        *,
        seed: int = 0,
        hidden: int = 64,
        layers: int = 3,
        heads: int = 4,
        temperature: float = 1.0,
        max_new_tokens: int = 96,
        max_batch: int = 256,
    ) -> None:
        if hidden % heads or (hidden // heads) % 2:
            raise ConfigError(
                f"hidden: got {hidden} with {heads} heads, expected an even multiple of the heads"
            )
        tokenizer = build_tokenizer(world)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
        with torch.random.fork_rng(devices=[]):  # the global generator stays as it is
            torch.manual_seed(seed)
            model = LlamaForCausalLM(config)
        self.world_name = world.name
        self._adopt(model, tokenizer, seed, temperature, max_new_tokens, max_batch)

    def _adopt(
        self,
        model: Any,
        tokenizer: Any,
        seed: int,
        temperature: float,
        max_new_tokens: int,
        max_batch: int,
    ) -> None:
        self._set_up(
            model,
            tokenizer,
            end_ids=(tokenizer.eos_token_id,),
            pad_id=tokenizer.pad_token_id,
            seed=seed,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            max_batch=max_batch,
        )
        self._text = [tokenizer.decode([i]) for i in range(len(tokenizer))]

    def _encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of the messages' texts, then of what opens a response."""
        read = text_only(messages, "NanoPolicy")
        text = "".join(str(m["content"]) for m in read) + _PROMPT_END
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode_response(self, text: str) -> tuple[int, ...]:
        """Tokens of a response, without what the prompt has opened already, and the end token."""
        body = text.removeprefix(_PROMPT_END)
        return (*self.tokenizer(body, add_special_tokens=False)["input_ids"], *self._end_ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response, with what the prompt opened put back in front."""
        skip = (*self._end_ids, self._pad)
        return _PROMPT_END + "".join(self._text[t] for t in token_ids if t not in skip)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        max_new_tokens: int | None = None,
        max_batch: int = 256,
    ) -> NanoPolicy:
        """Read what `save` wrote.

        Raises:
            ConfigError: The folder does not hold a whole NanoPolicy.
        """
        settings = saved_settings(folder)
        try:
            weights = load_file(Path(folder) / "model.safetensors")
            embedding = weights["model.embed_tokens.weight"]
            config = LlamaConfig.from_pretrained(folder)
            size = (config.vocab_size, config.hidden_size)
            if embedding.shape != size:  # told here: an empty configuration means 7 billion weights
                raise ValueError(f"weights of {tuple(embedding.shape)}, a configuration of {size}")
            with torch.random.fork_rng(devices=[]):
                model = LlamaForCausalLM(config)
            model.load_state_dict({**weights, "lm_head.weight": embedding})
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
            limit = settings["max_new_tokens"] if max_new_tokens is None else max_new_tokens
            name = settings["world"]
        except (OSError, RuntimeError, KeyError, ValueError, SafetensorError) as error:
            told = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            raise ConfigError(
                f"policy: got {str(folder)!r}, expected a folder that NanoPolicy.save wrote ({told})"
            ) from error
        policy = cls.__new__(cls)
        policy.world_name = name
        policy._adopt(model, tokenizer, seed, temperature, limit, max_batch)
        policy._recall(settings)
        return policy

    def _more_settings(self) -> dict[str, Any]:
        return {"world": self.world_name}

    def check_world(self, world: World) -> None:
        """Check that the policy has a token for each piece of the world's texts.

        Raises:
            ConfigError: It was made for another world, or the same with other settings.
        """
        told = ""
        if self.world_name == world.name:
            have = self.tokenizer.get_vocab()
            lacking = [piece for piece in world.vocabulary() if piece not in have]
            if not lacking:
                return
            told = f", and {len(lacking)} pieces of its texts are no tokens, such as {lacking[0]!r}"
        raise ConfigError(
            f"policy: got a NanoPolicy of the world {self.world_name!r}, expected one of {world.name!r}{told}; "
            "use the world and the settings that it was trained with"
        )
