"""Documents as files on disk, for tools that read folders."""

from collections.abc import Iterable
from itertools import accumulate, takewhile
from pathlib import Path

from codex.documents import Document


def written(documents: Iterable[Document], root: Path) -> Path:
    """`root`, holding these documents and nothing else."""
    for document in documents:
        path = root / document.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document.text, encoding="utf-8")
    return root


def first_bytes(documents: list[Document], at_most: int) -> list[Document]:
    """The first documents by path that together have at most so many bytes."""
    ordered = sorted(documents, key=lambda one: one.path)
    sums = accumulate(one.size for one in ordered)
    within = sum(1 for _ in takewhile(lambda size: size <= at_most, sums))
    return ordered[:within]
