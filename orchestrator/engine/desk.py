"""The child's second thread: it tokenises and reads, beside a running step, and hands everything else to the loop.

It never touches the loop's state: questions about the cache are answered from the picture that the loop published last.
"""

from array import array
from collections.abc import Callable

from orchestrator.engine.backend import Backend
from orchestrator.engine.messages import (
    Decode,
    Decoded,
    Encode,
    Encoded,
    Match,
    Matched,
    PutFloor,
    Reuse,
    Tier,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.shadow import Shadows, matched
from orchestrator.engine.transport import Wire


class Desk:
    """`shadows` returns the latest picture; `forward` puts a message into the loop's inbox."""

    def __init__(
        self, backend: Backend, wire: Wire, shadows: Callable[[], Shadows], forward: Callable[[object], None]
    ) -> None:
        self._backend = backend
        self._wire = wire
        self._shadows = shadows
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
            return Decoded(message.call, text)
        if isinstance(message, Match):
            return self._match(message, self._shadows())
        if isinstance(message, PutFloor):
            floor = array("I")
            floor.frombytes(message.ids)
            self._floors[message.name] = floor
            self._pools[message.name] = message.pool or message.name
        return None

    def _match(self, message: Match, shadows: Shadows) -> Matched:
        ids = array("I", self._floors.get(message.floor, array("I")))
        ids.frombytes(message.tail)
        shape = shadows.get(self._pools.get(message.floor, ""))
        length = matched(shape, ids, message.owner) if shape is not None else 0
        reuse = (Reuse(0, length, Tier.VRAM),) if length else ()
        return Matched(message.call, length, reuse)
