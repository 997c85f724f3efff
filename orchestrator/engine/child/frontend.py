"""The child's second thread: it tokenises and reads, beside a running step, and hands everything else to the loop.

It never touches the loop's state.
"""

from collections.abc import Callable

from orchestrator.engine.backend import Backend
from orchestrator.engine.messages import (
    Decode,
    DecodedText,
    Encode,
    Encoded,
    InferenceJob,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.transport import Wire


class Frontend:
    """`forward` puts a message into the loop's inbox."""

    def __init__(self, backend: Backend, wire: Wire, forward: Callable[[object], None]) -> None:
        self._backend = backend
        self._wire = wire
        self._forward = forward

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
        if isinstance(message, InferenceJob):
            self._backend.study(message.sampling)
        return None
