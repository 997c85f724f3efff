"""Ranks matches as one list of files and chunks. Pure: matches and definitions in, an order out.

    1 chunk    BM25 of the chunk, raised where the question mentions its names or writes one of them out
    2 file     its best chunks and its BM25 as a whole, each as a share of the best one's
    3 graph    names that the best chunks refer to lead to their definitions; a definition without a word of the question
               leads to a chunk of its file that has one, or is dropped: it is a neighbour, and no hit
    4 exact    chunks that hold an exact string rank before those that do not
    5 role     tests below source unless mentioned, generated and vendored files last: by path, or by their comments

Where a question asks for tests, source ranks below them, and 3 is left out: references lead from a test to the code that
it uses, never to a test.

Every score is a share of the best of its kind in this search; none is compared with a threshold. Cosines are close
together, so vectors join 1 by their rank: reciprocal rank fusion with its usual constant (Cormack et al., 2009). They have
half the weight of words, so a chunk that only means the same as the question ranks after one with its words (the figures
of a trained model are in docs/meaning.md). The other constants were chosen by hand on three packages, lie on plateaus
(halving or doubling one moves no mean by more than 0.03), and are not fitted to any package.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codex.archive.queries import ChunkMatch, ChunkPlace, FileMatch
from codex.trees.roles import ROLE_SHARES, FileRole, role_of
from codex.words import Question, name_stems, overlap

_NAME_RAISE = 0.3  # a chunk whose name the question speaks of entirely
_NAME_PARTS = 3  # parts of a name that must be spoken of for the whole raise: one common word proves little
_EXACT_RAISE = 0.3  # a chunk that defines a name the question writes out
_WEIGHTS = (1.0, 0.5, 0.25)  # of the best chunks of a file
_FILE_SHARE = 0.4  # weight of the whole file's score, relative to its chunks'
_SEEDS = 20  # chunks whose references are followed
_SEED_POWER = 3  # the best ones count: a chunk with half the score gives an eighth
_PLACES = 5  # a name defined in more files than these leads nowhere
_SPOKEN = 4.0  # a reference that the question speaks of weighs up to 1 + 4
_HALF = 0.5  # of graph weight at which it counts half
_GRAPH_ADDS = 0.1  # to a file that was found by words
_GRAPH_ALONE = 0.8  # a file that the words did not find: below the best, among the first ten
_BELOW_BEST = 0.95
_ELSEWHERE = 10  # files that were only led to, and are looked through for a word: as many as a list shows
_SPEAKS = 5.0  # a file's best chunk that has a fifth of the best score speaks of the question enough to be led to
_CALLED = 0.9  # of that: a file that defines the name that the question's words form together, whatever else it holds
_RANKS = 60
_MEANING = 0.5  # weight of a chunk found by its meaning, relative to one found by its words
_HOLDS = 2.0  # above every other score: a string in quotes is asked for, not spoken of

Definitions = Callable[[Iterable[str]], Mapping[str, tuple[ChunkPlace, ...]]]
Among = Callable[[Sequence[str]], Sequence[ChunkMatch]]
"""The chunks of these files that hold a word of the question, best first."""


@dataclass(frozen=True)
class RankedFile:
    """A file with its chunks, best first; `scores` are its parts by kind."""

    path: str
    score: float
    scores: Mapping[str, float]
    places: tuple[ChunkPlace, ...]
    by_place: Mapping[ChunkPlace, float] = field(default_factory=dict)


def rank(
    question: Question,
    chunks: Sequence[ChunkMatch],
    files: Sequence[FileMatch],
    definitions: Definitions,
    among: Among,
    extra: Mapping[ChunkPlace, float] | None = None,
    exact: Mapping[ChunkPlace, float] | None = None,
    generated: Collection[str] = (),
) -> list[RankedFile]:
    """Files, best first. `extra` are shares (0 to 1) by chunk of another kind of search, such as vectors.

    `exact` are the chunks that hold strings asked for as they are, with the share of those that each holds.
    `generated`: further generated files, beside those that their chunks mark.
    """
    holding = exact or {}
    raised = _raised(question, chunks, extra or {}, holding)
    asked_for = {match.place for match in chunks if question.alone in match.names}
    by_file = _by_file(raised, asked_for)
    whole = {one.path: one.score / files[0].score for one in files} if files else {}
    words = {
        path: (_chunks_share(by_file.get(path, {})) + _FILE_SHARE * whole.get(path, 0.0)) / (1 + _FILE_SHARE)
        for path in {*by_file, *whole}
    }
    highest = _BELOW_BEST * max(words.values(), default=0.0)
    calling = {match.place for match in chunks if question.calls_one(match.names)} | asked_for
    for path in {place.path for place in calling}:
        words[path] = max(words[path], highest * (_CALLED + (1 - _CALLED) * words[path]))
    linked = {} if question.tests_wanted else _linked(question, chunks, raised, words, definitions)
    linked = _known(linked, by_file, chunks[0].score if chunks else 1.0, among)
    generated = {*generated, *(match.place.path for match in chunks if match.generated)}
    ranked = [
        _file(
            *(path, words.get(path, 0.0), by_file.get(path, {}), whole.get(path), linked.get(path), highest),
            _factor(path, path in generated, question),
        )
        for path in {*words, *linked}
    ]
    if holding:
        ranked = [_held(one, holding) for one in ranked]
    return sorted(ranked, key=lambda one: (-one.score, one.path))


def _held(one: RankedFile, holding: Mapping[ChunkPlace, float]) -> RankedFile:
    share = max((holding.get(place, 0.0) for place in one.places), default=0.0)
    if not share:
        return one
    return replace(one, score=one.score + _HOLDS * share, scores={**one.scores, "exact": share})


def by_rank(places: Iterable[ChunkPlace]) -> dict[ChunkPlace, float]:
    """Shares of chunks that come best first: 1, 60/61 and so on, half of it at the sixtieth."""
    return {place: _RANKS / (_RANKS + rank) for rank, place in enumerate(places)}


def _raised(
    question: Question,
    chunks: Sequence[ChunkMatch],
    extra: Mapping[ChunkPlace, float],
    holding: Mapping[ChunkPlace, float],
) -> dict[ChunkPlace, float]:
    """Chunk scores as shares of the best, raised by names."""
    best = chunks[0].score if chunks else 1.0
    found = {match.place: match.score / best * _raise(question, match) for match in chunks}
    for place, share in extra.items():
        found[place] = found.get(place, 0.0) + _MEANING * share
    for place, share in holding.items():
        found[place] = found.get(place, 0.0) + _HOLDS * share
    top = max(found.values(), default=1.0)
    return {place: score / top for place, score in found.items()}


def _raise(question: Question, match: ChunkMatch) -> float:
    names = {*match.symbol.split(".")[-2:], *match.names} - {""}
    spoken = max((_spoken(question, name) for name in names), default=0.0)
    exact = bool(question.names.intersection(match.names)) or question.calls_one(match.names)
    return 1 + _NAME_RAISE * spoken + (_EXACT_RAISE if exact else 0.0)


def _spoken(question: Question, name: str) -> float:
    """How far a question speaks of a name: the share of its parts, less for names of one or two parts, unless its words
    are the name when they are put together."""
    if question.calls(name):
        return 1.0
    share = overlap(question, name)
    return share and share * min(1.0, share * len(name_stems(name)) / _NAME_PARTS)


def _by_file(
    raised: Mapping[ChunkPlace, float], asked_for: Collection[ChunkPlace]
) -> dict[str, dict[ChunkPlace, float]]:
    """Best first, and before them what is asked for."""
    found: dict[str, dict[ChunkPlace, float]] = defaultdict(dict)
    for place, score in sorted(raised.items(), key=lambda item: (item[0] not in asked_for, -item[1], item[0])):
        found[place.path][place] = score
    return found


def _chunks_share(chunks: Mapping[ChunkPlace, float]) -> float:
    return sum(score * weight for score, weight in zip(chunks.values(), _WEIGHTS, strict=False)) / sum(_WEIGHTS)


def _linked(
    question: Question,
    chunks: Sequence[ChunkMatch],
    raised: Mapping[ChunkPlace, float],
    words: Mapping[str, float],
    definitions: Definitions,
) -> dict[str, dict[ChunkPlace, float]]:
    """Graph weight by file and chunk, from the references of the best chunks.

    A chunk points at a file once, by its rarest name: using many names of a hub is no more relevant to the question.
    """
    seeds = sorted(chunks, key=lambda one: (-(raised[one.place] + words[one.place.path]), one.place))[:_SEEDS]
    found = definitions(dict.fromkeys(name for seed in seeds for name in seed.references))
    linked: dict[str, dict[ChunkPlace, float]] = defaultdict(lambda: defaultdict(float))
    for seed in seeds:
        weight = raised[seed.place] ** _SEED_POWER
        best: dict[str, tuple[float, ChunkPlace]] = {}
        for name in seed.references:
            firsts = {place.path: place for place in reversed(found.get(name, ()))}
            if not firsts or len(firsts) > _PLACES or seed.place.path in firsts:
                continue
            share = weight / len(firsts) * (1 + _SPOKEN * overlap(question, name))
            for path, place in firsts.items():
                if path not in best or share > best[path][0]:
                    best[path] = (share, place)
        for path, (share, place) in best.items():
            linked[path][place] += share
    return linked


def _known(
    linked: Mapping[str, Mapping[ChunkPlace, float]],
    by_file: Mapping[str, Mapping[ChunkPlace, float]],
    best: float,
    among: Among,
) -> dict[str, dict[ChunkPlace, float]]:
    """Of what is used only what holds a word of the question, or its file does elsewhere: types and settings are used by
    what answers any question, and came second to all of them. A file that hardly speaks of it counts less."""
    strongest = sorted(linked.keys() - by_file.keys(), key=lambda path: (-sum(linked[path].values()), path))
    elsewhere = strongest[:_ELSEWHERE]
    found = {path: dict(places) for path, places in by_file.items() if path in linked}
    for match in among(elsewhere) if elsewhere else ():
        found.setdefault(match.place.path, {})[match.place] = match.score / best
    kept: dict[str, dict[ChunkPlace, float]] = {}
    for path, places in linked.items():
        if path not in found:
            continue
        first, words = max(found[path].items(), key=lambda item: item[1])
        ours = kept.setdefault(path, {})
        for place, share in places.items():
            shown = place if place in found[path] else first
            ours[shown] = ours.get(shown, 0.0) + share * min(1.0, _SPEAKS * words)
    return kept


def _file(
    path: str,
    words: float,
    chunks: Mapping[ChunkPlace, float],
    whole: float | None,
    linked: Mapping[ChunkPlace, float] | None,
    highest: float,
    factor: float,
) -> RankedFile:
    scores = {"chunk": max(chunks.values(), default=0.0), "file": whole or 0.0}
    score, places = words, dict(chunks)
    if linked:
        total = sum(linked.values())
        share = total / (total + _HALF)
        score = max(words + _GRAPH_ADDS * share, min(_GRAPH_ALONE * share, highest))
        scores["graph"] = share
        for place in sorted(linked, key=lambda one: (-linked[one], one)):
            places.setdefault(place, 0.0)
    return RankedFile(path, score * factor, {**scores, "role": factor}, tuple(places), places)


def _factor(path: str, is_generated: bool, question: Question) -> float:
    role = role_of(path)
    share = ROLE_SHARES[role]
    if role is FileRole.TEST and (question.tests or question.tests_wanted):
        share = 1.0
    elif question.tests_wanted:
        share = min(share, ROLE_SHARES[FileRole.TEST])
    return min(share, ROLE_SHARES[FileRole.GENERATED]) if is_generated else share
