"""Context pressure and the prefetch of memories: the cases that must hold."""

import pytest

from orchestrator.prompt.prefetch import Prefetch, decide_prefetch, pressure_of


def at(used: int, base: int = 5, window: int = 256_000) -> Prefetch:
    return decide_prefetch(used, window, 128_000, base)


@pytest.mark.parametrize(
    ("used", "strategy", "limit", "trust"),
    [(10_000, "stuff", 15, 0.2), (64_000, "hybrid", 5, 0.3), (100_000, "selective", 2, 0.5)],
)
def test_pressure_decides_how_much_is_fetched(used: int, strategy: str, limit: int, trust: float) -> None:
    decision = at(used)
    assert (decision.strategy, decision.limit, decision.minimum_trust) == (strategy, limit, trust)


def test_a_full_context_skips_prefetch() -> None:
    decision = at(125_000)
    assert (decision.skipped, decision.limit, decision.minimum_trust) == (True, 0, 1.0)
    assert not decision.wanted_for("who is Alexander?")


def test_the_base_limit_is_scaled_and_never_below_one() -> None:
    assert at(10_000, base=10).limit == 30
    assert at(100_000, base=1).limit == 1


def test_an_unknown_window_has_no_pressure() -> None:
    assert at(50_000, window=0).pressure == 0.0


def test_without_a_threshold_the_window_counts() -> None:
    assert pressure_of(50_000, 100_000, None) == 0.5


def test_pressure_is_measured_at_its_edges() -> None:
    edges = {38_399: "stuff", 38_400: "hybrid", 89_599: "hybrid", 89_600: "selective"}
    assert {used: at(used).strategy for used in edges} == edges
    assert not at(121_600).skipped
    assert at(121_601).skipped


@pytest.mark.parametrize(
    ("used", "question", "wanted"),
    [
        (10_000, "", True),
        (80_000, "what did we discuss about the config?", True),
        (80_000, "write me a poem about clouds", False),
        (110_000, "who is Alexander?", True),
        (110_000, "who is Alexander? " + "x" * 582, False),
        (80_000, "who is Alexander? " + "x" * 582, True),
        (110_000, "write me a poem", False),
    ],
)
def test_under_pressure_only_a_question_that_asks_for_memory_prefetches(used: int, question: str, wanted: bool) -> None:
    assert at(used).wanted_for(question) is wanted


def test_the_report_names_every_number() -> None:
    assert at(64_000).report() == (
        "strategy: hybrid",
        "pressure: 50%",
        "used: 64,000 of 256,000 tokens, threshold 128,000",
        "limit: 5 memories, minimum trust 0.3",
        "skipped: no",
        "advice: fetch what fits the question",
    )
