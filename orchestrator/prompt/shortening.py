"""A turn's context without what has to go. Pure: what that is was decided elsewhere.

What a turn came with and must outlive it, news of the codex and files of the user, moves on to the next one that stays.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Set
from typing import TypeVar

from formatters.context import AmendmentView, AttachmentView, KarmaView, StateView, TurnContext, TurnView
from governor.ctc import Action, Settlement, Verdict
from orchestrator.prompt.claims import SourcedClaim, SourceKind, exchanges_of, result_stub, stub_of

Artful = TypeVar("Artful", TurnView, StateView)


def shortened(turn: TurnContext, entries: Iterable[SourcedClaim], settlement: Settlement) -> TurnContext:
    """The context without what the verdicts took."""
    cut = [entry.place for entry, verdict in zip(entries, settlement.verdicts, strict=True) if _lost(verdict)]
    gone = {place.at for place in cut if place.what is SourceKind.EXCHANGE}
    stubbed = {(place.turn, place.at) for place in cut if place.what is SourceKind.TOLD}
    results = {place.turn for place in cut if place.what is SourceKind.RESULT}
    left_out = {place.at for place in cut if place.what is SourceKind.EVIDENCE}
    forgotten = {(place.name, place.at) for place in cut if place.what is SourceKind.MEMORY}
    state = _shorter_state(turn.state, gone, stubbed, results, left_out)
    karma = _shorter_karma(turn.karma, forgotten) if forgotten else turn.karma
    return turn.model_copy(update={"state": state, "karma": karma})


def without(turn: TurnContext, exchanges: Collection[int]) -> TurnContext:
    """The context without these questions that are over and their answers."""
    return turn.model_copy(update={"state": _shorter_state(turn.state, exchanges)})


def _shorter_karma(karma: KarmaView, forgotten: set[tuple[str, int]]) -> KarmaView:
    under: Counter[str] = Counter()
    kept = []
    for entry in karma.entries:
        if (entry.heading, under[entry.heading]) not in forgotten:
            kept.append(entry)
        under[entry.heading] += 1
    return KarmaView(entries=tuple(kept))


def _shorter_state(
    state: StateView,
    gone: Collection[int],
    stubbed: Set[tuple[int, int]] = frozenset(),
    results: Set[int] = frozenset(),
    left_out: Set[int] = frozenset(),
) -> StateView:
    kept: list[TurnView] = []
    carried = _Carried()
    for place, (turn, exchange) in enumerate(zip(state.turns, exchanges_of(state), strict=True)):
        if exchange in gone:
            carried.take(turn)
            continue
        evidence = tuple(stub_of(one) if (place, rank) in stubbed else one for rank, one in enumerate(turn.evidence))
        text = result_stub(turn.text) if place in results else turn.text
        kept.append(carried.into(turn.model_copy(update={"evidence": evidence, "text": text})))
    evidence = tuple(one for rank, one in enumerate(state.evidence) if rank not in left_out)
    return carried.into(state.model_copy(update={"turns": tuple(kept), "evidence": evidence}))


class _Carried:
    """What must outlive the turn that it came with: news of the codex, and files that the user gave."""

    def __init__(self) -> None:
        self._amendments: list[AmendmentView] = []
        self._attachments: list[AttachmentView] = []

    def take(self, turn: TurnView) -> None:
        self._amendments.extend(turn.amendments)
        self._attachments.extend(turn.attachments)

    def into(self, one: Artful) -> Artful:
        if not (self._amendments or self._attachments):
            return one
        amendments, attachments = (*self._amendments, *one.amendments), (*self._attachments, *one.attachments)
        self._amendments, self._attachments = [], []
        return one.model_copy(update={"amendments": amendments, "attachments": attachments})


def _lost(verdict: Verdict) -> bool:
    return verdict.action is not Action.KEEP
