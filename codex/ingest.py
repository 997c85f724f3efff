"""Stores a tree in the catalog: scan, read what is new, store it, batch by batch.

    scan ─▶ compare with what is known ─▶ read ─▶ inspect ─▶ store        (then the library counts, indexes and freezes)
                    └── same stamp: nothing is read      └── same bytes: the new stamp alone is stored

Every batch is one transaction with both the bytes and the scan result of each path. A load that is killed at any moment
leaves a consistent catalog, and the next load reads only files that were not stored. The batch bounds the memory in use,
not the codebase.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from codex.catalog.catalog import Catalog, pack
from codex.catalog.databases import pages
from codex.catalog.generations import FileEntry, KnownFile
from codex.documents import decode, digest_of
from codex.errors import LoadCancelled
from codex.progress import Cancelled, Meter, OnProgress, never, progress_at, silent
from codex.settings import LibrarySettings
from codex.trees.ignore import SkipReason
from codex.trees.port import CandidateFile, FileTree, Scan, Skipped
from codex.trees.secrets import compile_rules, find_secret

_RULES = 3  # raise it when the rules of `inspect` change: every file is then inspected again
_NAMED_AT_MOST = 20  # files that notices name one by one
_AT_ONCE = 16  # files that a reader takes: to hand over one alone takes as long as to read it
_STAMPS = 2_000  # of one transaction: whoever reads the catalog waits for its end


@dataclass(frozen=True)
class IngestResult:
    """A tree as the catalog now holds it."""

    entries: tuple[FileEntry, ...]  # by path
    candidates: tuple[CandidateFile, ...]
    skipped: dict[str, int]
    notices: tuple[str, ...]
    read: int  # files read; the others were known


@dataclass(frozen=True, slots=True)
class _Found:
    """One file after reading: what is known of it, and its packed bytes when it is taken."""

    path: str
    known: KnownFile
    body: bytes | None = None
    same: bool = False  # as it was known, but for its stamp


@dataclass(frozen=True)
class Ingest:
    """One load's tools. `named`: whether the user named this very file."""

    catalog: Catalog
    settings: LibrarySettings
    report: OnProgress = silent
    cancelled: Cancelled = never
    named: Callable[[str], bool] = lambda path: False  # noqa: ARG005
    clock: Callable[[], float] = time.monotonic

    def store_tree(self, name: str, tree: FileTree) -> IngestResult:
        """Bring the catalog up to the tree. Raises SourceError, LoadCancelled, DiskFull; what was stored stays."""
        scan = self._scan(tree)
        known = self.catalog.known(name)
        unread = [one for one in scan.candidates if not self.is_current(one, known)]
        touched: list[_Found] = []
        with closing(self._read(tree, unread, known)) as batches:
            for batch in batches:
                new = [one for one in batch if not one.same]
                touched += (one for one in batch if one.same)
                if new:
                    self.catalog.store(name, {one.path: one.known for one in new}, _bodies(new))
                known.update((one.path, one.known) for one in batch)
        for at in range(0, len(touched), _STAMPS):
            self.catalog.restamp(name, {one.path: one.known.stamp for one in touched[at : at + _STAMPS]})
        gone = known.keys() - {one.path for one in scan.candidates}
        if gone:
            self.catalog.forget_paths(name, gone)
        return _taken(scan, known, len(unread))

    def text_of(self, tree: FileTree, candidate: CandidateFile) -> str | None:
        """A file's text as a load would store it; None where it would be left out."""
        try:
            raw = self._taken_from(tree, candidate)
        except OSError:
            return None
        decoded = decode(raw) if raw is not None else None
        return decoded.text if decoded is not None else None

    def digest_now(self, tree: FileTree, candidate: CandidateFile) -> str | None:
        """A file's digest as a load would store it; None where it would be left out. Raises OSError."""
        raw = self._taken_from(tree, candidate)
        return None if raw is None else digest_of(raw)

    def _taken_from(self, tree: FileTree, candidate: CandidateFile) -> bytes | None:
        raw = tree.read(candidate).raw
        left_out, _ = inspect(raw, self.settings, named=self.named(candidate.path))
        return raw if left_out is None else None

    def _scan(self, tree: FileTree) -> Scan:
        meter = Meter("walk", 0, self.report, self.clock)
        scan = tree.scan(self.cancelled, meter.advance)
        meter.finish()
        return scan

    def is_current(self, candidate: CandidateFile, known: Mapping[str, KnownFile]) -> bool:
        """Whether the file is as it was when it was read last, by its stamp."""
        before = known.get(candidate.path)
        if before is None or not candidate.stamp:
            return False
        return before.stamp == self._stamp(candidate.path, candidate.stamp)

    def _stamp(self, path: str, stamp: str) -> str:
        """The tree's stamp, empty when it cannot be trusted, and all that `inspect` depends on besides the bytes."""
        return f"{stamp}|{self._rules(path)}"

    def _rules(self, path: str) -> str:
        walk, secrets = self.settings.walk, self.settings.secrets
        rules = f"{_RULES}:{walk.max_file_bytes}:{walk.max_line_bytes}:{int(secrets.load_secret_contents)}"
        return f"{rules}:{int(self.named(path))}"

    def _read(
        self, tree: FileTree, unread: Sequence[CandidateFile], known: Mapping[str, KnownFile]
    ) -> Generator[list[_Found], None, None]:
        """Batches in the order asked; the next one is read while one is stored, and no reader outlives the tree."""
        limits = self.settings.ingest
        if unread:
            self.report(progress_at("rules", 0, 0, 0.0))
            compile_rules()
        meter = Meter("read", len(unread), self.report, self.clock)
        with ThreadPoolExecutor(limits.readers, thread_name_prefix="codex-read") as readers:
            try:
                ahead: list[Future[list[_Found]]] = []
                for page in (*pages(unread, lambda one: one.size, limits.batch_files, limits.batch_bytes), ()):
                    parts = [page[at : at + _AT_ONCE] for at in range(0, len(page), _AT_ONCE)]
                    before, ahead = ahead, [readers.submit(self._read_some, tree, part, known) for part in parts]
                    if before:
                        yield [one for part in before for one in self._result(part, meter)]
            finally:
                readers.shutdown(wait=True, cancel_futures=True)
        meter.finish()

    def _result(self, reading: Future[list[_Found]], meter: Meter) -> list[_Found]:
        found = reading.result()
        meter.advance(len(found))
        if self.cancelled():
            raise LoadCancelled(f"the load was cancelled at {found[-1].path}; the next one continues from there")
        return found

    def _read_some(
        self, tree: FileTree, candidates: Sequence[CandidateFile], known: Mapping[str, KnownFile]
    ) -> list[_Found]:
        return [self._read_one(tree, one, known.get(one.path)) for one in candidates]

    def _read_one(self, tree: FileTree, candidate: CandidateFile, before: KnownFile | None) -> _Found:
        try:
            read = tree.read(candidate)
        except FileNotFoundError:
            return _Found(candidate.path, KnownFile("", None, candidate.size, SkipReason.VANISHED))
        except OSError as error:
            why = f"{candidate.path}: {error.strerror or error}"
            return _Found(candidate.path, KnownFile("", None, candidate.size, SkipReason.UNREADABLE, why))
        stamp = self._stamp(candidate.path, read.stamp)
        if before is not None and self._holds(before, candidate.path, read.raw):
            return _Found(candidate.path, replace(before, stamp=stamp), same=True)
        reason, notice = inspect(read.raw, self.settings, named=self.named(candidate.path))
        digest = digest_of(read.raw) if reason is None else None
        known = KnownFile(stamp, digest, len(read.raw), reason, notice and f"{candidate.path}:{notice}")
        return _Found(candidate.path, known, pack(read.raw, self.settings.ingest.zlib_level) if digest else None)

    def _holds(self, before: KnownFile, path: str, raw: bytes) -> bool:
        """Whether these are the bytes that were taken, by the same rules: a file that was only touched."""
        by_these = before.digest is not None and before.stamp.endswith(f"|{self._rules(path)}")
        return by_these and before.size == len(raw) and before.digest == digest_of(raw)


