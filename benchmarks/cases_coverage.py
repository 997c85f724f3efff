"""What the floor of a real repository holds: how much of its budget, files by level, and how often what a question needs.

Source distributions have no history and nobody has asked about them, so files are graded by centrality and role alone.
Tokens are those of the built-in vocabulary.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
from cases_codex import asked_by_people, by_package
from cases_engine import Bench
from code_questions.corpora import documents_in, unpacked
from report import Row
from unseen import NUMBER
from unseen_questions.repositories import AIOHTTP, DJANGO, SCRAPY, SQLALCHEMY, made

from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import FileEntry
from codex.documents import Document
from codex.outline.coverage import FileLevel
from codex.progress import silent
from formatters.writers import piece_text
from orchestrator.codices.coverages import Count, Grading, Outliner, whole_piece
from orchestrator.engine.vocab.vocabulary import Vocabulary
from orchestrator.prompt.coverage import Coverage, CoverageSizes, FloorRoom, decide_coverage

WINDOWS = (32_768, 65_536)
IDENTITY = 300  # tokens
Asked = Sequence[frozenset[str]]  # files that answer each question


@dataclass(frozen=True)
class HeldFloor:
    """Tokens that its files take, of how many they may; and the level of each."""

    coverage: Coverage
    tokens: int
    budget: int
    levels: dict[str, FileLevel]

    def answers(self, asked: Asked, least: FileLevel = FileLevel.SKELETON) -> float:
        """The share of questions of whose files at least one has at least this level."""
        held = {path for path, level in self.levels.items() if level >= least}
        return sum(bool(files & held) for files in asked) / len(asked)


def cases(checkouts: Mapping[str, Path]) -> dict[str, Callable[[Bench], Iterator[Row]]]:
    """`checkouts`: folders of packages whose source distributions are not to be fetched."""
    return {"coverage of real repositories": lambda bench: coverage(bench, checkouts)}


def coverage(bench: Bench, checkouts: Mapping[str, Path]) -> Iterator[Row]:
    vocabulary = vocabulary_of(bench.model)
    for name, corpus, asked in repositories(checkouts):
        with tempfile.TemporaryDirectory() as folder:
            grading = graded(corpus, lambda texts: [len(vocabulary.content(text)) for text in texts], Path(folder))
        full = sum(grading.bodies.values())
        for window in WINDOWS:
            floor = floor_of(grading, full, window)
            case = f"floor of {name}, {full / 1000:,.0f}k tokens in {len(corpus):,} files, window {window:,}"
            used = floor.tokens / floor.budget
            few = Counter(floor.levels.values())
            held = ", ".join(f"{few[level]} {level.name.lower()}" for level in reversed(FileLevel))
            yield Row(case, f"{floor.coverage}: budget used", used, goal="≥ 0.95", met=used >= 0.95, note=held)
            yield Row(case, f"{len(asked)} questions: a file that answers is in it", floor.answers(asked))
            yield Row(case, "the same, or a line with names of it", floor.answers(asked, FileLevel.LINE))


def vocabulary_of(model: Path) -> Vocabulary:
    settings = llama_cpp.llama_model_default_params()
    settings.vocab_only = True
    return Vocabulary(llama_cpp.llama_model_load_from_file(str(model).encode(), settings))


def repositories(checkouts: Mapping[str, Path]) -> Iterator[tuple[str, Sequence[Document], Asked]]:
    for (package, version), some in by_package(asked_by_people()).items():
        root = checkouts.get(package) or unpacked(package, version)
        yield package, documents_in(root), [frozenset(one["files"]) for one in some]
    for repository in (AIOHTTP, SCRAPY, DJANGO, SQLALCHEMY):
        what = made(repository, NUMBER, checkouts.get(repository.package))
        yield repository.package, what.documents, [frozenset(one.files) for one in what.questions]


def graded(corpus: Sequence[Document], count: Count, folder: Path) -> Grading:
    entries = [FileEntry(one.path, one.digest, one.size) for one in corpus]
    by_path = {one.path: one for one in corpus}

    def read(some: Sequence[FileEntry]) -> Iterator[Document]:
        return (by_path[one.path] for one in some)

    known = Outliner(read, SqliteBytesCache(folder / "outlined.sqlite3")).outlined(entries, silent)
    bodies = dict(zip(by_path, count([piece_text(whole_piece(one)) for one in corpus]), strict=True))
    return Grading(entries, known, bodies, {}, {}, count, read)


def floor_of(grading: Grading, full: int, window: int) -> HeldFloor:
    """As a codex is built, but for the lines around its files, some forty tokens."""
    skeletons = grading.tokens(FileLevel.SKELETON)
    decision = decide_coverage(CoverageSizes(full, sum(skeletons), sum(skeletons)), FloorRoom(window, IDENTITY, window))
    is_map = decision.coverage is Coverage.MAP
    levels = grading.of_map(decision.tokens) if is_map else grading.with_whole_files(decision.tokens)
    costs = {
        FileLevel.NOTHING: [0] * len(skeletons),
        FileLevel.LINE: grading.tokens(FileLevel.LINE),
        FileLevel.SKELETON: skeletons,
        FileLevel.FULL: [grading.bodies[one.path] for one in grading.entries],
    }
    used = sum(costs[levels[one.path]][at] for at, one in enumerate(grading.entries))
    return HeldFloor(decision.coverage, used, decision.tokens, levels)
