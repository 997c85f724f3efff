"""The Archive in LanceDB: full-text search in files, no server.

One database (a folder) per codex, with two tables: `chunks`, and `files` for whole files. Both have one full-text
index, on words that were split before they were stored (`codex.prepare`), with English stemming.

The folder's name carries the version of what is stored; another version's folder is removed, `held` is then empty, and
the codex is indexed again from the catalog. A folder that cannot be read is renamed and so set aside.

A batch is one commit of `chunks`, which is what a search sees, then one of `files`. `held` believes a file only where
both agree on its digest, so a process killed between the two loses nothing.
"""

import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from codex import lance_tables as tables
from codex.archive import ArchiveDamaged, ArchiveError, ArchiveStats, FileHit, Hit, Progress, unheard
from codex.batches import batches
from codex.documents import Document
from codex.prepare import PREPARE_VERSION, prepare

_SCHEMA = 1
_FLAT_ROWS = 2_000  # not yet in the index: scanning so many costs a search about 10 ms


class LanceArchive:
    """An `Archive` under a folder of its own. Cheap to make: LanceDB is imported at the first use (0.5 s, 140 MB)."""

    def __init__(self, root: Path, branch_of: Callable[[str], str] | None = None) -> None:
        """`branch_of` names the branch that a codex stands on, for the tag of what is stored."""
        self._root = root
        self._branch_of = branch_of
        self._open: dict[str, tables.Tables] = {}
        self._writing = threading.RLock()

    # -- what an Archive does ------------------------------------------------------------------------------------

    def held(self, codex: str) -> Mapping[str, str]:
        try:
            opened = self._tables(codex)
            return {} if opened is None else tables.held(opened)
        except ArchiveDamaged:
            return {}

    def replace(self, codex: str, documents: Sequence[Document], removed: Sequence[str] = ()) -> int:
        prepared = list({one.path: prepare(one) for one in documents}.values())
        with self._writing, _translated(self, codex):
            opened = self._tables(codex)
            if opened is None:
                opened = self._create(codex) if prepared else None
            if opened is None:
                return 0
            gone = [*removed, *(one.path for one in prepared)]
            tables.write(
                opened.chunks, tables.chunk_rows(prepared, self._branch_of(codex) if self._branch_of else ""), gone
            )
            tables.write(opened.files, tables.file_rows(prepared), gone)
        return sum(len(one.chunks) for one in prepared)

    def index(
        self,
        codex: str,
        documents: Iterable[Document],
        removed: Sequence[str] = (),
        progress: Progress = unheard,
    ) -> None:
        waiting = list(removed)
        wrote = bool(waiting)
        for batch in batches(documents):
            self.replace(codex, batch, waiting)
            progress(len(batch))
            waiting, wrote = [], True
        if waiting:
            self.remove(codex, waiting)
        if wrote and self.stats(codex).unindexed > _FLAT_ROWS:
            self.optimize(codex)

    def remove(self, codex: str, paths: Sequence[str]) -> None:
        self.replace(codex, (), paths)

    def drop(self, codex: str) -> None:
        with self._writing:
            self._open.pop(codex, None)
            shutil.rmtree(self._folder(codex), ignore_errors=True)

    def search(
        self, query: Sequence[str], codex: str, n: int, *, paths: Sequence[str] | None = None
    ) -> tuple[Hit, ...]:
        with _translated(self, codex):
            opened = self._tables(codex)
            if opened is None or not query or n <= 0:
                return ()
            where = None if paths is None else tables.among(paths)
            rows = tables.match(opened.chunks, query, n, tables.HIT_COLUMNS, where)
            return tuple(tables.hit(row, query) for row in rows)

    def search_files(self, query: Sequence[str], codex: str, n: int) -> tuple[FileHit, ...]:
        with _translated(self, codex):
            opened = self._tables(codex)
            if opened is None or not query or n <= 0:
                return ()
            rows = tables.match(opened.files, query, n, ("path", "_score"))
            return tuple(FileHit(row["path"], row["_score"]) for row in rows)

    def stats(self, codex: str) -> ArchiveStats:
        with _translated(self, codex):
            opened = self._tables(codex)
            if opened is None:
                return ArchiveStats(codex, 0, 0, 0)
            folder = self._folder(codex)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            return ArchiveStats(
                codex, opened.files.count_rows(), opened.chunks.count_rows(), size, tables.unindexed(opened.chunks)
            )

    def optimize(self, codex: str) -> None:
        with self._writing, _translated(self, codex):
            opened = self._tables(codex)
            if opened is not None:
                for table in (opened.chunks, opened.files):
                    tables.fold(table)

    # -- folders and tables --------------------------------------------------------------------------------------

    def set_aside(self, codex: str) -> Path | None:
        """Renames a codex's folder so that nothing finds it again; returns where it now is."""
        with self._writing:
            self._open.pop(codex, None)
            folder = self._folder(codex)
            if not folder.exists():
                return None
            target = folder.with_name(f"{folder.name}.damaged")
            shutil.rmtree(target, ignore_errors=True)  # the newest damage is the one worth looking at
            return folder.rename(target)

    def _folder(self, codex: str) -> Path:
        safe = re.sub(r"[^A-Za-z0-9_-]+", "_", codex)[:40]
        name = hashlib.sha256(codex.encode()).hexdigest()[:10]
        return self._root / f"{safe}-{name}.v{_SCHEMA}.{PREPARE_VERSION}"

    def _tables(self, codex: str) -> tables.Tables | None:
        known = self._open.get(codex)
        if known is not None:
            return known
        with self._writing:
            folder = self._folder(codex)
            if codex in self._open or not folder.is_dir():
                return self._open.get(codex)
            with _translated(self, codex):
                self._open[codex] = tables.open_tables(folder)
            return self._open[codex]

    def _create(self, codex: str) -> tables.Tables:
        folder = self._folder(codex)
        stem = folder.name.split(".v", 1)[0]
        if self._root.is_dir():
            for other in self._root.glob(f"{stem}.v*"):
                if not other.name.endswith(".damaged"):
                    shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        self._open[codex] = tables.create_tables(folder)
        return self._open[codex]


@contextmanager
def _translated(archive: LanceArchive, codex: str) -> Iterator[None]:
    """LanceDB's errors as ours: what cannot be read is set aside, what cannot be written is reported."""
    try:
        yield
    except OSError as error:
        raise ArchiveError(f"the archive of {codex!r} cannot be used: {error}") from error
    except (RuntimeError, ValueError) as error:
        why = str(error).split("\n", 1)[0][:200]
        if "No space left" in why:
            raise ArchiveError(f"no room for the archive of {codex!r}: {why}") from error
        archive.set_aside(codex)
        raise ArchiveDamaged(codex, why) from error
