"""What is loaded of what is remembered: a set of this project's own, with what should be loaded for each question.

`data/memories.toml` has the set and how its labels were made. Each question begins a conversation, or follows the turns
that it names, and goes through signals, gate and Recall as in the program. Then one part of them is switched off in turn:
what the figures lose is what the part is worth.

The boost needs a past: of two halves of the questions each is measured with the usage of the other, in which an answer
referenced what should have been loaded. Censors stand in every block, and no figure counts them.
"""

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
from cases_engine import Bench
from report import Row

from orchestrator.karma import ranking, recall
from orchestrator.karma.recall import Recall, RecallQuestion
from orchestrator.karma.records import DecisionOutcome, Kind, MemoryState, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.prefetch import ContextUse, prefetch_for
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import catalogue, relevance
from orchestrator.relevance.signals import Turn, signals_of

DATA = Path(__file__).parent / "data" / "memories.toml"
UID, ROOM, USE = 1000, 4_000, ContextUse(300, 16_384)
NOW, DAY_S = 1_800_000_000.0, 86_400.0
HALVES = 2
NODES = catalogue()
RULES = read_rules(NODES)


@dataclass(frozen=True)
class Labelled:
    """A question about a codex, and the names of what should be loaded for it. `turns`: texts of the conversation."""

    codex: str
    text: str
    wanted: frozenset[str]
    turns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remembered:
    """The memories by their names, in the order in which they were made, and the questions."""

    memories: Mapping[str, NewMemory]
    questions: Sequence[Labelled]


@dataclass(frozen=True)
class Parts:
    """Which parts decide about what is loaded."""

    gate: bool = True
    dedup: bool = True
    boost: bool = True
    floor: bool = True
    half: bool = True


VARIANTS = {
    "as shipped": Parts(),
    "without gate": Parts(gate=False),
    "without dedup": Parts(dedup=False),
    "without boost": Parts(boost=False),
    "without floor": Parts(floor=False),
    "without half of the best": Parts(half=False),
}


@dataclass(frozen=True)
class Loaded:
    """What one question loaded, in its order, and how similar that is, summed. `searches`: kinds that were looked up."""

    question: Labelled
    names: tuple[str, ...]
    similarity: float = 0.0
    searches: int = 0

    @property
    def hits(self) -> int:
        return len(self.question.wanted & set(self.names))


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"memory labelled": labelled}


def labelled(_: Bench) -> Iterator[Row]:
    given = read()
    for name, parts in VARIANTS.items():
        yield from rows(f"memory labelled, {name}", asked(given, parts), given)


def rows(case: str, found: Sequence[Loaded], given: Remembered) -> Iterator[Row]:
    answered = [one for one in found if one.question.wanted]
    nothing = [one for one in found if not one.question.wanted and not one.question.turns]
    said = [one for one in found if one.question.turns]
    loaded, hits = (sum(values) for values in zip(*((len(one.names), one.hits) for one in found), strict=True))
    wanted = sum(len(one.question.wanted) for one in found)
    yield Row(case, "precision of what is loaded", hits / max(1, loaded))
    yield Row(case, "precision where something answers", hits / max(1, sum(len(one.names) for one in answered)))
    yield Row(case, "recall", hits / wanted)
    yield Row(case, "best first", mean(one.names[:1] != () and one.names[0] in one.question.wanted for one in answered))
    yield Row(case, "mean similarity of what is loaded", sum(one.similarity for one in found) / max(1, loaded))
    yield Row(case, "nothing loaded where nothing answers", mean(not one.names for one in nothing))
    yield Row(case, "nothing loaded that a turn says", mean(not one.names for one in said))
    above = superseded_above(found, given)
    yield Row(case, "superseded above its successor", above, goal="0", met=not above)
    unasked = sum(old in one.names and old not in one.question.wanted for old, _ in successors(given) for one in found)
    yield Row(case, "superseded loaded unasked", unasked, goal="0", met=not unasked)
    yield Row(case, "kinds looked up, a question", sum(one.searches for one in found) / len(found))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / max(1, len(listed))


