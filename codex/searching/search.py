"""Search: a question in, chunks of code out, one list. Synchronous: call it from a worker thread.

    words ─▶ chunks and files that hold them ─▶ rank (names, graph, roles) ─▶ the best chunk of each file ─▶ texts

A list begins with the best chunk of each file, so that it names many files; further chunks of the best files follow where
there is room. What is to be read (`passages`) has further chunks of a good file before the best chunk of a worse one: an
answer is mostly in a few files, in several places of each. What the best chunks use moves up there, found by words or not,
and behind a method comes the head of its class.
Knows an archive and how code is asked about.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate, chain

from codex.archive.archive import Archive
from codex.archive.queries import ChunkMatch, ChunkPlace
from codex.documents import Document
from codex.errors import ArchiveError, CodexError
from codex.outline.chunking import Chunk, chunk
from codex.outline.symbols import Symbol, outline
from codex.searching.ranking import Definitions, RankedFile, by_rank, rank
from codex.trees.roles import ROLE_SHARES, FileRole
from codex.vectors.embedder import Embedder, space_of
from codex.vectors.index import VectorIndex
from codex.vectors.search import Background, nearest_chunks, stands_out
from codex.words import Question, asked

_CHUNKS = 100  # candidates by chunk: beyond, scores are below half of the best and change no first ten
_FILES = 50
_EXACT = 20
_AMONG = 8  # chunks a file, of those that were only led to: whether they hold a word
_AGAIN = 0.7  # weight of a further chunk of a file, relative to its best one
_AGAIN_READ = 0.94  # of one that is to be read
_OWN = 0.3  # share of a chunk's own score in its place among what is to be read; the rest is its file's
_USERS = 5  # best chunks, whose definitions are read with them
_USED = 0.3  # of the score of the chunk that uses a definition, which is added to the definition's own
_HEADED = 12  # hits that the heads of their classes are shown with: those behind them seldom fit
_NEAREST = 3  # definitions of a name above a hit: the class, and constructors of its name in between
_CALLABLE = frozenset({"function", "method", "declaration"})
_DEFINED = 2  # chunks of the codebase that define a name; of one that more do, none is meant
_OF_A_FILE = frozenset({"file", "graph", "role"})  # scores that another chunk of it has too
_Chosen = tuple[ChunkPlace, float, Mapping[str, float]]  # a chunk, its score, its scores by kind
_FAR_FROM_ALL = (
    "no word of it was found, and its meaning is hardly nearer to anything here than that of unrelated questions; "
    "use words of the code"
)
_LINES = 3
_CHARS = 400
_REMEMBERED = 16  # results: a few users', with what each of them planned or typed before


def snippet(text: str, query: Collection[str]) -> tuple[int, str]:
    """How many lines of the chunk come before, and at most three lines: those around the line that holds most of the
    query's words, the first lines on a tie."""
    lines = text.split("\n")
    whole = text.lower()
    there = [word for word in query if word in whole]  # most words of a question are not in a chunk of its answer
    best, best_count = 0, 0
    for number, line in enumerate(lines):
        if best_count == len(there):
            break
        seen = line[:_CHARS].lower()
        count = sum([word in seen for word in there])
        if count > best_count:
            best, best_count = number, count
    shown = [number for number in range(best, min(len(lines), best + 2 * _LINES)) if lines[number].strip()][:_LINES]
    return shown[0] if shown else best, "\n".join(lines[number] for number in shown)[:_CHARS]


