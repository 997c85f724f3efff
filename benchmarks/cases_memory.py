"""Recall: how long a search among many memories takes, and whether it finds what a conversation said long ago.

The conversations are LoCoMo's (CC BY-NC: the file is not in this repository; `--locomo FILE` names it). Its questions say
which turns are their evidence, so no judge is needed. Beside the search stands plain BM25 over the same texts. Files
`audit/errors_conv_*.json` beside FILE, those of locomo-audit, name wrong answers, which are left out, and citations that
they correct. Each turn is a memory with its speaker, made when its session was; each session is one too, in a store of its
own. Plain BM25 and the share of questions are those of decision 0033.
"""

import json
import math
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from cases_engine import Bench
from psutil import Process
from report import Row, at_most

from codex.words import STOP_WORDS
from orchestrator.karma.episodes import SESSION
from orchestrator.karma.passages import stems, tokens
from orchestrator.karma.recall import Recall, RecallQuestion
from orchestrator.karma.records import Kind, NewMemory
from orchestrator.karma.search import MemorySearch
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.prefetch import ContextUse, prefetch_for
from orchestrator.relevance.intent import CANDIDATES, intent_of

UID = 1000
QUICK = 10_000  # memories
WORDS, LENGTH = 20_000, 25  # of the made-up language; of a memory
ASKED, RUNS = 600, 3  # questions of a run: six of them are slower than its p99
SESSIONS, TURNS = 5, 10  # how many of the first are looked at
MOST_SESSIONS = 50
MULTI_HOP = 1  # LoCoMo's number of the category
K1, B, LEAST = 1.5, 0.75, 0.25  # of plain BM25, as rank_bm25 has them; LEAST: of the mean idf, where one is negative
KNOWN_SEED = 3  # which pairs are known: the same in every run
Find = Callable[[str], list[str]]


@dataclass(frozen=True)
class Asked:
    """A question, the names of turns that are its evidence (`D3:7`: session 3, turn 7), its category."""

    text: str
    evidence: frozenset[str]
    category: int

    @property
    def sessions(self) -> frozenset[str]:
        return frozenset(one.split(":")[0] for one in self.evidence)


@dataclass(frozen=True)
class Talk:
    """One conversation: texts of turns and of sessions by name."""

    turns: Mapping[str, str]
    sessions: Mapping[str, str]
    begun: Mapping[str, float]
    questions: Sequence[Asked]


def cases(locomo: Path | None = None) -> dict[str, Callable[[Bench], Iterator[Row]]]:
    recall = {"memory recall": partial(recalling, locomo)} if locomo is not None else {}
    return {"memory search": searching, "memory abstention": abstaining, **recall}


# -- time


def searching(bench: Bench) -> Iterator[Row]:
    """Questions of three to eight words, some frequent, some rare, over memories of words spread as in a language."""
    goals = {QUICK: (20, 50), 100_000: (None, 100)}
    sizes = [QUICK] if max(bench.depths) <= 2_048 else list(goals)
    with tempfile.TemporaryDirectory() as folder:
        path, language, stored = Path(folder) / "memories.sqlite3", Language(7), 0
        for size in sizes:
            case, (middle, late) = f"memory search in {size:,}", goals[size]
            wrote = filled(path, language, size - stored)
            stored = size
            questions = [language.said(3 + number % 6) for number in range(ASKED)]
            yield Row(case, "a write, p50", 1_000 * wrote, unit="ms")
            yield from asked_by_one_process(case, path, questions, middle, late)


def asked_by_one_process(
    case: str, path: Path, questions: Sequence[str], middle: float | None, late: float
) -> Iterator[Row]:
    """A process that has just started asks all of them, three times. The worst p99 of the three counts. The file is in the
    system's cache: it was written before."""
    with get_context("spawn").Pool(1) as pool:
        seen = [pool.apply(ask_all, (path, questions)) for _ in range(RUNS)]
    p50, p99 = median(one.p50_ms for one in seen), max(one.p99_ms for one in seen)
    yield at_most(case, "p50", p50, middle, "ms") if middle else Row(case, "p50", p50, unit="ms")
    yield at_most(case, "p99", p99, late, "ms")
    yield at_most(case, "first block of a process that just started", seen[0].cold_ms, 500, "ms")
    yield Row(case, f"growth of the process after {ASKED} questions", seen[0].grown_mb, unit="MB")


@dataclass(frozen=True)
class Asking:
    """What a process saw: milliseconds, and the megabytes by which it grew from the opened database on."""

    p50_ms: float
    p99_ms: float
    cold_ms: float
    grown_mb: float


