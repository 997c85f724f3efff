"""What a model's text says to whom: the answer, thoughts that stand apart, and tool calls that no person should see.

    <think>…</think>                                        a thought, where nothing was said before it
    <tool_call>{"name": "…", "arguments": {…}}</tool_call>   a call; nothing behind it belongs to this answer
    anything else                                           the answer

Text comes in pieces of any length, so what may be the beginning of a tag is held back until it is decided. A call that
was begun and never ended, or that is not JSON of that form, was no call: it is said as text. Models think before they
speak: the tag in the middle of an answer is quoted from somewhere. Knows no tokens.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

CALL = ("<tool_call>", "</tool_call>")  # as formatters.writers tells the model
THOUGHT = ("<think>", "</think>")


@dataclass(frozen=True)
class ParsedText:
    text: str


@dataclass(frozen=True)
class ParsedThought:
    text: str


@dataclass(frozen=True)
class ParsedCall:
    """A whole call. `raw` is its text with the tags, for the record of the running turn."""

    name: str
    arguments: Mapping[str, Any]
    raw: str


ParsedPart = ParsedText | ParsedThought | ParsedCall


class _Inside(Enum):
    ANSWER = auto()
    THOUGHT = auto()
    CALL = auto()


class AnswerParser:
    """Feed pieces, take parts. After a `Called` the parser is `done` and takes nothing more.

    thinking: the template opened a thought at the end of the prompt. calls: whether the model was told of tools.
    beyond:   characters behind the call, which were dropped.
    """

    def __init__(self, *, thinking: bool = False, calls: bool = True, thoughts: bool = True) -> None:
        self._inside = _Inside.THOUGHT if thinking else _Inside.ANSWER
        self._calls = [CALL[0]] if calls else []
        self._thoughts = thoughts
        self._held = ""
        self.done = False
        self.beyond = 0

    def feed(self, piece: str) -> Iterator[ParsedPart]:
        """Parts that are certain now."""
        if self.done:
            return
        self._held += piece
        while not self.done:
            part, more = self._next()
            if part is not None:
                yield part
            if not more:
                return

    def end(self) -> Iterator[ParsedPart]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        if held and not self.done:
            yield ParsedThought(held) if self._inside is _Inside.THOUGHT else ParsedText(held)
        self.done = True

    def _next(self) -> tuple[ParsedPart | None, bool]:
        """The next part, and whether what is held may give another."""
        if self._inside is _Inside.CALL:
            return self._call()
        tags = self._tags()
        at, tag = _first(self._held, tags)
        if tag:
            before, self._held = self._held[:at], self._held[at + len(tag) :]
            part = self._part(before)
            self._enter(tag)
            return part, True
        certain = len(self._held) - _beginning(self._held, tags)
        before, self._held = self._held[:certain], self._held[certain:]
        return self._part(before), False

    def _tags(self) -> list[str]:
        """What would end the part that is being read."""
        if self._inside is _Inside.THOUGHT:
            return [THOUGHT[1]]
        ahead = self._held.lstrip()
        thinks = self._thoughts and (ahead.startswith(THOUGHT[0]) or THOUGHT[0].startswith(ahead))
        return [*self._calls, THOUGHT[0]] if thinks else self._calls

    def _call(self) -> tuple[ParsedPart | None, bool]:
        end = self._held.find(CALL[1])
        if end < 0:
            return None, False
        body, rest = self._held[len(CALL[0]) : end], self._held[end + len(CALL[1]) :]
        raw = CALL[0] + body + CALL[1]
        self._inside, self._held = _Inside.ANSWER, rest
        called = _called(body, raw)
        if called is None:
            return ParsedText(raw), True
        self._held, self.done, self.beyond = "", True, len(rest)
        return called, False

    def _enter(self, tag: str) -> None:
        if tag == CALL[0]:
            self._inside, self._held = _Inside.CALL, tag + self._held
        else:
            self._inside = _Inside.THOUGHT if tag == THOUGHT[0] else _Inside.ANSWER

    def _part(self, text: str) -> ParsedPart | None:
        if not text:
            return None
        if self._inside is _Inside.THOUGHT:
            return ParsedThought(text)
        self._thoughts = self._thoughts and not text.strip()
        return ParsedText(text)


def _called(body: str, raw: str) -> ParsedCall | None:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    arguments = said.get("arguments", {})
    return ParsedCall(said["name"], arguments, raw) if isinstance(arguments, dict) else None


def _first(text: str, tags: list[str]) -> tuple[int, str]:
    found = [(at, tag) for tag in tags if (at := text.find(tag)) >= 0]
    return min(found, default=(-1, ""))


def _beginning(text: str, tags: list[str]) -> int:
    """How many characters at the text's end may be the beginning of a tag."""
    longest = min(len(text), max((len(tag) for tag in tags), default=1) - 1)
    for size in range(longest, 0, -1):
        if any(tag.startswith(text[-size:]) for tag in tags):
            return size
    return 0
