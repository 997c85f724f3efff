"""What was sent to a server lately: what its cache may hold, as far as we can know. Pure.

A forecast, and nothing is computed by it: what a server really had in its cache is in its answer.
"""

from collections import deque

from orchestrator.engine.messages import ID_BYTES, Ids, same_beginning

KEPT = 64  # prompts a server


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
