"""The files of a codex as questions meet them: its current generation with the log of changes laid over it. And its map,
one line for each file with what it defines, for whoever does not have its floor. For any thread but the event loop's.

Lines are those of the coverage `map`, remembered by digest, so a codex that was loaded is hardly read again. Of more than
GRADED_BYTES of source the files of roles that count most are outlined, and of lines without room those are left out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from codex.catalog.catalog import Catalog
from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import FileEntry
from codex.documents import lines
from codex.library import Library
from codex.progress import silent
from orchestrator.codices.coverages import GRADED_BYTES, Outliner, most_telling, one_line, telling_first
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.symbols import digests_now
from orchestrator.errors import NotFound, instead, translated

COMPARED = 5_000  # names of files that a wrong one is compared with: some hundredths of a second


@dataclass(frozen=True)
class LinesOfFile:
    """Lines `start` to `end`, from 1, of a file of `total` ones; both are 0 for a file without any."""

    start: int
    end: int
    total: int
    text: str


@dataclass(frozen=True)
class CodexFiles:
    """Every method raises NotFound for an unknown codex, LoreError for a catalog that cannot be read."""

    library: Library
    residents: ResidentCodices

    def text_of(self, codex: str, path: str) -> str | None:
        """None for what is no file of the codex, whatever lies on the disk."""
        with translated():
            found = self.residents.digests(codex, [path])
            return self.library.catalog.document_by_digest(path, found[path]).text if path in found else None

    def lines_of(self, codex: str, path: str, start: int, end: int) -> LinesOfFile:
        """From `start` to `end`, both from 1, as far as the file goes. Raises NotFound for what is no file or has no such
        line, with the nearest name."""
        text = self.text_of(codex, path)
        if text is None:
            raise no_file(path, self.paths_of(codex))
        found = lines(text)
        chosen = found[start - 1 : end]
        if found and not chosen:
            raise NotFound(f"{path} has {len(found):,} lines, and none from {start:,} to {end:,}", "name lines of it")
        shown = "".join(f"{line}\n" for line in chosen)
        return LinesOfFile(min(start, len(found)), start - 1 + len(chosen), len(found), shown)

    def size_of(self, codex: str, paths: Iterable[str]) -> int:
        """Characters of these files. Raises NotFound for what is no file, with the nearest name."""
        texts = {path: self.text_of(codex, path) for path in paths}
        for path, text in texts.items():
            if text is None:
                raise no_file(path, self.paths_of(codex))
        return sum(len(text) for text in texts.values() if text is not None)

    def commit_of(self, codex: str, named: str) -> str | None:
        """The full name of a commit in the repositories of its folders, None where none has it, or none is in git."""
        with translated():
            return self.library.commit(codex, named)

    def paths_of(self, codex: str) -> Collection[str]:
        with translated():
            return self.residents.paths(codex)


def no_file(path: str, known: Collection[str]) -> NotFound:
    """With the nearest names: those that end in the same part first."""
    last = path.rpartition("/")[2]
    alike = sorted(one for one in known if one.rpartition("/")[2] == last)
    near = alike[:3] or [*islice(sorted(known, key=lambda one: abs(len(one) - len(path))), COMPARED)]
    hint = instead(path, near, "it holds no files", "`lore codex show`")
    return NotFound(f"{path!r} is no file of this codex; {hint}")  # a model is shown the message alone


# -- the map


@dataclass(frozen=True)
class MapLines:
    """`lines` by path, in the order of paths; `left_out`: files that have none."""

    lines: Mapping[str, str]
    left_out: int


@dataclass(frozen=True)
class CodexMaps:
    catalog: Catalog
    residents: ResidentCodices
    remembered: SqliteBytesCache

    def of(self, codex: str, most: int) -> MapLines:
        """Of the files that the codex answers from, in at most so many characters. Raises NotFound."""
        with translated():
            entries = self._entries(codex)
            outliner = Outliner(self.catalog.documents, self.remembered)
            known = outliner.outlined(most_telling(entries, GRADED_BYTES), silent)
        kept = set(
            fitting({one.path: known[one.path].line for one in telling_first(entries) if one.path in known}, most)
        )
        lines = {one_line(path): known[path].line for path in sorted(kept)}
        return MapLines(lines, len(entries) - len(lines))

    def _entries(self, codex: str) -> list[FileEntry]:
        digests = digests_now(self.catalog, self.residents, codex)
        sizes = {one.path: one.size for one in self.catalog.generation(codex).entries}
        return [FileEntry(path, digest, sizes.get(path, 0)) for path, digest in sorted(digests.items())]


def fitting(lines: Mapping[str, str], most: int) -> list[str]:
    """Paths, the first ones first, whose lines with the paths before them take at most so many characters together."""
    kept: list[str] = []
    for path, line in lines.items():
        most -= len(path) + len(line) + len(": \n")
        if most < 0:
            break
        kept.append(path)
    return kept
