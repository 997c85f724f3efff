"""Finds the texts of reserved tokens in content, and cuts inside them, so that no tokenizer sees one whole.

Switching special tokens off is not enough: llama.cpp skips CONTROL and UNKNOWN then, but always matches USER_DEFINED, and
SentencePiece merges may walk to any token whose text stands there.
"""

from collections.abc import Iterable
from itertools import pairwise

from orchestrator.engine.vocab.table import Table, TokenKind

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
    """Texts that content must never become whole: those of control tokens; of unknown, unused and byte tokens, which
    would come back as another text; and of user-defined ones that the template uses or that look like `<…>` or `[…]`."""
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
