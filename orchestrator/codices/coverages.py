"""The coverages below `full`, written from a codex's documents: the skeleton with its hot bodies, and the map.

    documents, a page at a time ─▶ skeleton of each (remembered by digest) ─▶ counted
                                └▶ outlines of the most telling files ─▶ map, and who is central

    hot files: whole in a skeleton; by churn, centrality and what questions cited, frozen with the generation
    estimates: tokens from a sample of files, before a load and where a codex is far too large to be counted

Synchronous and for a worker thread: parsing a large codebase takes seconds. What is in memory at once is bounded: texts
by a page, gists of outlines by MAP_BYTES of source. A skeleton that was made before is not parsed again.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codex.catalog.databases import SqliteBytesCache, pages
from codex.catalog.generations import FileEntry, Generation
from codex.documents import Document, name_of
from codex.errors import GitError, LoadCancelled
from codex.graph.repomap import Gist, centrality, gist, repo_map
from codex.library import SampledFile, sample_head, scale_up
from codex.outline.coverage import Heat, hot, skeleton
from codex.outline.languages import language_of
from codex.outline.symbols import OUTLINE_VERSION, outline
from codex.process_memory import gc_pause
from codex.progress import Meter, OnProgress
from codex.trees.git import Git, available
from codex.trees.opening import History
from codex.trees.port import labelled_name
from codex.trees.roles import ROLE_SHARES, role_of
from codex.trees.walk import has_repository
from orchestrator.prompt.coverage import Coverage, CoverageSettings, CoverageSizes, FloorRoom, limit_of, share

Count = Callable[[Sequence[str]], list[int]]
Documents = Callable[[Sequence[FileEntry]], Iterator[Document]]
BYTES_PER_TOKEN = 4  # source text, rounded: as long as nothing is counted
HEADING = 12  # tokens that a file's heading line takes beside its text, about
PAGE = 256  # files outlined at once
PAGE_BYTES = 8 << 20  # of them
MAP_BYTES = 24 << 20  # of source that is outlined for a map: about 20 s on one core
# Skeletons of ten well-known codebases were 9 to 15 % of their source; one far below that would hold no definitions, so a
# codex whose share at this rate does not fit is not outlined for one.
LEAST_SKELETON = 0.03
_VERSION = f"{OUTLINE_VERSION}.1"


@dataclass(frozen=True)
class CoverageDrafts:
    """What the smaller coverages would hold. Sizes are None where one is not made; `ranks`: share of attention by path."""

    skeletons: Mapping[str, str] = field(default_factory=dict)
    map_text: str = ""
    skeleton_tokens: int | None = None
    map_tokens: int | None = None
    ranks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CoverageDrafter:
    """Makes drafts. `documents` gives those of entries in order; `remembered` outlives a restart."""

    documents: Documents
    count: Count
    remembered: SqliteBytesCache
    settings: CoverageSettings

    @gc_pause()
    def drafts(
        self, generation: Generation, room: FloorRoom, forced: Coverage | None, report: OnProgress, *, ranked: bool
    ) -> CoverageDrafts:
        """Both smaller coverages, counted. The map is made for the share of the window that it may take.

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
        return CoverageDrafts(
            skeletons, map_text, tokens, self.count([map_text])[0] + HEADING if map_text else None, ranks
        )

    def _skeletons(self, generation: Generation, report: OnProgress) -> tuple[dict[str, str], int]:
        """Skeleton by path, and tokens of all with their headings."""
        meter = Meter("outline", len(generation.entries), report, time.monotonic)
        found: dict[str, str] = {}
        tokens = 0
        for page in pages(generation.entries, lambda one: one.size, PAGE, PAGE_BYTES):
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

    def _gists(self, generation: Generation, report: OnProgress) -> dict[str, Gist]:
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


def _key(entry: FileEntry) -> str:
    language = language_of(entry.path)
    # A file without a known ending may tell its language by its first line: its text decides, and so does its digest.
    return f"skeleton:{_VERSION}:{language.name if language else ''}:{entry.digest}"


def _fingerprint(generation: Generation) -> str:
    """Numbers are given anew when a codex is dropped and loaded again: what it holds tells generations apart."""
    said = "".join(f"{one.path}\0{one.digest}\n" for one in generation.entries)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


CANDIDATES = 3  # times the budget: so much is counted exactly, the rest is too cold
CHURN_COMMITS = 500
_SUBMODULE = "160000 "  # its mode in git's index
CHURN_SECONDS = 5.0  # a history on a slow disk: the hot subset then goes without it


