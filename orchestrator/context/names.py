"""Names of segments: what a range of a prompt is called, so that equal tokens on equal ground have equal names.

    name = sha256(parent's name, ids as uint32)

Tokens are cut every 256 ids within a block and at block seams; cuts depend on ids and positions alone. The first parent is
a root's name (all that KV depends on, from the engine). Right of the floor the chain is salted with the owner's uid: one
user's tails are never another's. Knows no text and no engine.
"""

import hashlib
from dataclasses import dataclass

from orchestrator.engine.messages import Ids

CUT = 256
ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, end) of a prompt; `name` is 64 hex digits."""

    name: str
    start: int
    end: int


def chained(parent: str, blocks: tuple[Ids, ...], start: int = 0) -> tuple[Segment, ...]:
    """The segments of these blocks behind `parent`, the first token being at position `start`."""
    segments: list[Segment] = []
    for ids in blocks:
        for cut in range(0, len(ids), CUT * ID_BYTES):
            piece = memoryview(ids)[cut : cut + CUT * ID_BYTES]
            parent = _name(parent, piece)
            end = start + len(piece) // ID_BYTES
            segments.append(Segment(parent, start, end))
            start = end
    return tuple(segments)


def salted(parent: str, owner: int) -> str:
    """Where the chain of this owner's tails begins, right of the floor called `parent`."""
    return _name(parent, memoryview(f"owner {owner}".encode()))


def tip(parent: str, segments: tuple[Segment, ...]) -> str:
    return segments[-1].name if segments else parent


def _name(parent: str, data: memoryview) -> str:
    digest = hashlib.sha256(parent.encode())
    digest.update(data)
    return digest.hexdigest()
