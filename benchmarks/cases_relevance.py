"""What is decided before anything is fetched: the relevance gate and what it saves, and a question's frame, intent and
memory plan.

    a turn ─▶ gate ─▶ recall ─▶ composing ─▶ prompt        by the shipped rules, and with everything included

The memories are the labelled ones (`cases_remembered`), with a few about the user and a list beside them. The program's own
Preparer composes, with the model's vocabulary and chat template. No model takes part: an answer is what should have been
remembered.
"""

import importlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, takewhile
from pathlib import Path
from statistics import mean, median
from typing import Any

import anyio
from cases_engine import Bench
from cases_remembered import NODES, NOW, RULES, UID, Labelled, Remembered, read
from report import Row, at_most

from formatters.blocks import Role
from formatters.context import IdentityView, TurnView
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from orchestrator.answering.agent import Answerer
from orchestrator.answering.codex_tools import CodexTools, SearchArchive
from orchestrator.answering.inference import Finished
from orchestrator.answering.keeping import saved
from orchestrator.answering.ledger import excluded_memories
from orchestrator.answering.memory_tools import MemoryTools
from orchestrator.answering.preparing import Preparer
from orchestrator.answering.question import PreparedQuestion, split
from orchestrator.answering.sessions import SessionStore
from orchestrator.codices.serving_identities import DEFAULT_IDENTITY_TEXT, ServingIdentity
from orchestrator.engine.messages import ID_BYTES
from orchestrator.engine.remote.tokens import VocabularyTokens
from orchestrator.karma.recall import Recall
from orchestrator.karma.records import Kind, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.composing import Assembler, Composed, Composer, TokenCache
from orchestrator.relevance.gate import relevance
from orchestrator.relevance.intent import frame_of, intent_of, memory_plan
from orchestrator.relevance.signals import Turn, signals_of
from orchestrator.service import Message

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
PLANNING: Any = importlib.import_module("support.planning")  # tests are no package

EVERYWHERE = {
    "an acknowledgement": ("thanks!", "ok", "perfect!", "got it", "great!"),
    "a greeting": ("Hello!", "good morning", "hey"),
    "a clarification": ("which one do you mean?", "what do you mean by that?", "you mean the old one?", "that one?"),
}
ORDERS = {
    "harbor": ("change the port of the booking service to 8080", "run the load test again", "do the refund by hand"),
    "lumen": ("change the tile size of the preview to 1,024", "run the batch export", "do a release"),
    "tally": ("change the minimum supported Rust version", "run the fuzzer on the parser", "do the release"),
    "moss": (
        "change the supply of the probe to 3.3 V",
        "run the calibration of the probe",
        "do the update of the field",
    ),
    "quill": (
        "change the sending rate to 500",
        "run the restore of a publisher",
        "do the rotation of the signing keys",
    ),
}
A_QUESTION = "a question"
MODES = {
    "an acknowledgement": "ACKNOWLEDGE",
    "a greeting": "ACKNOWLEDGE",
    "a clarification": "CLARIFY",
    "an order": "ACT",
    A_QUESTION: "RESPOND",
}
SAVED = {"an acknowledgement": 1_500, "a greeting": 800, "a clarification": 500, "an order": 300}
"""Tokens of a prompt that the gate should save against including everything; for a question all of it is there."""
EARLIER = 4  # turns before a fifth one
AWAY_S = 3_600.0
FIRST, FIFTH, RETURNED = "first turn", "fifth turn", "fifth turn, after an hour"
ABOUT = (
    ("user", "trait:work", "Maintains five projects alone, in the evenings."),
    ("user", "trait:knows", "Knows Python and C++ well and JavaScript a little."),
    ("user", "trait:machine", "Works on a laptop with Fedora, without a GPU."),
    ("user", "style:length", "Wants short answers, with the code first and the reasons behind it."),
    ("user", "style:language", "Wants British spelling, metric units and no emoji."),
    ("list:tasks", "", "Renew the certificate of the staging host."),
    ("list:tasks", "", "Answer the three open reviews."),
    ("list:tasks", "", "Write the notes of the next release."),
)
QUESTIONS = {
    "a greeting": "hey",
    "a question": "what did I decide yesterday about storage in src/cache.py and get_user?",
    "a page": "Should we keep Redis, and why does get_user in src/cache.py fail? " * 30,
}
PASTED = "at 14:02 get_user (src/cache.py:12) fails\n" * 1_000  # 42,000 characters, of which 20,000 are read


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"relevance gate": gating, **prompts(), "intent and memory plan": planning}


