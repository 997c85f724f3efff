"""Lorekeep's codex and archive as the daemon has them, without the daemon: take in from disk, index, search."""

from pathlib import Path

from worker import serve

from codex.archive.archive import Archive
from codex.library import Library
from codex.searching.search import Search
from codex.trees.sources import LoadSpec
from orchestrator.codices.archive import ArchiveIndexer


class Ours:
    def __init__(self) -> None:
        self.store = Path()
        self.name = ""

    def index(self, root: Path, store: Path) -> None:
        if store != self.store:
            self.store = store
            archive = Archive(store / "archive")
            self.found = Search(archive)
            self.library = Library(store / "codices", indexer=ArchiveIndexer(archive))
        self.name = self.library.load(LoadSpec((str(root),), name=root.name)).codex.name

    def search(self, query: str, n: int) -> list[str]:
        return list(dict.fromkeys(hit.path for hit in self.found.search(query, self.name, n).hits))


if __name__ == "__main__":
    serve(Ours())
