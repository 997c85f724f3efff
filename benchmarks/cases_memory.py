"""Recall: whether a search finds what a conversation said long ago, and how long it takes.

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
from pathlib import Path
from typing import Any

from cases_engine import Bench
from report import Row, at_most

from codex.words import STOP_WORDS
from orchestrator.karma.episodes import SESSION
from orchestrator.karma.passages import stems, tokens
from orchestrator.karma.records import Kind, NewMemory
from orchestrator.karma.search import MemorySearch
from orchestrator.karma.store import MemoryStore
from orchestrator.relevance.intent import CANDIDATES, intent_of

UID = 1000
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
    return {"memory abstention": abstaining, **recall}


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