@dataclass(frozen=True, slots=True)
class ChunkHit:
    """A chunk that was found: lines `start`–`end` (1-based, inclusive) of a file.

    `score` orders this one list and means nothing outside it. `scores` are its parts by kind (chunk, file, graph,
    exact, vector, role), comparable only within one kind and one list; `vector` is a cosine. `snippet` is at most three
    lines, the first of them the file's `line`; `text` is the whole. `near` is empty but of what was only
    reached along the graph: from which hit, and by what. `digest` is that of the file as it was indexed.
    """

    path: str
    start: int
    end: int
    symbol: str
    kind: str
    signature: str
    score: float
    scores: Mapping[str, float]
    snippet: str
    line: int
    text: str
    digest: str
    near: str = ""

    @property
    def place(self) -> ChunkPlace:
        return ChunkPlace(self.path, self.start, self.end)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, best first, and what the search could not see.

    `holding`: how many chunks of which files are known to hold all that was asked for as it is, shown or not; there may be
    more.
    """

    hits: tuple[ChunkHit, ...] = ()
    notices: tuple[str, ...] = ()
    holding: Mapping[str, int] = field(default_factory=dict)


class LastResults:
    """What the last searches found, by all that it follows from. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[object, SearchResult] = {}
        self._lock = threading.Lock()

    def of(self, searched: object) -> SearchResult | None:
        return self._kept.get(searched)

    def keep(self, searched: object, found: SearchResult) -> None:
        with self._lock:
            self._kept[searched] = found
            if len(self._kept) > _REMEMBERED:
                del self._kept[next(iter(self._kept))]


def _by_words(fault: CodexError) -> str:
    return f"searched by words and names only: {fault}"


