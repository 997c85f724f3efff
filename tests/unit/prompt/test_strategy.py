"""How a question gets at what its floor does not hold: every row of the table, the budget, forced strategies."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InvalidRequest, OverBudget
from orchestrator.prompt.coverage import Coverage, CoverageSizes, FloorRoom
from orchestrator.prompt.phrases import MorePhrases, Task, classify
from orchestrator.prompt.strategy import (
    Decision,
    FloorCoverage,
    QuestionFigures,
    Retrieval,
    Strategy,
    consulted,
    decide,
    strategy_named,
)

ASKED = QuestionFigures(Task.UNKNOWN, window=100_000, used=40_000, tools=frozenset({"search_archive"}))
ROOM = FloorRoom(window=100_000, identity=200, kv_tokens=80_000, kv_bytes_per_token=1_024)


def floor(tier: Coverage, content: int) -> FloorCoverage:
    return FloorCoverage(tier, content, content if tier is Coverage.FULL else content // 100)


def decided(tier: Coverage, content: int, task: Task) -> Decision:
    return decide(floor(tier, content), replace(ASKED, task=task))


@pytest.mark.parametrize(
    ("tier", "content", "task", "row", "strategy", "retrieval", "confidence"),
    [
        (Coverage.FULL, 1_000, Task.RAG_CRITICAL, 1, "HYBRID", "verify", 0.85),
        (Coverage.FULL, 60_000, Task.RAG_CRITICAL, 1, "HYBRID", "verify", 0.85),
        (Coverage.FULL, 32_000, Task.UNKNOWN, 2, "CAG", "none", 0.95),
        (Coverage.FULL, 32_000, Task.STUFF_FRIENDLY, 2, "CAG", "none", 0.95),
        (Coverage.FULL, 32_001, Task.STUFF_FRIENDLY, 3, "CAG", "none", 0.85),
        (Coverage.FULL, 32_001, Task.HYBRID, 4, "CAG", "none", 0.75),
        (Coverage.FULL, 2_000_000, Task.UNKNOWN, 4, "CAG", "none", 0.75),
        (Coverage.SKELETON, 1_000_001, Task.HYBRID, 5, "RAG+GRAPH", "graph", 0.70),
        (Coverage.MAP, 1_000_001, Task.UNKNOWN, 5, "RAG+GRAPH", "graph", 0.70),
        (Coverage.SKELETON, 128_000, Task.HYBRID, 6, "HYBRID", "search", 0.75),
        (Coverage.SKELETON, 128_000, Task.STUFF_FRIENDLY, 6, "HYBRID", "search", 0.75),
        (Coverage.SKELETON, 128_001, Task.HYBRID, 7, "HYBRID", "search", 0.65),
        (Coverage.SKELETON, 128_000, Task.UNKNOWN, 7, "HYBRID", "search", 0.65),
        (Coverage.SKELETON, 128_000, Task.RAG_CRITICAL, 7, "HYBRID", "search", 0.65),
        (Coverage.MAP, 1_000_000, Task.UNKNOWN, 8, "RAG", "search", 0.80),
        (Coverage.NONE, 500, Task.HYBRID, 8, "RAG", "search", 0.80),
    ],
)
def test_the_first_row_that_holds_decides(
    tier: Coverage, content: int, task: Task, row: int, strategy: str, retrieval: str, confidence: float
) -> None:
    decision = decided(tier, content, task)
    got = (decision.row, decision.strategy, decision.retrieval, decision.confidence, decision.coverage)
    assert got == (row, strategy, retrieval, confidence, tier)


@pytest.mark.parametrize(
    ("tier", "content", "task", "left", "budget"),
    [
        (Coverage.FULL, 1_000, Task.UNKNOWN, 60_000, 0),
        (Coverage.FULL, 1_000, Task.RAG_CRITICAL, 60_000, 512),
        (Coverage.FULL, 1_000, Task.RAG_CRITICAL, 300, 300),
        (Coverage.SKELETON, 1_000, Task.UNKNOWN, 60_000, 18_000),
        (Coverage.SKELETON, 1_000, Task.UNKNOWN, 10_000, 4_000),
        (Coverage.MAP, 1_000, Task.UNKNOWN, 60_000, 42_000),
        (Coverage.MAP, 1_000, Task.UNKNOWN, 5_000, 4_000),
        (Coverage.MAP, 1_000, Task.UNKNOWN, 3_000, 3_000),
        (Coverage.MAP, 1_000, Task.UNKNOWN, 0, 0),
        (Coverage.SKELETON, 2_000_000, Task.UNKNOWN, 60_000, 42_000),
    ],
)
def test_the_retrieval_budget_follows_the_strategy(
    tier: Coverage, content: int, task: Task, left: int, budget: int
) -> None:
    asked = replace(ASKED, task=task, used=ASKED.window - left)
    assert decide(floor(tier, content), asked).retrieval_budget == budget


def test_a_window_that_is_overfull_leaves_nothing() -> None:
    assert decide(floor(Coverage.MAP, 1_000), replace(ASKED, used=200_000)).asked.left == 0


def test_the_reason_is_one_sentence_with_the_numbers() -> None:
    asked = replace(ASKED, task=Task.HYBRID, because="explain")
    assert decide(floor(Coverage.MAP, 500_000), asked).reason == (
        "RAG, because 5,000 of 500,000 tokens are in the prefix (coverage map), so the answer is searched for; "
        "task hybrid ('explain'); 60,000 of 100,000 tokens are left before retrieval, 42,000 of them for it"
    )


def test_the_steps_name_documents_tools_and_the_budget() -> None:
    asked = replace(ASKED, task=Task.RAG_CRITICAL, documents=("src/a.py",))
    assert decide(floor(Coverage.MAP, 500_000), asked).steps == (
        "fetch passages of at most 4,000 tokens from the archive",
        "call search_archive where the passages do not answer",
        "look into src/a.py first: the question names it",
        "verify retrieved facts with a second source, and cite path:line for each",
    )


@pytest.mark.parametrize("tier", Coverage)
def test_nothing_is_retrieved_where_nothing_is_asked_unless_a_strategy_is_forced(tier: Coverage) -> None:
    thanks = replace(ASKED, asks=False, documents=("src/a.py",))
    decision = decide(floor(tier, 500_000), thanks)
    assert (decision.retrieval, decision.retrieval_budget) == (Retrieval.NONE, 0)
    assert decision.steps == ("retrieve nothing: nothing is asked",)
    assert decide(floor(tier, 500_000), thanks, forced="rag+graph").retrieval is Retrieval.GRAPH


def test_a_tool_that_is_not_there_is_not_named() -> None:
    decision = decide(floor(Coverage.MAP, 500_000), replace(ASKED, tools=frozenset()))
    assert not any("search_archive" in step for step in decision.steps)


@pytest.mark.parametrize("name", ["CAG", "cag", " Hybrid ", "rag", "RAG+GRAPH", "rag+graph", "rag_graph", "Rag-Graph"])
def test_a_strategy_is_named_in_any_case(name: str) -> None:
    assert strategy_named(name) in Strategy


@pytest.mark.parametrize("name", ["", "none", "stuff", "ragg"])
def test_a_name_that_is_no_strategy_is_refused_with_the_names(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        strategy_named(name)
    assert refusal.value.hint == "one of: CAG, HYBRID, RAG, RAG+GRAPH"


@pytest.mark.parametrize(
    ("forced", "resident", "retrieval", "needs"),
    [
        ("cag", Coverage.FULL, Retrieval.NONE, None),
        ("hybrid", Coverage.FULL, Retrieval.VERIFY, None),
        ("hybrid", Coverage.SKELETON, Retrieval.SEARCH, None),
        ("rag", Coverage.MAP, Retrieval.SEARCH, None),
        ("rag+graph", Coverage.FULL, Retrieval.GRAPH, None),
        ("cag", Coverage.MAP, Retrieval.NONE, Coverage.FULL),
        ("cag", Coverage.SKELETON, Retrieval.NONE, Coverage.FULL),
        ("hybrid", Coverage.MAP, Retrieval.SEARCH, Coverage.SKELETON),
        ("rag", Coverage.FULL, Retrieval.SEARCH, Coverage.NONE),
    ],
)
def test_a_forced_strategy_is_taken_and_says_which_floor_it_needs(
    forced: str, resident: Coverage, retrieval: Retrieval, needs: Coverage | None
) -> None:
    sizes = CoverageSizes(full=20_000, skeleton=4_000, map=500)
    decision = decide(floor(resident, 20_000), ASKED, forced=forced, sizes=sizes, room=ROOM)
    assert (decision.row, decision.confidence, decision.retrieval, decision.needs_coverage) == (
        0,
        1.0,
        retrieval,
        needs,
    )
    assert bool(decision.cost) is (needs is not None)


def test_a_strategy_that_works_on_several_floors_names_them_all() -> None:
    sizes = CoverageSizes(full=20_000, skeleton=4_000, map=500)
    decision = decide(floor(Coverage.FULL, 20_000), ASKED, forced="rag", sizes=sizes, room=ROOM)
    assert "it needs the coverage none or map, and full is in the prefix" in decision.reason


def test_a_floor_that_a_forced_strategy_cannot_have_is_not_called_a_forced_tier() -> None:
    with pytest.raises(OverBudget) as refusal:
        decide(floor(Coverage.MAP, 200_000), ASKED, forced="cag", sizes=CoverageSizes(full=200_000, map=500), room=ROOM)
    assert refusal.value.message.startswith("coverage full is what the strategy CAG needs, but 200")


def test_the_price_of_another_floor_is_told_and_counted() -> None:
    resident = FloorCoverage(Coverage.MAP, 20_000, 500)
    decision = decide(resident, ASKED, forced="cag", sizes=CoverageSizes(full=20_000, map=500), room=ROOM)
    assert decision.cost == "20,200 tokens to compute, 20 MiB of KV"
    assert decision.asked.used == 40_000 - 500 + 20_000


def test_a_forced_strategy_that_cannot_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(OverBudget) as refusal:
        decide(floor(Coverage.MAP, 90_000), ASKED, forced="CAG", sizes=CoverageSizes(full=90_000, map=500), room=ROOM)
    assert "90,000 tokens do not fit in the 70,000" in refusal.value.message


def test_the_bare_model_has_nothing_to_decide() -> None:
    decision = decide(None, ASKED)
    assert (decision.strategy, decision.retrieval, decision.retrieval_budget) == (Strategy.NONE, Retrieval.NONE, 0)


def test_the_bare_model_cannot_be_forced_to_retrieve() -> None:
    with pytest.raises(InvalidRequest):
        decide(None, ASKED, forced="rag")


# -- what a question asks for

CRITICAL = (
    "I feel suicidal",
    "suicide",
    "I want to kill myself",
    "end my life",
    "I want to die",
    "self-harm",
    "self harm",
    "a crisis",
    "polycrisis",
    "an emergency",
    "call 988",
    "I don't want to live",
    "I don’t want to live",
    "better off dead",
    "an error in main",
    "this traceback",
    "Which exception is raised?",
    "the build fails",
    "What is a floor?",
    "who is Ada",
    "When did it change?",
    "where is the config parsed",
    "how many files",
    "cite it",
    "the source",
    "a reference",
    "according to the docs",
    "evidence",
    "fact check this",
    "fact-check this",
    "verify it",
    "accurate numbers",
    "be precise",
    "research",
    "this paper",
    "a study",
    "on arxiv",
)
FRIENDLY = (
    "write a test",
    "draft a mail",
    "a story",
    "a poem",
    "be creative",
    "brainstorm",
    "any idea",
    "imagine that",
    "design it",
    "translate this",
    "rewrite it",
    "summarize this",
    "review this code",
    "refactor the loop",
)
HYBRID = (
    "analyze it",
    "compare both",
    "evaluate that",
    "assess the risk",
    "a plan",
    "our strategy",
    "pros and cons",
    "the trade-off",
    "the trade off",
    "explain the loop",
    "describe it",
    "how does it work",
    "why does it wait",
)
UNKNOWN = (
    "",
    "hello",
    "list the functions",
    "988a",
    "1988",
    "988.5",
    "3.988",
    "9,988",
    "ideal",
    "the planet",
    "terror",
    "errors",
    "redesigned",
    "historystory",
    "whats up",
    "sketchy papers",
)


@pytest.mark.parametrize("question", CRITICAL)
def test_crisis_debugging_and_facts_are_critical(question: str) -> None:
    assert classify(question)[0] is Task.RAG_CRITICAL


@pytest.mark.parametrize("question", FRIENDLY)
def test_making_something_is_stuff_friendly(question: str) -> None:
    assert classify(question)[0] is Task.STUFF_FRIENDLY


@pytest.mark.parametrize("question", HYBRID)
def test_weighing_and_explaining_is_hybrid(question: str) -> None:
    assert classify(question)[0] is Task.HYBRID


@pytest.mark.parametrize("question", UNKNOWN)
def test_what_only_looks_like_a_phrase_is_unknown(question: str) -> None:
    assert classify(question)[0] is Task.UNKNOWN


def test_the_classes_are_tried_in_their_order() -> None:
    assert classify("explain a poem about an error")[0] is Task.RAG_CRITICAL
    assert classify("explain a poem")[0] is Task.STUFF_FRIENDLY


def test_the_frame_debug_is_critical_whatever_is_asked() -> None:
    assert classify("write a poem", frame="debug")[0] is Task.RAG_CRITICAL


def test_the_match_is_told() -> None:
    assert classify("Pros  and cons?")[1] == "pros  and cons"


def test_a_users_phrases_are_whole_words_of_their_list() -> None:
    mine = MorePhrases(debug=("panic", "stack-trace"), hybrid=("c++",))
    assert classify("why PANIC?", more=mine) == (Task.RAG_CRITICAL, "panic")
    assert classify("a stack  trace", more=mine) == (Task.RAG_CRITICAL, "stack  trace")
    assert classify("is it c++?", more=mine) == (Task.HYBRID, "c++")
    assert classify("panicking", more=mine) == classify("panic") == (Task.UNKNOWN, "")


@given(st.integers(1, 300_000), st.integers(0, 200_000), st.integers(0, 300_000))
def test_a_text_is_read_whole_only_where_it_fits_beside_an_answer(content: int, window: int, used: int) -> None:
    found, roomier = (consulted("What is it?", content, size, used) for size in (window, 2 * window))
    if found.coverage is Coverage.FULL:
        assert content + window // 4 <= window - used
        assert roomier.coverage is Coverage.FULL
    assert found.retrieval_budget <= max(0, window - used)
