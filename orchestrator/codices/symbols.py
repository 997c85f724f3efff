"""Questions about symbols, asked of a codex as questions meet it: its current generation with the log of changes, no more.

    a question ─▶ the index is of these very files ─▶ it answers
                  it is not                        ─▶ what changed is read: of a small codex at once; of a large one the
                                                      question is refused for now, with how far the reading is

The index of a codex is made when it is first asked for. What a file says is remembered by its digest, also over restarts.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

from codex.catalog.catalog import Catalog
from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import FileEntry
from codex.following.amendments import effective
from codex.graph.symbol_index import PackedFile, SymbolAnswer, SymbolIndex, What, packed_file
from codex.outline.facts import FACTS_VERSION, facts, from_bytes, to_bytes
from codex.outline.languages import language_of
from codex.outline.symbols import OUTLINE_VERSION
from codex.process_memory import gc_pause
from orchestrator.codices.resident import ResidentCodices
from orchestrator.errors import NotReady, translated

PATIENCE_S = 4.0  # an index that takes longer is made in the background: a tool of the agent has ten seconds
_KEPT_BYTES = 64 << 20  # of packed facts of the codices asked last: about 400 MB of source
_AT_ONCE = 64  # files between two looks at the clock
_VERSION = f"{OUTLINE_VERSION}.{FACTS_VERSION}"


@dataclass(frozen=True)
class _Made:
    """An index, the digests of its files, and what these were taken from."""

    index: SymbolIndex
    files: Mapping[str, tuple[str, PackedFile]]
    digests: Mapping[str, str]
    size: int


@dataclass
class _Making:
    """How far the making of one codex's index is."""

    ended: "Future[_Made]"
    done: int = 0
    total: int = 0


@dataclass
class CodexSymbols:
    """For any thread but the event loop's own work: `ask` runs it in one. Close it when done."""

    catalog: Catalog
    residents: ResidentCodices
    remembered: SqliteBytesCache
    patience: float = PATIENCE_S
    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, _Made] = field(default_factory=dict)
    _making: dict[str, _Making] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # of the maps, and of every index: an answer takes milliseconds
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="symbols"))
    _stopping: Event = field(default_factory=Event)

    def close(self) -> None:
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def ask(self, codex: str, what: What, name: str) -> SymbolAnswer:
        """Raises NotFound for an unknown codex, NotReady where its files are still being read."""
        return await asyncio.to_thread(self.answer, codex, what, name)

    def answer(self, codex: str, what: What, name: str) -> SymbolAnswer:
        with translated():
            digests = digests_now(self.catalog, self.residents, codex)
            made = self._current(codex, digests) or self._made(codex, digests)
        with self._lock:
            return made.index.answer(what, name)

    def _current(self, codex: str, digests: Mapping[str, str]) -> _Made | None:
        with self._lock:
            made = self._kept.get(codex)
            if made is None or (made.digests is not digests and made.digests != digests):
                return None
            self._kept[codex] = self._kept.pop(codex)  # ordered by last use
            return made

    def _made(self, codex: str, digests: Mapping[str, str]) -> _Made:
        with self._lock:
            making = self._making.get(codex)
            if making is None:
                making = self._making[codex] = _Making(Future())
                self._threads.submit(self._make, codex, digests, making)
        try:
            made = making.ended.result(self.patience)
        except TimeoutError:
            far = f"{making.done:,} of {making.total:,} files" if making.total else "not begun"
            message = f"the symbols of codex {codex} are being read ({far})"
            raise NotReady(message, "ask again in a moment", retry_after=2.0) from None
        return made if made.digests == digests else self._current(codex, digests) or self._made(codex, digests)

    # -- in a thread of its own

    def _make(self, codex: str, digests: Mapping[str, str], making: _Making) -> None:
        try:
            made = self._read(digests, self._kept.get(codex), making)
        except BaseException as fault:
            with self._lock:
                del self._making[codex]
            making.ended.set_exception(fault)
            if not isinstance(fault, Exception):
                raise
            return
        with self._lock:
            self._kept.pop(codex, None)
            self._kept[codex] = made
            while len(self._kept) > 1 and sum(one.size for one in self._kept.values()) > _KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
            del self._making[codex]
        making.ended.set_result(made)

    def _read(self, digests: Mapping[str, str], before: _Made | None, making: _Making) -> _Made:
        known = before.files if before is not None else {}
        files = {path: known[path] for path, digest in digests.items() if path in known and known[path][0] == digest}
        missing = [FileEntry(path, digest, 0) for path, digest in sorted(digests.items()) if path not in files]
        making.total = len(missing)
        for at in range(0, len(missing), _AT_ONCE):
            if self._stopping.is_set():
                raise NotReady("the daemon is ending", "start it again")
            page = missing[at : at + _AT_ONCE]
            files.update(self._page(page))
            making.done += len(page)
        index = SymbolIndex({path: one for path, (_, one) in files.items()})
        return _Made(index, files, digests, sum(len(one.packed) for _, one in files.values()))

    @gc_pause()
    def _page(self, page: list[FileEntry]) -> dict[str, tuple[str, PackedFile]]:
        kept = {one.path: self._remembered(one) for one in page}
        fresh: list[tuple[str, bytes]] = []
        for document in self.catalog.documents([one for one in page if kept[one.path] is None]):
            found = facts(document)
            packed = to_bytes(found)
            kept[document.path] = packed_file(found, packed)
            fresh.append((_key(document.path, document.digest), packed))
        self.remembered.put(fresh)
        return {one.path: (one.digest, file) for one in page if (file := kept[one.path]) is not None}

    def _remembered(self, one: FileEntry) -> PackedFile | None:
        packed = self.remembered.get(_key(one.path, one.digest))
        try:
            return None if packed is None else packed_file(from_bytes(one.path, packed), packed)
        except (ValueError, TypeError, zlib.error):  # damaged, or of a version that was never released
            return None


def digests_now(catalog: Catalog, residents: ResidentCodices, codex: str) -> Mapping[str, str]:
    """Of the files that the codex answers from; the same object as long as they are the same, where it is built. Raises
    UnknownCodex."""
    state = residents.get(codex)
    if state is not None:
        return state.digests
    generation = catalog.generation(codex)
    return effective(generation.digests(), catalog.amendments(codex, generation.number))


def _key(path: str, digest: str) -> str:
    language = language_of(path)
    return f"facts:{_VERSION}:{language.name if language else ''}:{digest}"