@dataclass(frozen=True)
class Search:
    """Search over one archive; with an embedder and its vectors also by meaning, else nothing is made up.

    `near` remembers how near each codex comes to questions about other matters. `last` remembers results: a question is
    often planned, or computed while it is typed, before it is asked.
    """

    archive: Archive
    embedder: Embedder | None = None
    vectors: VectorIndex | None = None
    near: Background = field(default_factory=Background, compare=False)
    last: LastResults = field(default_factory=LastResults, compare=False)

    def search(self, query: str, codex: str, n: int = 10, *, passages: bool = False) -> SearchResult:
        """At most `n` hits for a question in words or code, best first; of fewer files with `passages`.

        Empty for an unknown codex, and where neither words nor what is near in meaning were found. Raises what the
        archive raises.
        """
        try:
            state = self._state(codex)  # before the search: a write meanwhile makes it stale
        except CodexError as fault:  # of the vectors, which words do without
            by_words = self._found(query, codex, n, passages=passages)
            return replace(by_words, notices=tuple(dict.fromkeys((*by_words.notices, _by_words(fault)))))
        searched = (query, codex, n, passages, state)
        found = None if state is None else self.last.of(searched)
        if found is None:
            found = self._found(query, codex, n, passages=passages)
            if state is not None and not found.notices:
                self.last.keep(searched, found)
        return found

    def _state(self, codex: str) -> tuple[int, int] | None:
        """What is another one once the archive or the vectors are; None where others write."""
        if self.archive.remote is not None:
            return None
        vectors = 0
        if self.embedder is not None and self.vectors is not None:
            vectors = self.vectors.count(codex, space_of(self.embedder))
        return self.archive.revision(codex), vectors

    def _found(self, query: str, codex: str, n: int, *, passages: bool) -> SearchResult:
        question = asked(query)
        if not (question.words or question.exact) or n <= 0:
            return SearchResult()
        chunks, files = self.archive.both(codex, question.terms, _CHUNKS, _FILES)
        exact, missing = self._exact(question, codex, n)
        by_meaning, faults = self._by_meaning(query, codex, alone=not (chunks or files or exact))
        defined = partial(self.archive.definitions, codex)

        def among(paths: Sequence[str]) -> Sequence[ChunkMatch]:
            return self.archive.matches(codex, question.terms, _AMONG * len(paths), paths)

        ranking = partial(rank, question, chunks, files, defined, among, by_rank(by_meaning), exact)

        def best(generated: Collection[str]) -> list[_Chosen]:
            ranked = self._with_chunks(ranking(generated)[: max(n, 1)], question, codex)
            return _chosen(ranked, n, by_meaning, exact, _used(ranked, chunks, defined) if passages else None)

        hits = self._hits(best, question, codex)
        if passages:
            hits = self._with_heads(hits, question, codex)[:n]
        holding = Counter(place.path for place, share in exact.items() if share == 1.0)
        return SearchResult(hits, (*missing, *faults), holding)

    def _exact(self, question: Question, codex: str, n: int) -> tuple[dict[ChunkPlace, float], tuple[str, ...]]:
        """Chunks that hold the strings asked for, each with the share of them; and which are nowhere.

        A sentence of a text counts as a copy of it: a user who pastes it wants its place; its words match others better.
        """
        if question.phrase:
            return {match.place: 1.0 for match in self.archive.phrase(codex, question.phrase, _EXACT + n)}, ()
        found: Counter[ChunkPlace] = Counter()
        missing: list[str] = []
        for text in question.exact:
            there = self.archive.exact(codex, text, _EXACT + n)
            found.update(match.place for match in there)
            if not there and question.quoted:
                missing.append(f"nothing holds {text!r} as it is; searched by its words")
        return {place: times / len(question.exact) for place, times in found.items()}, tuple(missing)

    def _by_meaning(self, query: str, codex: str, *, alone: bool) -> tuple[dict[ChunkPlace, float], tuple[str, ...]]:
        """Cosines by chunk, nearest first. A fault of the vectors or their model takes away this kind of search only.

        `alone`: nothing else was found, so what is nearest must be near.
        """
        if self.embedder is None or self.vectors is None:
            return {}, ()
        try:
            found = nearest_chunks(self.archive, self.embedder, self.vectors, query, codex, _CHUNKS)
            if found and alone and not stands_out(found[0][1], self.near.of(codex, self.embedder, self.vectors)):
                return {}, (_FAR_FROM_ALL,)
        except ArchiveError:
            raise
        except CodexError as error:
            return {}, (_by_words(error),)
        return dict(found), ()

    def _with_chunks(self, ranked: list[RankedFile], question: Question, codex: str) -> list[RankedFile]:
        """Files that only matched as wholes get their best chunk."""
        bare = [one.path for one in ranked if not one.places]
        if not bare:
            return ranked
        best: dict[str, ChunkMatch] = {}
        for match in self.archive.matches(codex, question.words, 4 * len(bare), bare):
            best.setdefault(match.place.path, match)
        for at, one in enumerate(ranked):
            if one.path in best:
                place = best[one.path].place
                ranked[at] = replace(one, places=(place,), by_place={place: 0.0})
        return ranked

    def _hits(
        self, best: Callable[[Collection[str]], list[_Chosen]], question: Question, codex: str
    ) -> tuple[ChunkHit, ...]:
        """The chunks that are best, read. That a program wrote one that no word found is known only then."""
        chosen = best(())
        read = self.archive.at(codex, [place for place, _, _ in chosen])
        generated = [place.path for place, (match, _) in read.items() if match.generated]
        if any(
            scores["role"] > ROLE_SHARES[FileRole.GENERATED] for place, _, scores in chosen if place.path in generated
        ):
            chosen = best(generated)
            read = self.archive.at(codex, [place for place, _, _ in chosen])
        return tuple(hit_of(*read[place], score, scores, question) for place, score, scores in chosen if place in read)

    def _with_heads(self, hits: Sequence[ChunkHit], question: Question, codex: str) -> tuple[ChunkHit, ...]:
        """Behind each of the first hits the heads of the definitions around it, once each: what its class is for and is
        derived from."""
        inside: dict[tuple[str, str], ChunkHit] = {}  # by path and qualified name: the best hit in it
        for hit in hits[:_HEADED]:
            for outer in _around(hit.symbol):
                inside.setdefault((hit.path, outer), hit)
        defining = self.archive.definitions(codex, {_last(outer) for _, outer in inside})
        begins = {
            (path, outer): [
                place
                for place in reversed(defining.get(_last(outer), ()))
                if place.path == path and place.start <= hit.start
            ][:_NEAREST]
            for (path, outer), hit in inside.items()
        }
        read = self.archive.at(codex, list(dict.fromkeys(chain.from_iterable(begins.values()))))
        heads: dict[ChunkPlace, list[ChunkHit]] = defaultdict(list)
        known = list(hits)
        for (path, outer), places in begins.items():
            hit = inside[path, outer]
            found = (_head(*read[place], outer, hit) for place in places if place in read)
            head = next(filter(None, found), None)
            if head is not None and not any(_within(head[0].place, one) for one in known):
                scores = {kind: share for kind, share in hit.scores.items() if kind in _OF_A_FILE}
                known.append(hit_of(*head, hit.score, {"chunk": 0.0, **scores}, question))
                heads[hit.place].append(known[-1])
        return tuple(shown for hit in hits for shown in (hit, *heads.get(hit.place, ())))


