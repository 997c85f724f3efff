"""What was taken from a prompt, in sentences for `lore.governor.actions`: few ones, however much went. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from governor.ctc import Action, Settlement, Verdict
from orchestrator.prompt.claims import SourcedClaim, SourceKind

FEW = 8  # things of one kind that are told one by one

# The rows that shorten say how; what has no shorter form went whole, and its sentence must not claim otherwise.
_WHOLE = {"memories to micro": "memories", "older turns into a gist": "older turns"}
_MANY = {
    SourceKind.FIXED: "parts",
    SourceKind.MEMORY: "memories",
    SourceKind.EXCHANGE: "turns",
    SourceKind.TOLD: "passages of earlier turns",
    SourceKind.RESULT: "tool results of earlier turns",
    SourceKind.EVIDENCE: "passages",
}

_Loss = tuple[SourcedClaim, Verdict]


def told_gone(turns: int) -> tuple[str, ...]:
    """The oldest turns, which were never counted."""
    if not turns:
        return ()
    return (f"{_turns(1, turns)} left out (older than what may stand in a prompt)",)


def told(entries: Iterable[SourcedClaim], settlement: Settlement, gone: int = 0) -> tuple[str, ...]:
    """What each claim lost: turns together, and what is many of its kind. `gone`: turns before the first of these."""
    alike: dict[tuple[SourceKind, Action, str], list[_Loss]] = {}
    for entry, verdict in zip(entries, settlement.verdicts, strict=True):
        if verdict.action is not Action.KEEP:
            alike.setdefault((entry.place.what, verdict.action, verdict.reason), []).append((entry, verdict))
    return tuple(sentence for losses in alike.values() for sentence in _sentences(losses, gone))


def _sentences(losses: Sequence[_Loss], gone: int) -> Iterator[str]:
    what = losses[0][0].place.what
    if len(losses) > (1 if what is SourceKind.EXCHANGE else FEW):
        yield _sentence(_together(what, losses, gone), losses)
    else:
        yield from (_sentence(entry.claim.id, [(entry, verdict)]) for entry, verdict in losses)


def _together(what: SourceKind, losses: Sequence[_Loss], gone: int) -> str:
    first, last = losses[0][0].place.at + 1, losses[-1][0].place.at + 1
    if what is SourceKind.EXCHANGE and last - first + 1 == len(losses):
        return _turns(gone + first, gone + last)
    return f"{len(losses):,} {_MANY[what]}"


def _sentence(name: str, losses: Sequence[_Loss]) -> str:
    left = sum(verdict.tokens for _, verdict in losses)
    saved = sum(entry.claim.tokens for entry, _ in losses) - left
    verdict = losses[0][1]
    if verdict.action is Action.DROP:
        return f"{name} left out, {saved:,} tokens saved ({_WHOLE.get(verdict.reason, verdict.reason)})"
    return f"{name} shortened to {left:,} tokens, {saved:,} saved ({verdict.reason})"


def _turns(first: int, last: int) -> str:
    return f"turn {first:,}" if first == last else f"turns {first:,} to {last:,}"
