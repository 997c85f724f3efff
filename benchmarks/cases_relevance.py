"""What is decided before anything is fetched: the relevance gate, what it leaves unfetched for typical questions, and a
question's frame, intent and memory plan."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cases_engine import Bench
from report import Row, at_most

from formatters.plugins import ContextNode
from orchestrator.answering.ledger import WRITTEN_ANYHOW
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import GateRules, Relevance, catalogue, relevance
from orchestrator.relevance.intent import frame_of, intent_of, memory_plan
from orchestrator.relevance.signals import Turn, signals_of

TURNS = {
    "an acknowledgement": Turn("thanks!", 2, turns=4),
    "a greeting": Turn("Hello!", 2),
    "a warm clarification": Turn("which one?", 3, turns=4),
    "an order": Turn("change the port to 8080", 6, turns=4),
    "a question": Turn("where is the configuration read?", 7, turns=1),
}
SAVED = {"an acknowledgement": 1_500, "a greeting": 800, "a warm clarification": 500, "an order": 300}
"""Tokens that the gate saves at least against including everything; a question is for what all of it is there."""
QUESTIONS = {
    "a greeting": "hey",
    "a question": "what did I decide yesterday about storage in src/cache.py and get_user?",
    "a page": "Should we keep Redis, and why does get_user in src/cache.py fail? " * 30,
}
PASTED = "at 14:02 get_user (src/cache.py:12) fails\n" * 1_000  # 42,000 characters, of which 20,000 are read


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"relevance gate": gating, "intent and memory plan": planning}


def gating(bench: Bench) -> Iterator[Row]:
    """Signals and gate together. Saved tokens are those of the excluded nodes, by their estimated costs; what is written
    whatever the gate says saves none."""
    nodes = catalogue()
    rules = read_rules(nodes)
    for case, turn in TURNS.items():
        name = f"relevance gate, {case}"
        p99 = p99_ms(partial(gated, turn, rules, nodes), max(2_000, bench.runs))
        yield at_most(name, "p99", p99, 0.5, "ms")
        found = gated(turn, rules, nodes)
        saved = sum(nodes[one].cost for one in found.excluded if one not in WRITTEN_ANYHOW)
        yield at_least(name, "saved, estimated", saved, SAVED.get(case))


def at_least(case: str, figure: str, ours: float, least: int | None) -> Row:
    if least is None:
        return Row(case, figure, ours, unit="tokens")
    return Row(case, figure, ours, unit="tokens", goal=f"≥ {least:,} tokens", met=ours >= least)


def gated(turn: Turn, rules: GateRules, nodes: Mapping[str, ContextNode]) -> Relevance:
    return relevance(signals_of(turn), rules, nodes)


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
