"""The files of a codex as questions meet them: its current generation with the log of changes laid over it.

For any thread.
"""

from collections.abc import Collection
from dataclasses import dataclass

from codex.catalog.catalog import Catalog
from orchestrator.codices.resident import ResidentCodices
from orchestrator.errors import translated


@dataclass(frozen=True)
class CodexFiles:
    """Every method raises NotFound for an unknown codex, LoreError for a catalog that cannot be read."""

    catalog: Catalog
    residents: ResidentCodices

    def text_of(self, codex: str, path: str) -> str | None:
        """None for what is no file of the codex, whatever lies on the disk."""
        with translated():
            found = self.residents.digests(codex, [path])
            return self.catalog.document_by_digest(path, found[path]).text if path in found else None

    def paths_of(self, codex: str) -> Collection[str]:
        with translated():
            return self.residents.paths(codex)
