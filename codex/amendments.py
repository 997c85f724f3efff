"""How a change is told without touching what is cached: a numbered log beside a frozen generation. Pure.

    base       a₁ b₁ c₁                     what stands in the floor, never touched
    log        1 changed b₂   2 removed a   3 changed b₃
    effective  b₃ c₁                        base, with each entry laid over it in turn

The log only grows. So whoever has seen its first n entries needs only those behind them, and what is cached of it stays
a prefix. A second edit of a file is told again, relative to what was told last.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from codex.documents import Document


class ChangeKind(StrEnum):
    """What happened to a file."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    MOVED = "moved"  # nothing but its name changed: `source` says which one it had
    RESTORED = "restored"  # again as the base has it


@dataclass(frozen=True, slots=True)
class Amendment:
    """One entry of the log. `text` is what a prompt shows: the whole file, or its changed definitions, or nothing."""

    number: int  # from 1, without gaps
    path: str
    told: ChangeKind
    digest: str | None  # of the file's bytes from here on; None: removed
    text: str = ""
    whole: bool = True  # False: `text` holds the changed definitions alone
    source: str | None = None


ChangedDefinitions = Callable[[Document, Document], str | None]
"""(as told last, as it is now) → the definitions that changed, as text; None when the change cannot be told that way."""


@dataclass(frozen=True)
class AmendmentWriter:
    """What an entry's text is made with: a reader of documents by (path, digest), a token count, the definitions."""

    read: Callable[[str, str], Document]
    count: Callable[[str], int]
    changed_definitions: ChangedDefinitions
    whole_file_tokens: int


def effective(base: Mapping[str, str], log: Sequence[Amendment]) -> dict[str, str]:
    """Digest by path after the log. `base`: digest by path."""
    now = dict(base)
    for entry in log:
        if entry.digest is None:
            now.pop(entry.path, None)
        else:
            now[entry.path] = entry.digest
    return now


def new_entries(
    base: Mapping[str, str], log: Sequence[Amendment], current: Mapping[str, str], teller: AmendmentWriter
) -> tuple[Amendment, ...]:
    """What must be appended so that `effective(base, log + new)` is `current`; empty: nothing to tell.

    By path, removals last: where a file moved, the old name must still be known when the new one is told.
    """
    last = effective(base, log)
    gone = {digest: path for path, digest in sorted(last.items(), reverse=True) if path not in current}
    made: list[Amendment] = []
    for path in (*sorted(current), *sorted(last.keys() - current.keys())):
        if last.get(path) != current.get(path):
            number = len(log) + len(made) + 1
            made.append(_entry(number, path, base, last.get(path), current.get(path), gone, teller))
    return tuple(made)


def _entry(
    number: int,
    path: str,
    base: Mapping[str, str],
    before: str | None,
    now: str | None,
    gone: Mapping[str, str],
    teller: AmendmentWriter,
) -> Amendment:
    if now is None:
        return Amendment(number, path, ChangeKind.REMOVED, None)
    if base.get(path) == now:
        return Amendment(number, path, ChangeKind.RESTORED, now)
    if before is None and now in gone:
        return Amendment(number, path, ChangeKind.MOVED, now, source=gone[now])
    whole = teller.read(path, now)
    if before is None:
        return Amendment(number, path, ChangeKind.ADDED, now, whole.text)
    if teller.count(whole.text) > teller.whole_file_tokens:
        part = teller.changed_definitions(teller.read(path, before), whole)
        if part is not None and len(part) < len(whole.text):
            return Amendment(number, path, ChangeKind.CHANGED, now, part, whole=False)
    return Amendment(number, path, ChangeKind.CHANGED, now, whole.text)


@dataclass(frozen=True, slots=True)
class RebaseCase:
    """The numbers that decide on a rebase; all in tokens but the first and the last."""

    idle: bool  # nothing is being answered
    codex: int  # of the base generation
    amendments: int  # of the log
    to_compute: int  # of a new generation, behind what it shares with the base
    questions: int  # asked since the base was frozen
    overfull: bool = False  # base and log together are more than the codex may take


@dataclass(frozen=True, slots=True)
class RebaseDecision:
    rebase: bool
    reason: str


def should_rebase(case: RebaseCase, share: float) -> RebaseDecision:
    """Table, first match wins:

    1  no amendments                                      no
    2  something is being answered                        no
    3  base and log are more than may be                  yes
    4  amendments > share × codex                         yes
    5  amendments × questions > tokens to compute anew    yes: they have cost more than the prefill would
    6  otherwise                                          no
    """
    told, limit, spent = case.amendments, share * case.codex, case.amendments * case.questions
    if told == 0:
        return RebaseDecision(False, "there are no amendments")
    if not case.idle:
        return RebaseDecision(False, f"{told:,} amended tokens, but answers are running")
    if case.overfull:
        return RebaseDecision(True, f"{told:,} amended tokens behind {case.codex:,} are more than fits")
    if told > limit:
        return RebaseDecision(True, f"{told:,} amended tokens are more than {share * 100:g}% of {case.codex:,}")
    if spent > case.to_compute:
        return RebaseDecision(
            True, f"{told:,} amended tokens in {case.questions} questions outweigh {case.to_compute:,} to compute anew"
        )
    return RebaseDecision(False, f"{told:,} amended tokens cost less than {case.to_compute:,} to compute anew")
