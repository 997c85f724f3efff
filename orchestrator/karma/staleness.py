"""Which memories may be outdated, because the code that they are about is another now.

    1  the cited lines stand in their file, where they were or elsewhere      it is as it was
    2  they stand in another file of the codex                                they moved
    3  they stand nowhere                                                     the memory turns suspect

A memory that cites lines keeps a digest of their text. Lines that only moved, or are indented otherwise, are no change; the
citation then names the place where they stand. This is looked at when the memory would be shown and when it is reviewed, so
that nothing follows the disk for it.
"""

import hashlib
import textwrap
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from orchestrator.errors import InvalidRequest, LoreError, NotFound
from orchestrator.karma.records import CodeCitation, MemoryRecord
from orchestrator.karma.store import MemoryStore

TextOf = Callable[[str, str], str | None]
"""The text of a path in a codex as it is now, None where it has none. In a worker thread. Raises LoreError."""
PathsOf = Callable[[str], Iterable[str]]
"""The files of a codex as it is now. In a worker thread. Raises LoreError."""
CommitOf = Callable[[str, str], str | None]
"""The full name of a commit of a codex, None where it has none of that name. In a worker thread. Raises LoreError."""


def no_others(_: str) -> Iterable[str]:
    """Of a codex whose other files are not looked into."""
    return ()


def no_commit(_: str, __: str) -> None:
    """Of a codex that is not in git."""


MOST_SOUGHT = 8_000_000  # characters of other files that one look reads: half a second
BLOCK = ".block"  # ends the digest of a whole block


def digest_of(text: str, citation: CodeCitation) -> str | None:
    """Of the cited lines `SHA256.MARK`, and `SHA256.MARK.block` where they are a whole block; None where the text does not
    have them."""
    lines = text.splitlines()
    if not citation.start:
        return _digest(lines)
    first, end = citation.start - 1, citation.end
    if first >= end or end > len(lines):
        return None
    return _digest(lines[first:end]) + (BLOCK if _is_block(lines, first, end) else "")


def places_of(citations: Iterable[CodeCitation], text: str) -> dict[CodeCitation, int]:
    """Those whose lines the text holds, each with the number of its first line there, from 1; 0 for a whole file. Where
    they stood before, when they stand there; else the first place."""
    lines = text.splitlines()
    sought: dict[str, list[CodeCitation]] = defaultdict(list)
    for one in citations:
        sought[_mark_in(one.digest)].append(one)
    found: dict[CodeCitation, int] = {}
    for place, line in enumerate(lines or [""]):
        for one in sought.get(_mark(line), ()):
            if (one not in found or place == one.start - 1) and _stands(one, lines, place):
                found[one] = place + 1 if one.start else 0
    return found


def _stands(one: CodeCitation, lines: Sequence[str], place: int) -> bool:
    if not one.start:
        return place == 0 and _digest(lines) == one.digest
    end = place + one.end - one.start + 1
    same = _digest(lines[place:end]) == one.digest.removesuffix(BLOCK)
    return same and (not one.digest.endswith(BLOCK) or _is_block(lines, place, end))


def _is_block(lines: Sequence[str], first: int, end: int) -> bool:
    """Whether what follows lines [first, end) is indented no deeper than they begin. Of a function that only grew at its
    end all lines stand, and it is another function."""
    following = next((line for line in lines[end:] if line.strip()), "")
    return _indent(following) <= _indent(lines[first])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


