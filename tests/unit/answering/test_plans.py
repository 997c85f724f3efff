"""A plan says what an ask would do: the same refusals, the same notices, and figures that add up."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import planning
from support.planning import SmallHouse, asking, demo

from formatters.context import Evidence
from orchestrator.engine.client.supervisor import ChildState
from orchestrator.errors import LoreError, NotReady, OverBudget
from orchestrator.karma import recall
from orchestrator.karma.recall import Recall
from orchestrator.machine.yielding import Away, Cause
from orchestrator.prompt.coverage import Coverage
from orchestrator.service import Message, ToolChoice
from orchestrator.wire.answers import PlanReply
from orchestrator.wire.requests import AttachedText, ToolFunction


@pytest.fixture
def house(tmp_path: Path) -> Any:
    return lambda **parts: SmallHouse(tmp_path, **parts)


def refused(house: SmallHouse, **options: Any) -> tuple[str, str, str]:
    """Code, message and hint of the refusal of an ask, which a plan of it has to report."""
    with pytest.raises(LoreError) as fault:
        house.ask(asking(**options))
    refusal = house.plan(asking(**options)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message, refusal.hint) == (fault.value.code, fault.value.message, fault.value.hint)
    return refusal.code, refusal.message, refusal.hint


@pytest.mark.parametrize("coverage", [Coverage.MAP, Coverage.NONE, Coverage.SKELETON])
def test_a_plan_says_that_asking_is_refused_where_nothing_was_found(house: Any, coverage: Coverage) -> None:
    code, message, _ = refused(house(codex=demo(coverage)))
    assert (code, message) == (
        "not_found",
        f"nothing in demo answers to this question, and only its {coverage} is in the prefix",
    )


def test_a_model_that_may_call_tools_of_the_client_is_asked_where_nothing_was_found(house: Any) -> None:
    found, tools = house(codex=demo(Coverage.MAP)), (ToolFunction(name="run_tests"),)
    assert found.plan(asking(tools=tools)).refusal is None
    told = found.ask(asking(tools=tools)).lore.notices
    assert "nothing in demo answers to this question, and only its map is in the prefix" in told


def test_a_plan_says_that_nothing_was_found_where_no_tool_of_the_client_may_be_called(house: Any) -> None:
    code, _, _ = refused(
        house(codex=demo(Coverage.MAP)), tools=(ToolFunction(name="a"),), tool_choice=ToolChoice("none")
    )
    assert code == "not_found"


@pytest.mark.parametrize("said", ["hello", "thanks!", "ok"])
def test_thanks_and_greetings_about_a_codex_that_is_searched_are_answered_without_a_search(
    house: Any, said: str
) -> None:
    searched = house(codex=demo(Coverage.MAP))
    assert searched.ask(asking(said)).finish_reason == "stop"
    assert searched.queries == []


def test_a_plan_says_that_a_forced_strategy_is_refused_on_this_floor(house: Any) -> None:
    code, _, hint = refused(house(codex=demo(Coverage.MAP)), strategy="cag")
    assert (code, "lore load PATH --tier full" in hint) == ("invalid_request", True)


def test_a_plan_says_that_who_does_not_wait_is_refused_until_the_floor_is_computed(house: Any) -> None:
    code, message, _ = refused(house(cached=3), wait=False)
    assert (code, "the prefix of demo is not computed yet: 3 of " in message) == ("not_ready", True)
    warm = house(cached=1_000)
    assert warm.plan(asking(wait=False)).refusal is None
    assert warm.ask(asking(wait=False)).finish_reason == "stop"


@pytest.mark.parametrize(
    ("away", "code"),
    [
        (Away(Cause.PAUSE, 0.0, "lore pause"), "paused"),
        (None, "not_ready"),
    ],  # of its own accord it comes for a question
)
def test_who_does_not_wait_is_refused_while_the_memory_is_given_away(house: Any, away: Away | None, code: str) -> None:
    small = house()
    small.state, small.paused, small.reason = ChildState.PAUSED, away, "unloaded"
    for ask in (small.ask, small.plan):
        with pytest.raises(LoreError) as fault:
            ask(asking(wait=False))
        assert fault.value.code == code


def test_what_is_answered_is_planned_without_a_refusal(house: Any) -> None:
    for parts in ({}, {"codex": None}, {"codex": demo(Coverage.MAP), "hits": (found(1, 5),)}):
        assert house(**parts).plan(asking()).refusal is None
        assert house(**parts).ask(asking()).finish_reason == "stop"


# -- the notice of who has loaded nothing


def test_the_first_answer_without_any_codex_says_how_one_is_loaded(house: Any) -> None:
    for lore in (house(codex=None).ask(asking()).lore, house(codex=None).plan(asking())):
        assert lore.notices == ("no codex is loaded, so the model answers without any code: lore load ~/src/project",)


def test_who_asks_the_bare_model_is_not_told_to_load_anything(house: Any) -> None:
    assert house(codex=None).ask(asking(codex="none")).lore.notices == ()
    assert house().ask(asking()).lore.notices == ()


# -- what the gate goes by


def test_a_short_question_that_refers_back_clarifies_whatever_the_template_writes_around_it(house: Any) -> None:
    earlier = [Message(role, "In a.py.") for _ in range(4) for role in ("user", "assistant")]
    assert house().plan(asking("which one do you mean?", *earlier)).relevance.mode == "CLARIFY"
    assert house().plan(asking(f"which one do you mean{', and why' * 4}?", *earlier)).relevance.mode == "RESPOND"


def test_the_gate_has_the_frame_of_the_question_and_not_that_of_the_conversation_before_it(house: Any) -> None:
    talk = house()
    for said in ("hey", "thanks", "ok"):
        talk.ask(asking(said, session="talk"))
    asked = talk.plan(asking("who calls main?", session="talk"))
    assert (asked.intent.frame, asked.relevance.included["episodic_memory"]) == ("question", "recovery")


# -- figures


def test_the_budget_is_the_window_that_the_grant_leaves_and_not_what_the_memory_would_allow(house: Any) -> None:
    for lore in (house(cells=131_072, window=1_288).plan(asking()), house(window=1_288).ask(asking()).lore):
        assert (lore.governor.budget_tokens, lore.governor.kv_bytes) == (1_288, 8 * lore.prompt.tokens)


def test_an_answer_that_the_window_cannot_hold_says_where_it_ends_and_one_that_it_holds_says_nothing(
    house: Any,
) -> None:
    for lore in (house().plan(asking(max_tokens=100_000)), house().ask(asking(max_tokens=100_000)).lore):
        room = 4_000 - lore.prompt.tokens
        assert lore.governor.actions == (f"the answer may have {room:,} tokens, not 100,000: the window holds no more",)
    assert house().ask(asking(max_tokens=room)).lore.governor.actions == ()


def test_a_plan_says_how_many_memories_would_be_fetched_and_why(house: Any) -> None:
    prefetch = house().plan(asking()).prefetch
    assert (prefetch.mode, prefetch.limit, prefetch.min_trust, prefetch.skipped) == ("stuff", 15, 0.2, False)
    assert prefetch.report.startswith("STUFF: ")
    long = [Message("user", "said " * 600), Message("assistant", "yes")]
    full = house().plan(asking("Where is main?", *long)).prefetch
    assert (full.mode, full.limit) == ("hybrid", 5)
    assert full.pressure == round(full.used_tokens / full.threshold, 3)
    assert full.threshold < full.window == 4_000


def found(number: int, words: int) -> Evidence:
    return Evidence(path=f"f{number}.py", start=1, end=2, text="word " * words + "\n")


def assert_adds_up(plan: PlanReply, window: int, most: int) -> None:
    blocks, prompt, strategy = plan.blocks, plan.prompt, plan.strategy
    assert [block.kind for block in blocks] == ["identity", "codex", "environment", "karma", "state", "query"]
    assert sum(block.tokens for block in blocks) == prompt.tokens
    assert sum(block.cached for block in blocks) == prompt.cached
    assert all(0 <= block.cached <= block.tokens for block in blocks)
    assert prompt.cached + prompt.computed == prompt.tokens
    assert strategy.used_tokens + strategy.available_tokens == strategy.window == plan.governor.budget_tokens == window
    assert strategy.available_tokens >= 0
    assert strategy.used_tokens - prompt.tokens == max(1, min(most, window // 4))
    assert plan.retrieval_plan.budget == strategy.retrieval_budget
    assert plan.retrieval_plan.retrieval == strategy.retrieval
    assert plan.predicted.kv_bytes == plan.governor.kv_bytes == prompt.tokens * 8
    right_of_the_floor = sum(block.tokens for block in blocks[2:])
    assert plan.predicted.context_pressure == round(right_of_the_floor / window, 3)


@given(
    coverage=st.sampled_from(list(Coverage)),
    sizes=st.lists(st.integers(1, 300), max_size=6),
    turns=st.lists(st.integers(0, 200), max_size=6),
    window=st.integers(300, 3_000),
    most=st.integers(1, 3_000),
    cached=st.integers(0, 200),
    forced=st.sampled_from([None, "cag", "rag", "hybrid"]),
)
def test_all_figures_of_a_plan_add_up(
    tmp_path_factory: Any,
    coverage: Coverage,
    sizes: list[int],
    turns: list[int],
    window: int,
    most: int,
    cached: int,
    forced: str | None,
) -> None:
    hits = tuple(found(number, words) for number, words in enumerate(sizes))
    house = SmallHouse(tmp_path_factory.mktemp("plan"), demo(coverage), window, cached=cached, hits=hits)
    earlier = [Message(("user", "assistant")[at % 2], "said " * words) for at, words in enumerate(turns)]
    try:
        plan = house.plan(asking("Where is main?", *earlier, max_tokens=most, strategy=forced))
    except OverBudget:  # it was refused with the numbers
        return
    assert_adds_up(plan, window, most)
    assert set(plan.retrieval_plan.passages) <= {f"f{number}.py:1-2" for number in range(len(sizes))}
    state = next(block for block in plan.blocks if block.kind == "state")
    fetched = sum(
        words + 1 for number, words in enumerate(sizes) if f"f{number}.py:1-2" in plan.retrieval_plan.passages
    )
    assert state.tokens >= fetched


def too_many(house: SmallHouse, words: int) -> int:
    """Tokens that such a question has beyond what can be held."""
    try:
        house.plan(asking("word " * words))
    except OverBudget as fault:
        return fault.over
    return 0


def test_a_question_that_only_the_log_of_changes_makes_too_long_is_told_to_wait_for_a_generation(house: Any) -> None:
    small = house(codex=replace(demo(), amended=50))
    words = next(words for words in range(10, 5_000, 10) if too_many(small, words))
    over = too_many(small, words)
    small.due = True
    with pytest.raises(NotReady, match=f"{over} of 50"):
        small.plan(asking("word " * words))
    assert too_many(small, words + 50) > 50


# -- texts of megabytes


def test_a_question_of_20_megabytes_is_refused_before_anything_of_it_is_tokenised_or_searched_for(house: Any) -> None:
    small = house(codex=demo(Coverage.MAP))
    for ask in (asking("word " * 4_000_000), asking(attachments=(AttachedText(name="log", text="word " * 4_000_000),))):
        with pytest.raises(OverBudget, match=r"at least 20,000,0\d\d characters and 64,000 are allowed"):
            small.ask(ask)
    assert (small.encoder.calls, small.queries) == ([], [])


def test_an_earlier_turn_of_20_megabytes_is_left_out_before_it_is_tokenised(house: Any) -> None:
    small = house()
    lore = small.ask(asking("And why?", Message("user", "word " * 4_000_000), Message("assistant", "yes"))).lore
    assert lore.governor.actions == ("turn 1 condensed into an extract of 85 tokens",)
    assert lore.governor.left_out == "left out: 1 turn (condensed); lore plan shows which"
    assert small.encoder.characters < 10_000


def test_of_a_long_question_the_beginning_and_the_end_are_searched_for(house: Any) -> None:
    small = house(codex=demo(Coverage.MAP), hits=(found(1, 5),), window=100_000)
    small.plan(asking("Explain this: " + "log " * 7_500 + "in main"))
    assert len(small.queries[0]) == 20_001
    assert small.queries[0].startswith("Explain this: log")
    assert small.queries[0].endswith("log in main")


def test_a_plan_asks_everybody_once(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive, the memories, how fresh the codex is, and the cache: each is another thread, the disk or another
    process, and answers to the same question do not differ."""
    asked = Counter[str]()

    def counted(place: object, name: str) -> None:
        real = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, **named: asked.update([name]) or real(*given, **named))

    found = house(codex=demo(Coverage.MAP), hits=(Evidence(path="a.py", start=1, end=2, text="step()\n"),))
    for place, name in ((planning, "fresh"), (found, "match"), (Recall, "_block"), (recall, "intent_of")):
        counted(place, name)
    found.plan(asking())
    assert (len(found.queries), asked) == (1, {"fresh": 1, "match": 1, "_block": 1, "intent_of": 1})