def prompts() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    """Of any model."""
    return {"relevance gate, prompts": saving}


def gating(bench: Bench) -> Iterator[Row]:
    """Signals and gate together."""
    typical = {**EVERYWHERE, "an order": ORDERS["harbor"]}
    turns = {name: Turn(texts[0], 3, turns=EARLIER) for name, texts in typical.items()}
    for name, turn in {**turns, A_QUESTION: Turn(QUESTIONS[A_QUESTION], 14, turns=1)}.items():
        p99 = p99_ms(partial(gated, turn), max(2_000, bench.runs))
        yield at_most(f"relevance gate, {name}", "p99", p99, 0.5, "ms")


def gated(turn: Turn) -> object:
    return relevance(signals_of(turn), RULES, NODES)


def planning(bench: Bench) -> Iterator[Row]:
    """Frame, intent and plan together. A pasted log has no goal: it is read once, and its model reads it for seconds."""
    for case, text in QUESTIONS.items():
        p99 = p99_ms(partial(planned, text), max(2_000, bench.runs))
        yield at_most(f"intent and memory plan, {case}", "p99", p99, 1.0, "ms")
    p99 = p99_ms(partial(planned, PASTED), max(100, bench.runs))
    yield Row("intent and memory plan, a pasted log", "p99", p99, unit="ms")


def planned(text: str) -> object:
    return memory_plan(intent_of(text), frame_of(text), len(text.split()))


