"""Passages of the archive that are fetched for a question before it is asked: ranked in, path:start-end out, in budget.

    search → leave out what the conversation was told → join what touches → take by rank while it fits → cut the first
    that is too large, if nothing else fitted

Sizes in tokens, exact: each passage is counted as it will be written. Knows no strategy and no index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from codex.errors import CodexError
from formatters.context import Evidence
from formatters.text import passage

TOKENS_OF_A_PASSAGE = 250  # about, of a chunk of source text: decides only how many to ask for
MOST_PASSAGES = 40
HEADLINE = 40  # tokens kept for the line that introduces the passages; longer than it is in any vocabulary


@dataclass(frozen=True)
class Hit:
    """A passage found: lines start to end of a file, from 1 and inclusive, and its text, a line each."""

    path: str
    start: int
    end: int
    text: str
    symbol: str = ""
    score: float = 0.0


class Searcher(Protocol):
    """Finds passages of a codex, best first, at most `n`; changes nothing. Raises CodexError."""

    async def search(self, codex: str, query: str, n: int, graph: bool = False) -> Sequence[Hit]: ...


class Counter(Protocol):
    """Counts tokens of texts as content, one figure each, in order. `tokens.TokenCache` is one."""

    async def count(self, texts: Sequence[str]) -> list[int]: ...


@dataclass(frozen=True)
class Gathered:
    """Evidence in rank order and its tokens as written; `failure` names a source that failed and was left out."""

    evidence: tuple[Evidence, ...] = ()
    tokens: int = 0
    found: int = 0
    failure: str = ""


async def gather(
    searcher: Searcher,
    tokens: Counter,
    codex: str,
    question: str,
    budget: int,
    told: Sequence[Evidence] = (),
    graph: bool = False,
) -> Gathered:
    """Evidence of at most `budget` tokens. `told`: passages that stand in the conversation already."""
    if budget <= HEADLINE or not question.strip():
        return Gathered()
    try:
        hits = await searcher.search(codex, question, _how_many(budget), graph)
    except CodexError as fault:
        return Gathered(failure=f"archive: {fault}")
    passages = joined([hit for hit in hits if not _covered(hit, told)])
    taken, used = await _filled(passages, tokens, budget - HEADLINE)
    return Gathered(tuple(_evidence(hit) for hit in taken), used + (HEADLINE if taken else 0), len(hits))


def joined(hits: Sequence[Hit]) -> list[Hit]:
    """Passages that overlap or touch as one, at the rank of the better one; the order of ranks is kept."""
    merged: list[Hit] = []
    for hit in hits:
        touching = [other for other in merged if _touch(hit, other)]
        if not touching:
            merged.append(hit)
            continue
        place = merged.index(touching[0])
        for other in touching:
            hit = _union(hit, other)
            merged.remove(other)
        merged.insert(place, hit)
    return merged


async def _filled(passages: Sequence[Hit], tokens: Counter, budget: int) -> tuple[list[Hit], int]:
    counts = await tokens.count([written(hit) for hit in passages])
    taken, used = [], 0
    for hit, count in zip(passages, counts, strict=True):
        if used + count <= budget:
            taken.append(hit)
            used += count
    if passages and not taken:
        return await _cut(passages[0], counts[0], tokens, budget)
    return taken, used


async def _cut(hit: Hit, count: int, tokens: Counter, budget: int) -> tuple[list[Hit], int]:
    """The first lines that fit. Each try is smaller than the last, so it ends."""
    lines = hit.text.splitlines(keepends=True)
    while count > budget:
        keep = min(len(lines) - 1, len(lines) * budget // count)
        if keep < 1:
            return [], 0
        lines = lines[:keep]
        hit = replace(hit, text="".join(lines), end=hit.start + keep - 1)
        (count,) = await tokens.count([written(hit)])
    return [hit], count


def written(hit: Hit) -> str:
    """The passage as State writes it."""
    where = f"{hit.path}:{hit.start}-{hit.end}"
    return passage(f"{where} {hit.symbol}" if hit.symbol else where, hit.text)


def _how_many(budget: int) -> int:
    return max(4, min(MOST_PASSAGES, budget // TOKENS_OF_A_PASSAGE))


def _covered(hit: Hit, told: Sequence[Evidence]) -> bool:
    return any(one.path == hit.path and one.start <= hit.start and hit.end <= one.end for one in told)


def _touch(one: Hit, other: Hit) -> bool:
    return one.path == other.path and one.start <= other.end + 1 and other.start <= one.end + 1


def _union(one: Hit, other: Hit) -> Hit:
    """Both ranges' lines, each once. They touch, so there is no hole between them."""
    first, second = sorted((one, other), key=lambda hit: (hit.start, -hit.end))
    best = max(one, other, key=lambda hit: hit.score)
    if second.end <= first.end:
        return replace(first, symbol=best.symbol, score=best.score)
    new = second.text.splitlines(keepends=True)[first.end + 1 - second.start :]
    above = first.text if not first.text or first.text.endswith("\n") else first.text + "\n"
    symbol = best.symbol if first.symbol == second.symbol else ""
    return Hit(first.path, first.start, second.end, above + "".join(new), symbol, best.score)


def _evidence(hit: Hit) -> Evidence:
    return Evidence(path=hit.path, start=hit.start, end=hit.end, text=hit.text, symbol=hit.symbol)
