"""Appends changes to a prompt without changing its cached prefix: a numbered log beside a frozen generation. Pure.

    base       a₁ b₁ c₁                     the generation in the floor, never changed
    log        1 changed b₂   2 removed a   3 changed b₃
    effective  b₃ c₁                        base, with each entry applied in turn

The log only grows. A reader that has the first n entries needs only those after them, and cached tokens of the log stay a
prefix. A second edit of a file is a second entry, relative to the first.

`changed_blocks` finds the changed lines of two texts, in time that grows with the texts and not with their square.

    equal at both ends    ─▶ left aside        lines that each side has once ─▶ anchors, in the longest order of both
    between anchors       ─▶ the same again; where there is none, difflib; of very many lines none counts as equal

The anchors are those of the patience diff (Bram Cohen). The time of `difflib` alone grows with the square of a line's
repetitions: it took 7 of the 14 seconds of an update after a formatter's run over 500 files.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from codex.documents import Document

ChangedDefinitions = Callable[[Document, Document], str | None]
"""(as reported last, current) → the definitions that changed, as text; None when definitions cannot express the change."""
_COMPARED = 1_000_000  # lines of the one times lines of the other: a tenth of a second
Block = tuple[str, int, int, int, int]
"""As difflib has it: 'replace', 'delete' or 'insert', lines of the old text, lines of the new one; half-open, from 0."""
_Span = tuple[int, int, int, int]


class ChangeKind(StrEnum):
    """What happened to a file."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    MOVED = "moved"  # only its name changed: `source` is the old one
    RESTORED = "restored"  # equal to the base again


@dataclass(frozen=True, slots=True)
class Amendment:
    """One entry of the log. `text` is what a prompt shows: the whole file, or its changed definitions, or nothing."""

    number: int  # from 1, without gaps
    path: str
    kind: ChangeKind
    digest: str | None  # of the file's bytes from here on; None: removed
    text: str = ""
    whole: bool = True  # False: `text` holds the changed definitions alone
    source: str | None = None


def effective(base: Mapping[str, str], log: Sequence[Amendment]) -> dict[str, str]:
    """Digest by path after the log. `base`: digest by path."""
    now = dict(base)
    for entry in log:
        if entry.digest is None:
            now.pop(entry.path, None)
        else:
            now[entry.path] = entry.digest
    return now


@dataclass(frozen=True)
class AmendmentWriter:
    """The tools that make an entry's text: a reader of documents by (path, digest), a token count, the definitions."""

    read: Callable[[str, str], Document]
    count: Callable[[str], int]
    changed_definitions: ChangedDefinitions
    whole_file_tokens: int


def new_entries(
    base: Mapping[str, str], log: Sequence[Amendment], current: Mapping[str, str], writer: AmendmentWriter
) -> tuple[Amendment, ...]:
    """The entries that make `effective(base, log + new)` equal to `current`; empty when nothing changed.

    By path, removals last: a move refers to the old name, which must not be removed before it.
    """
    last = effective(base, log)
    gone = {digest: path for path, digest in sorted(last.items(), reverse=True) if path not in current}
    made: list[Amendment] = []
    for path in (*sorted(current), *sorted(last.keys() - current.keys())):
        if last.get(path) != current.get(path):
            number = len(log) + len(made) + 1
            made.append(_entry(number, path, base, last.get(path), current.get(path), gone, writer))
    return tuple(made)


def _entry(
    number: int,
    path: str,
    base: Mapping[str, str],
    before: str | None,
    now: str | None,
    gone: Mapping[str, str],
    writer: AmendmentWriter,
) -> Amendment:
    if now is None:
        return Amendment(number, path, ChangeKind.REMOVED, None)
    if base.get(path) == now:
        return Amendment(number, path, ChangeKind.RESTORED, now)
    if before is None and now in gone:
        return Amendment(number, path, ChangeKind.MOVED, now, source=gone[now])
    whole = writer.read(path, now)
    if before is None:
        return Amendment(number, path, ChangeKind.ADDED, now, whole.text)
    if writer.count(whole.text) > writer.whole_file_tokens:
        part = writer.changed_definitions(writer.read(path, before), whole)
        if part is not None and len(part) < len(whole.text):
            return Amendment(number, path, ChangeKind.CHANGED, now, part, whole=False)
    return Amendment(number, path, ChangeKind.CHANGED, now, whole.text)