def hit_of(match: ChunkMatch, text: str, score: float, scores: Mapping[str, float], question: Question) -> ChunkHit:
    """A chunk that was read, as a hit."""
    place = match.place
    strings = [exact.lower() for exact in question.exact] * (len(question.words) + 1)  # one outweighs all words
    before, shown = snippet(text, [*question.words, *strings])
    return ChunkHit(
        place.path,
        place.start,
        place.end,
        match.symbol,
        match.kind,
        match.signature,
        score,
        scores,
        shown,
        place.start + before,
        text,
        match.digest,
    )


def _around(symbol: str) -> list[str]:
    """The definitions that one lies in by its qualified name, the innermost first."""
    parts = symbol.split(".")
    return [".".join(parts[:at]) for at in range(len(parts) - 1, 0, -1)]


def _last(symbol: str) -> str:
    return symbol.rpartition(".")[2]


def _head(match: ChunkMatch, text: str, symbol: str, hit: ChunkHit) -> tuple[ChunkMatch, str] | None:
    """The lines of a definition around a hit down to the first one inside it, of the chunk where it begins; None where it
    does not."""
    path, first, _ = match.place
    found = _defined_first(path, text, _last(symbol))
    if found is None:
        return None
    one, end = found
    if one.kind in _CALLABLE and hit.kind == "method" and hit.symbol.rpartition(".")[0] == symbol:
        return None  # a constructor, which has the name of its class
    place = ChunkPlace(path, first + one.start - 1, first + end - 1)
    head = match._replace(place=place, symbol=symbol, kind=one.kind, signature=one.signature, names=(one.name,))
    return head, "\n".join(text.split("\n")[one.start - 1 : end])


@lru_cache(maxsize=500)  # half a millisecond each, and questions about one codebase come to the same classes
def _defined_first(path: str, text: str, name: str) -> tuple[Symbol, int] | None:
    """The definition of this name in a text, and the last line before another one begins inside it."""
    symbols = outline(Document(path, text, "", len(text))).symbols
    one = next((found for found in symbols if found.name == name), None)
    if one is None:
        return None
    return one, min((inner.start - 1 for inner in symbols if one.start < inner.start <= one.end), default=one.end)


def _within(place: ChunkPlace, hit: ChunkHit) -> bool:
    return place.path == hit.path and hit.start <= place.start and place.end <= hit.end


