"""A ticket: one job inside the engine, from arrival to its one outcome.

       ┌── its pool failed ──┬────────────┬───────────┐
       ▼                     │            │           │ nothing was sent
    WAITING ────────▶ RESTORING ──▶ PREFILL ──▶ ANSWERING ──▶ ended
       │                     │            │           │           ▲
       └─────────────────────┴────────────┴───────────┴───────────┘   refused, cancelled or failed at any point

From RESTORING on it holds all the cells that it may need. Any other change is a fault of ours. A ticket knows no other
pools, and not the order in which it is served.

A node that several tickets wait for is restored or computed by one of them:

    question ──waits──▶ node ◀─computes─ background ticket, which is served in the question's place until it is complete

A ticket that has begun goes on, whatever its class: the last node of a prompt that wants an answer is computed by its own
ticket, because the answer begins with its logits. A ticket that computes a node is served in the best place of those that
wait for it.

Text leaves an answer as whole characters only, and never with a stop string in it (`TextStream`).
"""

import codecs
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.engine.backend import Sampler
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Node, Path, Restored, Wanted
from orchestrator.engine.messages import (
    Chosen,
    Completion,
    FromChild,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
    Reuse,
    TicketTimings,
    Tier,
    Urgency,
    bytes_to_ids,
)

Order = tuple[bool, int]  # background behind interactive, then by arrival
Due = tuple[int, int]  # tokens of the engine's total when the prompt is computed (`planner`); then by arrival


class Phase(StrEnum):
    WAITING = "waiting"
    RESTORING = "restoring"
    PREFILL = "prefill"
    ANSWERING = "answering"
    ENDED = "ended"


ALLOWED = {
    Phase.WAITING: {Phase.RESTORING, Phase.ENDED},
    Phase.RESTORING: {Phase.PREFILL, Phase.ENDED, Phase.WAITING},
    Phase.PREFILL: {Phase.ANSWERING, Phase.ENDED, Phase.WAITING},
    Phase.ANSWERING: {Phase.ENDED, Phase.WAITING},
    Phase.ENDED: set[Phase](),
}


