"""Token ids of texts, computed once per tokenizer and text, and kept in a file that may be deleted at any time.

    (tokenizer's name, sha256 of the text) ─▶ ids as uint32 in the machine's order, and their number

SQLite does not detect a flipped bit inside a value, and wrong ids are a wrong prompt. Therefore ids and number each have a
checksum (CRC-32, over the key as well), and a text whose checksum does not fit is tokenised again.

The tokenizer is a port: the codex knows no model. Its name is a fingerprint of everything that its ids depend on.
"""

import hashlib
import logging
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Protocol

from codex.catalog.databases import Cache, pages

log = logging.getLogger("lorekeep.codex")
SCHEMA = (
    """
    CREATE TABLE tokens (number INTEGER PRIMARY KEY, tokenizer TEXT NOT NULL, text TEXT NOT NULL, count INTEGER NOT NULL,
        count_check INTEGER NOT NULL, ids BLOB NOT NULL, ids_check INTEGER NOT NULL, UNIQUE (tokenizer, text))
    """,
)
_PAGE = 256  # keys in one query; texts tokenised and stored at once
_PAGE_CHARS = 1 << 20  # of them: who tokenises for a load also tokenises for questions, which wait for a page
assert array("I").itemsize == 4, "token ids are stored as uint32"


class Tokenizer(Protocol):
    """Turns text into token ids. Pure: equal names and texts give equal ids. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """A fingerprint of vocabulary, rules and settings."""

    def encode_many(self, texts: Sequence[str]) -> Sequence["array[int]"]:
        """Ids of each text, as array('I'), in the order given."""


class TokenStore:
    """The cache in one file. A damaged file is replaced by an empty one, also when the damage shows at a later page.

    Where the disk refuses, texts are tokenised each time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = Cache(path, SCHEMA, "texts are tokenised anew")

    def close(self) -> None:
        self._file.close()

    def ids(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list["array[int]"]:
        """Ids of each text, in order; a text that is not cached is tokenised, once, and cached."""
        found = {}
        for page in pages(dict.fromkeys(texts), len, _PAGE, _PAGE_CHARS):
            found.update(self._page_of_ids(tokenizer, page))
        return [found[text] for text in texts]

    def counts(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, in order; like `ids`, but without reading ids that are there."""
        found: dict[str, int] = {}
        for page in pages(dict.fromkeys(texts), len, _PAGE, _PAGE_CHARS):
            found |= self._page_of_counts(tokenizer, page)
        return [found[text] for text in texts]

    def bytes(self) -> int:
        """Bytes of all ids in the store."""
        query = "SELECT coalesce(sum(length(ids)), 0) FROM tokens"
        return sum(int(row[0]) for row in self._file.read(query))

    def trim(self, limit_bytes: int) -> int:
        """Drop the oldest entries until at most `limit_bytes` of ids are left; returns how many were dropped."""

        def drop(database: Connection) -> int:
            return database.execute(
                "DELETE FROM tokens WHERE number IN (SELECT number FROM (SELECT number, sum(length(ids)) OVER "
                "(ORDER BY number DESC) AS newer FROM tokens) WHERE newer > ?)",
                (limit_bytes,),
            ).rowcount

        return self._file.write(drop) or 0

    def _page_of_ids(self, tokenizer: Tokenizer, page: Sequence[str]) -> dict[str, "array[int]"]:
        cached = {text: _unpack(body) for text, body in self._fetch("ids", tokenizer.name, page).items()}
        return cached | self._tokenise(tokenizer, [text for text in page if text not in cached])

    def _page_of_counts(self, tokenizer: Tokenizer, page: Sequence[str]) -> dict[str, int]:
        cached: dict[str, int] = self._fetch("count", tokenizer.name, page)
        fresh = self._tokenise(tokenizer, [text for text in page if text not in cached])
        return cached | {text: len(ids) for text, ids in fresh.items()}

    def _fetch(self, column: str, tokenizer: str, page: Sequence[str]) -> dict[str, Any]:
        """What a column, `ids` or `count`, has of those texts that are there undamaged."""
        by_key = {_key(text): text for text in page}
        marks = ",".join("?" * len(by_key))
        query = f"SELECT text, {column}, {column}_check FROM tokens WHERE tokenizer = ? AND text IN ({marks})"  # noqa: S608
        rows = self._file.read(query, tokenizer, *by_key)
        whole = {by_key[key]: value for key, value, check in rows if _check(tokenizer, key, value) == check}
        if len(whole) < len(rows):
            log.warning("%d entries of %s were damaged: tokenised anew", len(rows) - len(whole), self._path)
        return whole

    def _tokenise(self, tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, "array[int]"]:
        if not texts:
            return {}
        fresh = dict(zip(texts, tokenizer.encode_many(texts), strict=True))
        rows = [_row(tokenizer.name, text, ids) for text, ids in fresh.items()]
        self._file.write(
            lambda database: database.executemany(
                "INSERT OR REPLACE INTO tokens (tokenizer, text, count, count_check, ids, ids_check) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
        )
        return fresh


def _row(tokenizer: str, text: str, ids: "array[int]") -> tuple[object, ...]:
    key, count, body = _key(text), len(ids), ids.tobytes()
    return tokenizer, key, count, _check(tokenizer, key, count), body, _check(tokenizer, key, body)


def _check(tokenizer: str, key: str, value: object) -> int:
    """CRC-32 of a value under its key. What a damaged file gives for a value may be of any type."""
    body = value if isinstance(value, bytes) else repr(value).encode()
    return zlib.crc32(body, zlib.crc32(f"{tokenizer}\n{key}".encode()))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _unpack(body: bytes) -> "array[int]":
    ids = array("I")
    ids.frombytes(body)
    return ids