def rebase_reason(
    codex: int, amended: int, to_compute: int, questions: int, share: float, *, overfull: bool = False
) -> str:
    """Why a new generation is due, '' where none is. Tokens of the base generation, of the log, and of what a new
    generation does not share with the base; questions since the base was frozen. Table, first match wins:

    1  no amendments                                      no
    2  base and log exceed the limit of the codex         yes
    3  amendments > share × codex                         yes
    4  amendments × questions > tokens to compute anew    yes: they have cost more than the prefill costs
    5  otherwise                                          no
    """
    if amended == 0:
        return ""
    if overfull:
        return f"{amended:,} amended tokens behind {codex:,} are more than fits"
    if amended > share * codex:
        return f"{amended:,} amended tokens are more than {share * 100:g}% of {codex:,}"
    if amended * questions > to_compute:
        return f"{amended:,} amended tokens in {questions} questions outweigh {to_compute:,} to compute anew"
    return ""


def changed_blocks(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """In their order, none touching another; without what is equal."""
    blocks: list[Block] = []
    for first, last, begin, end in _differing(old, new):
        if blocks and (blocks[-1][2], blocks[-1][4]) == (first, begin):
            _, first, _, begin, _ = blocks.pop()
        kind = "insert" if first == last else "delete" if begin == end else "replace"
        blocks.append((kind, first, last, begin, end))
    return blocks


def _differing(old: Sequence[str], new: Sequence[str]) -> Iterator[_Span]:
    """Stretches without an equal line that was found, in their order."""
    waiting: list[_Span] = [(0, len(old), 0, len(new))]
    while waiting:
        first, last, begin, end = _trimmed(old, new, waiting.pop())
        if first == last and begin == end:
            continue
        anchors = _anchors(old[first:last], new[begin:end]) if first < last and begin < end else []
        if anchors:
            waiting += reversed(_between(anchors, (first, last, begin, end)))
        elif (last - first) * (end - begin) in range(1, _COMPARED):
            matcher = SequenceMatcher(None, old[first:last], new[begin:end], autojunk=False)
            for kind, *(a, b, c, d) in matcher.get_opcodes():
                if kind != "equal":
                    yield first + a, first + b, begin + c, begin + d
        else:
            yield first, last, begin, end


def _trimmed(old: Sequence[str], new: Sequence[str], span: _Span) -> _Span:
    """Without the lines that are the same at both ends."""
    first, last, begin, end = span
    while first < last and begin < end and old[first] == new[begin]:
        first, begin = first + 1, begin + 1
    while first < last and begin < end and old[last - 1] == new[end - 1]:
        last, end = last - 1, end - 1
    return first, last, begin, end


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that stand once in each, as (old, new): the longest run of them that is in order in both."""
    here, there = Counter(old), Counter(new)
    at = {line: number for number, line in enumerate(new) if there[line] == 1 and here[line] == 1}
    pairs = [(number, at[line]) for number, line in enumerate(old) if line in at]
    tops: list[int] = []  # the least end of a run of each length
    ends: list[int] = []  # which pair that is
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(tops, place)
        before.append(ends[length - 1] if length else -1)
        tops[length : length + 1], ends[length : length + 1] = [place], [index]
    run: list[tuple[int, int]] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        run.append(pairs[index])
        index = before[index]
    return run[::-1]


def _between(anchors: Sequence[tuple[int, int]], span: _Span) -> list[_Span]:
    """What lies before, between and behind anchors, which count from the span's beginning."""
    first, last, begin, end = span
    spans: list[_Span] = []
    at, to = first, begin
    for one, other in anchors:
        spans.append((at, first + one, to, begin + other))
        at, to = first + one + 1, begin + other + 1
    return [*spans, (at, last, to, end)]
