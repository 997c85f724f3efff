"""What a turn was not shown, and whether it was asked for all the same. Pure.

A rule of the gate that held keeps a node out. What a node of memories would have brought is looked up when the answer
stands: by the same search, for the same question, less what the conversation said already. The exclusion is *regretted*
where a memory that it kept out is used all the same. That is told as for memories that were shown, by the words that say
something:

    answer          the model said it, or called a tool with it: it had to guess or to look for what was known
    next question   the user's next question in the conversation says it, within 30 minutes: they had to ask again

A node that holds no memories keeps out nothing that words could ask for: whether its rules are right is not known. Some
nodes are named by the gate and written all the same, as they stand in blocks that nothing is taken out of: leaving these
out saves nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from codex.words import STOP_WORDS, words
from orchestrator.karma.ranking import referenced
from orchestrator.karma.recall import MEMORY_NODES, ShownEntry
from orchestrator.karma.sizes import tokens_of
from orchestrator.relevance.gate import FiredRule, Relevance

BY_ANSWER, BY_QUESTION = "answer", "next question"
WRITTEN_ANYHOW = frozenset(
    ("identity_context", "world_state", "available_tools", "client_context", "gists", "working_memory")
)
AGAIN_S = 1800.0  # later the user is on to something else: the silence of relevance.signals


@dataclass(frozen=True)
class Firing:
    """A rule that fired in a turn. `tokens` are what it kept out: of memories those that were found, of another node its
    usual cost. `missed`: the texts of what it kept out, by the memory's id; `regretted`: '' or by what."""

    fired: FiredRule
    tokens: int
    missed: Mapping[str, str]
    regretted: str = ""


def excluded_memories(relevant: Relevance) -> tuple[str, ...]:
    """Nodes of memories that a rule kept out."""
    return tuple(one.node for one in relevant.fired if not one.recovered and one.node in MEMORY_NODES)


def firings_of(fired: Iterable[FiredRule], kept_out: Sequence[ShownEntry], said: str) -> list[Firing]:
    """`kept_out`: what would have been shown of the excluded nodes; `said`: all that the model said, its calls too."""
    return [_judged(_firing(one, kept_out), said, BY_ANSWER) for one in fired]


def _firing(fired: FiredRule, kept_out: Sequence[ShownEntry]) -> Firing:
    if fired.node not in MEMORY_NODES:
        return Firing(fired, 0 if fired.node in WRITTEN_ANYHOW else fired.tokens, {})
    missed = {} if fired.recovered else {one.id: one.text for one in kept_out if one.place[1] == fired.node}
    return Firing(fired, sum(map(tokens_of, missed.values())), missed)


def _judged(firing: Firing, text: str, by: str) -> Firing:
    return replace(firing, regretted=by) if is_regretted(firing.missed, text) else firing


def is_regretted(missed: Mapping[str, str], text: str) -> bool:
    """Whether these words use what was kept out. Words such as `the` do not count: a question has few others."""
    return any(referenced(_telling(memory), _telling(text)) for memory in missed.values())


def _telling(text: str) -> str:
    return " ".join(word for word in words(text) if word not in STOP_WORDS)


def missed_to_json(missed: Mapping[str, str]) -> str:
    return json.dumps(missed) if missed else ""


def missed_from_json(text: str) -> dict[str, str]:
    return dict(json.loads(text)) if text else {}
