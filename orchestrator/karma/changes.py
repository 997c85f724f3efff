"""What becomes of a memory: when one like it comes in, when it is confirmed, retired or changed. Pure.

    1  the same fact again                        is confirmed; CORE from three confirmations
       a proposal that is stated plainly          stands
    2  the same of another kind within 48 hours   is the one that stands
    3  subject and attribute with another value   supersedes; the older of both is the superseded one
    4  anything else                              is new
    5  judged five times or more                  a procedure is EFFECTIVE above 0.6, INEFFECTIVE below 0.4; a censor below
                                                  0.4 is RETIRED, unless it is pinned
    6  triggered                                  a censor is ACTIVE; from five times a person may promote it to `block`

A proposal confirms and supersedes nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from formatters.plugins import MemoryKind
from orchestrator.errors import Conflict, InvalidRequest
from orchestrator.karma.records import (
    CORE_FROM,
    HIDDEN,
    JUDGED_FROM,
    KINDS,
    Kind,
    MemoryRecord,
    MemoryState,
    NewMemory,
    Severity,
)
from orchestrator.wire.memories import MOST_NAME

MOST_TEXT = 64 * 1024  # characters: more is a document, which a codex holds better
IMPORT = "import"  # the source of what an export brought
AGENT = "agent"  # the source of what a program proposes over HTTP
MERGED_WITHIN_S = 48 * 3600.0
EFFECTIVE_ABOVE, INEFFECTIVE_BELOW = 0.6, 0.4
ESCALATED_FROM = 5  # triggers


@dataclass(frozen=True)
class Settled:
    """What becomes of a memory that comes in: it `confirms` or `repeats` one that stands, or is stored in `state`.

    `supersedes`: those that it replaces; `successor`: the id of the one that replaces it, '' for none.
    """

    state: str
    confirms: MemoryRecord | None = None
    repeats: MemoryRecord | None = None
    supersedes: tuple[MemoryRecord, ...] = ()
    successor: str = ""


def settled(
    new: NewMemory, kind: MemoryKind, created: float, alike: Sequence[MemoryRecord], same: Sequence[MemoryRecord]
) -> Settled:
    """By the table above. `kind`: its own; `alike`: memories of its kind and codex with the same words; `same`: facts that
    stand about its subject and attribute."""
    first = new.state or kind.first
    if new.source == IMPORT:
        return _imported(first, alike, same)
    standing = [one for one in alike if one.is_shown or one.state is MemoryState.PROPOSED]
    current = next((one for one in standing if one.state is not MemoryState.SUPERSEDED), None)
    stated = first != MemoryState.PROPOSED
    if current is not None and (new.kind is Kind.FACT or (stated and current.state is MemoryState.PROPOSED)):
        return Settled(current.state, confirms=current) if stated else Settled(current.state, repeats=current)
    if current is not None and abs(created - current.created) <= MERGED_WITHIN_S:
        return Settled(current.state, repeats=current)
    if not stated:
        return Settled(MemoryState.PROPOSED)
    later = max((one for one in same if one.created > created), key=lambda one: one.created, default=None)
    if later is not None:
        had = next((one for one in standing if one.successor), None)
        if had is not None:
            return Settled(had.state, repeats=had)
        return Settled(MemoryState.SUPERSEDED, successor=later.id)
    return Settled(first, supersedes=tuple(same))


def _imported(state: str, alike: Sequence[MemoryRecord], same: Sequence[MemoryRecord]) -> Settled:
    """An import changes nothing that is there, whatever state it is in, and brings what is new in the state that it had."""
    had = next(iter(alike), None)
    if had is not None:
        return Settled(had.state, repeats=had)
    if same and state not in HIDDEN:
        return Settled(MemoryState.SUPERSEDED, successor=max(same, key=lambda one: one.created).id)
    return Settled(state)


def confirmed(record: MemoryRecord, kind: MemoryKind) -> MemoryRecord:
    """A fact after it was stated once more; a proposal stands from then on, a suggested outcome is the outcome, and a
    censor that may be promoted blocks."""
    count = record.confirmations + 1
    if record.suggested is not None and not record.suspect:
        state = led(record, kind, MemoryState.REVIEWED) if record.state is not MemoryState.REVIEWED else record.state
        return replace(record, state=state, outcome=record.suggested, suggested=None)
    if may_be_promoted(record) and not record.suspect:
        return replace(record, state=led(record, kind, MemoryState.ESCALATED), severity=Severity.BLOCK)
    if record.state is MemoryState.PROPOSED:
        return replace(record, state=kind.first, confirmations=count - 1, confidence=1.0)
    if record.kind is not Kind.FACT or record.state is MemoryState.SUPERSEDED:
        return record
    state = MemoryState.CORE if count >= CORE_FROM else MemoryState.CONFIRMED
    return replace(record, state=state if kind.may_become(record.state, state) else record.state, confirmations=count)


def judged(record: MemoryRecord, *, right: bool) -> MemoryRecord:
    """A procedure or a censor after it was said whether it was right once more; other kinds as they are."""
    if record.kind not in (Kind.PROCEDURE, Kind.CENSOR):
        return record
    count = record.judged + 1
    share = (record.effectiveness * record.judged + right) / count
    after = replace(record, judged=count, effectiveness=round(share, 4))
    state = _state_by_effect(after)
    return replace(after, state=state) if KINDS[record.kind].may_become(record.state, state) else after


def _state_by_effect(record: MemoryRecord) -> str:
    if record.judged < JUDGED_FROM or record.state in HIDDEN:
        return record.state
    if record.kind is Kind.CENSOR:
        wrong = record.effectiveness < INEFFECTIVE_BELOW and not record.pinned
        return MemoryState.RETIRED if wrong else record.state
    if record.effectiveness > EFFECTIVE_ABOVE:
        return MemoryState.EFFECTIVE
    return MemoryState.INEFFECTIVE if record.effectiveness < INEFFECTIVE_BELOW else MemoryState.ACTIVE


def triggered(record: MemoryRecord) -> MemoryRecord:
    """A censor after a text triggered it."""
    state = MemoryState.ACTIVE if record.state is MemoryState.CREATED else record.state
    return replace(record, activations=record.activations + 1, state=state)


def may_be_promoted(record: MemoryRecord) -> bool:
    """A censor that warned often, and not wrongly as far as anybody said."""
    often = record.kind is Kind.CENSOR and record.activations >= ESCALATED_FROM
    return (
        often
        and record.state is MemoryState.ACTIVE
        and (not record.judged or record.effectiveness >= EFFECTIVE_ABOVE)
        and record.severity is not Severity.BLOCK
    )


def asks_for_review(record: MemoryRecord) -> bool:
    """Whether a person should look at it."""
    odd = record.state in (MemoryState.PROPOSED, MemoryState.INEFFECTIVE)
    return odd or bool(record.suspect) or record.suggested is not None or may_be_promoted(record)


def retired(record: MemoryRecord, kind: MemoryKind) -> str:
    """Raises Conflict for what is kept."""
    if record.state is MemoryState.PROPOSED:
        return MemoryState.INACTIVE
    if not kind.end:
        raise Conflict(f"a {record.kind} is kept: it cannot be retired", f"lore memory forget {record.id} deletes it")
    return kind.end


def likeness(text: str) -> str:
    """Equal for texts that differ in case, blanks and the last full stop alone."""
    folded = " ".join(text.casefold().split()).rstrip(".!")
    return hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def led(record: MemoryRecord, kind: MemoryKind, state: str) -> str:
    """Raises Conflict where the table of states does not lead there."""
    if kind.may_become(record.state, state):
        return state
    raise Conflict(
        f"{record.kind} {record.id} is {record.state} and cannot become {state}", "lore memory show tells more"
    )


def refuse(new: NewMemory, kind: MemoryKind) -> None:
    """Raises InvalidRequest for what is no memory."""
    if not new.text.strip():
        raise InvalidRequest("the memory is empty", "say what is to be remembered")
    if len(new.text) > MOST_TEXT:
        raise InvalidRequest(
            f"the memory has {len(new.text):,} characters; it may have {MOST_TEXT:,}",
            "keep what matters of it, or load the text into a codex: lore load PATH",
        )
    for name in ("subject", "attribute", "domain", "trigger"):  # also of what a model or a plug-in proposes
        if len(getattr(new, name)) > MOST_NAME:
            raise InvalidRequest(f"{name}: it may have {MOST_NAME:,} characters", "say the rest in the memory's text")
    if not 0.0 <= new.confidence <= 1.0:
        raise InvalidRequest(f"confidence {new.confidence} is not between 0 and 1", "leave it out for what is certain")
    if not kind.states:
        raise InvalidRequest(
            f"no package brings the kind {new.kind!r} of memories", "install it, and restart the daemon"
        )
    if (first := new.state or kind.first) not in kind.states:
        raise InvalidRequest(f"a {new.kind} is never {first}", f"it begins as {kind.first}")
