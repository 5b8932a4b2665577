"""The response format and its one parser.

An agent's whole response is its action (Dyna-Mind, section 3: any text that imagines the future is
part of the action). It reads

    <think>
    <sim> up -> P a2 X c3 | right -> P a3 X c3 | value 0.4 </sim>
    </think>
    <plan>
    up
    right
    </plan>
    <action>up</action>

The paper does not give its delimiters [NF]; these are ours. Simulated futures stand between
``<sim>`` tags as ``action -> imagined digest`` pairs, parted by ``|``, so that a program can compare
them with what really happens. Parsing is linear in the length of the text and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

REASONS: dict[str, str] = {
    "empty_action": "the <action> block is empty",
    "no_action": "there is no complete <action>...</action> after the thinking",
    "unclosed_think": "the <think> block is never closed, so nothing after it can be read",
    "unclosed_action": "the <action> block is never closed",
    "unknown_action": "the text is no action of this world",
    "ambiguous": "the text names more than one action",
    "not_admissible": "the action cannot be taken in this state",
    "bad_arguments": "the action's arguments cannot be read",
    "empty_plan": "the <plan> block holds no action",
    "no_plan": "there is no complete <plan>...</plan> after the thinking",
    "too_long": "the response is longer than allowed",
}
"""Reason codes of ``info["invalid_reason"]`` and what they mean."""

MAX_RESPONSE_CHARS = 1_000_000
_LIST_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")


class Imagined(NamedTuple):
    """One imagined step."""

    action: str
    digest: str


class Simulation(NamedTuple):
    """One simulated future of a response: a line of imagined steps and, if given, its value."""

    steps: tuple[Imagined, ...]
    value: float | None = None


@dataclass(frozen=True)
class ParsedResponse:
    """What the parser found. ``action`` is raw text; the world decides what it means."""

    think: str = ""
    simulations: tuple[Simulation, ...] = ()
    plan: tuple[str, ...] = ()
    plan_reason: str | None = None
    """Why ``plan`` is empty."""
    action: str | None = None
    reason: str | None = None
    """Why ``action`` is None."""
    notes: tuple[str, ...] = ()
    """Oddities that do not make the response invalid: `duplicate_action`, `duplicate_plan`."""

    def imagined_plan(self) -> tuple[str | None, ...]:
        """For each action of the plan, the digest that the response imagines after it.

        Taken from the last simulation that agrees with the plan on the longest run of first actions;
        None where nothing is imagined.
        """
        # Each text is split into words once: a response may repeat one plan in thousands of simulations.
        planned = [action.split() for action in self.plan]
        best: tuple[Imagined, ...] = ()
        for simulation in self.simulations:
            run = 0
            for step, words in zip(simulation.steps, planned, strict=False):
                if step.action.split() != words:
                    break
                run += 1
            if run and run >= len(best):
                best = simulation.steps[:run]
        return tuple(step.digest for step in best) + (None,) * (len(self.plan) - len(best))


@dataclass(frozen=True)
class Response:
    """What a policy wrote, with what training needs.

    Token lists are those that were sampled, never re-tokenised text.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Natural log of the probability of each sampled token, under the distribution sampled from."""
    finish: str = "stop"
    """`stop` (the model ended) or `length` (the token limit did)."""
    extra: dict[str, Any] = field(default_factory=dict, compare=False)


def _last_block(text: str, tag: str) -> tuple[str | None, int, bool]:
    """The content of the last complete ``<tag>`` block, how many there are, and if one stays open."""
    open_tag, close_tag = f"<{tag}>", f"</{tag}>"
    lower = text.lower()
    if len(lower) != len(text):  # a character whose lower case is longer would shift the positions
        lower = text
    content, count, at = None, 0, 0
    dangling = False
    while (start := lower.find(open_tag, at)) >= 0:
        end = lower.find(close_tag, start)
        if end < 0:
            dangling = True
            break
        # An open tag that is opened again before it is closed starts anew.
        start = lower.rfind(open_tag, start, end)
        content, count, at = text[start + len(open_tag) : end], count + 1, end + len(close_tag)
    return content, count, dangling


def parse_response(text: Any) -> ParsedResponse:
    """Read a response.

    What counts stands after the last ``</think>``; a chat template may have opened the thinking
    already, so ``<think>`` itself may be missing, and so may the whole block. The last complete block
    of a kind wins and others are noted.

    Examples:
        >>> parse_response("<think>maybe <action>up</action></think><action> left </action>").action
        'left'
        >>> parse_response("<think>up</think><action></action>").reason
        'empty_action'
        >>> parse_response("<think>for ever").reason
        'unclosed_think'
    """
    if not isinstance(text, str):
        return ParsedResponse(reason="no_action", plan_reason="no_plan")
    if len(text) > MAX_RESPONSE_CHARS:
        return ParsedResponse(reason="too_long", plan_reason="too_long")
    lower = text.lower() if len(text.lower()) == len(text) else text
    close = lower.rfind("</think>")
    if close < 0 and "<think>" in lower:
        think = text[lower.find("<think>") + len("<think>") :]
        return ParsedResponse(
            think, parse_simulations(think), reason="unclosed_think", plan_reason="unclosed_think"
        )
    opened = lower.find("<think>", 0, max(close, 0))
    think = text[opened + len("<think>") if opened >= 0 else 0 : close] if close >= 0 else ""
    answer = text[close + len("</think>") :] if close >= 0 else text

    notes = []
    action, actions, dangling = _last_block(answer, "action")
    reason = None
    if action is None:
        reason = "unclosed_action" if dangling else "no_action"
    elif not action.strip():
        action, reason = None, "empty_action"
    if actions > 1:
        notes.append("duplicate_action")
    body, plans, _ = _last_block(answer, "plan")
    plan = tuple(plan_lines(body or ""))
    plan_reason = None if plan else ("no_plan" if body is None else "empty_plan")
    if plans > 1:
        notes.append("duplicate_plan")
    return ParsedResponse(
        think=think.strip(),
        simulations=parse_simulations(think),
        plan=plan,
        plan_reason=plan_reason,
        action=None if action is None else action.strip(),
        reason=reason,
        notes=tuple(notes),
    )


def plan_lines(body: str) -> list[str]:
    """The actions of a plan: one a line, list marks (``1.``, ``-``) taken off."""
    lines = (_LIST_MARK.sub("", line).strip() for line in body.splitlines())
    return [line for line in lines if line]


def parse_simulations(think: str) -> tuple[Simulation, ...]:
    """All ``<sim>`` blocks of a thinking, in order."""
    found = []
    for chunk in think.split("<sim>")[1:]:
        body, closed, _ = chunk.partition("</sim>")
        if not closed:
            continue
        steps, value = [], None
        for part in body.split("|"):
            action, arrow, digest = part.partition("->")
            if arrow:
                steps.append(Imagined(" ".join(action.split()), " ".join(digest.split())))
            elif part.split()[:1] == ["value"]:
                try:
                    value = float(part.split()[1])
                except (IndexError, ValueError):
                    value = None
        found.append(Simulation(tuple(steps), value))
    return tuple(found)


def format_simulation(steps: Iterable[tuple[str, str]], value: float | None = None) -> str:
    """Write one simulated future; the inverse of `parse_simulations`.

    Examples:
        >>> format_simulation([("up", "P a2 X c3"), ("right", "P a3 X c3")], 0.5)
        '<sim> up -> P a2 X c3 | right -> P a3 X c3 | value 0.5 </sim>'
    """
    parts = [f"{action} -> {digest}" for action, digest in steps]
    if value is not None:
        parts.append(f"value {value:.1f}")
    return f"<sim> {' | '.join(parts)} </sim>"


def format_response(think: str | None, plan: Sequence[str], action: str) -> str:
    """Write a response in the format that `parse_response` reads.

    Args:
        think: The thinking; "" for an empty block, None for no block.
        plan: Planned actions, the next one first.
        action: The next action.
    """
    body = f"{think}\n" if think else ""
    thinking = "" if think is None else f"<think>\n{body}</think>\n"
    lines = "".join(f"{a}\n" for a in plan)
    return f"{thinking}<plan>\n{lines}</plan>\n<action>{action}</action>"