def ask_all(path: Path, questions: Sequence[str]) -> Asking:
    """In a process of its own: opening and the first block, then the search for each question."""
    before = Process().memory_info().rss
    begun = time.perf_counter()
    store = MemoryStore(path)
    recall = Recall(store, Staleness(store, lambda *_: None))
    first = RecallQuestion(UID, None, questions[0], (), 4_000, prefetch_for(questions[0], ContextUse(300, 16_384)))
    anyio.run(recall.recall, first, None)
    cold = time.perf_counter() - begun
    took = sorted(seconds(store, question) for question in questions)
    grown = Process().memory_info().rss - before
    store.close()
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    return Asking(1_000 * p50, 1_000 * p99, 1_000 * cold, grown / 1e6)


def filled(path: Path, language: "Language", number: int) -> float:
    """Adds so many memories; the median of seconds that one took."""
    took, store = list[float](), MemoryStore(path)
    for _ in range(number):
        new = NewMemory(UID, language.kind(), language.said(LENGTH))
        begun = time.perf_counter()
        store.add(new)
        took.append(time.perf_counter() - begun)
    store.close()
    return median(took)


def seconds(store: MemoryStore, question: str) -> float:
    begun = time.perf_counter()
    MemorySearch(store).find(UID, None, question, CANDIDATES)
    return time.perf_counter() - begun


class Language:
    """Words whose n-th is said 1/n as often as the first: Zipf's law, which real texts follow closely. As in those the
    most frequent words are stop words, of which no question is searched by."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        frequent = sorted(STOP_WORDS)
        self._words = [*frequent, *(self._word() for _ in range(WORDS - len(frequent)))]
        self._weights = [1 / place for place in range(1, WORDS + 1)]

    def said(self, length: int) -> str:
        return " ".join(self._random.choices(self._words, self._weights, k=length))

    def kind(self) -> Kind:
        return self._random.choice([Kind.DECISION, Kind.FACT, Kind.PROCEDURE, Kind.EPISODE])

    def _word(self) -> str:
        return "".join(self._random.choices("bdfgklmnprstvz", k=1) + self._random.choices("aeioubdklmnrst", k=7))


# -- silence


def abstaining(_: Bench) -> Iterator[Row]:
    """Facts of services and their properties. Half of the pairs are known; both halves are asked for in three ways. Every
    service and every property is in some memory, so that only the pair of them tells."""
    services = [
        "auth",
        "billing",
        "search",
        "mail",
        "catalog",
        "payment",
        "export",
        "session",
        "report",
        "upload",
        "audit",
        "quota",
    ]
    properties = ["port", "owner", "language", "timeout", "region", "database", "retries", "license"]
    pairs = [(service, one) for service in services for one in properties]
    random.Random(KNOWN_SEED).shuffle(pairs)
    known, unknown = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore(Path(folder) / "memories.sqlite3")
        for number, (service, one) in enumerate(known):
            store.add(NewMemory(UID, Kind.FACT, f"The {one} of {service} is {one[0]}{number}.", created=float(number)))
        scores = [[best(store, ask(*pair)) for pair in half for ask in ASKING] for half in (known, unknown)]
        store.close()
    area = above(*scores)
    yield Row("memory abstention", "AUC", area, goal="≥ 0.7", met=area >= 0.7)


ASKING: Sequence[Callable[[str, str], str]] = (
    lambda service, one: f"what is the {one} of {service}?",
    lambda service, one: f"which {one} does the {service} service have?",
    lambda service, one: f"tell me about {service} and its {one}",
)


def best(store: MemoryStore, question: str) -> float:
    kinds = dict(CANDIDATES)
    found = MemorySearch(store).find(UID, None, question, kinds, intent_of(question).entities)
    return max((one.similarity for one in found), default=0.0)


def above(answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The area under the curve: how often an answered question has a higher score; equal scores count half."""
    pairs = [(one, other) for one in answered for other in unanswered]
    return sum((one > other) + (one == other) / 2 for one, other in pairs) / len(pairs)


# -- recall


