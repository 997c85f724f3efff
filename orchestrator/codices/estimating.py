"""Tokens of a codex from a sample of its files: before it is loaded, and where it is far too large to be counted.

Synchronous and for a worker thread. Knows no disk; a sample is handed in.
"""

from collections.abc import Callable, Sequence

from codex.documents import Document
from codex.graph.centrality import gist
from codex.graph.repomap import repo_map
from codex.outline.symbols import outline
from codex.tiers import skeleton
from codex.trees.sampling import SampledFile, head, scaled
from orchestrator.codices.tiers import HEADING
from orchestrator.prompt.coverage import CoverageSizes

Count = Callable[[Sequence[str]], list[int]]


def whole_tokens(sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count) -> int:
    """Tokens of all files with their headings."""
    heads = [head(one.text or "") for one in sample]
    counts = count(heads)
    shares = [
        (one.size, tokens / len(text.encode("utf-8", "replace")) if text else 0.0)
        for one, text, tokens in zip(sample, heads, counts, strict=True)
    ]
    return scaled(shares, total_bytes) + HEADING * files


def skeleton_tokens(sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count) -> int:
    """Tokens of all files' signatures with their headings."""
    made = [skeleton(Document(one.path, one.text, "", one.size)) if one.text else "" for one in sample]
    counts = count(made)
    shares = [(one.size, tokens / one.size if one.size else 0.0) for one, tokens in zip(sample, counts, strict=True)]
    return scaled(shares, total_bytes) + HEADING * files


def map_of(sample: Sequence[SampledFile], files: int, count: Count, most: int) -> int | None:
    """Tokens of a map of all files: as much a file as the sample's takes; None where there is nothing to list."""
    outlines = {one.path: outline(Document(one.path, one.text, "", one.size)) for one in sample if one.text}
    text = repo_map({path: gist(found) for path, found in outlines.items()}, most - HEADING, count)
    return min(most, round(count([text])[0] * files / len(sample)) + HEADING) if text else None


def surveyed(
    sample: Sequence[SampledFile], files: int, total_bytes: int, count: Count, map_tokens: int
) -> CoverageSizes:
    """All tiers before a load. `map_tokens`: what a map may take."""
    whole = whole_tokens(sample, files, total_bytes, count)
    signatures = skeleton_tokens(sample, files, total_bytes, count)
    return CoverageSizes(
        whole, signatures, map_of(sample, files, count, map_tokens), estimated=("full", "skeleton", "map")
    )
