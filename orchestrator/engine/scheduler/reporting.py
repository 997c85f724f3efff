"""What the engine reports: counters, messages through one outbox, a ticket's reuse and outcome, and a snapshot.

Every message wakes the daemon, and on a CPU it wakes on a core that computes the next step: of a model that needs 5 ms a
token, one message a token cost a twentieth of the speed. So `Outbox` holds tokens that follow others for at most one frame
of a screen and joins those of one answer. A first token and every other message are sent at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.cache.tree import Path
from orchestrator.engine.checkpoints.manager import CheckpointManager
from orchestrator.engine.messages import (
    AnswerDelta,
    Completion,
    EngineSnapshot,
    FromChild,
    Outcome,
    PrefillCost,
    Reason,
    Reuse,
    TicketTimings,
    Tier,
)
from orchestrator.engine.scheduler.admission import Admission
from orchestrator.engine.scheduler.ticket import Phase, Ticket

FRAME_SECONDS = 1 / 60
Post = Callable[[list[FromChild]], None]


@dataclass
class Counters:
    """`steps` are calls of the backend; `drafts` those of them that verified drafts, counted once an answer.

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
    pool_failures: int = 0  # made anew after a step that failed
    broken_pools: int = 0  # thrown away because a law of theirs was broken

    def answered(self, ticket: Ticket) -> None:
        """Counts the prompt of a ticket that is done: its cached and its computed tokens are the whole of it."""
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


class Outbox:
    """`post` takes the messages that are sent together."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._messages: list[FromChild] = []
        self._deltas: dict[int, int] = {}  # by ticket, the place of its delta among the messages
        self._begun: set[int] = set()  # tickets whose first token was sent
        self._urgent = False
        self._since = 0.0

    def put(self, message: FromChild, now: float) -> None:
        """Takes a message that was made at `now`, in seconds of one clock."""
        if not self._messages:
            self._since = now
        if isinstance(message, AnswerDelta):
            self._urgent = self._urgent or message.ticket not in self._begun
            self._begun.add(message.ticket)
            if (place := self._deltas.get(message.ticket)) is not None:
                earlier = self._messages[place]
                assert isinstance(earlier, AnswerDelta)
                self._messages[place] = joined(earlier, message)
                return
            self._deltas[message.ticket] = len(self._messages)
        else:
            self._urgent = True
            self._deltas.clear()  # what comes behind this message stays behind it
            if isinstance(message, Completion):
                self._begun.discard(message.ticket)
        self._messages.append(message)

    def due(self, next_chance: float) -> bool:
        """Whether a message would wait too long if it were not sent before `next_chance`."""
        return bool(self._messages) and (self._urgent or next_chance - self._since > FRAME_SECONDS)

    def flush(self) -> None:
        """Posts everything."""
        if not self._messages:
            return
        messages, self._messages = self._messages, []
        self._deltas.clear()
        self._urgent = False
        self._post(messages)


def joined(earlier: AnswerDelta, later: AnswerDelta) -> AnswerDelta:
    """One message for two that follow one another."""
    return replace(
        later, text=earlier.text + later.text, ids=earlier.ids + later.ids, chosen=earlier.chosen + later.chosen
    )


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


def foretold(
    pool: Pool | None, checkpoints: CheckpointManager | None, path: Path, max_tokens: int
) -> tuple[tuple[Reuse, ...], int]:
    """What a job of this prompt would reuse if it were admitted now, and how many of its tokens need no computing.

        prompt  ├──── cells ────┼── checkpoints ──┼── computed ──┤

    The searches are those of admission and of restores. Not considered are how much room there is, damaged files, and
    jobs that arrive before. With an answer wanted the last token is computed in any case.
    """
    limit = len(path.ids) - 1 if max_tokens else len(path.ids)
    depth, computed_end, ends = 0, 0, [0]
    if pool is not None:
        node, depth = pool.tree.match(path.ids[:limit], path.owner)
        computed_end, ends = node.computed_end, [0, *(one.end for one in node.path() if one.end < depth), depth]
    if depth > computed_end or checkpoints is None:  # somebody is computing it, or there is nothing below
        return covering((), depth, len(path.ids)), min(depth, computed_end)
    restored = checkpoints.restorable(path, limit, ends)
    end = restored[-1].end if restored else depth
    return covering(restored, end, len(path.ids)), end


def covering(restored: Iterable[Reuse], end: int, length: int) -> tuple[Reuse, ...]:
    """Ranges that cover a prompt: what was restored, what was in cells before it and between, from `end` on computed."""
    parts, at = list[Reuse](), 0
    for part in [*restored, Reuse(end, length, Tier.COMPUTED)]:
        parts += [Reuse(at, part.start, Tier.VRAM), part]
        at = part.end
    return tuple(part for part in parts if part.end > part.start)


def completion(ticket: Ticket, outcome: Outcome, reason: Reason, detail: str, now: float) -> Completion:
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
    def since_arrival(moment: float) -> float:
        return max(0.0, (moment - ticket.arrived_at) * 1000) if moment else 0.0

    answering = now - ticket.first_token_at
    measurable = ticket.first_token_at and answering > 0 and ticket.generated > 1
    speed = (ticket.generated - 1) / answering if measurable else 0.0
    return TicketTimings(
        since_arrival(ticket.admitted_at), since_arrival(ticket.first_token_at), since_arrival(now), speed
    )


def pictured(admission: Admission, tickets: Sequence[Ticket], figures: Mapping[str, float]) -> EngineSnapshot:
    """`figures` are counters by name."""
    phases = [ticket.phase for ticket in tickets]
    computing = (ticket for ticket in tickets if ticket.phase in (Phase.RESTORING, Phase.PREFILL))
    prefilling = min(computing, key=lambda ticket: ticket.order, default=None)
    return EngineSnapshot(
        grant=admission.grant.number,
        pools=tuple(pool.state() for pool in admission.pools.values()),
        running=len(phases) - phases.count(Phase.WAITING),
        prefills=phases.count(Phase.RESTORING) + phases.count(Phase.PREFILL),
        waiting=phases.count(Phase.WAITING),
        prefilling=prefilling.job.floor if prefilling else "",
        kv_bytes=sum(pool.memory.footprint for pool in admission.pools.values()),
        steps=int(figures["steps"]),
        counters=figures,
    )


def per_token(prefill_cost: PrefillCost, pools: Iterable[Pool]) -> dict[str, float]:
    """Milliseconds of a prompt token in a full step: in the fullest pool now, in an empty one, and by cell."""
    cells = max((pool.cells_used() for pool in pools), default=0)
    full = prefill_cost.per_token(cells, cells)
    return {"ms_per_token": full, "ms_per_token_empty": prefill_cost.empty, "ms_per_token_cell": prefill_cost.cell}