def recalling(locomo: Path, _: Bench) -> Iterator[Row]:
    talks = read(locomo)
    ours, theirs, took = [], [], list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for number, talk in enumerate(talks):
            base = Path(folder) / str(number)
            stores = (remembered(base.with_suffix(".s"), talk, talk.sessions), remembered(base, talk, talk.turns))
            asked = zip(stores, (MOST_SESSIONS, TURNS), strict=True)
            ours += judged(talk, *(timed(found(*one, most), took) for one, most in asked))
            theirs += judged(talk, plain_bm25(talk.sessions), plain_bm25(talk.turns))
            for opened in stores:
                opened[0].close()
    case = f"memory recall, {len(ours):,} questions of {len(talks)} conversations"
    for figure, goal in GOALS.items():
        mine, other = (mean(one[figure] for one in every if figure in one) for every in (ours, theirs))
        yield Row(case, figure, mine, other, ratio=mine / other, goal=f"≥ {goal}", met=mine >= goal)
    took.sort()
    yield at_most(case, "p95", 1_000 * took[len(took) * 95 // 100], 20, "ms")


GOALS = {
    "all evidence in the first 5 sessions": 0.87,
    "MRR by session": 0.83,
    "all evidence in the first 5 sessions, multi-hop": 0.45,
    "any evidence in the first 10 turns": 0.75,
}


def judged(talk: Talk, sessions: Find, turns: Find) -> list[dict[str, float]]:
    return [verdict(one, sessions(one.text), turns(one.text)) for one in talk.questions]


def verdict(asked: Asked, sessions: Sequence[str], turns: Sequence[str]) -> dict[str, float]:
    whole, first, hop, turn = GOALS
    every = float(asked.sessions <= set(sessions[:SESSIONS]))
    places = [place for place, name in enumerate(sessions, 1) if name in asked.sessions]
    given = {
        whole: every,
        first: 1 / places[0] if places else 0.0,
        turn: float(bool(asked.evidence & set(turns[:TURNS]))),
    }
    return given | ({hop: every} if asked.category == MULTI_HOP else {})


def remembered(path: Path, talk: Talk, texts: Mapping[str, str]) -> tuple[MemoryStore, dict[str, str]]:
    """The store, and which text each memory is. Turns of one session stand in a row."""
    store = MemoryStore(path)
    names = dict[str, str]()
    for name, text in texts.items():
        session, _, turn = name.partition(":")
        source = f"{SESSION}{session}" if turn else "user"
        made = NewMemory(UID, Kind.EPISODE, text, source=source, created=talk.begun[session])
        names[store.add(made).id] = name
    return store, names


def found(store: MemoryStore, names: Mapping[str, str], most: int) -> Find:
    def find(question: str) -> list[str]:
        kinds = {"episode": most}
        entities = intent_of(question).entities
        return [names[one.record.id] for one in MemorySearch(store).find(UID, None, question, kinds, entities)]

    return find


def timed(find: Find, took: list[float]) -> Find:
    def timing(question: str) -> list[str]:
        begun = time.perf_counter()
        names = find(question)
        took.append(time.perf_counter() - begun)
        return names

    return timing


def plain_bm25(texts: Mapping[str, str]) -> Find:
    """Okapi BM25 over stemmed words without stop words."""
    read = {name: plain(text) for name, text in texts.items()}
    stem = stems({word for words in read.values() for word in words})
    bags = {name: Counter(stem[word] for word in words) for name, words in read.items()}
    held = Counter(word for bag in bags.values() for word in bag)
    usual = mean(bag.total() for bag in bags.values())
    idf = {word: math.log((len(bags) - count + 0.5) / (count + 0.5)) for word, count in held.items()}
    least = LEAST * mean(idf.values())

    def weight(word: str, bag: Counter[str]) -> float:
        known = idf[word] if idf[word] >= 0 else least
        return known * bag[word] * (K1 + 1) / (bag[word] + K1 * (1 - B + B * bag.total() / usual))

    def find(question: str) -> list[str]:
        asked = plain(question)
        found = [each for each in map(stems(asked).get, asked) if each]
        scores = {name: sum(weight(word, bag) for word in found if word in bag) for name, bag in bags.items()}
        return sorted(scores, key=lambda name: -scores[name])

    return find


def plain(text: str) -> list[str]:
    return [word for word in tokens(text) if word not in STOP_WORDS]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


# -- the file


def read(locomo: Path) -> list[Talk]:
    """Conversations with the questions that have evidence in them."""
    given = json.loads(locomo.read_text(encoding="utf-8"))
    return [
        talk_of(one, audited(locomo.parent / "audit" / f"errors_conv_{place}.json")) for place, one in enumerate(given)
    ]


def audited(path: Path) -> dict[str, list[str] | None]:
    """By question: the corrected evidence, or None for a wrong answer."""
    errors = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {
        one["question"]: one["correct_evidence"] if one["error_type"] == "WRONG_CITATION" else None for one in errors
    }


def talk_of(given: Mapping[str, Any], errors: Mapping[str, list[str] | None]) -> Talk:
    said = given["conversation"]
    turns, sessions, begun = dict[str, str](), dict[str, str](), dict[str, float]()
    for number in range(1, 100):
        lines = said.get(f"session_{number}")
        if not lines:
            continue
        name, date = f"D{number}", said[f"session_{number}_date_time"]
        begun[name] = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()
        turns |= {one["dia_id"]: line(one) for one in lines}
        sessions[name] = "\n".join([date, *map(line, lines)])
    asked = [question(one, errors.get(one["question"], one["evidence"])) for one in given["qa"]]
    return Talk(turns, sessions, begun, [one for one in asked if one.evidence and one.evidence <= turns.keys()])


def line(turn: Mapping[str, Any]) -> str:
    """What was said, and what the picture beside it shows."""
    shown = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [{shown}]" if shown else "")


def question(given: Mapping[str, Any], evidence: Sequence[str] | None) -> Asked:
    names = re.findall(r"D\d+:\d+", " ".join(evidence or ()))
    return Asked(given["question"], frozenset(names), given["category"])
