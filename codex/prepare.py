"""What an archive stores of a document: its chunks with the words they are found by.

The words of a chunk are those of its text, with what names it (symbol, definitions, path) counted again: one field with
weights in it, so that one BM25 over it is a BM25 over weighted fields. The same for the file as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from codex.chunking import CHUNKING_VERSION, Chunk, ChunkSettings, chunk
from codex.documents import Document
from codex.identifiers import words
from codex.symbols import OUTLINE_VERSION

PREPARE_VERSION = f"{OUTLINE_VERSION}.{CHUNKING_VERSION}.1"
_TEXT_CHARS = 16_000  # of one chunk; only a single line can be longer, and its rest is data
_NAME_WEIGHT = 2
_PATH_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk and the words that it is found by."""

    chunk: Chunk
    words: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready to be stored; `words` are those of the whole file."""

    path: str
    digest: str
    chunks: tuple[PreparedChunk, ...]
    words: str


def prepare(document: Document, settings: ChunkSettings | None = None) -> Prepared:
    """Cuts a document and splits its words."""
    path = path_words(document.path)
    prepared: list[PreparedChunk] = []
    body: list[str] = []
    for one in chunk(document, settings=settings):
        text = words(one.text[:_TEXT_CHARS])
        names = words(f"{one.symbol} {' '.join(one.names)}")
        prepared.append(PreparedChunk(one, _join(text, names * _NAME_WEIGHT, path * _PATH_WEIGHT)))
        body += text
        body += names
    return Prepared(document.path, document.digest, tuple(prepared), _join(body, path * _PATH_WEIGHT))


def path_words(path: str) -> list[str]:
    """Words of a path: its folders and its name without the extension."""
    pure = PurePosixPath(path)
    return words(" ".join([*pure.parts[:-1], pure.stem]))


def _join(*parts: Sequence[str]) -> str:
    return " ".join(word for part in parts for word in part)
