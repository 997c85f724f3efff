"""Messages to the daemon, a few together.

Every message wakes the daemon, and on a CPU it wakes on a core that computes the next step: of a model that needs 5 ms a
token, one message a token cost a twentieth of the speed. So tokens that follow others wait for at most one frame of a
screen, and those of one answer are joined. A first token and every other message are sent at once.
"""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.engine.messages import AnswerDelta, Completion, FromChild

FRAME_SECONDS = 1 / 60

Post = Callable[[list[FromChild]], None]


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