def chosen(
    generation: Generation,
    skeletons: Mapping[str, str],
    ranks: Mapping[str, float],
    churn: Mapping[str, int],
    touched: Mapping[str, int],
    budget: int,
    count: Count,
    documents: Documents,
) -> tuple[str, ...]:
    """Paths of the files whose whole bodies fill `budget` tokens beyond their skeletons, hottest first.

    Sizes are estimated first, so that only files with a chance are counted.
    """
    rough = [
        Heat(
            one.path,
            max(1, (one.size - len(skeletons.get(one.path, ""))) // BYTES_PER_TOKEN),
            float(churn.get(one.path, 0)),
            ranks.get(one.path, 0.0),
            float(touched.get(one.path, 0)),
        )
        for one in generation.entries
    ]
    warm = set(hot(rough, CANDIDATES * budget))
    exact = beyond_skeletons([one for one in generation.entries if one.path in warm], skeletons, count, documents)
    return hot([replace(heat, tokens=exact[heat.path]) for heat in rough if heat.path in exact], budget)


def beyond_skeletons(
    entries: Sequence[FileEntry], skeletons: Mapping[str, str], count: Count, documents: Documents
) -> dict[str, int]:
    """By path the tokens that a file's whole body takes beyond its skeleton."""
    bodies = count([one.text for one in documents(entries)])
    shown = count([skeletons.get(one.path, "") for one in entries])
    return {one.path: max(0, body - part) for one, body, part in zip(entries, bodies, shown, strict=True)}


def churn_of(histories: Sequence[History], clock: Callable[[], float] = time.monotonic) -> dict[str, int]:
    """Recent commits by path, of all roots that git keeps; empty where it does not, or answers too late.

    What a working tree's submodules hold counts by their own commits.
    """
    found: dict[str, int] = {}
    if not available():
        return found
    deadline = clock() + CHURN_SECONDS
    waiting = list(histories)
    while waiting and clock() <= deadline:
        history = waiting.pop()
        try:
            paths = _touched(history, lambda: clock() > deadline)
            waiting += _submodules(history, lambda: clock() > deadline)
        except (GitError, LoadCancelled):
            continue
        found |= Counter(labelled_name(history.label, name_of(path)) for path in paths)
    return found


def _touched(history: History, late: Callable[[], bool]) -> list[str]:
    """Each path once for every recent commit that touched it."""
    below = () if history.revision else ("--relative",)
    found = Git(history.folder).records(
        *("log", "-z", "--format=", "--name-only", "--no-renames", *below, f"-n{CHURN_COMMITS}"),
        *(history.revision or "HEAD", "--"),
        cancelled=late,
    )
    return [path for record in found if (path := record.lstrip("\n"))]


def _submodules(history: History, late: Callable[[], bool]) -> list[History]:
    """Those that are checked out in a working tree; of a revision only their names are there."""
    if history.revision:
        return []
    staged = Git(history.folder).records("ls-files", "-z", "--stage", cancelled=late)
    places = (entry.partition("\t")[2] for entry in staged if entry.startswith(_SUBMODULE))
    return [
        History(labelled_name(history.label, name_of(place)), history.folder / place, None)
        for place in places
        if has_repository(history.folder / place)
    ]


def whole_tokens(sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count) -> int:
    """Tokens of all files with their headings."""
    heads = [sample_head(one.text or "") for one in sample]
    counts = count(heads)
    shares = [
        (one.size, tokens / len(text.encode("utf-8", "replace")) if text else 0.0)
        for one, text, tokens in zip(sample, heads, counts, strict=True)
    ]
    return scale_up(shares, total_bytes) + HEADING * files


def skeleton_tokens(sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count) -> int:
    """Tokens of all files' signatures with their headings."""
    made = [skeleton(Document(one.path, one.text, "", one.size)) if one.text else "" for one in sample]
    counts = count(made)
    shares = [(one.size, tokens / one.size if one.size else 0.0) for one, tokens in zip(sample, counts, strict=True)]
    return scale_up(shares, total_bytes) + HEADING * files


def map_of(sample: Sequence[SampledFile], files: int, count: Count, most: int) -> int | None:
    """Tokens of a map of all files: as much a file as the sample's takes; None where there is nothing to list."""
    outlines = {one.path: outline(Document(one.path, one.text, "", one.size)) for one in sample if one.text}
    text = repo_map({path: gist(found) for path, found in outlines.items()}, most - HEADING, count)
    return min(most, round(count([text])[0] * files / len(sample)) + HEADING) if text else None


def surveyed(
    sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count, map_tokens: int
) -> CoverageSizes:
    """All coverages before a load. `map_tokens`: what a map may take."""
    whole = whole_tokens(sample, files, total_bytes, count)
    signatures = skeleton_tokens(sample, files, total_bytes, count)
    return CoverageSizes(
        whole, signatures, map_of(sample, files, count, map_tokens), estimated=("full", "skeleton", "map")
    )