def superseded_above(found: Iterable[Loaded], given: Remembered) -> int:
    """How often a superseded fact stands above its successor."""
    above = 0
    for one in found:
        places = {name: place for place, name in enumerate(one.names)}
        above += sum(places[old] < places[new] for old, new in successors(given) if {old, new} <= places.keys())
    return above


def successors(given: Remembered) -> list[tuple[str, str]]:
    """Pairs of facts, the older and the newer, about one subject and attribute."""
    newest = {_about(new): name for name, new in given.memories.items() if new.attribute}
    pairs = [(name, newest[_about(new)]) for name, new in given.memories.items() if new.attribute]
    return [(old, new) for old, new in pairs if old != new]


def _about(new: NewMemory) -> tuple[str | None, str, str]:
    return new.codex, new.subject, new.attribute


# -- asking


def asked(given: Remembered, parts: Parts) -> list[Loaded]:
    return [one for half in range(HALVES) for one in _asked_half(given, parts, half)]


def _asked_half(given: Remembered, parts: Parts, half: int) -> list[Loaded]:
    """Every other question, in a store that has seen the others."""
    mine, others = given.questions[half::HALVES], given.questions[1 - half :: HALVES]
    with tempfile.TemporaryDirectory() as folder, closing(opened(Path(folder))) as store:
        names = {store.add(new).id: name for name, new in given.memories.items()}
        if parts.boost:
            for one in [loaded(store, names, question, parts) for question in others]:
                told = {name: name in one.question.wanted for name in one.names}
                store.count_shown(UID, {id: told[name] for id, name in names.items() if name in told})  # noqa: A001
        return [loaded(store, names, question, parts) for question in mine]


def opened(folder: Path) -> MemoryStore:
    return MemoryStore(folder / "memories.sqlite3", lambda: NOW)


def loaded(store: MemoryStore, names: Mapping[str, str], question: Labelled, parts: Parts) -> Loaded:
    """What the question's block holds, as the program builds it."""
    signals = signals_of(Turn(question.text, len(question.text.split()) + 1, len(question.turns) // 2))
    gate = relevance(signals, RULES, NODES)
    wants: Callable[[str], bool] = gate.wants if parts.gate else bool
    meant = RecallQuestion(
        uid=UID,
        codex=question.codex,
        text=question.text,
        turns=question.turns if parts.dedup else (),
        room=ROOM,
        prefetch=prefetch_for(question.text, USE),
        wants=wants,
    )
    with ExitStack() as without:
        for module in () if parts.floor else (recall, ranking):
            without.enter_context(patch.object(module, "FLOOR", 0.0))
        if not (parts.floor and parts.half):
            without.enter_context(patch.object(ranking, "OF_BEST", 0.0))
        found = anyio.run(Recall(store, Staleness(store, lambda *_: None), lambda: NOW).recall, meant, None)
    ids = [one.id for one in found.karma.entries if not one.node and one.kind != Kind.CENSOR]
    return Loaded(question, tuple(names[one] for one in ids), found.counts.similarity, len(found.plan.kinds))


# -- the set


def read(path: Path = DATA) -> Remembered:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    rows_of = [(codex, row) for codex, part in table.items() for row in part["memories"]]
    rows_of.sort(key=lambda one: -one[1][2])
    memories = {row[0]: memory(codex, *row[1:]) for codex, row in rows_of}
    censors = {name for name, new in memories.items() if new.kind is Kind.CENSOR}
    questions = [
        Labelled(codex, text, frozenset(wanted) - censors, tuple(further[0]["turns"]) if further else ())
        for codex, part in table.items()
        for text, wanted, *further in part["questions"]
    ]
    return Remembered(memories, questions)


def memory(codex: str, kind: str, days: int, text: str, further: Mapping[str, Any] | None = None) -> NewMemory:
    more: dict[str, Any] = dict(further or {})
    outcome = DecisionOutcome(more.pop("outcome")) if "outcome" in more else None
    reviewed = outcome not in (None, DecisionOutcome.PENDING)
    return NewMemory(
        UID,
        Kind(kind),
        text,
        codex=codex,
        created=NOW - days * DAY_S,
        outcome=outcome,
        state=MemoryState.REVIEWED if reviewed else None,
        **more,
    )
