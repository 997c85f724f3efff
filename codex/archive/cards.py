"""Cards: all that a search shows or ranks by of a chunk, in one column; of hundred rows nine columns take twice as long.

    checksum (CRC-32, eight hex digits) · JSON [path, start, end, symbol, kind, signature, names, references]

Neither LanceDB nor JSON sees that a letter has become another one: the checksum does. A text is checked by its digest.
"""

import hashlib
import json
import zlib
from typing import Any

from codex.archive.archive import ChunkMatch
from codex.archive.definitions import ChunkPlace
from codex.archive.prepare import PreparedChunk

_CHECK = 8


def card_of(one: PreparedChunk) -> str:
    """The card of a chunk that is to be stored."""
    chunk = one.chunk
    said = json.dumps(
        [*(chunk.path, chunk.start, chunk.end, chunk.symbol, chunk.kind, chunk.signature), chunk.names, one.references],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return _check(said) + said


def match_of(card: str, score: float = 0.0) -> ChunkMatch:
    """What was stored. Raises ValueError for a card that is not as it was."""
    path, start, end, symbol, kind, signature, names, references = _said(card)
    return ChunkMatch(ChunkPlace(path, start, end), symbol, kind, signature, tuple(names), tuple(references), score)


def place_of(card: str) -> ChunkPlace:
    """Only where the chunk stands. Raises ValueError like `match_of`."""
    return ChunkPlace(*_said(card)[:3])


def checked(place: ChunkPlace, text: str, digest: str) -> str:
    """The text, when it is the one that was stored. Raises ValueError."""
    if hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest() != digest:
        raise ValueError(f"the text of {place.path}:{place.start}-{place.end} is not what was stored")
    return text


def _said(card: str) -> Any:
    if card[:_CHECK] != _check(card[_CHECK:]):
        raise ValueError(f"a card is not what was stored: {card[:80]!r}")
    return json.loads(card[_CHECK:])


def _check(said: str) -> str:
    return f"{zlib.crc32(said.encode('utf-8', errors='replace')):08x}"
