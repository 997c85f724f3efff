"""Runs the questions against the floor and against search, on the default set-up, and prints both."""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from codex.archive.archive import Archive
from codex.searching.search import Search

from .corpora import documents
from .floor import Floor
from .scoring import HEADER, Scores, mean, score

QUESTIONS = Path(__file__).with_name("questions.jsonl")
_HITS = 30

Ranker = Callable[[str], list[str]]


def main() -> None:
    questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    found: dict[str, dict[str, list[Scores]]] = {"floor": defaultdict(list), "search": defaultdict(list)}
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        search = Search(Archive(Path(folder)))
        rankers: dict[str, dict[str, Ranker]] = {}
        for package, version in sorted({(one["package"], one["version"]) for one in questions}):
            rankers[package] = _rankers(package, version, search, times)
        for one in questions:
            for name, rank in rankers[one["package"]].items():
                scores = score(rank(one["question"]), one["files"])
                found[name][one["package"]].append(scores)
                found[name]["all"].append(scores)
    _print(found, times)


def _rankers(package: str, version: str, search: Search, times: list[float]) -> dict[str, Ranker]:
    corpus = documents(package, version)
    floor = Floor(corpus)
    began = time.perf_counter()
    search.archive.index(package, corpus)
    size = sum(one.size for one in corpus) / 1e6
    print(f"{package} {version}: {len(corpus)} files, {size:.1f} MB, indexed in {time.perf_counter() - began:.1f} s")

    def by_search(question: str) -> list[str]:
        began = time.perf_counter()
        hits = search.search(question, package, _HITS).hits
        times.append(time.perf_counter() - began)
        return list(dict.fromkeys(hit.path for hit in hits))

    return {"floor": floor.files, "search": by_search}


def _print(found: dict[str, dict[str, list[Scores]]], times: list[float]) -> None:
    print(f"\n{'':16}{'questions':>9}  {HEADER}")
    for name, by_package in found.items():
        for package, scores in sorted(by_package.items(), key=lambda item: (item[0] == "all", item[0])):
            print(f"{name:7}{package:9}{len(scores):>9}  {mean(scores).row()}")
    times.sort()
    middle, last = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"\na search takes {middle * 1e3:.1f} ms (p50), {last * 1e3:.1f} ms (p99)")


if __name__ == "__main__":
    main()
