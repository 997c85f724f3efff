"""Search: a question in, chunks of code out. Synchronous; call it from a worker thread.

Knows an archive and how code is asked about, and no model.
"""

from dataclasses import dataclass

from codex.archive import Archive, Found
from codex.identifiers import query_words


@dataclass(frozen=True)
class Search:
    """Search over one archive."""

    archive: Archive

    def search(self, query: str, codex: str, n: int = 10) -> Found:
        """At most `n` hits for a question in words or code. Raises what the archive raises."""
        return Found(self.archive.search(query_words(query), codex, n))
