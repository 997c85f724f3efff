"""What an archive stores of a document: its chunks with the words they are found by and the names they use.

The words of a chunk are those of its text, with what names it (symbol, definitions, path) counted again: one field with
weights in it, so that one BM25 over it is a BM25 over weighted fields. The same for the file as a whole.

The result depends only on a text's bytes and language, so it is cached by digest: a branch that is checked out again, a
renamed file and a second codex of the same tree are not parsed and split again.
"""

import json
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from codex.catalog.databases import SqliteBytesCache
from codex.documents import Document, lines
from codex.outline.chunking import CHUNKING_VERSION, Chunk, chunk
from codex.outline.languages import language_of
from codex.outline.symbols import OUTLINE_VERSION, Outline, outline
from codex.trees.roles import marked, says_generated
from codex.words import words

PREPARE_VERSION = f"{OUTLINE_VERSION}.{CHUNKING_VERSION}.4"
_TEXT_CHARS = 16_000  # of one chunk; only a single line can be longer, and its rest is data
_NAME_WEIGHT = 2
_PATH_WEIGHT = 2
_REFERENCES = 200  # names used by one chunk; a table of data may use thousands, and says nothing by it
_BATCH_BYTES = 4_000_000  # of text; its chunks with their words take about six times as much while they are stored
_FIRST_BYTES = 250_000  # then twice as much each time: four batches more, of some hundredths of a second
_BATCH_FILES = 512


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk, the words that it is found by, the names that it uses."""

    chunk: Chunk
    words: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be stored; `words` are those of the whole file."""

    path: str
    digest: str
    chunks: tuple[PreparedChunk, ...]
    words: str


def prepare(documents: Sequence[Document], remembered: SqliteBytesCache | None = None) -> list[PreparedDocument]:
    """Documents ready to be stored, in order."""
    prepared: list[PreparedDocument] = []
    fresh: list[tuple[str, bytes]] = []
    for document in documents:
        key = _key(document)
        cached = remembered.get(key) if remembered is not None else None
        rows = _unpacked(cached) if cached is not None else None
        if rows is None:
            rows = _rows(document)
            if remembered is not None:
                fresh.append((key, zlib.compress(json.dumps(rows).encode(), 1)))
        prepared.append(_bound(document, rows))
    if remembered is not None and fresh:
        remembered.put(fresh)
    return prepared


def path_words(path: str) -> list[str]:
    """Words of a path: its folders and its name without the extension."""
    pure = PurePosixPath(path)
    return words(" ".join([*pure.parts[:-1], pure.stem]))


def _key(document: Document) -> str:
    language = language_of(document.path, document.text)
    return f"{PREPARE_VERSION}:{language.name if language else ''}:{document.digest}"


def _rows(document: Document) -> list[list[Any]]:
    """A row a chunk, of what does not depend on the path; in JSON's own types.

    The first chunk also refers to the modules that the file imports, wherever they stand in it.
    """
    parsed = outline(document)
    heads = parsed.imports[:_REFERENCES]
    return [
        [
            *(one.start, one.end, one.symbol, one.kind, one.signature),
            *(list(one.names), one.digest, _words(one)),
            [*_references(parsed, one), *(heads if one.start == 1 else ())],
        ]
        for one in chunk(document, parsed)
    ]


def _words(one: Chunk) -> str:
    names = words(f"{one.symbol} {' '.join(one.names)}")
    return " ".join([*words(one.text[:_TEXT_CHARS]), *names * _NAME_WEIGHT])


def _references(parsed: Outline, one: Chunk) -> list[str]:
    first = bisect_left(parsed.references, one.start, key=lambda reference: reference.line)
    last = bisect_right(parsed.references, one.end, key=lambda reference: reference.line)
    return list(dict.fromkeys(found.name for found in parsed.references[first:last]))[:_REFERENCES]


def _unpacked(packed: bytes) -> list[list[Any]] | None:
    try:
        rows: list[list[Any]] = json.loads(zlib.decompress(packed))
    except (zlib.error, ValueError):
        return None
    return rows


def _bound(document: Document, rows: list[list[Any]]) -> PreparedDocument:
    """The rows as chunks of this path."""
    text = lines(document.text)
    path = " ".join(path_words(document.path) * _PATH_WEIGHT)
    generated = says_generated(document)
    chunks = tuple(
        PreparedChunk(
            Chunk(
                document.path,
                start,
                end,
                symbol,
                marked(kind) if generated else kind,
                signature,
                tuple(names),
                "\n".join(text[start - 1 : end]),
                digest,
            ),
            f"{found} {path}",
            tuple(references),
        )
        for start, end, symbol, kind, signature, names, digest, found, references in rows
    )
    whole = " ".join([*(row[7] for row in rows), path])
    return PreparedDocument(document.path, document.digest, chunks, whole)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Lists of documents in order, each ended by bytes or by number; a single large document is a batch."""
    batch: list[Document] = []
    held, most = 0, _FIRST_BYTES
    for document in documents:
        batch.append(document)
        held += len(document.text)
        if held >= most or len(batch) >= _BATCH_FILES:
            yield batch
            batch, held, most = [], 0, min(2 * most, _BATCH_BYTES)
    if batch:
        yield batch
