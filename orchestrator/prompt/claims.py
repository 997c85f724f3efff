"""The claims of a prompt on its budget, and what in the turn's context each of them stands for.

    floor                     one claim, pinned: a question never changes the floor
    Environment, template     instructions
    Karma                     a memory for each entry, last ones first; constraints, pinned and verbatim ones stay
    State, closed turns       a turn for each question with its answers; its evidence and tool results apart, with stubs
    State, this turn          evidence, lowest rank first; attachments and amendments are pinned
    Query                     pinned, with what the running turn added since

Tokens are exact: together they are those of the prompt. Knows no limit and makes no decision.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from formatters.blocks import FLOOR, BlockKind, Item, Role
from formatters.context import Evidence, StateView, TurnContext
from formatters.template import PromptPart, parts
from governor.ctc import Claim, ClaimKind
from orchestrator.prompt.composing import Composed
from orchestrator.prompt.evidence import TokenCounter, written

STUB = "(left out to save room; search for it again)"
CONSTRAINTS = "Active Constraints"
_ENTRY = re.compile(r"1/\d\d/(?P<heading>.*)/(?P<place>\d{4,})")  # of an entry of `KarmaWriter`


class SourceKind(Enum):
    """What a claim stands for in the context."""

    FIXED = auto()  # nothing that could be taken away
    MEMORY = auto()  # an entry under a heading of Karma
    EXCHANGE = auto()  # a question that is over, with its answers
    EARLIER_EVIDENCE = auto()  # a passage of evidence in a closed turn
    RESULT = auto()  # a tool's result in a closed turn
    EVIDENCE = auto()  # a passage fetched for this question


@dataclass(frozen=True)
class ClaimSource:
    """`turn`: number of the message in State; `at`: of the exchange, passage or memory; `name`: a heading."""

    kind: SourceKind = SourceKind.FIXED
    turn: int = 0
    at: int = 0
    name: str = ""


@dataclass(frozen=True)
class SourcedClaim:
    claim: Claim
    source: ClaimSource


async def claims_of(turn: TurnContext, composed: Composed, tokens: TokenCounter, gone: int = 0) -> list[SourcedClaim]:
    """All claims of a composed prompt, in the order of the prompt. `gone`: turns left out already, named no more."""
    rest = [part for part in _parts(composed) if part.block not in FLOOR]
    counts = await tokens.count([part.text for part in rest if part.item])
    stubs = await _stub_counts(turn.state, tokens)
    sorter = _Sorter(turn.state, stubs, gone)
    for part, count in zip([part for part in rest if part.item], counts, strict=True):
        sorter.take(part, count)
    literals = composed.assembled.tokens - composed.assembled.floor.tokens - sum(counts)
    template = _fixed("chat template", literals, sum(len(part.text) for part in rest if not part.item))
    return [_floor(composed), template, *sorter.claims()]


def exchanges_of(state: StateView) -> list[int]:
    """The exchange that each message belongs to: a new one begins with each question."""
    numbers, number = [], -1
    for turn in state.turns:
        number += turn.role is Role.USER or number < 0
        numbers.append(number)
    return numbers


def stub_of(one: Evidence) -> Evidence:
    """The passage as path and lines alone."""
    return one.model_copy(update={"text": STUB})


def result_stub(text: str) -> str:
    """A tool's result as its first line, shortened."""
    return f"{text.partition(chr(10))[0][:80]} {STUB}"


