"""What the floor may hold of a codex's files, written from its documents: lines, skeletons, whole files; and which file
gets how much.

    documents, a page at a time ─▶ outlined: line, skeleton, gist; remembered by digest
    gists ─▶ centrality ┐
    git ─▶ churn        ├▶ value of each file ┐
    answers ─▶ touched  ┘                     ├▶ levels, within the budget
    lines, skeletons, whole  ─▶ tokens of each ┘

    estimates: tokens from a sample of files, before a load and where a codex is far too large to be counted

Synchronous and for a worker thread: parsing a large codebase takes seconds. What is in memory at once is bounded: texts
by a page, outlines by GRADED_BYTES of source or what skeletons may take. A text that was outlined before is neither read
nor parsed again.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from codex.catalog.databases import SqliteBytesCache, pages
from codex.catalog.generations import FileEntry
from codex.documents import Document, name_of
from codex.errors import GitError, LoadCancelled
from codex.graph.centrality import Gist, centrality, gist
from codex.library import SampledFile, sample_head, scale_up
from codex.outline.coverage import FileLevel, FileSigns, GradedFile, levels, skeleton, summary_line, values
from codex.outline.languages import language_of
from codex.outline.symbols import OUTLINE_VERSION, outline
from codex.process_memory import gc_pause
from codex.progress import Meter, OnProgress
from codex.trees.git import Git, available
from codex.trees.opening import History
from codex.trees.port import labelled_name
from codex.trees.roles import ROLE_SHARES, role_of, share_of
from codex.trees.walk import has_repository
from formatters.context import CodexPiece
from formatters.writers import LINE, piece_text
from orchestrator.prompt.coverage import CoverageSizes

Count = Callable[[Sequence[str]], list[int]]
Documents = Callable[[Sequence[FileEntry]], Iterator[Document]]
BYTES_PER_TOKEN = 4  # source text, rounded: as long as nothing is counted
HEADING = 12  # tokens that a file's heading line takes beside its text, about
PAGE = 256  # files outlined at once
PAGE_BYTES = 8 << 20  # of them
GRADED_BYTES = 24 << 20  # of source that is outlined for a map: about 20 s on one core, once
# Skeletons of ten well-known codebases were 9 to 15 % of their source; one far below that would hold no definitions, so a
# codex whose share at this rate does not fit is not outlined for one.
LEAST_SKELETON = 0.03
LINES_FIRST = 0.2  # of a map's room: a file that is named can be asked for, and skeletons would leave few lines (0020)
CANDIDATES = 3  # times the budget: of a codex that is not counted so much is, the rest has no chance
_VERSION = f"{OUTLINE_VERSION}.2"


# -- what is told of a file


@dataclass(frozen=True, slots=True)
class Outlined:
    """What is told of a text in less than it. `whole`: the skeleton is the text itself, which is no longer."""

    line: str
    skeleton: str
    whole: bool
    gist: Gist

    def piece(self, path: str, level: FileLevel) -> CodexPiece:
        """At a level between NOTHING and FULL."""
        if level is FileLevel.LINE:
            return CodexPiece(path=one_line(path), text=self.line, kind=LINE)
        return CodexPiece(path=one_line(path), text=self.skeleton, kind="full" if self.whole else "skeleton")


def outlined(document: Document) -> Outlined:
    parsed = outline(document)
    told = skeleton(document, parsed)
    whole = len(document.text) <= len(told)
    return Outlined(summary_line(document, parsed), document.text if whole else told, whole, gist(parsed))


@dataclass(frozen=True)
class Outliner:
    """`documents` gives those of entries in order; `remembered` outlives a restart."""

    documents: Documents
    remembered: SqliteBytesCache

    @gc_pause()
    def outlined(self, entries: Sequence[FileEntry], report: OnProgress) -> dict[str, Outlined]:
        """By path."""
        meter = Meter("outline", len(entries), report, time.monotonic)
        found: dict[str, Outlined] = {}
        for page in pages(entries, lambda one: one.size, PAGE, PAGE_BYTES):
            found |= self._page(page)
            meter.advance(len(page))
        meter.finish()
        return found

    def _page(self, page: Sequence[FileEntry]) -> dict[str, Outlined]:
        known = {entry.path: self.remembered.get(_key(entry)) for entry in page}
        missing = self.documents([entry for entry in page if known[entry.path] is None])
        fresh = {one.path: outlined(one) for one in missing}
        self.remembered.put([(_key(one), _to_bytes(fresh[one.path])) for one in page if one.path in fresh])
        return {path: fresh[path] if kept is None else _from_bytes(kept) for path, kept in known.items()}


def _key(entry: FileEntry) -> str:
    language = language_of(entry.path)
    # A file without a known ending may tell its language by its first line: its text decides, and so does its digest.
    return f"outlined:{_VERSION}:{language.name if language else ''}:{entry.digest}"


def _to_bytes(one: Outlined) -> bytes:
    known = one.gist
    told = (one.line, one.skeleton, one.whole, known.defined, dict(known.used), known.imports, known.generated)
    return json.dumps(told, separators=(",", ":")).encode()


def _from_bytes(kept: bytes) -> Outlined:
    said, told, whole, defined, used, imports, generated = json.loads(kept)
    return Outlined(said, told, whole, Gist(tuple(defined), used, tuple(imports), generated))


def most_telling(entries: Sequence[FileEntry], most_bytes: int) -> list[FileEntry]:
    """The entries, in their order, of at most so many bytes: those of roles that count most, then the least deep."""
    chosen: set[str] = set()
    left = most_bytes
    for entry in telling_first(entries):
        if entry.size <= left:
            chosen.add(entry.path)
            left -= entry.size
    return [entry for entry in entries if entry.path in chosen]


def telling_first(entries: Sequence[FileEntry]) -> list[FileEntry]:
    """Those of roles that count most first, then the least deep."""
    return sorted(entries, key=lambda one: (-ROLE_SHARES[role_of(one.path)], one.path.count("/"), one.path))


# -- which file gets how much


@dataclass(frozen=True)
class Grading:
    """What levels are chosen by. `entries` are outlined, and `known` by path; `bodies`: tokens of whole files by path,
    where they are counted; `churn`, `touched`: by path."""

    entries: Sequence[FileEntry]
    known: Mapping[str, Outlined]
    bodies: Mapping[str, int]
    churn: Mapping[str, int]
    touched: Mapping[str, int]
    count: Count
    documents: Documents

    @gc_pause()
    def of_map(self, budget: int, heading: int = 0) -> dict[str, FileLevel]:
        """Lines, which have a heading of so many tokens, for a share of the budget; then skeletons and more lines."""
        lines, told = self.tokens(FileLevel.LINE), self.tokens(FileLevel.SKELETON)
        if sum(told) <= budget:
            return self._skeletons()
        room = budget - heading
        named = self._levels([(one,) for one in lines], int(LINES_FIRST * room), {})
        return self._levels(list(zip(lines, told, strict=True)), room, named)

    @gc_pause()
    def with_whole_files(self, budget: int) -> dict[str, FileLevel]:
        """Skeletons of all, and whole files."""
        told = self.tokens(FileLevel.SKELETON)
        bodies = self.bodies or self._counted_bodies(told, budget)
        costs = [
            (0, least, bodies[one.path]) if one.path in bodies else (0, least)
            for one, least in zip(self.entries, told, strict=True)
        ]
        return self._levels(costs, budget, self._skeletons())

    def tokens(self, level: FileLevel) -> list[int]:
        """Of each file at this level, as it is written."""
        return self.count([piece_text(self.known[one.path].piece(one.path, level)) for one in self.entries])

    def _skeletons(self) -> dict[str, FileLevel]:
        return {one.path: FileLevel.SKELETON for one in self.entries}

    def _levels(
        self, costs: Sequence[tuple[int, ...]], budget: int, start: Mapping[str, FileLevel]
    ) -> dict[str, FileLevel]:
        graded = [
            GradedFile(one.path, self._values[one.path], cost) for one, cost in zip(self.entries, costs, strict=True)
        ]
        return levels(graded, budget, start)

    @cached_property
    def _values(self) -> dict[str, float]:
        return values(self._signs())

    def _signs(self) -> list[FileSigns]:
        ranks = centrality({path: one.gist for path, one in self.known.items()})
        return [
            FileSigns(
                one.path,
                ranks[one.path],
                self.churn.get(one.path, 0),
                self.touched.get(one.path, 0),
                share_of(one.path, generated=self.known[one.path].gist.generated),
                one.size,
            )
            for one in self.entries
        ]

    def _counted_bodies(self, told: Sequence[int], budget: int) -> dict[str, int]:
        """Those that have a chance by about what they take."""
        about = [
            (0, least, one.size // BYTES_PER_TOKEN + HEADING) for one, least in zip(self.entries, told, strict=True)
        ]
        likely = self._levels(about, CANDIDATES * budget, self._skeletons())
        chosen = [one for one in self.entries if likely[one.path] is FileLevel.FULL]
        texts = [piece_text(whole_piece(one)) for one in self.documents(chosen)]
        return {one.path: tokens for one, tokens in zip(chosen, self.count(texts), strict=True)}


def whole_piece(document: Document) -> CodexPiece:
    return CodexPiece(path=one_line(document.path), text=document.text)


def one_line(path: str) -> str:
    return " ".join(path.splitlines())


# -- how often files change

CHURN_COMMITS = 500
_SUBMODULE = "160000 "  # its mode in git's index
CHURN_SECONDS = 5.0  # a history on a slow disk: files are then graded without it


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


# -- before a load


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


def surveyed(sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count) -> CoverageSizes:
    """All coverages before a load."""
    whole = whole_tokens(sample, files, total_bytes, count)
    signatures = skeleton_tokens(sample, files, total_bytes, count)
    return CoverageSizes(whole, signatures, signatures, estimated=("full", "skeleton", "map"))
