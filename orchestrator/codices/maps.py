"""A codex's map for whoever does not have its floor: one line for each file, with what it defines.

Lines are those of the coverage `map`, remembered by digest, so a codex that was loaded is hardly read again. Of more than
GRADED_BYTES of source the files of roles that count most are outlined, and of lines without room those are left out.
Synchronous, for a worker thread. It knows no floor and no level of a file in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from codex.catalog.catalog import Catalog
from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import FileEntry
from codex.progress import silent
from orchestrator.codices.coverages import GRADED_BYTES, Outliner, most_telling, one_line, telling_first
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.symbols import digests_now
from orchestrator.errors import translated


@dataclass(frozen=True)
class MapLines:
    """`lines` by path, in the order of paths; `left_out`: files that have none."""

    lines: Mapping[str, str]
    left_out: int


@dataclass(frozen=True)
class CodexMaps:
    """For any thread but the event loop's."""

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