def inspect(raw: bytes, settings: LibrarySettings, *, named: bool = False) -> tuple[SkipReason | None, str | None]:
    """Why bytes are left out (None: they are taken), and what to tell about them, to stand behind `path:`. Pure.

    A file that was named is taken though it is one long line or holds a secret.
    """
    if len(raw) > settings.walk.max_file_bytes:
        return SkipReason.TOO_LARGE, None
    decoded = decode(raw)
    if decoded is None:
        return SkipReason.BINARY, None
    if not named and max(map(len, raw.replace(b"\r", b"\n").split(b"\n"))) > settings.walk.max_line_bytes:
        return SkipReason.MINIFIED, None
    taken = named or settings.secrets.load_secret_contents
    if secret := find_secret(raw) if not taken or compile_rules() else None:
        holds = f"it holds what looks like a {secret.kind}"
        if not taken:
            return SkipReason.SECRET_CONTENT, f"{secret.line}: left out, {holds}"
        return None, f"{secret.line}: loaded as asked, but {holds}"
    return None, decoded.notice and f" {decoded.notice}"


def _bodies(batch: Iterable[_Found]) -> dict[str, bytes]:
    return {one.known.digest: one.body for one in batch if one.known.digest is not None and one.body is not None}


def _taken(scan: Scan, known: dict[str, KnownFile], read: int) -> IngestResult:
    skipped = scan.reasons()
    entries: list[FileEntry] = []
    notices = _named_secrets(scan.skipped)
    for candidate in scan.candidates:
        found = known[candidate.path]
        if found.notice:
            notices.append(found.notice)
        if found.digest is not None:
            entries.append(FileEntry(candidate.path, found.digest, found.size))
        elif found.reason is not None:
            skipped[str(found.reason)] = skipped.get(str(found.reason), 0) + 1
    more = [f"… and {len(notices) - _NAMED_AT_MOST} more such notices"] if len(notices) > _NAMED_AT_MOST else []
    return IngestResult(
        tuple(entries), scan.candidates, skipped, (*scan.notices, *notices[:_NAMED_AT_MOST], *more), read
    )


def _named_secrets(skipped: Iterable[Skipped]) -> list[str]:
    """One notice for all: a counted file is not found again, and its name says why it is missing."""
    paths = [one.path for one in skipped if one.path and one.reason is SkipReason.SECRET_NAME]
    if not paths:
        return []
    more = f" and {len(paths) - _NAMED_AT_MOST} more" if len(paths) > _NAMED_AT_MOST else ""
    return [f"{', '.join(paths[:_NAMED_AT_MOST])}{more}: left out, by the name it may hold secrets"]
