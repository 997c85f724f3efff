"""The claims of a composed prompt on its budget, and what each of them is in the turn's context. Knows no engine.

    floor                     one claim, never cut: a question never changes the floor
    Environment, template     instructions, as is what of Karma is pinned
    Karma                     memories, the last of their block first, each with its short form
    State, gists              what stands in the place of turns that are gone
    State, closed turns       a turn for each question with its answers; its evidence and tool results apart, with stubs
    State, this turn          evidence, lowest rank first; attachments, verbatim texts and amendments are pinned
    filler                    of a turn and its attachments, apart from these
    Query                     pinned, with what the running turn added since

An exchange is a question with its answers. Tokens are exact: together they are those of the prompt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from formatters.blocks import FLOOR, BlockKind, Item, Role
from formatters.context import Evidence, StateView, TurnContext
from formatters.template import PromptPart, parts
from formatters.writers import remembered_line
from governor.ctc import Claim, ClaimKind
from orchestrator.prompt.composing import Composed
from orchestrator.prompt.evidence import TokenCounter, written
from orchestrator.prompt.filler import calls_of, lean, result_stub, without_filler

STUB = "(left out to save room; re-fetchable: search for it again)"
CALLED_AGAIN, OF_EARLIER_TURNS = 0.0, 1.0  # weights of superseded results: what the same call gave later goes first
LEAST_FILLER = 8  # tokens of an item; for less no cached prefix is given up

_Size = tuple[int, int]  # tokens and characters


class SourceKind(Enum):
    """What a claim is in the context, in words for several."""

    FIXED = "parts"  # nothing that could be taken away
    FILLER = "repeated and empty text"
    MEMORY = "memories"
    GIST = "gists"
    EXCHANGE = "turns"  # questions that are over, with their answers
    EARLIER_EVIDENCE = "passages of earlier turns"
    RESULT = "tool results of earlier turns"
    EVIDENCE = "passages"  # fetched for this question


@dataclass(frozen=True)
class ClaimSource:
    """`turn`: number of the message in State; `at`: of the exchange, passage or memory; `name`: of what is fixed."""

    kind: SourceKind = SourceKind.FIXED
    turn: int = 0
    at: int = 0
    name: str = ""


@dataclass(frozen=True)
class SourcedClaim:
    claim: Claim
    source: ClaimSource


async def claims_of(turn: TurnContext, composed: Composed, tokens: TokenCounter) -> list[SourcedClaim]:
    """All claims of a composed prompt, in the order of the prompt."""
    rest = [part for part in _parts(composed) if part.block not in FLOOR]
    items = [(part.block, part.item) for part in rest if part.item]
    counts = await tokens.count([item.text for _, item in items])
    leaner = lean(turn.state)
    texts = [_lean_text(block, item, leaner) for block, item in items]
    lean_counts = await tokens.count(texts)
    sorter = _Sorter(turn, await _stub_counts(turn, tokens))
    for (block, item), count, text, lean_count in zip(items, counts, texts, lean_counts, strict=True):
        sorter.take(block, item, (count, len(item.text)), (min(count, lean_count), len(text)))
    literals = composed.assembled.tokens - composed.assembled.floor.tokens - sum(counts)
    template = _fixed("chat template", literals, sum(len(part.text) for part in rest if not part.item))
    return [_floor(composed), template, *sorter.claims()]


def _lean_text(block: BlockKind, item: Item, leaner: StateView) -> str:
    """The item as it is written without filler."""
    if block is not BlockKind.STATE:
        return item.text
    if item.role is not None:
        return leaner.turns[item.turn].text
    if item.node != "attachments":
        return item.text
    body = item.text.rstrip("\n")  # what ends the passage is its writer's
    return without_filler(body) + item.text[len(body) :]


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


class _Sorter:
    """Sums up items by the claim that they belong to."""

    def __init__(self, turn: TurnContext, stubs: Mapping[ClaimSource, int]) -> None:
        self._state = state = turn.state
        self._memories = {one.source: at for at, one in enumerate(turn.karma.entries) if one.source and not one.pinned}
        self._first = state.gone + 1  # the number of the first turn that is left, as sentences name it
        self._stubs = stubs
        self._calls = calls_of(state.turns)
        self._exchanges = exchanges_of(state)
        self._names: dict[ClaimSource, str] = {}
        self._sizes: dict[ClaimSource, _Size] = {}

    def take(self, block: BlockKind, item: Item, size: _Size, lean_size: _Size) -> None:
        source = self._source_of(block, item)
        filler = size[0] - lean_size[0] >= LEAST_FILLER
        self._add(source, item, lean_size if filler else size)
        if filler:
            self._add(ClaimSource(SourceKind.FILLER, at=self._exchange_of(item.turn)), item, _less(size, lean_size))

    def claims(self) -> list[SourcedClaim]:
        return [SourcedClaim(self._claim(source, *size), source) for source, size in self._sizes.items()]

    def _add(self, source: ClaimSource, item: Item, size: _Size) -> None:
        tokens, characters = self._sizes.get(source, (0, 0))
        self._names.setdefault(source, item.source)
        self._sizes[source] = tokens + size[0], characters + size[1]

    def _source_of(self, block: BlockKind, item: Item) -> ClaimSource:
        if block is BlockKind.KARMA and item.source in self._memories:
            return ClaimSource(SourceKind.MEMORY, at=self._memories[item.source])
        if block is not BlockKind.STATE or item.pinned or item.node == "codex":
            return ClaimSource(turn=item.turn, name=item.source or block.value)
        if item.node == "gist":
            return ClaimSource(SourceKind.GIST, at=int(item.key.rpartition("/")[2]))
        if item.turn == len(self._state.turns):
            return self._fetched(item, self._state.evidence, SourceKind.EVIDENCE)
        if item.role is Role.TOOL:
            return ClaimSource(SourceKind.RESULT, item.turn)
        if item.role is None and item.node == "evidence":
            return self._fetched(item, self._state.turns[item.turn].evidence, SourceKind.EARLIER_EVIDENCE)
        return self._exchange(item.turn)

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
        return ClaimSource(SourceKind.EXCHANGE, at=self._exchange_of(turn))

    def _exchange_of(self, turn: int) -> int:
        """Of a message; what comes with the question is behind the last one."""
        return self._exchanges[turn] if turn < len(self._exchanges) else max(self._exchanges, default=-1) + 1

    def _claim(self, source: ClaimSource, tokens: int, characters: int) -> Claim:
        name = self._names[source]
        if source.kind is SourceKind.FIXED:
            return _fixed(source.name, tokens, characters).claim
        if source.kind is SourceKind.EVIDENCE:
            return Claim(name, ClaimKind.EVIDENCE, tokens, characters, weight=-source.at)
        if source.kind is SourceKind.MEMORY:
            stub = min(tokens, self._stubs[source])
            return Claim(name, ClaimKind.MEMORY, tokens, characters, weight=-source.at, stub=stub)
        if source.kind is SourceKind.GIST:
            return Claim(name, ClaimKind.GIST, tokens, characters, weight=source.at)
        if source.kind in (SourceKind.EXCHANGE, SourceKind.FILLER):
            return self._of_exchange(source.kind, source.at, tokens, characters)
        exchange, is_result = self._exchanges[source.turn], source.kind is SourceKind.RESULT
        return Claim(
            f"{'tool result' if is_result else name} of turn {exchange + self._first}",
            ClaimKind.SUPERSEDED,
            tokens,
            characters,
            weight=CALLED_AGAIN if is_result and self._is_called_again(source.turn) else OF_EARLIER_TURNS,
            stub=min(tokens, self._stubs[source]),
            turn=exchange,
        )

    def _of_exchange(self, kind: SourceKind, at: int, tokens: int, characters: int) -> Claim:
        if kind is SourceKind.EXCHANGE:
            return Claim(f"turn {at + self._first}", ClaimKind.TURN, tokens, characters, weight=at, turn=at)
        turn = at if at in self._exchanges else None
        # The newest first: what is left of it in the prompt stays as it was, in the cache too.
        return Claim(f"filler {at + self._first}", ClaimKind.FILLER, tokens, characters, weight=-at, turn=turn)

    def _is_called_again(self, turn: int) -> bool:
        return bool(self._calls[turn]) and self._calls[turn] in self._calls[turn + 1 :]


def _floor(composed: Composed) -> SourcedClaim:
    characters = sum(len(part.text) for part in _parts(composed) if part.block in FLOOR)
    claim = Claim("identity and codex", ClaimKind.FLOOR, composed.assembled.floor.tokens, characters)
    return SourcedClaim(claim, ClaimSource(name="floor"))


def _fixed(name: str, tokens: int, characters: int) -> SourcedClaim:
    kind = ClaimKind.QUERY if name == "user" else ClaimKind.INSTRUCTION
    return SourcedClaim(Claim(name, kind, tokens, characters if tokens else 0), ClaimSource(name=name))


def _less(size: _Size, other: _Size) -> _Size:
    return size[0] - other[0], size[1] - other[1]


async def _stub_counts(turn: TurnContext, tokens: TokenCounter) -> dict[ClaimSource, int]:
    """Tokens of the stub of each claim that has one."""
    memories = {
        ClaimSource(SourceKind.MEMORY, at=at): remembered_line(one.short or one.text)
        for at, one in enumerate(turn.karma.entries)
    }
    passages = {
        ClaimSource(SourceKind.EARLIER_EVIDENCE, at, rank): written(stub_of(one))
        for at, earlier in enumerate(turn.state.turns)
        for rank, one in enumerate(earlier.evidence)
    }
    results = {
        ClaimSource(SourceKind.RESULT, at): result_stub(call, earlier.text)
        for at, (earlier, call) in enumerate(zip(turn.state.turns, calls_of(turn.state.turns), strict=True))
        if earlier.role is Role.TOOL
    }
    stubs = memories | passages | results
    return dict(zip(stubs, await tokens.count(list(stubs.values())), strict=True))


def _parts(composed: Composed) -> list[PromptPart]:
    return list(parts(composed.layout, composed.prompt))


def _where(one: Evidence) -> str:
    return f"{one.path}:{one.start}-{one.end}"