class TextStream:
    """Pieces of an answer in, what may be shown out. `stopped` once a stop string has appeared."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """The text that this piece makes certain."""
        return self._release(self._decoder.decode(piece))

    def finish(self) -> str:
        """What was held back and turned out to be plain text; an unfinished character becomes U+FFFD."""
        if self.stopped:
            return ""
        rest = self._release(self._decoder.decode(b"", final=True))
        rest, self._held = rest + ("" if self.stopped else self._held), ""
        return rest

    @property
    def all_shown(self) -> bool:
        """Whether all that was pushed has been shown."""
        return not self._held and not self._decoder.getstate()[0]

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._held[: min(found)]
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        out, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return out


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that begins `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)


class HeldLogprobs:
    """Holds the log-probabilities of tokens until their text is shown, so that those of a stop string are never sent."""

    def __init__(self) -> None:
        self._waiting: deque[Chosen] = deque()
        self._shown = 0  # bytes of text shown that belong to tokens still waiting

    def push(self, chosen: Chosen) -> None:
        self._waiting.append(chosen)

    def shown(self, text: str, *, all_shown: bool) -> tuple[Chosen, ...]:
        """The tokens whose text begins within what has been shown; all of them once everything was."""
        self._shown += len(text.encode())
        out = []
        while self._waiting and (all_shown or self._shown > 0):
            out.append(self._waiting.popleft())
            self._shown -= len(out[-1].token.text)
        self._shown = 0 if all_shown else self._shown
        return tuple(out)


@dataclass(eq=False)
class Ticket:
    job: InferenceJob
    ids: "array[int]"
    cut: int  # end of the floor
    in_line: int  # its place: who arrived before has a smaller one
    arrived_at: float  # seconds of the loop's clock
    phase: Phase = Phase.WAITING
    pool: Pool | None = None
    tip: Node | None = None
    sampler: Sampler | None = None
    awaits_sampler: bool = False  # its grammar is being compiled: until then it is not in the line
    text: TextStream = field(default_factory=TextStream)
    held_logprobs: HeldLogprobs = field(default_factory=HeldLogprobs)
    pending: int | None = None  # sampled, not yet evaluated
    restored: Restored = field(default_factory=Restored)
    reuse: tuple[Reuse, ...] = ()
    drafted: int = 0
    accepted: int = 0
    due: Due = (0, 0)
    computed: int = 0
    generated: int = 0
    admitted_at: float = 0.0
    first_token_at: float = 0.0
    failed_before: bool = False  # it was in a pool that failed

    @property
    def number(self) -> int:
        return self.job.ticket

    @property
    def wanted(self) -> Wanted:
        """What of its prompt may come back: not the last token where an answer is wanted, which begins with its logits."""
        limit = len(self.ids) - 1 if self.job.max_tokens else len(self.ids)
        return Wanted(Path(self.ids, self.cut, self.job.owner), limit, self.restored)

    @property
    def arrival(self) -> Order:
        """Its own place in the line."""
        return self.job.urgency is Urgency.BACKGROUND, self.in_line

    def enter(self, phase: Phase) -> None:
        assert phase in ALLOWED[self.phase], f"ticket {self.number}: {self.phase} → {phase}"
        self.phase = phase

    @property
    def suspect(self) -> bool:
        """Whether a pool or a process failed with it before."""
        return self.failed_before or self.job.replay > 0

    def wait_again(self) -> None:
        """Back into the line, as it came; what it held is gone already."""
        assert not self.generated and self.tip is None
        self.enter(Phase.WAITING)
        if self.sampler is not None:
            self.sampler.close()
        self.failed_before, self.sampler, self.pending = True, None, None
        self.restored, self.reuse = Restored(), ()
        self.computed, self.admitted_at = 0, 0.0

    def progress(self) -> PrefillProgress:
        """How much of its prompt is in cells, whoever computed it."""
        assert self.tip is not None
        missing = sum(len(node.ids) - node.computed for node in self.tip.path())
        return PrefillProgress(self.number, len(self.ids) - missing, len(self.ids))

    def unfinished(self) -> Node | None:
        """The first node of its path with cells still to compute."""
        assert self.tip is not None
        return next((node for node in self.tip.path() if not node.complete), None)


def ticket_of(job: InferenceJob, floor: "array[int]", in_line: int, arrived_at: float) -> Ticket:
    """The waiting ticket of a job on the floor of these ids. Raises ValueError and TypeError for a malformed job."""
    ids, text = floor + bytes_to_ids(job.tail), TextStream(job.stop)
    return Ticket(job, ids, len(floor), in_line, arrived_at, awaits_sampler=job.sampling.constrained, text=text)


@dataclass
class Counters:
    """`steps` are calls of the backend; `drafts` those of them that verified drafts, counted once an answer. Drafts are
    what was guessed; `forced_tokens` are those that a grammar forced and that were computed with the one before.

    Prompts, what of them was cached and what restoring that took are those of answered questions; `computed_tokens` are
    all that were computed, for whatever came of it.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    disk_tokens: int = 0  # of the cached ones: restored from checkpoints
    restored_ms: float = 0.0
    computed_tokens: int = 0
    generated_tokens: int = 0
    evicted_tokens: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    forced_tokens: int = 0
    pool_failures: int = 0  # made anew after a step that failed
    broken_pools: int = 0  # thrown away because a law of theirs was broken

    def answered(self, ticket: Ticket) -> None:
        """Counts the prompt of an answered question: its cached and its computed tokens are the whole of it."""
        cached = len(ticket.ids) - ticket.computed
        self.prompt_tokens += len(ticket.ids)
        self.cached_tokens += cached
        self.disk_tokens += min(cached, sum(part.end - part.start for part in ticket.reuse if part.tier is Tier.DISK))
        self.restored_ms += ticket.restored.milliseconds


