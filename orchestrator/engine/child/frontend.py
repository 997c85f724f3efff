"""The child's second thread: it tokenises and reads, beside a running step, and hands everything else to the loop.

It never touches the loop's state: questions about the cache are answered from the picture that the loop published last.
"""

from array import array
from collections.abc import Callable

from orchestrator.engine.backend import Backend
from orchestrator.engine.cache.path import Path
from orchestrator.engine.child.cache_view import Picture
from orchestrator.engine.child.forecast import foretold
from orchestrator.engine.messages import (
    Decode,
    DecodedText,
    DropFloor,
    Encode,
    Encoded,
    InferenceJob,
    Matched,
    PrefixMatch,
    PutFloor,
)
from orchestrator.engine.token_ids import bytes_to_ids, ids_to_bytes
from orchestrator.engine.transport import Wire


class Frontend:
    """`picture` returns the latest one; `forward` puts a message into the loop's inbox."""

    def __init__(
        self, backend: Backend, wire: Wire, picture: Callable[[], Picture], forward: Callable[[object], None]
    ) -> None:
        self._backend = backend
        self._wire = wire
        self._picture = picture
        self._forward = forward
        self._floors: dict[str, array[int]] = {}
        self._pools: dict[str, str] = {}

    def serve(self) -> None:
        """Runs until the daemon closes its end."""
        for message in self._wire.receive():
            answer = self._answer(message)
            if answer is None:
                self._forward(message)
            else:
                self._wire.send([answer])

    def _answer(self, message: object) -> object | None:
        if isinstance(message, Encode):
            encoded = self._backend.encode(message.texts, control=message.control)
            return Encoded(message.call, tuple(ids_to_bytes(ids) for ids in encoded))
        if isinstance(message, Decode):
            text = self._backend.pieces(bytes_to_ids(message.ids)).decode("utf-8", "replace")
            return DecodedText(message.call, text)
        if isinstance(message, PrefixMatch):
            return self._match(message, self._picture())
        if isinstance(message, InferenceJob):
            self._backend.study(message.sampling)
        if isinstance(message, PutFloor):
            self._floors[message.name] = bytes_to_ids(message.ids)
            self._pools[message.name] = message.pool or message.name
        if isinstance(message, DropFloor):
            self._floors.pop(message.name, None)
            self._pools.pop(message.name, None)
        return None

    def _match(self, message: PrefixMatch, picture: Picture) -> Matched:
        floor = self._floors.get(message.floor, array("I"))
        path = Path(floor + bytes_to_ids(message.tail), len(floor), message.owner)
        reuse, length = foretold(picture, self._pools.get(message.floor, ""), path, message.max_tokens)
        return Matched(message.call, length, reuse)
