"""Which memories may be outdated, because the code that they are about is another now.

A memory that cites lines keeps a digest of their text. It turns suspect when the cited file no longer holds these lines at
any place: lines that only moved are not a change. This is looked at when the memory would be shown and when it is reviewed,
so that nothing follows the disk for it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import InvalidRequest
from orchestrator.karma.records import CodeCitation, MemoryRecord
from orchestrator.karma.store import MemoryStore

TextOf = Callable[[str, str], str | None]
"""The text of a path in a codex as it is now, None where it has none. In a worker thread. Raises LoreError."""


def digest_of(text: str, citation: CodeCitation) -> str | None:
    """Of the cited lines, sha256 in hex; None where the text has no such lines."""
    lines = text.splitlines()
    if not citation.start:
        return _digest(lines)
    if citation.start > citation.end or citation.end > len(lines):
        return None
    return _digest(lines[citation.start - 1 : citation.end])


def change_of(citation: CodeCitation, text: str | None) -> str:
    """Why the citation may be outdated; '' where its lines stand, or nobody knows what they were."""
    if text is None:
        return f"{citation.path} is gone"
    if not citation.digest:
        return ""
    lines = text.splitlines()
    if not citation.start:
        return "" if _digest(lines) == citation.digest else f"{citation.path} changed"
    length = citation.end - citation.start + 1
    places = [
        citation.start - 1,
        *range(max(0, len(lines) - length + 1)),
    ]  # where they were, before they are looked for
    if any(_digest(lines[place : place + length]) == citation.digest for place in places):
        return ""
    return f"{citation.path}:{citation.start}-{citation.end} changed"


@dataclass(frozen=True)
class Staleness:
    store: MemoryStore
    text_of: TextOf

    def cited(self, codex: str | None, citations: Sequence[CodeCitation]) -> tuple[CodeCitation, ...]:
        """The same with digests of what they cite now. Of no codex nothing is known. Raises InvalidRequest for code that is
        not there."""
        return tuple(citations) if codex is None else tuple(self._cited(codex, one) for one in citations)

    def _cited(self, codex: str, citation: CodeCitation) -> CodeCitation:
        if citation.digest:  # of an export: what it was then
            return citation
        text = self.text_of(codex, citation.path)
        if text is None:
            raise InvalidRequest(f"codex {codex} has no file {citation.path}", "lore search finds what it has")
        digest = digest_of(text, citation)
        if digest is None:
            raise InvalidRequest(
                f"{citation.path} has no lines {citation.start} to {citation.end}",
                f"it has {len(text.splitlines()):,} lines; cite START-END, from 1",
            )
        return replace(citation, digest=digest)

    def check(self, codex: str, records: Sequence[MemoryRecord]) -> None:
        """Marks those of this codex that may be outdated. Raises LoreError."""
        found = {one.id: self._reason(codex, one) for one in records if one.codex == codex and not one.suspect}
        suspect = {one: why for one, why in found.items() if why}
        if suspect:
            self.store.mark_suspect(codex, suspect)

    def _reason(self, codex: str, record: MemoryRecord) -> str:
        changes = (change_of(one, self.text_of(codex, one.path)) for one in record.evidence)
        return next(filter(None, changes), "")


def _digest(lines: Sequence[str]) -> str:
    """Blanks at the ends of lines do not count."""
    text = "\n".join(line.rstrip() for line in lines)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
