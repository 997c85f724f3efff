"""The files of a codex as questions meet them: its current generation with the log of changes laid over it.

For any thread.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from codex.documents import lines
from codex.library import Library
from orchestrator.codices.resident import ResidentCodices
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
