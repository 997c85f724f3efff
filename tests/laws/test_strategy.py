"""Laws of the strategy's decisions, over any numbers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.prompt.coverage import Coverage, CoverageSizes, FloorRoom, decide_coverage, limit_of, redecide
from orchestrator.prompt.phrases import Task, classify
from orchestrator.prompt.strategy import (
    FloorCoverage,
    QuestionFigures,
    Retrieval,
    Strategy,
    decide,
    retrieval_budget,
)

TOKENS = st.integers(0, 3_000_000)
SIZES = st.tuples(TOKENS, TOKENS, TOKENS).map(
    lambda three: CoverageSizes(full=max(three), skeleton=sorted(three)[1], map=min(three))
)
ROOMS = st.builds(
    FloorRoom,
    window=TOKENS,
    identity=st.integers(0, 5_000),
    kv_tokens=TOKENS,
    kv_bytes_per_token=st.sampled_from([0.0, 4_096.0, 131_072.0]),
)
FLOORS = st.builds(FloorCoverage, st.sampled_from(Coverage), TOKENS, TOKENS)
ASKED = st.builds(QuestionFigures, st.sampled_from(Task), TOKENS, TOKENS)


@given(SIZES, ROOMS)
def test_what_a_tier_holds_never_exceeds_the_limit(sizes: CoverageSizes, room: FloorRoom) -> None:
    decision = decide_coverage(sizes, room)
    assert decision.tokens <= decision.limit == limit_of(room)
    assert 0 <= decision.tokens <= max(sizes.full, sizes.skeleton or 0)
    assert decision.map_limit <= 0.5 * room.window


@given(SIZES, ROOMS, TOKENS)
def test_a_larger_window_never_gives_a_smaller_tier(sizes: CoverageSizes, room: FloorRoom, more: int) -> None:
    larger = replace(room, window=room.window + more)
    assert decide_coverage(sizes, larger).coverage.rank >= decide_coverage(sizes, room).coverage.rank


@given(SIZES, ROOMS, TOKENS)
def test_more_kv_never_gives_a_smaller_tier(sizes: CoverageSizes, room: FloorRoom, more: int) -> None:
    larger = replace(room, kv_tokens=room.kv_tokens + more)
    assert decide_coverage(sizes, larger).coverage.rank >= decide_coverage(sizes, room).coverage.rank


@given(SIZES, ROOMS, ROOMS, st.sampled_from(["calm", "elevated", "high", "critical"]))
def test_a_floor_that_moved_still_fits_and_never_moves_twice(
    sizes: CoverageSizes, before: FloorRoom, now: FloorRoom, level: str
) -> None:
    moved = redecide(decide_coverage(sizes, before), sizes, now, level)
    assert moved.tokens <= limit_of(now)
    assert redecide(moved, sizes, now, level).coverage is moved.coverage


@given(SIZES, ROOMS, ROOMS)
def test_under_pressure_no_floor_grows(sizes: CoverageSizes, before: FloorRoom, now: FloorRoom) -> None:
    current = decide_coverage(sizes, before)
    assert redecide(current, sizes, now, "high").coverage.rank <= current.coverage.rank


@given(FLOORS, ASKED)
def test_a_budget_is_never_more_than_is_left(floor: FloorCoverage, asked: QuestionFigures) -> None:
    decision = decide(floor, asked)
    assert 0 <= decision.retrieval_budget <= decision.asked.left <= max(0, asked.window - asked.used)


@given(st.sampled_from(Strategy), st.sampled_from(Retrieval), TOKENS, TOKENS)
def test_more_room_never_gives_a_smaller_budget(strategy: Strategy, retrieval: Retrieval, left: int, more: int) -> None:
    assert retrieval_budget(strategy, retrieval, left + more) >= retrieval_budget(strategy, retrieval, left)


@given(FLOORS, ASKED)
def test_names_follow_from_floor_and_retrieval(floor: FloorCoverage, asked: QuestionFigures) -> None:
    decision = decide(floor, asked)
    if decision.retrieval is Retrieval.GRAPH:
        assert decision.strategy is Strategy.RAG_GRAPH
    elif decision.retrieval is Retrieval.NONE:
        assert (decision.strategy, decision.coverage) == (Strategy.CAG, Coverage.FULL)
    else:
        large = decision.coverage in (Coverage.FULL, Coverage.SKELETON)
        assert decision.strategy is (Strategy.HYBRID if large else Strategy.RAG)


@given(FLOORS, ASKED)
def test_an_automatic_decision_keeps_the_floor_and_names_only_tools_that_are_there(
    floor: FloorCoverage, asked: QuestionFigures
) -> None:
    decision = decide(floor, asked)
    assert (decision.coverage, decision.needs_coverage) == (floor.coverage, None)
    assert not any("search_archive" in step for step in decision.steps)


@given(st.text(max_size=200))
def test_any_text_has_a_class(text: str) -> None:
    assert classify(text)[0] in Task
    assert classify(text) == classify(text.upper().lower()) or not text.isascii()
