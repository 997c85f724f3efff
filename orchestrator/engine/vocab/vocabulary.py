"""The vocabulary of a loaded model: what crosses between text and ids.

Content is never control. It is cut inside every reserved text, tokenised with special tokens off, and the ids are checked
afterwards. Only `template` makes control tokens. It knows no blocks, caches nothing but the pieces of single tokens,
and may be used from one thread while another one decodes.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from orchestrator.engine.vocab.fast import fast_encoder, sample
from orchestrator.engine.vocab.native import NativeTokenizer, Table, TokenKind, read_table


class Vocabulary:
    """Made from a `llama_model` pointer, which must outlive it; `vocab_only` models will do.

    `fingerprint`: what cached ids depend on, nothing else. `fast`: whether tiktoken was proven to agree on this vocabulary.
    `add_bos`: whether a prompt begins with the token `bos`; nothing here adds it.
    """

    def __init__(self, model: Any) -> None:
        table = read_table(model)
        self.add_bos, self.bos = table.add_bos, table.bos
        self._native = NativeTokenizer(model, table)
        self._forbidden = np.zeros(len(table.texts), bool)
        self._forbidden[table.of(TokenKind.CONTROL)] = True
        reserved = set(reserved_texts(table))
        self._reserved = TextFinder(reserved)
        self._defined = TextFinder({table.texts[n] for n in table.of(TokenKind.USER_DEFINED)} - reserved)
        self._fast = fast_encoder(table, self._slow)
        self.fast = self._fast is not None
        self.fingerprint = self._fingerprint(table)

    def content(self, text: str) -> "array[int]":
        """Ids of a text that nobody vouches for. No id is a control token's; `text` of them gives the text back."""
        text = well_formed(text)
        parts = cut(text, self._reserved)
        ids = self._ordinary(parts[0]) if parts else array("I")
        for part in parts[1:]:
            ids.extend(self._ordinary(part))
        return ids

    def content_many(self, texts: Iterable[str]) -> "list[array[int]]":
        """`content` of each."""
        return [self.content(text) for text in texts]

    def template(self, text: str) -> "array[int]":
        """Ids of the template's own text: texts of control tokens become control tokens."""
        return self._native.encode(well_formed(text), special=True)

    def text(self, ids: Sequence[int]) -> bytes:
        """What ids stand for, control tokens as nothing. Bytes, because a token may end inside a character."""
        return b"".join(map(self._native.piece, ids))

    def _ordinary(self, text: str) -> "array[int]":
        """Ids of a text without reserved texts in it."""
        fast = self._fast is not None and not self._defined.within(text)
        ids = self._fast(text) if fast and self._fast is not None else self._slow(text)
        return ids if not self._has_control(ids) else self._halved(text)

    def _halved(self, text: str) -> "array[int]":
        """A vocabulary whose merges make a control token out of plain text gets it in smaller parts.

        One whose word for an unknown character is a control token (BERT's) loses that character.
        """
        if len(text) == 1:
            return array("I")
        middle = len(text) // 2
        return self._ordinary(text[:middle]) + self._ordinary(text[middle:])

    def _slow(self, text: str) -> "array[int]":
        return self._native.encode(text, special=False)

    def _has_control(self, ids: "array[int]") -> bool:
        return bool(self._forbidden[np.frombuffer(ids, np.uint32)].any()) if ids else False

    def _fingerprint(self, table: Table) -> str:
        """Tokens, kinds and names; the ids of a sample stand for the merges, which llama.cpp does not hand out."""
        digest = table.digest()
        digest.update(self.content(sample()).tobytes())
        return digest.hexdigest()


def well_formed(text: str) -> str:
    """Lone surrogates, which file names may carry and UTF-8 cannot, become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# -- reserved texts

HEAD = 3  # characters that texts are first looked for by; `<|` alone is frequent in code


class TextFinder:
    """Where any of many texts begins in another one. Built once; looking costs little where nothing is found."""

    def __init__(self, texts: Iterable[str]) -> None:
        by_head: dict[str, list[str]] = {}
        for text in texts:
            by_head.setdefault(text[:HEAD], []).append(text)
        self._by_head = {head: tuple(found) for head, found in by_head.items()}

    def starts(self, text: str) -> list[int]:
        """Sorted; overlapping ones too."""
        found: set[int] = set()
        for head, texts in self._by_head.items():
            at = text.find(head)
            while at >= 0:
                if text.startswith(texts, at):
                    found.add(at)
                at = text.find(head, at + 1)
        return sorted(found)

    def within(self, text: str) -> bool:
        return any(head in text for head in self._by_head) and bool(self.starts(text))


def reserved_texts(table: Table) -> list[str]:
    """Texts that content must never become whole.

    Those of control tokens; of unknown, unused and byte tokens, which would come back as another text; and of user-defined
    ones that the template uses or that look like `<…>` or `[…]`. Switching special tokens off is not enough: llama.cpp
    skips CONTROL and UNKNOWN then, but always matches USER_DEFINED, and SentencePiece merges may walk to any token whose
    text stands there.
    """
    never = TokenKind.CONTROL | TokenKind.UNKNOWN | TokenKind.UNUSED | TokenKind.BYTE
    return [
        text
        for text, kinds in zip(table.texts, table.kinds, strict=True)
        if len(text) > 1 and (kinds & never or (kinds & TokenKind.USER_DEFINED and speaks_to_the_template(text, table)))
    ]


def speaks_to_the_template(text: str, table: Table) -> bool:
    return looks_reserved(text) or bool(text.strip() and text in table.template)


def looks_reserved(text: str) -> bool:
    return len(text) > 2 and (text[0] + text[-1]) in ("<>", "[]")


def cut(text: str, finder: TextFinder) -> list[str]:
    """The parts of a text, cut behind the first character of every reserved text in it. Joined they are the text."""
    edges = [0, *(start + 1 for start in finder.starts(text)), len(text)]
    return [text[left:right] for left, right in pairwise(edges) if left < right]
