"""A tokenizer over a closed list of pieces of text, for models trained from scratch."""

from __future__ import annotations

import re
from typing import Any

from dyna_gym.errors import needs
from dyna_gym.responses import REASONS
from dyna_gym.world import World

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"

# The pieces that the response format and the compact prompts are made of, in any world. A piece holds its
# white space, so that joined pieces are the text and common turns of phrase cost one token.
_FORMAT = (
    "<think>\n",
    "<sim>",
    " |",
    " </sim>\n",
    "</think>\n<plan>\n",
    "</plan>\n<action>",
    "</action>",
    "<plan>\n",
    "nothing found\n",
    " ->",
    *(f"(invalid: {reason})\n" for reason in REASONS),  # in the history of a prompt
    *(f" value {v / 10:.1f}" for v in range(11)),
    "\n",
    " ",
)


def build_tokenizer(world: World) -> Any:
    """A fast Hugging Face tokenizer with one token for each piece of the world's vocabulary.

    Longest piece first; what no piece covers is ``<unk>``, a character each. Decoding joins the pieces, so
    encoding and decoding a text that the pieces cover gives the text back.

    Returns:
        A `transformers.PreTrainedTokenizerFast`.
    """
    with needs("train", __name__):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

    pieces = [PAD, END, UNKNOWN, *dict.fromkeys((*_FORMAT, *world.vocabulary()))]
    tokenizer = Tokenizer(models.WordLevel({p: i for i, p in enumerate(pieces)}, unk_token=UNKNOWN))
    longest_first = sorted(pieces[3:], key=len, reverse=True)
    pattern = "|".join(re.escape(p).replace(r"\ ", " ") for p in longest_first)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{pattern}|[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )
