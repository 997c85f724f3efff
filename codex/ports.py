"""What the library asks of others while it loads: to index documents, and to count tokens. Both are optional.

An implementation knows nothing of catalogs and generations; it is told documents and paths.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from codex.documents import Document


class Indexer(Protocol):
    """An index over the newest documents of each codex (the Archive). Only one load of a codex calls at a time."""

    def held(self, codex: str) -> Mapping[str, str]:
        """Digest by path of what is indexed and searchable; empty for a codex it does not know.

        The library asks this before each load instead of remembering it, so an index that was lost, damaged or killed
        half-way is simply completed.
        """

    def index(
        self, codex: str, documents: Iterable[Document], removed: Sequence[str], progress: Callable[[int], None]
    ) -> None:
        """Replace what is held of each document's path; forget `removed`. `progress(n)`: n more documents are done.

        `documents` is read once, in order, and is never wholly in memory. May raise CodexError.
        """

    def drop(self, codex: str) -> None:
        """Forget the codex; no error when it is not known."""


CountTokens = Callable[[Sequence[Document]], int]
"""Tokens of these documents in all; called a page at a time, in the order of the prompt."""
