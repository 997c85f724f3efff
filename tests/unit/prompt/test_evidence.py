"""Passages fetched for a question: within the budget, each line once, nothing told twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.errors import CodexError
from formatters.blocks import BlockKind
from formatters.context import Evidence, StateView, TurnContext
from orchestrator.prompt.composing import Composer, TokenCache
from orchestrator.prompt.evidence import HEADLINE, FoundPassages, gather, joined, written

pytestmark = pytest.mark.anyio


def lines(path: str, start: int, end: int) -> str:
    return "".join(f"{path} line {number}\n" for number in range(start, end + 1))


def hit(path: str = "a.py", start: int = 1, end: int = 5, symbol: str = "") -> Evidence:
    return Evidence(path=path, start=start, end=end, text=lines(path, start, end), symbol=symbol)


@dataclass
class Archive:
    hits: Sequence[Evidence] = ()
    fault: CodexError | None = None
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages:
        self.asked.append((query, codex, n))
        if self.fault:
            raise self.fault
        return FoundPassages(tuple(self.hits[:n]), ("3 files are not indexed yet",))


async def test_passages_are_taken_by_rank_while_they_fit(tokens: TokenCache) -> None:
    hits = [hit("a.py", 1, 10), hit("b.py", 1, 200), hit("c.py", 5, 9)]
    first, last = await tokens.count([written(one) for one in (hits[0], hits[2])])
    found = await gather(Archive(hits), tokens, "demo", "where?", first + last + HEADLINE)
    assert [(one.path, one.start, one.end) for one in found.evidence] == [("a.py", 1, 10), ("c.py", 5, 9)]
    assert (found.tokens, found.found) == (first + last + HEADLINE, 3)


async def test_a_first_passage_that_is_too_large_is_cut_at_a_line(tokens: TokenCache) -> None:
    found = await gather(Archive([hit("a.py", 10, 400)]), tokens, "demo", "where?", 512)
    (one,) = found.evidence
    assert (one.start, one.text) == (10, lines("a.py", 10, one.end))
    assert one.end > 12
    assert found.tokens <= 512


async def test_where_not_a_line_fits_nothing_is_told(tokens: TokenCache) -> None:
    found = await gather(Archive([hit()]), tokens, "demo", "where?", HEADLINE + 3)
    assert (found.evidence, found.tokens) == ((), 0)


async def test_what_the_conversation_was_told_is_not_told_again(tokens: TokenCache) -> None:
    told = [Evidence(path="a.py", start=1, end=20, text="…")]
    found = await gather(Archive([hit("a.py", 3, 9), hit("b.py", 3, 9)]), tokens, "demo", "where?", 4_000, told)
    assert [one.path for one in found.evidence] == ["b.py"]


async def test_the_question_is_searched_in_its_codex(tokens: TokenCache) -> None:
    archive = Archive()
    await gather(archive, tokens, "demo", "where is main?", 4_000)
    assert archive.asked == [("where is main?", "demo", 25)]


@pytest.mark.parametrize(("question", "budget"), [("", 4_000), ("  ", 4_000), ("where?", 0), ("where?", HEADLINE)])
async def test_without_a_question_or_budget_nothing_is_searched(tokens: TokenCache, question: str, budget: int) -> None:
    archive = Archive([hit()])
    assert (await gather(archive, tokens, "demo", question, budget)).evidence == ()
    assert archive.asked == []


async def test_a_failing_archive_is_left_out_and_named(tokens: TokenCache) -> None:
    found = await gather(Archive(fault=CodexError("it was set aside")), tokens, "demo", "where?", 4_000)
    assert (found.failed, found.notices) == (True, ("archive: it was set aside",))


async def test_what_the_search_could_not_see_is_passed_on(tokens: TokenCache) -> None:
    found = await gather(Archive([hit()]), tokens, "demo", "where?", 4_000)
    assert found.notices == ("3 files are not indexed yet",)


async def test_the_tokens_are_those_that_state_will_have(
    tokens: TokenCache, composer: Composer, a_turn: Callable[..., TurnContext]
) -> None:
    hits = [hit("a.py", 1, 10, symbol="main"), hit("b.py", 7, 9)]
    found = await gather(Archive(hits), tokens, "demo", "where?", 4_000)
    turn = a_turn(state=StateView(evidence=found.evidence))
    items = composer.write(turn)[BlockKind.STATE].items
    counted = sum(await tokens.count([item.text for item in items]))
    assert counted <= found.tokens <= counted + HEADLINE


# ---- joining -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "merged"),
    [
        ([(1, 5), (6, 9)], [(1, 9)]),
        ([(6, 9), (1, 5)], [(1, 9)]),
        ([(1, 5), (3, 9)], [(1, 9)]),
        ([(1, 9), (3, 5)], [(1, 9)]),
        ([(1, 5), (7, 9)], [(1, 5), (7, 9)]),
        ([(1, 3), (7, 9), (4, 6)], [(1, 9)]),
    ],
)
def test_passages_that_touch_are_one(ranges: list[tuple[int, int]], merged: list[tuple[int, int]]) -> None:
    whole = joined([hit("a.py", start, end) for start, end in ranges])
    assert [(one.start, one.end) for one in whole] == merged
    assert [one.text for one in whole] == [lines("a.py", start, end) for start, end in merged]


def test_a_joined_passage_has_the_better_rank() -> None:
    ranked = [hit("a.py", 1, 5), hit("b.py", 1, 5), hit("a.py", 6, 9)]
    assert [(one.path, one.end) for one in joined(ranked)] == [("a.py", 9), ("b.py", 5)]


def test_a_passage_without_a_last_newline_is_joined_at_the_line() -> None:
    first = Evidence(path="a.py", start=1, end=1, text="one")
    last = Evidence(path="a.py", start=2, end=2, text="two")
    assert joined([first, last])[0].text == "one\ntwo"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 30), st.integers(0, 8)), max_size=12))
def test_joining_keeps_every_line_once(found: list[tuple[str, int, int]]) -> None:
    hits = [hit(path, start, start + more) for path, start, more in found]
    whole = joined(hits)
    before = {(one.path, number) for one in hits for number in range(one.start, one.end + 1)}
    after = [(one.path, number) for one in whole for number in range(one.start, one.end + 1)]
    assert sorted(after) == sorted(before)
    assert all(one.text == lines(one.path, one.start, one.end) for one in whole)
