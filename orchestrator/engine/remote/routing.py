"""Which server computes what, how servers stand, and what was sent to each. Pure: times are handed in.

One codex under one identity stays on one server, so that its prefix is in that cache: rendezvous hashing, by which the
server's end moves its own keys alone, and its return brings them back.

    UP ──cannot be reached, other model──▶ DOWN ──answers as before──▶ UP
     └──/health says 503──▶ DRAINED ──200──▶ UP          nothing new is sent there; what runs goes on

A server that is down is looked at again after a pause that grows. Where none is up, the first one that is down is tried all
the same: who asks learns what is wrong now, and not what was. One that serves another model is never tried.

What was sent lately is a forecast of what a cache holds, and nothing is computed by it: what a server really had is in its
answer.
"""

import hashlib
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.engine.messages import ID_BYTES, Ids, same_beginning

LOOK_S = 10.0  # between two looks at a server that is up
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
KEPT = 64  # prompts a server


class Standing(StrEnum):
    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True)
class Stand:
    """`failures`: looks in a row that failed; the next is at `look_at`, in seconds of the caller's clock. `lasting`: asking
    it is no help, or would be wrong."""

    standing: Standing = Standing.UP
    reason: str = ""
    failures: int = 0
    look_at: float = 0.0
    lasting: bool = False

    def well(self, now: float) -> "Stand":
        return Stand(look_at=now + LOOK_S)

    def drained(self, now: float) -> "Stand":
        return Stand(Standing.DRAINED, "it takes nothing new (its /health answers 503)", 0, now + FIRST_PAUSE_S * 2)

    def failed(self, reason: str, now: float, *, lasting: bool = False) -> "Stand":
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures, 16))
        return Stand(Standing.DOWN, reason, self.failures + 1, now + pause, lasting)


def ranked(key: str, urls: Collection[str]) -> list[str]:
    """The servers by what they have to do with a key, the first one first."""
    return sorted(urls, key=lambda url: hashlib.sha256(f"{key}\0{url}".encode()).digest())


def chosen(key: str, stands: Mapping[str, Stand], tried: Collection[str] = ()) -> str | None:
    """The server for a key; None where there is none that was not tried."""
    left = [url for url in ranked(key, stands) if url not in tried and not stands[url].lasting]
    for standing in (Standing.UP, Standing.DOWN) if not tried else (Standing.UP,):
        found = next((url for url in left if stands[url].standing is standing), None)
        if found is not None:
            return found
    return None


class SentPrompts:
    """The last prompts of one server, the newest first."""

    def __init__(self) -> None:
        self._prompts: deque[Ids] = deque(maxlen=KEPT)

    def sent(self, prompt: Ids) -> None:
        """One that starts with a former one takes its place: a conversation keeps one."""
        if any(former.startswith(prompt) for former in self._prompts):
            return
        for former in tuple(self._prompts):
            if prompt.startswith(former):
                self._prompts.remove(former)
        self._prompts.appendleft(prompt)

    def longest(self, prompt: Ids) -> int:
        """Tokens that this prompt begins with as one of them did."""
        return max((same_beginning(prompt, former, ID_BYTES) for former in self._prompts), default=0)

    def forget(self) -> None:
        self._prompts.clear()
