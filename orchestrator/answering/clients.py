"""Clients that send whole conversations: where a prompt left what the one before it shared, and what that cost.

A client of another server rewrites its messages between two requests: the time in a system message, a reminder that is gone
again. Everything behind the place is computed anew, though it is the same text. A prompt *departs* where

    a message of the earlier request differs, is gone, or has another before it
    and text behind that place is the same in both
    and of that text something had to be computed

An earlier request that the new one goes on from, or that is asked again, departs nowhere. The earlier request is, of the
last few of this client, the one that shares most messages.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.answering.question import PreparedQuestion
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import ID_BYTES, Ids, same_beginning
from orchestrator.engine.prefill_cost import prompt_s
from orchestrator.prompt.composing import Assembled
from orchestrator.service import Message
from orchestrator.wire.answers import Departure
from orchestrator.wire.status import ClientRow

KEPT = 4  # earlier requests of a client that the next is compared with: an editor has a few conversations open
MOST_CLIENTS = 32  # each keeps that many prompts: 200,000 tokens are 3 MB
AROUND_TOKENS = 6  # on both sides of the first differing token
LEAST_SHARED = 200  # characters behind the place that are the same; with fewer, nothing worth a word is lost
UNNAMED = "unnamed"

Words = tuple[str, str]
"""A message as it is compared: its role and its text."""


@dataclass(frozen=True)
class Moved:
    """Message `number` (from 1) of the earlier request, and what happened to it: changed, removed, or behind another now.
    `same`: characters behind that place that both have."""

    number: int
    role: str
    how: str
    same: int


@dataclass(frozen=True)
class ClientPrompt:
    """What a client sent and what came of it. `words`: its messages; with the answer where there is one."""

    words: tuple[Words, ...]
    floor: str
    tail: Ids


@dataclass(frozen=True)
class FoundDeparture:
    """`at`: the first differing token behind the floor; `was`, `now`: those around it in both prompts; `tokens`: how many
    behind it are the same text and were computed."""

    moved: Moved
    at: int
    was: Ids
    now: Ids
    tokens: int


@dataclass
class _Client:
    row: ClientRow
    recent: deque[ClientPrompt] = field(default_factory=lambda: deque(maxlen=KEPT))


class ClientLedger:
    """The clients of each user since the model was loaded; in memory alone. One event loop calls all of it."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._clients: OrderedDict[tuple[int, str], _Client] = OrderedDict()

    async def departure(self, prepared: PreparedQuestion, answer: str, computed: int) -> Departure | None:
        """Of an answered prompt, of which so many tokens were computed; None for one of a session, or a private one. The
        client's next prompt is compared with it. Raises LoreError."""
        ask = prepared.ask
        if ask.private or ask.session is not None or prepared.session is not None:
            return None
        known = self._of(ask.principal.uid, ask.agent)
        now = prompt_of(ask.messages, answer, prepared.composed.assembled)
        before = nearest(known.recent, now)
        known.recent.append(now)
        found = departure_of(before, now, computed) if before is not None else None
        reported = await self._reported(found, prepared.composed.assembled.floor.tokens) if found is not None else None
        known.row = counted(known.row, reported)
        return reported

    async def _reported(self, found: FoundDeparture, floor: int) -> Departure:
        token = floor + found.at
        return Departure(
            why=in_words(found.moved),
            token=token,
            was=await self._engine.decode(found.was),
            now=await self._engine.decode(found.now),
            tokens=found.tokens,
            seconds=prompt_s(self._engine.snapshot.counters, token, token + found.tokens),
        )

    def rows(self, uid: int) -> tuple[ClientRow, ...]:
        """This user's, those that lost most first."""
        own = [one.row for (owner, _), one in self._clients.items() if owner == uid]
        return tuple(sorted(own, key=lambda row: (-row.seconds, -row.tokens, row.client)))

    def _of(self, uid: int, client: str) -> _Client:
        key = (uid, client)
        if key not in self._clients:
            self._clients[key] = _Client(ClientRow(client=client or UNNAMED))
        self._clients.move_to_end(key)
        while len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return self._clients[key]


def counted(row: ClientRow, found: Departure | None) -> ClientRow:
    """With one more prompt."""
    if found is None:
        return row.model_copy(update={"prompts": row.prompts + 1})
    return ClientRow(
        client=row.client,
        prompts=row.prompts + 1,
        departures=row.departures + 1,
        tokens=row.tokens + found.tokens,
        seconds=round(row.seconds + (found.seconds or 0.0), 3),
        last=found,
    )


def prompt_of(messages: Sequence[Message], answer: str, assembled: Assembled) -> ClientPrompt:
    """`answer`: '' where it was none in words."""
    words = [(one.role, one.content) for one in messages]
    said = [("assistant", answer)] if answer else []
    return ClientPrompt((*words, *said), assembled.floor.name, assembled.tail)


# -- the comparison


def nearest(recent: Sequence[ClientPrompt], now: ClientPrompt) -> ClientPrompt | None:
    """Of those on the same floor the one that shares most messages, of equal ones the last; None where none shares any."""
    shared = [(sum((Counter(one.words) & Counter(now.words)).values()), place) for place, one in enumerate(recent)]
    candidates = [(count, place) for count, place in shared if recent[place].floor == now.floor]
    candidates = [(count, place) for count, place in candidates if count or _same_kind(recent[place], now)]
    return recent[max(candidates)[1]] if candidates else None


def _same_kind(before: ClientPrompt, now: ClientPrompt) -> bool:
    """Whether only their system messages can be the same: a program that asks one question at a time."""
    return before.words[0][0] == now.words[0][0] == "system"


def departure_of(before: ClientPrompt, now: ClientPrompt, computed: int) -> FoundDeparture | None:
    moved = moved_in(before.words, now.words)
    if moved is None:
        return None
    at = same_beginning(before.tail, now.tail, ID_BYTES)
    characters = sum(len(text) for _, text in now.words) or 1
    same = round(len(now.tail) // ID_BYTES * moved.same / characters)  # a message has no seams of its own in the ids
    tokens = min(same, computed, len(now.tail) // ID_BYTES - at)
    return FoundDeparture(moved, at, around(before.tail, at), around(now.tail, at), tokens) if tokens > 0 else None


def moved_in(before: Sequence[Words], now: Sequence[Words]) -> Moved | None:
    """The first message of the earlier request that the new one has not in its place; None where it goes on from it, asks
    it again, or has hardly anything in common behind the place."""
    place = next((at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), None)
    if place is None:
        return None
    old, new = before[place], now[place]
    behind, same = Counter(before[place + 1 :]), 0
    for words in now[place + 1 :]:
        if behind[words] > 0:
            behind[words] -= 1
            same += len(words[1])
    if old in now[place + 1 :]:
        how, same = "behind a new message", same + len(old[1])
    elif new in before[place + 1 :]:
        how, same = "gone", same + len(new[1])
    else:
        how, same = "changed", same + (_same_end(old[1], new[1]) if old[0] == new[0] else 0)
    return Moved(place + 1, old[0], how, same) if same >= LEAST_SHARED else None


def _same_end(old: str, new: str) -> int:
    """Characters that both end in, without those that both begin with."""
    begin = same_beginning(old, new)
    return same_beginning(old[begin:][::-1], new[begin:][::-1])


def around(ids: Ids, at: int) -> Ids:
    """The token at a place with those around it."""
    return ids[max(0, at - AROUND_TOKENS) * ID_BYTES : (at + AROUND_TOKENS) * ID_BYTES]


def in_words(moved: Moved) -> str:
    return f"message {moved.number} ({moved.role}) is {moved.how}"
