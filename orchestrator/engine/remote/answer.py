"""One answer of a server, as its events come: what is passed on at once, and what became of it at the end."""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.engine.calling import THOUGHT
from orchestrator.engine.messages import (
    AnswerDelta,
    Completion,
    InferenceJob,
    Outcome,
    PrefillProgress,
    Reason,
    TicketTimings,
)
from orchestrator.engine.remote.fleet import Served
from orchestrator.engine.remote.replies import ServerFault, StreamEvent, TokenUsage, cached_of, doubts_of
from orchestrator.engine.remote.requests import PromptWay


class RemoteAnswer:
    """Of one try of one server. `notes`: what must be said with it; `begun`: whether some of its text was passed on."""

    def __init__(self, send: Callable[[Sequence[Any]], None], job: InferenceJob, served: Served, began: float) -> None:
        self.job = job
        self.notes: list[str] = []
        self.begun = False
        self._send = send
        self._served = served
        self._began = began
        self._first = 0.0
        self._said: list[str] = []
        self._pieces = 0
        self._thinks = False
        self._finish = ""
        self._usage: TokenUsage | None = None

    def take(self, event: StreamEvent) -> bool:
        """False where the server goes on beyond what it was asked for: the rest is not read."""
        self._finish = event.finish or self._finish
        self._usage = merged(self._usage, event.usage)
        if event.total:
            self._send([PrefillProgress(self.job.ticket, event.done, event.total)])
        if text := self._worded(event):
            if self._pieces >= (most := max(1, self.job.max_tokens)):  # a piece has a token or more
                self._finish = "length"
                self.notes.append(f"the server went on beyond {most:,} tokens, and was not read further")
                return False
            self._first = self._first or time.monotonic()
            self._pieces += 1
            if self.job.max_tokens:
                self.begun = True
                self._said.append(text)
                self._send([AnswerDelta(self.job.ticket, text, b"")])
        return True

    async def completion(self, prompt: int) -> Completion:
        """Sends the ids of the whole text before it: a later prompt has them in its place. Without them its text is
        tokenised again."""
        text, now = "".join(self._said), time.monotonic()
        if text:
            try:
                self._send([AnswerDelta(self.job.ticket, "", (await self._ids(text)).tobytes())])
            except ServerFault as fault:  # the answer was said
                self.notes.append(f"the answer's tokens are not known: {fault}")
        way, usage, kind = self._served.way, self._usage, self._served.model.kind
        doubts = doubts_of(usage, prompt if way is PromptWay.IDS else None, kind)
        cached = cached_of(usage, prompt)
        generated = self._generated()
        first, total = (self._first or now) - self._began, now - self._began
        speed = max(0, generated - 1) / (total - first) if total > first else 0.0
        ended = Reason.LENGTH if self._finish == "length" else Reason.STOP
        return Completion(
            self.job.ticket,
            Outcome.DONE,
            ended if self.job.max_tokens else Reason.PREFILLED,
            "; ".join(filter(None, (*self.notes, doubts))),
            prompt,
            cached,
            prompt - cached,
            generated,
            timings=TicketTimings(0.0, 1000 * first, 1000 * total, speed),
        )

    def _generated(self) -> int:
        """Tokens as the server counted them; the pieces that came where it did not, or counted more than it may."""
        most, told = self.job.max_tokens, self._usage.generated if self._usage is not None else None
        if most and told is not None and told > most:
            self.notes.append(f"the server says that it generated {told:,} tokens of at most {most:,}, which cannot be")
            told = None
        return min(most, self._pieces if told is None else told)

    def _worded(self, event: StreamEvent) -> str:
        """Its text; a thought that the server has set apart goes back between its marks."""
        opens, thinks = event.thought and not self._thinks, bool(event.thought) or self._thinks
        closes = thinks and event.text  # the end of a thought and the first text may be one event
        self._thinks = thinks and not event.text
        begin, end = THOUGHT[0] if opens else "", THOUGHT[1] if closes else ""
        return f"{begin}{event.thought}{end}{event.text}"

    async def _ids(self, text: str) -> "array[int]":
        """With the control tokens that calls are written with; all else is content."""
        tokens, calls = self._served.tokens, self.job.sampling.calls
        if calls is None or calls.form.trigger not in text:
            return await tokens.ids(text, control=False)
        found = array("I")
        marks = {mark.strip() for mark in (calls.form.trigger, calls.form.close) if mark.strip()}
        for part, is_mark in split(text, marks):
            found.extend(await tokens.ids(part, control=is_mark))
        return found


def split(text: str, marks: set[str]) -> Iterator[tuple[str, bool]]:
    """The text in parts, and whether each is one of the marks."""
    while text:
        at, mark = min(((text.find(one), one) for one in marks if one in text), default=(len(text), ""))
        if at:
            yield text[:at], False
        if mark:
            yield mark, True
        text = text[at + len(mark) :]


def merged(before: TokenUsage | None, now: TokenUsage | None) -> TokenUsage | None:
    """What a later event says, and of what it does not say what an earlier one did."""
    if before is None or now is None:
        return now or before
    told = {name: value for name, value in vars(now).items() if value is not None}
    return replace(before, **told)