@dataclass(frozen=True)
class Staleness:
    store: MemoryStore
    text_of: TextOf
    paths_of: PathsOf = no_others
    commit_of: CommitOf = no_commit

    def cited(self, codex: str | None, citations: Sequence[CodeCitation]) -> tuple[CodeCitation, ...]:
        """The same with digests of what they cite now. Of no codex nothing is known. Raises InvalidRequest for code that is
        not there."""
        return tuple(citations) if codex is None else tuple(self._cited(codex, one) for one in citations)

    def _cited(self, codex: str, citation: CodeCitation) -> CodeCitation:
        if citation.digest:  # of an export: what it was then
            return citation
        if not citation.path:
            return replace(citation, commit=self._commit(codex, citation.commit))
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

    def _commit(self, codex: str, named: str) -> str:
        found = self.commit_of(codex, named)
        if found is None:
            raise InvalidRequest(
                f"codex {codex} has no commit {named}", "git log in its folder shows those that it has"
            )
        return found

    def check(self, codex: str, records: Sequence[MemoryRecord]) -> bool:
        """Marks those of this codex that may be outdated, and follows what moved; whether any did. Of a codex that is not
        here nothing is known. Raises LoreError."""
        mine = [one for one in records if one.codex == codex and not one.suspect]
        cited = {each for one in mine for each in one.evidence if each.digest}
        try:
            now = self._now(codex, cited)
        except NotFound:
            return False
        follows = {one.id: tuple(now.get(each, each) for each in one.evidence) for one in mine}
        moved = {one.id: follows[one.id] for one in mine if follows[one.id] != one.evidence}
        self.store.cite(codex, moved)
        gone = {one.id: [each for each in one.evidence if each in cited and each not in now] for one in mine}
        suspect = {one: self._reason(codex, each[0]) for one, each in gone.items() if each}
        if suspect:
            self.store.mark_suspect(codex, suspect)
        return bool(moved or suspect)

    def accept(self, record: MemoryRecord) -> None:
        """A person says that it is true of the code as it is: what stands nowhere any more is bound to the lines that are
        in its place now, and to none where there are none. Raises LoreError."""
        if record.codex is None or not record.suspect:
            return
        try:
            now = self._now(record.codex, {one for one in record.evidence if one.digest})
            bound = tuple(now.get(one) or self._bound_anew(record.codex, one) for one in record.evidence)
        except NotFound:  # the codex is not here
            bound = tuple(replace(one, digest="") for one in record.evidence)
        self.store.cite(record.codex, {record.id: bound})

    def _bound_anew(self, codex: str, one: CodeCitation) -> CodeCitation:
        text = self.text_of(codex, one.path)
        return replace(one, digest=(digest_of(text, one) if text is not None else None) or "")

    def _now(self, codex: str, cited: Iterable[CodeCitation]) -> dict[CodeCitation, CodeCitation]:
        """Where each stands now; those that stand nowhere are left out."""
        by_path: dict[str, list[CodeCitation]] = defaultdict(list)
        for one in cited:
            by_path[one.path].append(one)
        found: dict[CodeCitation, CodeCitation] = {}
        for path, here in by_path.items():
            text = self.text_of(codex, path)
            found |= {} if text is None else _at(path, places_of(here, text))
        missing = {one for here in by_path.values() for one in here if one not in found}
        return found | (self._elsewhere(codex, missing) if missing else {})

    def _elsewhere(self, codex: str, missing: set[CodeCitation]) -> dict[CodeCitation, CodeCitation]:
        """Those of these that stand in another file. Files of the same name are read first: folders are renamed most."""
        found: dict[CodeCitation, CodeCitation] = {}
        room = MOST_SOUGHT
        for path in candidates(self.paths_of(codex), {one.path for one in missing}):
            if room <= 0 or len(found) == len(missing):
                break
            text = self._text_elsewhere(codex, path)
            room -= len(text)
            found |= _at(path, places_of(missing - found.keys(), text))
        return found

    def _text_elsewhere(self, codex: str, path: str) -> str:
        """Of a file that nobody cited: one that cannot be read fails no question."""
        try:
            return self.text_of(codex, path) or ""
        except LoreError:
            return ""

    def _reason(self, codex: str, one: CodeCitation) -> str:
        if self.text_of(codex, one.path) is None:
            return f"{one.path} is gone"
        return f"{one.path}:{one.start}-{one.end} changed" if one.start else f"{one.path} changed"


def candidates(paths: Iterable[str], missing: Iterable[str]) -> Iterator[str]:
    """Where code of the missing files may stand now: files of the same name, then the others with the same ending."""
    left = [PurePosixPath(one) for one in missing]
    names, endings = {one.name for one in left}, {one.suffix for one in left}
    listed = [path for path in map(PurePosixPath, sorted(paths)) if path.suffix in endings]
    yield from (str(path) for path in sorted(listed, key=lambda path: path.name not in names))


def _at(path: str, places: Mapping[CodeCitation, int]) -> dict[CodeCitation, CodeCitation]:
    """The citations as they would be made there."""
    return {
        one: replace(one, path=path, start=first, end=first + one.end - one.start if first else 0)
        for one, first in places.items()
    }


def _digest(lines: Sequence[str]) -> str:
    """Common indentation and blanks at the ends of lines do not count."""
    text = textwrap.dedent("\n".join(line.rstrip() for line in lines))
    return f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}.{_mark(lines[0] if lines else '')}"


def _mark(line: str) -> str:
    """So short that each line of a file is compared by it first."""
    return f"{zlib.crc32(line.strip().encode('utf-8', 'surrogatepass')):08x}"


def _mark_in(digest: str) -> str:
    return digest.removesuffix(BLOCK).rpartition(".")[2]
