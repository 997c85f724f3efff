"""Documents in batches that bound the memory of indexing."""

from collections.abc import Iterable, Iterator

from codex.documents import Document

_BATCH_BYTES = 4_000_000  # of text; its chunks with their words take about six times as much while they are stored
_BATCH_FILES = 512


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Lists of documents in order, each ended by bytes or by number; a single large document is a batch."""
    batch: list[Document] = []
    held = 0
    for document in documents:
        batch.append(document)
        held += len(document.text)
        if held >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