@dataclass(frozen=True)
class Reporting:
    """`send` takes messages for the daemon; `end` a ticket's outcome, its reason and details; `clock` gives seconds."""

    counters: Counters
    send: Callable[[FromChild], None]
    end: Callable[[Ticket, Outcome, Reason, str], None]
    clock: Callable[[], float]


def in_order(tickets: Mapping[int, Ticket]) -> list[Ticket]:
    """As they are served: each as it came, or in the place of one who waits for what it computes."""
    waiting = waiting_for(tickets)
    return sorted(tickets.values(), key=lambda one: min(each.arrival for each in (one, *waiting.get(one.number, ()))))


def waiting_for(tickets: Mapping[int, Ticket]) -> dict[int, list[Ticket]]:
    """By the number of a ticket, those that wait for what it restores or computes now."""
    found: dict[int, list[Ticket]] = {}
    for ticket in tickets.values():
        if ticket.phase in (Phase.RESTORING, Phase.PREFILL) and (other := waits_for(ticket, tickets)) is not None:
            found.setdefault(other.number, []).append(ticket)
    return found


def waits_for(ticket: Ticket, tickets: Mapping[int, Ticket]) -> Ticket | None:
    """The other ticket that restores or computes what this one needs next."""
    node = ticket.unfinished()
    other = computing(node, tickets) if node is not None else None
    return other if other is not ticket else None


def computing(node: Node, tickets: Mapping[int, Ticket]) -> Ticket | None:
    """The ticket that restores or computes the node."""
    return tickets.get(node.computed_by) if node.computed_by is not None else None


def claim(ticket: Ticket, node: Node, tickets: Mapping[int, Ticket]) -> bool:
    """Makes the ticket the one that computes the node; False while another ticket does, which then does it for both."""
    if computing(node, tickets) not in (None, ticket):
        return False
    node.computed_by = ticket.number
    return True


def reuse_of(ticket: Ticket) -> tuple[Reuse, ...]:
    """Ranges of the prompt that this ticket need not compute: in cells, restored, or computed by another ticket."""
    assert ticket.tip is not None
    end = 0
    for node in ticket.tip.path():
        mine = node.computed_by == ticket.number or (node.computed_by is None and node.ref_count == 1)
        if mine and not node.complete:
            end = node.computed_end
            break
        end = node.end
    return covering(ticket.restored.parts, end, len(ticket.ids))


def covering(restored: Iterable[Reuse], end: int, length: int) -> tuple[Reuse, ...]:
    """Ranges that cover a prompt: what was restored, what was in cells before it and between, from `end` on computed."""
    parts, at = list[Reuse](), 0
    for part in [*restored, Reuse(end, length, Tier.COMPUTED)]:
        parts += [Reuse(at, part.start, Tier.VRAM), part]
        at = part.end
    return tuple(part for part in parts if part.end > part.start)


def completion(ticket: Ticket, outcome: Outcome, reason: Reason, detail: str, now: float) -> Completion:
    """The last message of a ticket, at `now` in seconds of the loop's clock. Its counts are tokens."""
    return Completion(
        ticket=ticket.number,
        outcome=outcome,
        reason=reason,
        detail=detail,
        prompt=len(ticket.ids),
        cached=len(ticket.ids) - ticket.computed if ticket.admitted_at else 0,
        computed=ticket.computed,
        generated=ticket.generated,
        drafted=ticket.drafted,
        accepted=ticket.accepted,
        timings=timings(ticket, now),
    )


def timings(ticket: Ticket, now: float) -> TicketTimings:
    """Milliseconds from arrival to admission, first token and `now`, 0 where it came to none; then tokens a second after
    the first, 0 with fewer than two. `now`: seconds of the loop's clock."""

    def since_arrival(moment: float) -> float:
        return max(0.0, (moment - ticket.arrived_at) * 1000) if moment else 0.0

    answering = now - ticket.first_token_at
    measurable = ticket.first_token_at and answering > 0 and ticket.generated > 1
    speed = (ticket.generated - 1) / answering if measurable else 0.0
    return TicketTimings(
        since_arrival(ticket.admitted_at), since_arrival(ticket.first_token_at), since_arrival(now), speed
    )
