"""How many memories are fetched in advance, by how full the context is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.prompt.phrases import MorePhrases
from orchestrator.prompt.prefetch import BASE_LIMIT, ContextUse, PrefetchMode, prefetch_for

WINDOW, THRESHOLD = 256_000, 128_000
POEM, CONFIG = "write me a poem about clouds", "what did we discuss about the config?"
TOKENS = st.integers(0, 3_000_000)


def use(used: int) -> ContextUse:
    return ContextUse(used, WINDOW, THRESHOLD)


@pytest.mark.parametrize(
    ("used", "base", "mode", "limit", "trust"),
    [
        (10_000, 5, "stuff", 15, 0.2),
        (64_000, 5, "hybrid", 5, 0.3),
        (100_000, 5, "selective", 2, 0.5),
        (125_000, 5, "skip", 0, 1.0),
        (10_000, 10, "stuff", 30, 0.2),
        (100_000, 1, "selective", 1, 0.5),
    ],
)
def test_the_fuller_the_context_the_fewer_and_surer_are_fetched(
    used: int, base: int, mode: str, limit: int, trust: float
) -> None:
    found = prefetch_for(CONFIG, use(used), base)
    assert (found.mode, found.limit, found.min_trust) == (mode, limit, trust)


@pytest.mark.parametrize(
    ("used", "query", "wanted"),
    [
        (10_000, "", True),
        (10_000, POEM, True),
        (80_000, CONFIG, True),
        (80_000, POEM, False),
        (80_000, CONFIG + " really" * 40, True),
        (110_000, "who is Alexander?", True),
        (110_000, "who is Alexander? " * 34, False),
        (125_000, CONFIG, False),
    ],
)
def test_a_full_context_fetches_only_for_who_asks_for_it_and_briefly(used: int, query: str, wanted: bool) -> None:
    assert prefetch_for(query, use(used)).wanted is wanted


def test_an_unknown_window_is_no_pressure_and_no_threshold_is_the_window() -> None:
    assert prefetch_for("", ContextUse(5_000, 0)).use.pressure == 0.0
    assert prefetch_for("", ContextUse(5_000, 10_000)).use.pressure == 0.5
    assert prefetch_for("", ContextUse(5_000, 10_000, 0)).mode is PrefetchMode.SKIP


def test_the_report_says_everything_in_two_lines() -> None:
    assert prefetch_for(CONFIG, use(64_000)).report() == (
        "HYBRID: 50.0% of context used (64,000 of 128,000 tokens; window 256,000); memories: at most 5, trust 0.3 or more\n"
        "fetch what is relevant, and leave room for the conversation"
    )
    assert prefetch_for("", use(0)).report().startswith("STUFF: 0.0% of context used (0 of 128,000 tokens; window ")
    assert "memories: skipped\nno room for memories" in prefetch_for("", use(128_000)).report()


def test_phrases_of_the_user_ask_for_memory_too() -> None:
    mine = MorePhrases(memory=("as agreed",))
    assert prefetch_for("do it as agreed", use(80_000), more=mine).wanted
    assert not prefetch_for("do it as agreed", use(80_000)).wanted


@given(TOKENS, TOKENS, TOKENS, st.integers(1, 100), st.text(max_size=40))
def test_more_tokens_never_fetch_more(used: int, more: int, threshold: int, base: int, query: str) -> None:
    small, large = (prefetch_for(query, ContextUse(tokens, WINDOW, threshold), base) for tokens in (used, used + more))
    assert large.limit <= small.limit
    assert large.min_trust >= small.min_trust
    assert large.wanted <= small.wanted
    assert (large.limit == 0) == (large.mode is PrefetchMode.SKIP)


def test_the_usual_number_is_five() -> None:
    assert prefetch_for("", use(64_000)).limit == BASE_LIMIT == 5
