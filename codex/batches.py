"""Documents in batches that bound the memory of indexing. The first are small: of many changes some are found soon."""

from collections.abc import Iterable, Iterator

from codex.documents import Document

_BATCH_BYTES = 4_000_000  # of text; its chunks with their words take about six times as much while they are stored
_FIRST_BYTES = 250_000  # then twice as much each time: four batches more, of some hundredths of a second
_BATCH_FILES = 512


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