def p99_ms(call: Callable[[], object], runs: int) -> float:
    """Milliseconds that 99 of 100 calls take at most."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    seconds.sort()
    return 1_000 * seconds[len(seconds) * 99 // 100]


# -- what the gate saves


@dataclass(frozen=True)
class Place:
    """Where in a conversation a turn stands: behind these messages, or in a session that has them."""

    earlier: tuple[Message, ...] = ()
    session: str | None = None


@dataclass(frozen=True)
class Cost:
    """Of one turn. `tokens` of its prompt; `computed`: those that its prompt and the next one do not have from the prompt
    before them; `shown`: names of memories; `queries` of the database until the prompt stands, in `ms`, and `behind` the
    answer."""

    mode: str
    tokens: int
    computed: int
    shown: frozenset[str]
    queries: int
    ms: float
    behind: int


@dataclass(frozen=True)
class Pair:
    """A turn by the shipped rules, and with everything included. `wanted`: names of what should be shown."""

    ruled: Cost
    whole: Cost
    wanted: frozenset[str]

    @property
    def saved(self) -> int:
        return self.whole.tokens - self.ruled.tokens


def saving(bench: Bench) -> Iterator[Row]:
    """A turn in each place of a conversation about each of the labelled codices, both ways from the same turns before."""
    found = anyio.run(measured, bench)
    for case, place in product(MODES, (FIRST, FIFTH, RETURNED)):
        if pairs := found.get((case, place)):
            yield from rows(case, place, pairs)


def rows(case: str, place: str, pairs: Sequence[Pair]) -> Iterator[Row]:
    """Means. Where there is a peer, it has everything included."""
    name, note = f"gate, {case}, {place}", f"of {len(pairs)}"
    whole, ruled, saved = [one.whole for one in pairs], [one.ruled for one in pairs], [one.saved for one in pairs]
    yield Row(name, f"turns in mode {MODES[case]}", sum(one.mode == MODES[case] for one in ruled), note=note)
    yield beside(name, "prompt", [one.tokens for one in ruled], [one.tokens for one in whole], "tokens")
    yield at_least(name, "saved, mean", mean(saved), SAVED.get(case))
    yield Row(name, "saved, most", max(saved), unit="tokens")
    yield Row(name, "turns that save something", sum(one > 0 for one in saved), note=note)
    computed = [one.computed for one in ruled], [one.computed for one in whole]
    yield beside(name, "computed, with the next turn's", *computed, "tokens")
    yield beside(name, "queries before the prompt", [one.queries for one in ruled], [one.queries for one in whole])
    yield beside(name, "they take", [one.ms for one in ruled], [one.ms for one in whole], "ms")
    yield beside(name, "queries behind the answer", [one.behind for one in ruled], [one.behind for one in whole])
    if case == A_QUESTION:
        here = (
            [len(one.wanted & one.ruled.shown) for one in pairs],
            [len(one.wanted & one.whole.shown) for one in pairs],
        )
        yield beside(name, "wanted memories shown", *here)


def beside(case: str, figure: str, ruled: Sequence[float], whole: Sequence[float], unit: str = "") -> Row:
    return Row(case, f"{figure}, mean", mean(ruled), mean(whole), unit)


def at_least(case: str, figure: str, ours: float, least: int | None) -> Row:
    if least is None:
        return Row(case, figure, ours, unit="tokens")
    return Row(case, figure, ours, unit="tokens", goal=f"≥ {least:,} tokens", met=ours >= least)


async def measured(bench: Bench) -> Mapping[tuple[str, str], Sequence[Pair]]:
    """By case and place."""
    given, found = read(), dict[tuple[str, str], list[Pair]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with closing(CountingStore(folder / "memories.sqlite3", lambda: NOW)) as store:
            names = {store.add(new).id: known for known, new in given.memories.items()}
            for subject, attribute, text in ABOUT:
                store.add(NewMemory(UID, Kind.FACT, text, subject=subject, attribute=attribute))
            tokens = VocabularyTokens(bench.model)
            for codex in ORDERS:
                talk = talk_about(codex, given, store, tokens, folder / codex)
                for case, place, text, wanted in turns_of(talk, await places_of(talk)):
                    ruled, whole = [await cost_of(talk, one, text, place[1], names, bench.runs) for one in talk.ways]
                    found.setdefault((case, place[0]), []).append(Pair(ruled, whole, wanted))
    return found


class CountingStore(MemoryStore):
    queries = 0

    def read(self, query: str, *values: object) -> list[Any]:
        self.queries += 1
        return super().read(query, *values)


@dataclass(frozen=True)
class Talk:
    """About one codex, in a program of small parts. `ways`: by the shipped rules, and with everything included. `begins`:
    questions of the turns before a fifth one, `asks`: others; `texts` of memories by name."""

    codex: str
    house: Any
    store: CountingStore
    ways: tuple[Preparer, Preparer]
    begins: Sequence[Labelled]
    asks: Sequence[Labelled]
    texts: Mapping[str, str]


def talk_about(codex: str, given: Remembered, store: CountingStore, tokens: VocabularyTokens, folder: Path) -> Talk:
    folder.mkdir()
    house = PLANNING.SmallHouse(folder, codex=replace(PLANNING.demo(), name=codex), window=16_384)
    speak(house, store, tokens)
    house.sessions = SessionStore(folder / "earlier.sqlite3", lambda: time.time() - AWAY_S)
    recall, made = Recall(store, Staleness(store, lambda *_: None), lambda: NOW), house.answers().preparer
    ruled = replace(made, recall=recall, gate_rules=RULES, greedy=False)
    asks = [one for one in given.questions if one.codex == codex and one.wanted and not one.turns]
    return Talk(
        codex=codex,
        house=house,
        store=store,
        ways=(ruled, replace(ruled, gate_rules=replace(RULES, enabled=False))),
        begins=asks[:EARLIER],
        asks=asks[EARLIER:],
        texts={name: new.text for name, new in given.memories.items()},
    )


def speak(house: Any, store: MemoryStore, tokens: VocabularyTokens) -> None:
    """The house in the tokens and the chat template of a model that calls our tools."""
    template = ChatTemplate(tokens.template, tokens.bos, tokens.eos, tokens.adds_bos)
    nothing: Any = None
    look, search = CodexTools(nothing, nothing, nothing, nothing), SearchArchive(nothing, nothing)
    memories = MemoryTools(store, nothing, nothing)
    house.tokens, house.placement = TokenCache(Encoding(tokens)), probe(template)
    house.composer = Composer(builtin(), template, house.placement, Assembler(house.tokens, "root"))
    house.tools = Answerer([search.search_archive, *look.functions, *memories.functions]).tools
    calling = house.placement.calls.example
    identity = IdentityView(name="lorekeeper", text=DEFAULT_IDENTITY_TEXT, tools=house.tools, calling=calling)
    house.identity = ServingIdentity(identity)


@dataclass(frozen=True)
class Encoding:
    """`composing.Encoder` without an engine."""

    tokens: VocabularyTokens

    async def encode(self, texts: Sequence[str], control: bool) -> list[bytes]:
        return [(await self.tokens.ids(text, control=control)).tobytes() for text in texts]


async def places_of(talk: Talk) -> Mapping[str, Place]:
    """Each conversation held by the shipped rules up to there."""
    await held(talk, "talk")
    return {FIRST: Place(), FIFTH: Place(await held(talk)), RETURNED: Place(session="talk")}


async def held(talk: Talk, session: str | None = None) -> tuple[Message, ...]:
    """The messages of the turns before a fifth one, which the program has then."""
    said: tuple[Message, ...] = ()
    for one in talk.begins:
        answer = " ".join(talk.texts[name] for name in sorted(one.wanted))
        prepared = await prepare(talk, talk.ways[0], one.text, Place(() if session else said, session))
        said = (*said, *close(talk, prepared, answer))
    return said


def turns_of(talk: Talk, places: Mapping[str, Place]) -> Iterator[tuple[str, tuple[str, Place], str, frozenset[str]]]:
    """Case, place, text, and what should be shown."""
    texts = {**EVERYWHERE, "an order": ORDERS[talk.codex]}
    for place in places.items():
        for case, listed in texts.items():
            if MODES[case] != "CLARIFY" or place[0] != FIRST:  # there is nothing to clarify
                yield from ((case, place, text, frozenset[str]()) for text in listed)
        yield from ((A_QUESTION, place, one.text, one.wanted) for one in talk.asks)


async def cost_of(talk: Talk, preparer: Preparer, text: str, place: Place, names: Mapping[str, str], runs: int) -> Cost:
    prepared = await prepare(talk, preparer, text, place)
    found, pinned, recall = prepared.found, prepared.conversation.karma, preparer.recall
    queries, ms = await looked_up(talk.store, partial(recall.recall, found.recalled.question, pinned), runs)
    nodes = excluded_memories(found.relevance)
    before = talk.store.queries
    if nodes:
        recall.kept_out(found.recalled.question, pinned, nodes)
    return Cost(
        mode=found.relevance.mode,
        tokens=prepared.composed.assembled.tokens,
        shown=frozenset(names[one.id] for one in found.recalled.karma.entries if one.id in names),
        queries=queries,
        ms=ms,
        behind=talk.store.queries - before,
        computed=new_tokens(prepared.conversation.composed, prepared.composed)
        + await followed(talk, preparer, prepared, place),
    )


async def looked_up(store: CountingStore, look: Callable[[], Awaitable[object]], runs: int) -> tuple[int, float]:
    """Queries of one look-up, and the median of its milliseconds."""
    taken, before = [], store.queries
    for _ in range(runs):
        began = time.perf_counter()
        await look()
        taken.append(1_000 * (time.perf_counter() - began))
    return (store.queries - before) // runs, median(taken)


async def followed(talk: Talk, preparer: Preparer, prepared: PreparedQuestion, place: Place) -> int:
    """Tokens that the next question computes; 0 in a session, which would have the turn for good."""
    if place.session is not None:
        return 0
    behind = Place((*place.earlier, *close(talk, prepared, "Gladly.")))
    following = await prepare(talk, preparer, talk.asks[0].text, behind)
    return new_tokens(prepared.composed, following.composed)


async def prepare(talk: Talk, preparer: Preparer, text: str, place: Place) -> PreparedQuestion:
    ask = PLANNING.asking(text, *place.earlier, session=place.session)
    return await preparer.prepare(ask, split(ask.messages), talk.house)


def close(talk: Talk, prepared: PreparedQuestion, answer: str) -> tuple[Message, Message]:
    """Keeps the turn; its messages."""
    finished = Finished("stop", answer, (TurnView(role=Role.ASSISTANT, text=answer),), ())
    saved(prepared, talk.ways[0].conversations, finished, {})
    return Message("user", prepared.messages.question), Message("assistant", answer)


def new_tokens(before: Composed | None, now: Composed) -> int:
    """Those right of the floor that the prompt before does not begin with."""
    tail, had = now.assembled.tail, before.assembled.tail if before is not None else b""
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tail, had, strict=False)))
    return (len(tail) - common) // ID_BYTES
