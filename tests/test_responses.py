"""The parser: what counts, reason codes, and that nothing makes it raise or slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_gym.responses import (
    MAX_RESPONSE_CHARS,
    REASONS,
    Imagined,
    ParsedResponse,
    format_response,
    format_simulation,
    parse_response,
    parse_simulations,
    plan_lines,
)


def test_the_action_after_the_thinking_counts() -> None:  # COMPLAINTS 2
    parsed = parse_response(
        "<think>maybe <action>look</action></think><action>go to desk 1</action>"
    )
    assert (parsed.action, parsed.reason, parsed.notes) == ("go to desk 1", None, ())


def test_an_action_only_inside_the_thinking_is_none() -> None:  # COMPLAINTS 2
    parsed = parse_response("<think>maybe <action>look</action></think>")
    assert (parsed.action, parsed.reason) == (None, "no_action")


def test_the_last_complete_block_wins_and_others_are_noted() -> None:  # COMPLAINTS 2
    parsed = parse_response(
        "<plan>a\n</plan><action>first</action><plan>b\n</plan><action>second</action><action>cut"
    )
    assert (parsed.action, parsed.plan) == ("second", ("b",))
    assert parsed.notes == ("duplicate_action", "duplicate_plan")


def test_an_empty_action_is_invalid() -> None:  # COMPLAINTS 3
    parsed = parse_response("<think>x</think><action> \n </action>")
    assert (parsed.action, parsed.reason) == (None, "empty_action")


def test_the_chat_template_may_have_opened_the_thinking() -> None:
    parsed = parse_response("so <action>up</action>\n</think>\n<action>left</action>")
    assert (parsed.action, parsed.think) == ("left", "so <action>up</action>")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_action"),
        ("up", "no_action"),
        ("<action>", "unclosed_action"),
        ("<action>up", "unclosed_action"),
        ("</action>", "no_action"),
        ("<action></action>", "empty_action"),
        ("<think>for ever <action>up</action>", "unclosed_think"),
        ("x" * (MAX_RESPONSE_CHARS + 1), "too_long"),
        (None, "no_action"),
        (7, "no_action"),
        (b"<action>up</action>", "no_action"),
        (["<action>up</action>"], "no_action"),
    ],
)
def test_reasons_of_a_missing_action(text: Any, reason: str) -> None:
    parsed = parse_response(text)
    assert (parsed.action, parsed.reason) == (None, reason)
    assert reason in REASONS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<action>up</action>", "no_plan"),
        ("<plan>\n \n</plan>", "empty_plan"),
        ("<plan>\nup", "no_plan"),
        ("<think><plan>up</plan>", "unclosed_think"),
        ("x" * (MAX_RESPONSE_CHARS + 1), "too_long"),
        (None, "no_plan"),
    ],
)
def test_reasons_of_a_missing_plan(text: Any, reason: str) -> None:
    parsed = parse_response(text)
    assert (parsed.plan, parsed.plan_reason) == ((), reason)
    assert reason in REASONS


def test_what_counts_starts_after_the_last_closing_think_tag() -> None:
    text = "<think>a</think><action>up</action> or rather </think> well"
    assert parse_response(text).reason == "no_action"
    assert parse_response(f"{text}<action>left</action>").action == "left"


def test_a_tag_opened_twice_starts_anew() -> None:
    assert parse_response("<action>no, <action>up</action>").action == "up"
    assert parse_response("<plan>\nx\n<plan>\nup\n</plan>").plan == ("up",)


def test_case_of_tags_does_not_matter_and_positions_hold() -> None:
    assert parse_response("<THINK>a</Think><Action>Up</ACTION>").action == "Up"
    # "İ".lower() is longer than "İ": positions must not shift.
    assert parse_response("İİİ</think><action>up</action>").action == "up"


def test_plan_lines_lose_their_list_marks_only() -> None:
    body = "1. up\n - left\n* down\n\n12) go to desk 1\n2 apples\n-5"
    assert plan_lines(body) == ["up", "left", "down", "go to desk 1", "2 apples", "-5"]


def test_simulations_round_trip() -> None:
    lines = [
        format_simulation([("up", "P a2 X c3"), ("right", "P a3 X c3")], 0.4),
        format_simulation([("down", "P c2")]),
    ]
    text = format_response("\n".join(lines), ["up", "right"], "up")
    parsed = parse_response(text)
    first, second = parsed.simulations
    assert first.steps == (Imagined("up", "P a2 X c3"), Imagined("right", "P a3 X c3"))
    assert (first.value, second.value) == (0.4, None)
    assert (parsed.plan, parsed.action) == (("up", "right"), "up")
    assert parsed.imagined_plan() == ("P a2 X c3", "P a3 X c3")


def test_unclosed_and_odd_simulations_are_left_out() -> None:
    assert parse_simulations("<sim> up -> x") == ()
    (simulation,) = parse_simulations("<sim> up | value much | -> | value </sim>")
    assert (simulation.steps, simulation.value) == ((Imagined("", ""),), None)


def test_imagined_plan_takes_the_longest_agreement_the_last_among_equals() -> None:
    think = "<sim> a -> 1 | b -> 2 </sim><sim> a -> 3 | c -> 4 </sim>"
    think += "<sim> a -> 5 | b -> 6 | x -> 7 </sim>"
    text = f"<think>{think}</think><plan>\na\nb\nc\n</plan>"
    assert parse_response(text).imagined_plan() == ("5", "6", None)
    assert parse_response("<plan>\na\n</plan>").imagined_plan() == (None,)
    assert ParsedResponse().imagined_plan() == ()


_TAGS = ["think", "plan", "action", "sim", "THINK", "Action"]
_PIECES = st.one_of(
    st.sampled_from([f"<{t}>" for t in _TAGS] + [f"</{t}>" for t in _TAGS]),
    st.sampled_from(["up", "\n", "->", "|", "value 0.5", "1. ", "İ", "\ud800", "\x00", "🙂"]),
    st.text(max_size=8),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(_PIECES, max_size=30).map("".join))
def test_fuzz_never_raises_and_keeps_its_promises(text: str) -> None:
    parsed = parse_response(text)
    assert (parsed.action is None) == (parsed.reason is not None)
    assert (parsed.plan == ()) == (parsed.plan_reason is not None)
    assert {parsed.reason, parsed.plan_reason} - {None} <= REASONS.keys()
    assert parsed.action is None or parsed.action == parsed.action.strip() != ""
    assert all(line and line == line.strip() for line in parsed.plan)
    assert len(parsed.imagined_plan()) == len(parsed.plan)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.text(st.characters(exclude_characters="<>|"), max_size=40),
    st.lists(st.sampled_from(["up", "go to desk 1", "type [1] [x]"]), min_size=1, max_size=5),
)
def test_fuzz_what_is_written_is_read(think: str, plan: list[str]) -> None:
    parsed = parse_response(format_response(think, plan, plan[-1]))
    assert (parsed.action, parsed.plan) == (plan[-1], tuple(plan))


@pytest.mark.parametrize(
    "piece",
    [
        "<action>",
        "</action>",
        "<action></action>",
        "<action><action></action>",
        "<think>",
        "</think>",
        "<sim>",
        "<think><sim>a->b",
        "<plan>",
        "| -> ",
        "1. ",
        " ",
    ],
)
def test_large_hostile_texts_are_parsed(piece: str) -> None:
    """Not timed: a parser that is not linear in the text would not come back for minutes."""
    text = piece * (900_000 // len(piece))
    parse_response(text).imagined_plan()


def test_many_simulations_of_a_long_plan() -> None:
    n = 40_000
    text = "<think>" + "<sim>a->b</sim>" * n + "</think><plan>" + "a\n" * n + "</plan>"
    assert parse_response(text).imagined_plan()[:2] == ("b", None)


def test_two_hundred_thousand_tags() -> None:
    assert parse_response("<action>" * 100_000).reason == "unclosed_action"
    parsed = parse_response("</think>" + "<action>x</action>" * 50_000)
    assert (parsed.action, parsed.notes) == ("x", ("duplicate_action",))