def as_held(
    found: SearchResult, query: str, digests: Mapping[str, str], read: Callable[[str, str], Document]
) -> SearchResult:
    """The hits with their files as the codex has them. An archive is ahead of its codex during a load, and behind one that
    ended early: of a file that was indexed otherwise, the chunk that holds most of the question takes the hit's place.

    `digests`: of those of the files that the codex has, by path; `read` gives a file by path and digest.
    """
    if all(hit.digest == digests.get(hit.path) for hit in found.hits):
        return found
    question = asked(query)
    hits: dict[ChunkPlace, ChunkHit] = {}
    for hit in (hit for hit in found.hits if hit.path in digests):
        digest = digests[hit.path]
        now = hit if hit.digest == digest else _read_again(hit, read(hit.path, digest), question)
        if now is not None:
            hits.setdefault(now.place, now)
    otherwise = {hit.path for hit in found.hits if hit.digest != digests.get(hit.path)}
    holding = {path: places for path, places in found.holding.items() if path not in otherwise}
    return replace(found, hits=tuple(hits.values()), holding=holding)


def _read_again(hit: ChunkHit, document: Document, question: Question) -> ChunkHit | None:
    wanted = [*question.words, *(text.lower() for text in question.exact)]

    def likeness(one: Chunk) -> tuple[int, bool, int]:
        text = one.text.lower()
        return sum(word in text for word in wanted), one.symbol == hit.symbol, -abs(one.start - hit.start)

    one = max(chunk(document), key=likeness, default=None)
    if one is None:
        return None
    place = ChunkPlace(one.path, one.start, one.end)
    match = ChunkMatch(place, one.symbol, one.kind, one.signature, one.names, (), digest=document.digest)
    return replace(hit_of(match, one.text, hit.score, hit.scores, question), near=hit.near)


def _used(
    ranked: Sequence[RankedFile], chunks: Sequence[ChunkMatch], definitions: Definitions
) -> dict[str, dict[ChunkPlace, float]]:
    """What is added to the chunks that define what the best ones use, by file, whether words found them or not: it is
    often the rest of the answer, and has few words of the question."""
    scores = {place: one.score * share for one in ranked for place, share in one.by_place.items()}
    users = sorted((one for one in chunks if one.place in scores), key=lambda one: (-scores[one.place], one.place))[
        :_USERS
    ]
    by_name = {name: scores[user.place] for user in reversed(users) for name in user.references}
    added: dict[str, dict[ChunkPlace, float]] = defaultdict(dict)
    for name, places in definitions(by_name).items():
        if len(places) <= _DEFINED:
            for place in places:
                adds = added[place.path]
                adds[place] = max(adds.get(place, 0.0), _USED * by_name[name])
    return added


def _chosen(
    ranked: Sequence[RankedFile],
    n: int,
    by_meaning: Mapping[ChunkPlace, float],
    exact: Mapping[ChunkPlace, float],
    used: Mapping[str, Mapping[ChunkPlace, float]] | None,
) -> list[_Chosen]:
    """Which chunks, in order: all that hold what was asked for as it is, then the others; of both the best of each
    file before what is left of the best ones, except among passages (`used`: as `_used` has it). Scores fall."""
    every: list[tuple[tuple[float, bool, float, ChunkPlace], _Chosen]] = []
    for one in ranked:
        adds = (used or {}).get(one.path, {})
        own = {place: one.by_place.get(place, 0.0) + adds.get(place, 0.0) for place in (*one.places, *adds)}
        places = one.places if used is None else sorted(own, key=lambda place: -own[place])
        for index, place in enumerate(places):
            scores = {**one.scores, "chunk": one.by_place.get(place, 0.0)}
            scores.pop("exact", None)
            if place in exact:
                scores["exact"] = exact[place]
            if place in by_meaning:
                scores["vector"] = by_meaning[place]
            if used is None:
                score = one.score * _AGAIN**index
            else:
                score = ((1 - _OWN) * one.score + _OWN * own[place] * scores["role"]) * _AGAIN_READ**index
            order = (-exact.get(place, 0.0), index > 0 and used is None, -score, place)
            every.append((order, (place, score, scores)))
    every.sort(key=lambda item: item[0])
    falling = accumulate((score for _, (_, score, _) in every[:n]), min)
    return [(place, score, scores) for (_, (place, _, scores)), score in zip(every, falling, strict=False)]
