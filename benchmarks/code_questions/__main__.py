"""Runs questions against the floor and against search, on the default set-up, and prints both.

python -m benchmarks.code_questions                                   # the 141
python -m benchmarks.code_questions --bench CHECKOUT --part choosing  # others, made by `citing`
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codex.archive.archive import Archive
from codex.documents import Document
from codex.searching.search import Search
from formatters.context import Evidence
from orchestrator.prompt.evidence import TOKENS_OF_A_PASSAGE, joined

from .citing import PACKAGES, CitedQuestion, questions
from .corpora import documents
from .floor import Floor
from .scoring import HEADER, Scores, mean, score

QUESTIONS = Path(__file__).with_name("questions.jsonl")
_HITS = 30
_TOKENS = 4_000
_CHARS = 4 * _TOKENS  # about, of code

Passage = tuple[str, range]
"""A path and line numbers."""


@dataclass(frozen=True)
class Ranker:
    """Files for a question, best first, and the passages that are read for it."""

    files: Callable[[str], list[str]]
    passages: Callable[[str], Iterable[Passage]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, help="a checkout of SWE-QA-Bench")
    parser.add_argument("--part", choices=("choosing", "final"), default="choosing")
    options = parser.parse_args()
    found: dict[str, dict[str, list[Scores]]] = {"floor": defaultdict(list), "search": defaultdict(list)}
    shares: dict[str, dict[str, list[float]]] = {"floor": defaultdict(list), "search": defaultdict(list)}
    times: list[float] = []
    for package, corpus, asked in _packages(options.bench, options.part):
        with tempfile.TemporaryDirectory() as folder:
            rankers = _rankers(package, corpus, Search(Archive(Path(folder))), times)
            for name, ranker in rankers.items():
                for one in asked:
                    for group in (package, "all"):
                        found[name][group].append(score(ranker.files(one.text), one.files))
                        if one.lines:
                            shares[name][group].append(_delivered(ranker.passages(one.text), corpus, one))
    _print(found, times)
    if shares["search"]:
        _print_shares(shares)


def _packages(bench: Path | None, part: str) -> Iterator[tuple[str, list[Document], list[CitedQuestion]]]:
    """Each package with its corpus and questions."""
    if bench is not None:
        for package in PACKAGES:
            if package.part == part:
                corpus = package.documents()
                yield package.name, corpus, questions(bench, package.name, corpus)
        return
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    for name, version in sorted({(one["package"], one["version"]) for one in rows}):
        asked = [CitedQuestion(one["question"], one["files"], frozenset()) for one in rows if one["package"] == name]
        yield name, documents(name, version), asked


def _rankers(package: str, corpus: Sequence[Document], search: Search, times: list[float]) -> dict[str, Ranker]:
    floor = Floor(corpus)
    began = time.perf_counter()
    search.archive.index(package, corpus)
    size = sum(one.size for one in corpus) / 1e6
    print(f"{package}: {len(corpus)} files, {size:.1f} MB, indexed in {time.perf_counter() - began:.1f} s", flush=True)

    def by_search(question: str) -> list[str]:
        began = time.perf_counter()
        hits = search.search(question, package, _HITS).hits
        times.append(time.perf_counter() - began)
        return list(dict.fromkeys(hit.path for hit in hits))

    def passages(question: str) -> list[Passage]:
        hits = search.search(question, package, _TOKENS // TOKENS_OF_A_PASSAGE, passages=True).hits
        read = joined([Evidence(path=hit.path, start=hit.start, end=hit.end, text=hit.text) for hit in hits])
        return [(one.path, range(one.start, one.end + 1)) for one in read]

    return {"floor": Ranker(floor.files, floor.windows), "search": Ranker(by_search, passages)}


def _delivered(passages: Iterable[Passage], corpus: Sequence[Document], one: CitedQuestion) -> float:
    """Share of a question's lines in the passages that fit 4,000 tokens, taken by rank."""
    texts = {document.path: document.text.split("\n") for document in corpus}
    room, seen = _CHARS, set[tuple[str, int]]()
    for path, lines in passages:
        size = sum(len(line) + 1 for line in texts[path][lines.start - 1 : lines.stop - 1])
        if size <= room:
            room -= size
            seen.update((path, line) for line in lines)
    return len(seen & one.lines) / len(one.lines)


def _print(found: dict[str, dict[str, list[Scores]]], times: list[float]) -> None:
    print(f"\n{'':20}{'questions':>9}  {HEADER}")
    for name, by_package in found.items():
        for package, scores in sorted(by_package.items(), key=lambda item: (item[0] == "all", item[0])):
            print(f"{name:7}{package:13}{len(scores):>9}  {mean(scores).row()}")
    times.sort()
    middle, last = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"\na search takes {middle * 1e3:.1f} ms (p50), {last * 1e3:.1f} ms (p99)")


def _print_shares(shares: dict[str, dict[str, list[float]]]) -> None:
    print(f"\nshare of the named lines in 4,000 tokens\n{'':13}{'questions':>9}{'floor':>9}{'search':>9}")
    for package, ours in sorted(shares["search"].items(), key=lambda item: (item[0] == "all", item[0])):
        floor = sum(shares["floor"][package]) / len(ours)
        print(f"{package:13}{len(ours):>9}{floor:>9.3f}{sum(ours) / len(ours):>9.3f}")


if __name__ == "__main__":
    main()
