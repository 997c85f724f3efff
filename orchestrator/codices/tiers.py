"""The tiers below `full`, written from a codex's documents: the skeleton with its hot bodies, and the map.

    documents, a page at a time ─▶ skeleton of each (remembered by digest) ─▶ counted
                                └▶ outlines of the most telling files ─▶ map, and who is central

Synchronous and for a worker thread: parsing a large codebase takes seconds. What is in memory at once is bounded: texts
by a page, gists of outlines by MAP_BYTES of source. A skeleton that was made before is not parsed again.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codex.archive.prepare import Remembered
from codex.catalog.generations import FileEntry, Generation
from codex.documents import Document
from codex.graph.centrality import Gist, centrality, gist
from codex.graph.repomap import repo_map
from codex.outline.languages import language_of
from codex.outline.symbols import OUTLINE_VERSION, outline
from codex.progress import Meter, Report
from codex.tiers import skeleton
from codex.trees.roles import ROLE_SHARES, role_of
from codex.unswept import unswept
from orchestrator.prompt.coverage import Coverage, CoverageSettings, FloorRoom, limit_of, share

Count = Callable[[Sequence[str]], list[int]]
BYTES_PER_TOKEN = 4  # source text, rounded: as long as nothing is counted
HEADING = 12  # tokens that a file's heading line takes beside its text, about
PAGE = 256
MAP_BYTES = 24 << 20  # of source that is outlined for a map: about 20 s on one core
# Skeletons of ten well-known codebases were 9 to 15 % of their source; one far below that would hold no definitions, so a
# codex whose share at this rate does not fit is not outlined for one.
LEAST_SKELETON = 0.03
_VERSION = f"{OUTLINE_VERSION}.1"


@dataclass(frozen=True)
class Drafts:
    """What the lower tiers would hold. Sizes are None where one is not made; `ranks`: share of attention by path."""

    skeletons: Mapping[str, str] = field(default_factory=dict)
    map_text: str = ""
    skeleton_tokens: int | None = None
    map_tokens: int | None = None
    ranks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Drafting:
    """Makes drafts. `documents` gives those of entries in order; `remembered` outlives a restart."""

    documents: Callable[[Sequence[FileEntry]], Iterator[Document]]
    count: Count
    remembered: Remembered
    settings: CoverageSettings

    @unswept()
    def drafts(
        self, generation: Generation, room: FloorRoom, forced: Coverage | None, report: Report, *, ranked: bool
    ) -> Drafts:
        """Both lower tiers, counted. The map is made for the share of the window that it may take.

        `ranked`: who is central is needed also where the map itself is remembered.
        """
        budget = min(share(room.window, self.settings.map_share), room.kv_tokens)
        with_skeletons = forced is Coverage.SKELETON or (
            room.window >= self.settings.skeleton_window
            and generation.bytes / BYTES_PER_TOKEN * LEAST_SKELETON <= limit_of(room, self.settings)
        )
        key = f"map:{_VERSION}:{generation.codex}:{generation.number}:{_fingerprint(generation)}:{budget}"
        known = self.remembered.get(key) if budget > HEADING else b""
        skeletons, tokens = self._skeletons(generation, report) if with_skeletons else ({}, None)
        ranks: Mapping[str, float] = {}
        map_text = known.decode() if known is not None else ""
        if known is None or (ranked and with_skeletons):
            gists = self._gists(generation, report)
            ranks = centrality(gists)
        if known is None:
            map_text = repo_map(gists, budget - HEADING, self.count)
            self.remembered.put([(key, map_text.encode("utf-8", "surrogatepass"))])
        return Drafts(skeletons, map_text, tokens, self.count([map_text])[0] + HEADING if map_text else None, ranks)

    def _skeletons(self, generation: Generation, report: Report) -> tuple[dict[str, str], int]:
        """Skeleton by path, and tokens of all with their headings."""
        meter = Meter("outline", len(generation.entries), report, time.monotonic)
        found: dict[str, str] = {}
        tokens = 0
        for page in pages(generation.entries):
            made = self._page_of_skeletons(page)
            tokens += sum(self.count(list(made.values()))) + HEADING * len(made)
            found |= made
            meter.advance(len(page))
        meter.finish()
        return found, tokens

    def _page_of_skeletons(self, page: Sequence[FileEntry]) -> dict[str, str]:
        known = {entry.path: self.remembered.get(_key(entry)) for entry in page}
        missing = {one.path: one for one in self.documents([entry for entry in page if known[entry.path] is None])}
        fresh = {path: skeleton(document, outline(document)) for path, document in missing.items()}
        self.remembered.put(
            [(_key(entry), fresh[entry.path].encode("utf-8", "surrogatepass")) for entry in page if entry.path in fresh]
        )
        return {
            entry.path: fresh[entry.path]
            if entry.path in fresh
            else (known[entry.path] or b"").decode("utf-8", "surrogatepass")
            for entry in page
        }

    def _gists(self, generation: Generation, report: Report) -> dict[str, Gist]:
        """Of all files where that is bounded, else of those that say most: source first, then what lies near the top."""
        chosen = most_telling(generation.entries, MAP_BYTES)
        meter = Meter("map", len(chosen), report, time.monotonic)
        gists: dict[str, Gist] = {}
        for document in self.documents(chosen):
            gists[document.path] = gist(outline(document))
            meter.advance()
        meter.finish()
        return gists


def most_telling(entries: Sequence[FileEntry], most_bytes: int) -> list[FileEntry]:
    """The entries, in their order, of at most so many bytes: those of roles that count most, then the least deep."""
    chosen: set[str] = set()
    left = most_bytes
    for entry in sorted(entries, key=lambda one: (-ROLE_SHARES[role_of(one.path)], one.path.count("/"), one.path)):
        if entry.size <= left:
            chosen.add(entry.path)
            left -= entry.size
    return [entry for entry in entries if entry.path in chosen]


def pages(entries: Iterable[FileEntry]) -> Iterator[list[FileEntry]]:
    page: list[FileEntry] = []
    for entry in entries:
        page.append(entry)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def _key(entry: FileEntry) -> str:
    language = language_of(entry.path)
    # A file without a known ending may tell its language by its first line: its text decides, and so does its digest.
    return f"skeleton:{_VERSION}:{language.name if language else ''}:{entry.digest}"


def _fingerprint(generation: Generation) -> str:
    """Numbers are given anew when a codex is dropped and loaded again: what it holds tells generations apart."""
    said = "".join(f"{one.path}\0{one.digest}\n" for one in generation.entries)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]
