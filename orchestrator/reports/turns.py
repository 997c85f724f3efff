"""What is counted of turns and requests since the daemon's start, and the one event that the log has of each turn.

A turn is one question, and ends in one of four ways: answered, refused, left by who asked, or failed by a fault of ours.
The event holds no word of a question, an answer, a file or a memory, and nothing of a private turn but figures.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field

from formatters.blocks import BlockKind
from orchestrator.engine.messages import Tier
from orchestrator.errors import LoreError
from orchestrator.prompt.claims import SourceKind
from orchestrator.prompt.strategy import Strategy
from orchestrator.reports.exposition import Family, Histogram, Metric, Tally
from orchestrator.service import Answered, Continued, Effort
from orchestrator.wire.base import ReplyShape
from orchestrator.wire.faults import CODES

log = logging.getLogger("lorekeep")

FINISHES = ("stop", "length", "tool_calls")
CUTS = tuple(kind.name.lower() for kind in SourceKind if kind is not SourceKind.FIXED)
STATUSES = ("2xx", "3xx", "4xx", "5xx", "left")
OUR_FAULT = "failed"
# Upper bounds: seconds from what nobody notices to what nobody waits for, tokens a second from a phone's to a farm's.
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
RATES = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 25_000.0)
ROUNDS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0)


def counter(name: str, says: str, **labels: tuple[str, ...]) -> Family:
    return Family(f"lorekeep_{name}_total", "counter", says, labels)


def histogram(name: str, says: str, bounds: tuple[float, ...] = SECONDS) -> Family:
    return Family(f"lorekeep_{name}", "histogram", says, {}, bounds)


TURNS = counter("turns", "questions that were answered", strategy=tuple(str(one) for one in Strategy), finish=FINISHES)
UNANSWERED = counter("unanswered_turns", "questions that were not", why=("refused", "left", "failed"))
TEXTS = counter("texts", "texts that were continued without chat and codex", finish=FINISHES[:2])
BLOCK_TOKENS = counter(
    "block_tokens",
    "prompt tokens of answered questions, by block and by where they came from",
    block=tuple(map(str, BlockKind)),
    tier=tuple(tier.value for tier in Tier),
)
CUT = counter("cut", "things that the governor left out or shortened so that a prompt fits", kind=CUTS)
REFUSALS = counter("refusals", "requests that were refused or failed, by the error's code", code=tuple(CODES))
RESPONSES = counter("responses", "HTTP requests, by their status; left: the client went first", status=STATUSES)
FIRST_TOKEN = histogram("first_token_seconds", "from a question's arrival to its first token")
TURN = histogram("turn_seconds", "from a question's arrival to its end")
QUEUE = histogram("queue_seconds", "waiting for room in the engine, in all rounds of an answer")
PREFILL = histogram("prefill_tokens_per_second", "prompt tokens computed for a question, by the time it took", RATES)
DECODE = histogram("decode_tokens_per_second", "tokens of an answer, by the time they took", RATES)
TOOL_ROUNDS = histogram(
    "tool_rounds", "how often the model was asked again with what our tools found, a question", ROUNDS
)

COUNTERS = (TURNS, UNANSWERED, TEXTS, BLOCK_TOKENS, CUT, REFUSALS, RESPONSES)
HISTOGRAMS = (FIRST_TOKEN, TURN, QUEUE, PREFILL, DECODE, TOOL_ROUNDS)


class BlockEvent(ReplyShape):
    """Tokens of one block."""

    cached: int = Field(description="needed no computing")
    computed: int = Field(description="the others")


class TurnEvent(ReplyShape):
    """A question that was answered. Level info."""

    trace: str | None = Field(description="`lore trace show` has the whole turn; none of a private one")
    codex: str | None = Field(description="that was asked; none: the bare model, or the turn is private")
    strategy: str = Field(description="CAG, HYBRID, RAG, RAG+GRAPH or NONE")
    retrieval: str = Field(description="what was fetched for it")
    finish: str = Field(description="stop, length or tool_calls")
    tokens: int = Field(description="of the prompt")
    cached: int = Field(description="of these: needed no computing")
    computed: int = Field(description="of these: the others")
    generated: int = Field(description="tokens of the answer")
    blocks: dict[str, BlockEvent] = Field(description="by their names")
    pressure: str = Field(description="level of the memory: calm, elevated, high, critical or unknown")
    cut: dict[str, int] = Field(description="what the governor left out or shortened: how many things, by kind")
    rounds: int = Field(description="how often the model was asked again with what our tools found")
    pause_ms: float = Field(description="the memory was given away")
    model_ms: float = Field(description="waiting for the model to be loaded")
    assemble_ms: float = Field(description="preparing the prompt")
    queue_ms: float = Field(description="waiting in the engine")
    floor_ms: float = Field(description="then, until the shared prefix was computed")
    prefill_ms: float = Field(description="computing prompts, of all rounds")
    first_token_ms: float = Field(description="from its arrival to the first token")
    total_ms: float = Field(description="from its arrival to its end")
    tokens_per_second: float = Field(description="of the answer")

    @classmethod
    def of_answer(cls, answered: Answered) -> "TurnEvent":
        lore, effort, private = answered.lore, answered.effort, answered.lore.trace is None
        timings = dict(lore.timings)
        return cls(
            trace=lore.trace,
            codex=lore.codex.name if lore.codex is not None and not private else None,
            strategy=lore.strategy.name,
            retrieval=lore.strategy.retrieval,
            finish=answered.finish_reason,
            tokens=lore.prompt.tokens,
            cached=lore.prompt.cached,
            computed=lore.prompt.computed,
            generated=answered.completion_tokens,
            blocks={one.kind: BlockEvent(cached=one.cached, computed=one.tokens - one.cached) for one in lore.blocks},
            pressure=lore.governor.level,
            cut=dict(effort.cut),
            rounds=effort.rounds,
            prefill_ms=round(effort.prefill_ms, 2),
            first_token_ms=timings.pop("ttft_ms"),
            **timings,
        )


class TextTurnEvent(ReplyShape):
    """A text that was continued, without chat and codex. Level info."""

    finish: str = Field(description="stop or length")
    tokens: int = Field(description="of the prompt")
    cached: int = Field(description="of these: needed no computing")
    generated: int = Field(description="tokens that follow it")
    total_ms: float = Field(description="from its arrival to its end")


class UnansweredEvent(ReplyShape):
    """A question or a text that was not answered. Level info."""

    why: Literal["refused", "left", "failed"] = Field(description="left: who asked went before the end")
    code: str | None = Field(description="of the refusal; /metrics counts the same, as lorekeep_refusals_total")
    total_ms: float = Field(description="from its arrival until then")


EVENTS = {"turn": TurnEvent, "text": TextTurnEvent, "unanswered": UnansweredEvent}


class TurnMeter:
    """Counts. One a daemon: programs come and go behind the routes. In the event loop alone."""

    def __init__(self) -> None:
        self._tallies = {family.name: Tally(family) for family in COUNTERS}
        self._histograms = {family.name: Histogram(family) for family in HISTOGRAMS}

    def metrics(self) -> Iterator[Metric]:
        yield from (one.metric() for one in self._tallies.values())
        yield from (one.metric() for one in self._histograms.values())

    def refused(self, code: str) -> None:
        """A request got an error of this code."""
        self._count(REFUSALS, code if code in REFUSALS.labels["code"] else OUR_FAULT)

    def responded(self, status: int) -> None:
        """`status` 0: the client went before there was one; 499 is what it would have been then."""
        self._count(RESPONSES, "left" if status in (0, 499) else f"{status // 100}xx")

    @contextmanager
    def turn(self) -> Iterator["MeteredTurn"]:
        """One question, or text, from its arrival: counted and logged when the block ends, however it does."""
        turn = MeteredTurn()
        try:
            yield turn
        except LoreError as fault:
            self._unanswered(turn, "refused", fault.code)
            raise
        except Exception:
            self._unanswered(turn, "failed", None)
            raise
        except BaseException:  # cancelled, or closed: nobody reads it any more
            if turn.last is None:
                self._unanswered(turn, "left", None)
            raise
        finally:
            self._ended(turn)

    def _ended(self, turn: "MeteredTurn") -> None:
        if isinstance(turn.last, Answered):
            self._answered(turn.last)
        elif isinstance(turn.last, Continued):
            self._continued(turn, turn.last)

    def _answered(self, answered: Answered) -> None:
        timings, effort = answered.lore.timings, answered.effort
        self._count(TURNS, answered.lore.strategy.name, answered.finish_reason)
        self._observe(FIRST_TOKEN, timings.ttft_ms / 1000)
        self._observe(TURN, timings.total_ms / 1000)
        self._observe(QUEUE, timings.queue_ms / 1000)
        self._observe(TOOL_ROUNDS, effort.rounds)
        if timings.tokens_per_second:
            self._observe(DECODE, timings.tokens_per_second)
        self._took(effort)
        tell("turn", TurnEvent.of_answer(answered))

    def _took(self, effort: Effort) -> None:
        if effort.prefilled and effort.prefill_ms:
            self._observe(PREFILL, 1000 * effort.prefilled / effort.prefill_ms)
        for (block, tier), tokens in effort.tokens.items():
            self._count(BLOCK_TOKENS, block, tier, by=tokens)
        for kind, count in effort.cut.items():
            self._count(CUT, kind, by=count)

    def _continued(self, turn: "MeteredTurn", ended: Continued) -> None:
        self._count(TEXTS, ended.finish_reason)
        event = TextTurnEvent(
            finish=ended.finish_reason,
            tokens=ended.prompt_tokens,
            cached=ended.cached_tokens,
            generated=ended.completion_tokens,
            total_ms=turn.ms(),
        )
        tell("text", event)

    def _unanswered(self, turn: "MeteredTurn", why: Literal["refused", "left", "failed"], code: str | None) -> None:
        self._count(UNANSWERED, why)
        tell("unanswered", UnansweredEvent(why=why, code=code, total_ms=turn.ms()))

    def _count(self, family: Family, *labels: str, by: float = 1) -> None:
        self._tallies[family.name].add(*labels, by=by)

    def _observe(self, family: Family, value: float) -> None:
        self._histograms[family.name].add(value)


class MeteredTurn:
    """One that runs. `last` is the event that ended it."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.last: Answered | Continued | None = None

    def saw(self, event: object) -> None:
        if isinstance(event, Answered | Continued):
            self.last = event

    def ms(self) -> float:
        return round(1000 * (time.monotonic() - self.began), 1)


def tell(name: str, event: ReplyShape) -> None:
    log.info(name, extra={"fields": event.model_dump(mode="json")})