class _Sorter:
    """Sums up items by the claim that they belong to."""

    def __init__(self, state: StateView, stubs: dict[str, int], gone: int) -> None:
        self._state = state
        self._first = gone + 1  # the number of the first turn that is left, as sentences name it
        self._stubs = stubs
        self._exchanges = exchanges_of(state)
        self._found: dict[ClaimSource, list[tuple[Item, int]]] = {}

    def take(self, part: PromptPart, count: int) -> None:
        assert part.item is not None
        source = self._source_of(part.block, part.item)
        self._found.setdefault(source, []).append((part.item, count))

    def claims(self) -> list[SourcedClaim]:
        found = enumerate(self._found.items())
        return [SourcedClaim(self._claim(source, items, order), source) for order, (source, items) in found]

    def _source_of(self, block: BlockKind, item: Item) -> ClaimSource:
        if block is BlockKind.KARMA:
            return self._memory(item)
        if block is not BlockKind.STATE or item.pinned or item.node == "codex":
            return ClaimSource(turn=item.turn, name=item.source or block.value)
        if item.turn == len(self._state.turns):
            return self._fetched(item, self._state.evidence, SourceKind.EVIDENCE)
        if item.role is Role.TOOL:
            return ClaimSource(SourceKind.RESULT, item.turn)
        if item.role is None and item.node == "evidence":
            return self._fetched(item, self._state.turns[item.turn].evidence, SourceKind.EARLIER_EVIDENCE)
        return self._exchange(item.turn)

    def _memory(self, item: Item) -> ClaimSource:
        """An entry by its heading and place under it, as its key has them; the heading's own line is fixed."""
        entry = _ENTRY.fullmatch(item.key)
        kept = item.pinned or item.verbatim or item.node == "censors"
        if entry is None or kept or entry["heading"] == CONSTRAINTS:
            return ClaimSource(name="karma")
        return ClaimSource(SourceKind.MEMORY, at=int(entry["place"]), name=entry["heading"])

    def _fetched(self, item: Item, evidence: Sequence[Evidence], kind: SourceKind) -> ClaimSource:
        """A passage by its rank; the line that introduces passages goes with its turn."""
        for rank, one in enumerate(evidence):
            if item.source == _where(one):
                return ClaimSource(kind, item.turn, rank)
        return (
            self._exchange(item.turn)
            if kind is SourceKind.EARLIER_EVIDENCE
            else ClaimSource(turn=item.turn, name=item.source)
        )

    def _exchange(self, turn: int) -> ClaimSource:
        return ClaimSource(SourceKind.EXCHANGE, at=self._exchanges[turn])

    def _claim(self, source: ClaimSource, items: list[tuple[Item, int]], order: int) -> Claim:
        tokens, characters = sum(count for _, count in items), sum(len(item.text) for item, _ in items)
        exchange = self._exchanges[source.turn] if source.turn < len(self._exchanges) else None
        if source.kind is SourceKind.MEMORY:
            name = f"memory {source.at + 1} of {source.name}"
            return Claim(name, ClaimKind.MEMORY, tokens, characters, weight=-order)
        if source.kind is SourceKind.EXCHANGE:
            return Claim(
                f"turn {source.at + self._first}", ClaimKind.TURN, tokens, characters, weight=source.at, turn=source.at
            )
        if source.kind is SourceKind.EVIDENCE:
            return Claim(items[0][0].source, ClaimKind.EVIDENCE, tokens, characters, weight=-source.at)
        if source.kind in (SourceKind.EARLIER_EVIDENCE, SourceKind.RESULT):
            name = items[0][0].source if source.kind is SourceKind.EARLIER_EVIDENCE else "tool result"
            floor = min(tokens, self._stubs[items[0][0].text])
            return Claim(
                f"{name} of turn {(exchange or 0) + self._first}",
                ClaimKind.SUPERSEDED,
                tokens,
                characters,
                floor=floor,
                turn=exchange,
            )
        return _fixed(source.name, tokens, characters).claim


def _floor(composed: Composed) -> SourcedClaim:
    characters = sum(len(part.text) for part in _parts(composed) if part.block in FLOOR)
    claim = Claim("identity and codex", ClaimKind.FLOOR, composed.assembled.floor.tokens, characters, pinned=True)
    return SourcedClaim(claim, ClaimSource(name="floor"))


def _fixed(name: str, tokens: int, characters: int) -> SourcedClaim:
    kind = ClaimKind.QUERY if name == "user" else ClaimKind.INSTRUCTION
    return SourcedClaim(Claim(name, kind, tokens, characters if tokens else 0, pinned=True), ClaimSource(name=name))


async def _stub_counts(state: StateView, tokens: TokenCounter) -> dict[str, int]:
    """Tokens of the stub for each text that has one, by the text it stands for."""
    stubs = {written(one): written(stub_of(one)) for turn in state.turns for one in turn.evidence}
    stubs |= {turn.text: result_stub(turn.text) for turn in state.turns if turn.role is Role.TOOL}
    return dict(zip(stubs, await tokens.count(list(stubs.values())), strict=True))


def _parts(composed: Composed) -> list[PromptPart]:
    return list(parts(composed.layout, composed.prompt))


def _where(one: Evidence) -> str:
    return f"{one.path}:{one.start}-{one.end}"
