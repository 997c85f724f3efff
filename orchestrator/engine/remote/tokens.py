"""Text and ids of a server's model: by the server itself, or by a vocabulary file.

Content is never control, here as in `engine.vocab`. Servers other than llama-server turn the text of every control token
into that token, and none tells which tokens those are. So content is cut inside every text that looks like one, and inside
those that the chat template writes: a text that is cut makes no token. A vocabulary file knows them all.
"""

import asyncio
import hashlib
import os
import re
from array import array
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from orchestrator.engine.remote.replies import ServerFault
from orchestrator.engine.remote.requests import MARK_TEXTS, MARKS

AT_ONCE = 8  # texts that a server is asked to tokenise at a time
# Where a text is spelled as control tokens of the models in use are: <|im_end|>, <｜User｜>, </s>, <end_of_turn>, [INST].
RESERVED = re.compile(
    r"(?=<[|｜][^<>\n]{1,64}[|｜]>|</?(?:s|bos|eos|pad|unk|mask|think|tool_call|tool_response|tools|[a-z]+_of_[a-z]+)>"
    r"|\[/?[A-Z][A-Z_]{1,30}\]|<unused\d+>|<0x[0-9A-F]{2}>)"
)
WRITTEN = re.compile(r"<[^<>\s'\"%{}]{1,64}>|\[/?[A-Z][A-Z_]{1,30}\]")  # in a chat template
MARK = re.compile("(" + "|".join(map(re.escape, MARK_TEXTS)) + ")")
# What SentencePiece puts its leading space before, in place of our text's.
STARTERS = ("\n", "\x01")
SAMPLE = 'def main() -> None:\n    print(f"{héllo!r}: {0x1F} 日本")  # <|im_end|>\n\tΔ += 3.14e-9\r\n'

Ask = Callable[[str, bool], Awaitable[list[int]]]  # ids of a text; whether control tokens in it are meant


class ModelTokens(Protocol):
    """`name`: equal names give equal ids. `ids`: content, or with `control` the template's own text. Raise ServerFault."""

    name: str
    adds_bos: bool

    async def ids(self, text: str, *, control: bool) -> "array[int]": ...

    async def text(self, ids: Sequence[int]) -> str: ...


class ServerTokens:
    """As the server has them. `tell` is its /detokenize; None where it has none."""

    def __init__(
        self, name: str, ask: Ask, tell: Callable[[Sequence[int]], Awaitable[str]] | None, template: str
    ) -> None:
        self.name = name
        self.adds_bos = False
        self._ask = ask
        self._tell = tell
        self._written = sorted(set(WRITTEN.findall(template)), key=len, reverse=True)
        self._starter: tuple[str, list[int]] = ("", [])
        self._few = asyncio.Semaphore(AT_ONCE)

    async def begin(self) -> None:
        """Learns whether the server puts a space before a text, and what its ids are called."""
        alone = await self._ask("a", False)
        for starter in STARTERS:
            before, both = await self._ask(starter, False), await self._ask(f"{starter}a", False)
            if both[: len(before)] == before and both != before:
                if both[len(before) :] != alone:
                    self._starter = (starter, before)
                break
        ids = [*await self.ids(SAMPLE, control=False), *await self.ids(SAMPLE, control=True)]
        self.name = f"{self.name}-{hashlib.sha256(repr((self._written, ids)).encode()).hexdigest()[:16]}"

    async def ids(self, text: str, *, control: bool) -> "array[int]":
        found = array("I")
        for part in [text] if control else cut(text, self._written):
            if part:
                async with self._few:
                    found.extend(await self._behind_starter(part, control=control))
        return found

    async def text(self, ids: Sequence[int]) -> str:
        assert self._tell is not None
        return await self._tell(ids) if ids else ""

    async def _behind_starter(self, text: str, *, control: bool) -> list[int]:
        starter, known = self._starter
        ids = await self._ask(starter + text, control)
        return ids[len(known) :] if ids[: len(known)] == known else await self._ask(text, control)


def cut(text: str, written: Sequence[str]) -> list[str]:
    """The parts of a text, cut behind the first character of every reserved text in it. Joined they are the text."""
    starts = {one.start() + 1 for one in RESERVED.finditer(text)}
    for mark in written:
        at = text.find(mark)
        while at >= 0:
            starts.add(at + 1)
            at = text.find(mark, at + 1)
    edges = [0, *sorted(starts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


class VocabularyTokens:
    """Of a GGUF file, with its chat template. Reads its vocabulary and no weights; takes a second or two to begin. Raises
    ServerFault."""

    def __init__(self, path: Path) -> None:
        import llama_cpp as lib  # which a server that tokenises needs not

        from orchestrator.engine.llama import native
        from orchestrator.engine.llama.model_files import chat_template, token_text
        from orchestrator.engine.vocab import Vocabulary

        native.start()
        parameters = lib.llama_model_default_params()
        parameters.vocab_only = True
        model = lib.llama_model_load_from_file(os.fsencode(path), parameters)
        if not model:
            raise ServerFault(f"tells no tokens, and {path} has no vocabulary: {native.last_error()}", lasting=True)
        known = lib.llama_model_get_vocab(model)
        self._vocabulary = Vocabulary(model)
        self.name = self._vocabulary.fingerprint
        self.template = chat_template(model)
        self.bos = token_text(known, lib.llama_vocab_bos(known))
        self.eos = token_text(known, lib.llama_vocab_eos(known))
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(known))

    async def ids(self, text: str, *, control: bool) -> "array[int]":
        made = self._vocabulary.template if control else self._vocabulary.content
        return await asyncio.to_thread(made, text)

    async def text(self, ids: Sequence[int]) -> str:
        return self._vocabulary.text(ids).decode("utf-8", "replace")


class MarkedTokens:
    """Of prompts that go as messages: a role's mark is an id of ours, all else is content."""

    def __init__(self, inner: ModelTokens) -> None:
        self._inner = inner
        self.name = f"{inner.name}-messages"
        self.adds_bos = False

    async def ids(self, text: str, *, control: bool) -> "array[int]":
        if not control:
            return await self._inner.ids(text, control=False)
        found = array("I")
        for part in MARK.split(text):
            found.extend([MARK_TEXTS[part]] if part in MARK_TEXTS else await self._inner.ids(part, control=False))
        return found

    async def text(self, ids: Sequence[int]) -> str:
        return await self._inner.text([one for one in ids if one < MARKS])


def token_ids(reply: Any) -> list[int] | None:
    """Of a reply of any /tokenize; None where it has none."""
    found = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one < MARKS for one in found):
        return None
    return found
