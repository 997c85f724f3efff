"""Text leaves an answer only as whole characters, and never with a stop string in it."""

import codecs
from collections.abc import Sequence


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
