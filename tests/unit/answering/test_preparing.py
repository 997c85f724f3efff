"""What is refused before anything is inferred: no question, and a strategy that needs another floor than there is."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traced import composed

from formatters.context import SigilView
from orchestrator.answering.preparing import crowd, sigil_of, spoken_for
from orchestrator.answering.question import split
from orchestrator.answering.refusals import other_floor
from orchestrator.errors import InvalidRequest
from orchestrator.prompt.coverage import Coverage, CoverageSizes, FloorRoom
from orchestrator.prompt.phrases import Task
from orchestrator.prompt.strategy import FloorCoverage, QuestionFigures, decide
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import catalogue, relevance
from orchestrator.relevance.signals import Turn, signals_of
from orchestrator.service import Message, Principal, ToolCall

SIZES = CoverageSizes(full=60_000, skeleton=9_000, map=2_000)
ROOM = FloorRoom(window=131_072, identity=100, kv_tokens=500_000)
ASKED = QuestionFigures(Task.UNKNOWN, window=131_072, used=3_000)


def decided(tier, tokens, forced):
    return decide(FloorCoverage(tier, 60_000, tokens), ASKED, forced=forced, sizes=SIZES, room=ROOM)


@given(st.lists(st.integers(0, 5_000), min_size=6, max_size=6), st.integers(1, 2_000), st.integers(1, 16_000))
def test_passages_have_a_quarter_of_what_may_be_cut_however_long_the_conversation_is(
    blocks: list[int], answer: int, window: int
) -> None:
    prompt = SimpleNamespace(blocks=[SimpleNamespace(tokens=tokens) for tokens in blocks], tokens=sum(blocks))
    used = spoken_for(prompt, answer, window)  # type: ignore[arg-type]
    fixed = sum(blocks) - blocks[4] + answer
    assert used == min(window, sum(blocks) + answer) or window - used >= (window - fixed) // 4
    assert used >= min(window, fixed)


def test_cag_on_a_map_is_refused_and_names_the_tier_it_needs():
    refused = other_floor(decided(Coverage.MAP, 2_000, "cag"))
    assert isinstance(refused, InvalidRequest)
    assert "needs the coverage full" in refused.message
    assert "lore load PATH --tier full (60,100 tokens to compute)" in refused.hint
    assert "beside" not in refused.message + refused.hint


def test_a_forced_strategy_that_the_floor_allows_is_not_refused():
    assert other_floor(decided(Coverage.FULL, 60_000, "cag")) is None
    assert other_floor(decided(Coverage.MAP, 2_000, "rag")) is None


def test_a_sigil_is_who_the_kernel_says() -> None:
    peer = Principal(uid=1001, gid=100, pid=7, sigil="guest", scopes=frozenset({"query"}))
    assert sigil_of(peer) == SigilView(name="guest", uid=1001, scopes=frozenset({"query"}))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ((), "must be the user's question"),
        ((Message("system", "be short"),), "must be the user's question"),
        ((Message("user", "how?"), Message("assistant", "so")), "an answer that a client begins is not continued"),
        (
            (Message("user", "how?"), Message("assistant", "", tool_calls=(ToolCall("c1", "look", "{}"),))),
            "no results follow the calls of the last message",
        ),
        ((Message("user", "how?"), Message("tool", "42")), "a result without tool_call_id belongs to no call"),
        ((Message("user", " \n"),), "the question is empty"),
    ],
)
def test_a_conversation_that_does_not_end_with_a_question_is_refused(messages, words):
    with pytest.raises(InvalidRequest, match=words):
        split(messages)


def test_a_question_is_apart_from_what_was_said_before_and_from_the_client_s_system_messages():
    before, question = Message("user", "how?"), Message("user", "and why?")
    assert split((Message("system", "be short"), before, question)) == ("and why?", (before,), ("be short",), ())


def test_the_safeguard_counts_the_parts_that_a_prompt_holds_and_not_those_of_which_there_is_nothing():
    found = relevance(signals_of(Turn("Where is main?", 4)), read_rules(catalogue()), catalogue())
    assert len(found.crowded) > 12  # as the gate includes them
    prompt = composed(said=["And x?", "In a.py."])
    written = crowd(found, prompt, 0)
    assert set(written) < set(found.crowded)
    assert "identity_context" in written
    assert "codex" not in written
    assert crowd(found, prompt, len(written)) == ()
