"""How far back a conversation can stand in a prompt at all, before anything of it is written or tokenised. Pure.

    ├── left out ──┼── the last `depth` exchanges, of `messages` in all ──┼── the question

An exchange is a question that is over, with its answers. Each message takes a token at least, of its words or of the
template around them, so one with more messages than the window has tokens would be cut after all, at the price of
writing thousands of turns that nobody reads.
"""

from collections import Counter
from dataclasses import dataclass

from formatters.context import TurnContext
from orchestrator.prompt.claims import exchanges_of
from orchestrator.prompt.shortening import without


@dataclass(frozen=True)
class Reach:
    """The most that may stand before a question."""

    depth: int
    messages: int


def within_reach(turn: TurnContext, reach: Reach) -> tuple[TurnContext, int]:
    """The context with its last exchanges, and how many older ones were left out."""
    messages = Counter(exchanges_of(turn.state))
    kept = room = 0
    for exchange in sorted(messages, reverse=True)[: reach.depth]:
        room += messages[exchange]
        if room > reach.messages:
            break
        kept += 1
    gone = len(messages) - kept
    return (without(turn, range(gone)), gone) if gone else (turn, 0)
