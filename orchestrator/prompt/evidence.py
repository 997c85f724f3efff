"""Passages of the archive that are fetched for a question before it is asked: ranked in, path:start-end out, in budget.

    search → leave out what the conversation has → join what touches → take by rank while it fits → cut the first
    that is too large, if nothing else fitted

Sizes in tokens, exact: each passage is counted as it will be written. Knows no strategy and no index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codex.errors import CodexError
from formatters.context import Evidence
from formatters.writers import passage

TOKENS_OF_A_PASSAGE = 160  # of a short one: more are asked for than fit, and short ones fill what long ones leave
MOST_PASSAGES = 40
HEADLINE = 40  # tokens kept for the line that introduces the passages; longer than it is in any vocabulary


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """Hits, best first, and what the search could not see."""

    hits: tuple[Evidence, ...] = ()
    notices: tuple[str, ...] = ()


class Searcher(Protocol):
    """Finds passages of a codex, best first, at most `n`; changes nothing. Raises CodexError.

    `graph`: among them what calls, or is called by, what was found.
    """

    async def search(self, query: str, codex: str, n: int, *, graph: bool = False) -> FoundPassages: ...


class TokenCounter(Protocol):
    """Counts tokens of texts as content, one figure each, in order. `composing.TokenCache` is one."""

    async def count(self, texts: Sequence[str]) -> list[int]: ...


@dataclass(frozen=True)
class Gathered:
    """Evidence in rank order and its tokens as written. `found`: hits before anything was left out.

    `notices`: what the search could not see, and a source that failed and was left out.
    """

    evidence: tuple[Evidence, ...] = ()
    tokens: int = 0
    found: int = 0
    notices: tuple[str, ...] = ()
    failed: bool = False


async def gather(
    searcher: Searcher,
    tokens: TokenCounter,
    codex: str,
    question: str,
    budget: int,
    known: Sequence[Evidence] = (),
    *,
    graph: bool = False,
    most: int = 0,
) -> Gathered:
    """Evidence of at most `budget` tokens, and of `most` passages if that is not 0. `known`: passages that the conversation
    has already."""
    if budget <= HEADLINE or not question.strip():
        return Gathered()
    try:
        found = await searcher.search(question, codex, max(_how_many(budget), most), graph=graph)
    except CodexError as fault:
        return Gathered(notices=(f"archive: {fault}",), failed=True)
    passages = joined([hit for hit in found.hits if not _covered(hit, known)])[: most or None]
    taken, used = await _filled(passages, tokens, budget - HEADLINE)
    return Gathered(tuple(taken), used + (HEADLINE if taken else 0), len(found.hits), found.notices)


def written(one: Evidence) -> str:
    """The passage as State writes it."""
    where = f"{one.path}:{one.start}-{one.end}"
    return passage(f"{where} {one.symbol}" if one.symbol else where, one.text)


def joined(hits: Sequence[Evidence]) -> list[Evidence]:
    """Passages that overlap or touch as one, at the rank of the better one; the order of ranks is kept."""
    merged: list[Evidence] = []
    for hit in hits:
        touching = [other for other in merged if _touch(hit, other)]
        if not touching:
            merged.append(hit)
            continue
        place = merged.index(touching[0])
        whole = hit
        for other in touching:
            whole = _union(whole, other)
            merged.remove(other)
        merged.insert(place, whole)
    return merged


async def _filled(passages: Sequence[Evidence], tokens: TokenCounter, budget: int) -> tuple[list[Evidence], int]:
    counts = await tokens.count([written(one) for one in passages])
    taken, used = [], 0
    for one, count in zip(passages, counts, strict=True):
        if used + count <= budget:
            taken.append(one)
            used += count
    if passages and not taken:
        return await _cut(passages[0], counts[0], tokens, budget)
    return taken, used


async def _cut(one: Evidence, count: int, tokens: TokenCounter, budget: int) -> tuple[list[Evidence], int]:
    """The first lines that fit. Each try is shorter than the last, so it ends."""
    lines = one.text.splitlines(keepends=True)
    while count > budget:
        keep = min(len(lines) - 1, len(lines) * budget // count)
        if keep < 1:
            return [], 0
        lines = lines[:keep]
        one = one.model_copy(update={"text": "".join(lines), "end": one.start + keep - 1})
        (count,) = await tokens.count([written(one)])
    return [one], count


def _how_many(budget: int) -> int:
    return max(4, min(MOST_PASSAGES, budget // TOKENS_OF_A_PASSAGE))


def _covered(hit: Evidence, known: Sequence[Evidence]) -> bool:
    return any(one.path == hit.path and one.start <= hit.start and hit.end <= one.end for one in known)


def _touch(one: Evidence, other: Evidence) -> bool:
    return one.path == other.path and one.start <= other.end + 1 and other.start <= one.end + 1


def _union(one: Evidence, other: Evidence) -> Evidence:
    """Both ranges' lines, each once. They touch, so there is no hole between them."""
    first, second = sorted((one, other), key=lambda hit: (hit.start, -hit.end))
    if second.end <= first.end:
        return first
    new = second.text.splitlines(keepends=True)[first.end + 1 - second.start :]
    above = first.text if first.text.endswith("\n") or not first.text else first.text + "\n"
    symbol = first.symbol if first.symbol == second.symbol else ""
    return first.model_copy(update={"end": second.end, "text": above + "".join(new), "symbol": symbol})
