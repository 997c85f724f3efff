"""Text leaves an answer only as whole characters, never with a stop string in it; and how its tokens were chosen."""

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Chance:
    """A token, as bytes of text, and its natural log-probability by the model, before anything is cut off or drawn."""

    token: int
    text: bytes
    logprob: float


@dataclass(frozen=True)
class Chosen:
    """A token of an answer, and the likeliest ones in its place, likeliest first."""

    token: Chance
    likeliest: tuple[Chance, ...] = ()


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
    def settled(self) -> bool:
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


class ChosenBeside:
    """Holds what is told of tokens until their text is shown, so that nothing is told of a stop string's."""

    def __init__(self) -> None:
        self._waiting: deque[Chosen] = deque()
        self._shown = 0  # bytes of text shown that belong to tokens still waiting

    def push(self, chosen: Chosen) -> None:
        self._waiting.append(chosen)

    def shown(self, text: str, *, settled: bool) -> tuple[Chosen, ...]:
        """The tokens whose text begins within what has been shown; all of them once everything was."""
        self._shown += len(text.encode())
        out = []
        while self._waiting and (settled or self._shown > 0):
            out.append(self._waiting.popleft())
            self._shown -= len(out[-1].token.text)
        self._shown = 0 if settled else self._shown
        return tuple(out)


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that begins `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
