"""The relevance gate: what it takes, and what it leaves unfetched for typical questions."""

import time
from collections.abc import Callable, Iterator

from cases_engine import Bench
from report import Row, at_most

from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import relevance
from orchestrator.relevance.nodes import catalogue
from orchestrator.relevance.signals import Turn, signals_of

TURNS = {
    "a first greeting": Turn("Hello!", 2),
    "a warm clarification": Turn("which one?", 3, turns=4),
    "an order": Turn("change the port to 8080", 6, turns=4),
    "a question": Turn("where is the configuration read?", 7, turns=1),
}


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {"relevance gate": gating}


def gating(bench: Bench) -> Iterator[Row]:
    """Signals and gate together. Saved tokens are those of the excluded nodes, by their estimated costs."""
    nodes = catalogue()
    rules = read_rules(nodes)
    for case, turn in TURNS.items():
        seconds = []
        for _ in range(max(2_000, bench.runs)):
            began = time.perf_counter()
            found = relevance(signals_of(turn), rules, nodes)
            seconds.append(time.perf_counter() - began)
        seconds.sort()
        name = f"relevance gate, {case}"
        yield at_most(name, "p99", 1_000 * seconds[len(seconds) * 99 // 100], 0.5, "ms")
        yield Row(name, "saved", sum(node.cost for node in nodes.values()) - found.tokens, unit="tokens")
