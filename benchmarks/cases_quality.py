"""What smaller types of KV cost in quality, and what drafts gain in speed, with real weights."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing

from answers import Answer, Ids, Running
from cases_answers import SOURCES, backend_of
from cases_engine import ROOM, Bench, stopping
from kv_types import changes
from ours import Ours
from report import Row, rate

KV_TOKENS, KV_TYPES = 2_048, ("f16", "q8_0", "q4_0")
FLOOR, QUOTED = 7_000, 5_000  # characters of sources, and of those that are asked about
TOKENS, QUESTIONS = 96, 6  # of an answer; of each kind
FUNCTION = re.compile(r"^( *)(?:async )?def (\w+)(\(.*)$", re.MULTILINE)
PROSE = (
    "Why do programs use caches?",
    "What is a B-tree?",
    "How does TCP slow start work?",
    "What did the Romans eat?",
    "Why is the sky blue?",
    "How are mountains formed?",
)


def kv_types(bench: Bench) -> Iterator[Row]:
    """What each type of keys and values makes of the predictions behind each token of our own sources."""
    with closing(backend_of(bench.model)) as backend:
        ids = backend.encode([sources()], control=False)[0][:KV_TOKENS]
    for kind, change in zip(KV_TYPES, changes(bench.model, ids, KV_TYPES, bench.threads), strict=True):
        case = f"KV of {kind}"
        yield Row(case, "KL divergence, mean", change.mean, unit="nats")
        yield Row(case, "KL divergence, 99th percentile", change.worst, unit="nats")
        yield Row(case, "another likeliest token", 100 * change.changed, unit="%")


def sources() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.py")))


# -- drafts


def drafts(bench: Bench) -> Iterator[Row]:
    """Each answer with drafts and without, in turns, so that what else the machine does meets both."""
    with (
        stopping(Ours(bench.model, 4 * ROOM, threads=bench.threads)) as drafting,
        stopping(Ours(bench.model, 4 * ROOM, threads=bench.threads, drafts=False)) as plain,
    ):
        (floor,) = plain.encode([sources()[:FLOOR]])
        for kind, questions in kinds(sources()[:QUOTED]).items():
            turns = [
                [finished(engine, floor, tail) for engine in (drafting, plain)] for tail in plain.encode(questions)
            ]
            yield from rows_of_drafts(kind, *zip(*turns, strict=True))


def kinds(code: str) -> dict[str, list[str]]:
    """What quotes a function of the floor, what changes one, what asks about one, and what has nothing to do with it."""
    functions = FUNCTION.findall(code)
    chosen = functions[:: len(functions) // QUESTIONS][:QUESTIONS]
    return {
        "quotes": [f"\n\n{indent}def {name}(" for indent, name, _ in chosen],
        "changes": [
            f"\n\n# The same with a log line:\n{indent}def {name}_logged{rest}\n" for indent, name, rest in chosen
        ],
        "explains": [f"\n### User:\nWhat does {name} do?\n\n### Assistant:\n" for _, name, _ in chosen],
        "prose": [f"\n\nQuestion: {question}\nAnswer:" for question in PROSE],
    }


def finished(engine: Ours, floor: Ids, tail: Ids) -> Running:
    running = engine.ask(floor, tail, TOKENS)
    running.answer()
    return running


def rows_of_drafts(kind: str, drafted: Sequence[Running], plain: Sequence[Running]) -> Iterator[Row]:
    case = f"drafts: {kind}"
    with_drafts, without = (1 / seconds_a_token([one.answer() for one in answers]) for answers in (drafted, plain))
    yield rate(case, "with drafts, beside without", with_drafts, without, 0.98)
    tried, right = (sum(one.drafts[place] for one in drafted) for place in (0, 1))
    yield Row(case, "drafted tokens that were right", right, tried, "tokens", right / tried if tried else None)
    same = sum(one.ids == other.ids for one, other in zip(drafted, plain, strict=True))
    yield Row(case, "the same answers", same, len(plain), "answers")


def seconds_a_token(answers: Sequence[Answer]) -> float:
    return sum(one.total_s - one.first_s for one in answers) / sum(one.generated - 1 for one in answers)
