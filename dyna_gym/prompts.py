"""Prompt texts: plain, refinement (SimRollout) and aggregation (ReSim).

The papers give the structure of their prompts but not the wording [NF]; the wording is ours. ``full``
is for instruction-tuned models: role, rules, step count, last h steps, state, admissible actions, and
the response format. ``compact`` is for small models trained from scratch: the state in as few tokens
as possible, with futures *before* it (fixed positions at the start of the prompt).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyna_gym.responses import format_simulation
from dyna_gym.world import World

STYLES = ("full", "compact")

_FORMAT = """First think: imagine what some different courses of action would lead to, one line each:
<sim> action -> state | action -> state | value V </sim>
with each state in the short form shown above and V in [0, 1] how good its end is. Then give your plan, \
one action a line, and the next action:
<think>
...
</think>
<plan>
...
</plan>
<action>...</action>"""


def plain_prompt(
    world: World,
    instruction: str,
    state: str,
    history: Sequence[tuple[str, str]] = (),
    steps: int = 0,
    admissible: Sequence[str] | None = None,
    style: str = "full",
) -> str:
    """What an agent sees before it answers.

    Args:
        world: The world's texts.
        instruction: The task.
        state: The present state.
        history: The last h (state, action) pairs, oldest first.
        steps: Steps taken so far.
        admissible: Actions that may be taken, or None where the set is unbounded.
        style: `full` or `compact`.

    Returns:
        The prompt.
    """
    if style == "compact":
        past = "".join(f"{world.digest(s)} -> {a}\n" for s, a in history)
        return f"{past}{world.compact(state)}\n"
    return f"{_situation(world, instruction, state, history, steps, admissible)}\n\n{_FORMAT}"


def _situation(
    world: World,
    instruction: str,
    state: str,
    history: Sequence[tuple[str, str]],
    steps: int,
    admissible: Sequence[str] | None,
) -> str:
    parts = [
        f"You are an agent in the world {world.name!r}. Your task: {instruction}",
        world.rules,
        f"Actions: {world.action_help}",
    ]
    if history:
        shown = "\n".join(f"State:\n{s}\nAction: {a}" for s, a in history)
        parts.append(f"You have taken {steps} steps. The last {len(history)}:\n{shown}")
    parts.append(f"Current state:\n{state}\nIn short form: {world.digest(state)}")
    if admissible is not None:
        parts.append(f"Admissible actions: {', '.join(admissible)}")
    return "\n\n".join(parts)


def refine_prompt(
    world: World,
    plain: str,
    draft: str,
    futures: Sequence[tuple[str, str]],
    style: str = "full",
) -> str:
    """The refinement prompt of SimRollout (the paper's Table A3; its wording is [NF]).

    In the paper's order: the state, the agent's own response, then alternating the planned actions and
    the real next states.

    Args:
        world: The world's texts.
        plain: The prompt without futures.
        draft: The response whose plan was tried.
        futures: (action, real state) of each step of that plan.
        style: `full` or `compact`; `compact` leaves the draft's text out, for its plan is in the
            futures, and puts them first.

    Returns:
        The prompt.
    """
    steps = [(action, world.digest(state)) for action, state in futures]
    if style == "compact":
        return f"{format_simulation(steps)}\n{plain}"
    shown = "\n".join(f"Action: {a}\nReal next state:\n{s}" for a, s in futures)
    return (
        f"{plain}\n\nYou answered:\n{draft}\n\nYour plan was tried in the real environment. "
        f"What really happened:\n{shown or '(your plan could not be read)'}\n\n"
        "Nothing of it counts yet. Answer again in the same format: correct what you imagined wrongly, "
        "and keep the plan if it is good or take a better one."
    )


def aggregate_prompt(
    world: World, plain: str, rollouts: Sequence[dict[str, Any]], style: str = "full"
) -> str:
    """The aggregation prompt of ReSim (Algorithm 3; the paper's wording is [NF]).

    Args:
        world: The world's texts.
        plain: The prompt without search results.
        rollouts: Each with ``steps`` (action, digest) and ``value``.
        style: `full` or `compact`.

    Returns:
        The prompt.
    """
    lines = "\n".join(format_simulation(r["steps"], r["value"]) for r in rollouts)
    if style == "compact":
        return f"{lines}\n{plain}"
    return (
        f"{plain}\n\nThese courses of action were tried in the real environment from the current "
        f"state:\n{lines}\n\nAnswer in the same format, as if you had imagined them yourself."
    )
