"""Questions about symbols on public packages, beside what `ast` and `jedi` say of the same files.

The packages and jedi are installed in a folder of their own below `build/`: nothing else of the project needs them.
"""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cases_engine import Bench
from report import Row, at_most

from codex.documents import document_from
from codex.graph.symbol_index import FoundSymbol, SymbolIndex, What, packed_file
from codex.outline.facts import facts, to_bytes

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "symbols"
SEEN = ("requests==2.34.2", "flask==3.1.3", "click==8.5.1")  # what the resolver was made with
HELD_OUT = ("httpx==0.28.1", "rich==15.0.0")  # what it was not
PINNED = ("jedi==0.20.1", *SEEN, *HELD_OUT)
QUESTIONS: tuple[What, ...] = ("definition", "callers", "callees", "implementors", "members")
GOALS = {"definition": 0.95, "members": 0.95, "outline": 0.95, "callers": 0.85, "implementors": 0.85}
Edge = tuple[Any, ...]


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "symbol questions": partial(symbols, "symbol questions", SEEN),
        "symbol questions, held out": partial(symbols, "symbol questions, held out", HELD_OUT),
    }


def symbols(name: str, pinned: Sequence[str], bench: Bench) -> Iterator[Row]:
    """Recall and precision over all these packages, and how long an answer takes on each question about each name."""
    del bench
    root = installed()
    scores: dict[str, Score] = defaultdict(Score)
    taken: list[float] = []
    for package in (one.partition("==")[0] for one in pinned):
        truth, index = Truth(told(root, package)), index_of(root, package)
        for kind, score in compared(truth, index):
            scores[kind].add(score)
        taken += seconds(truth, index)
    for kind, least in GOALS.items():
        for figure, share in (("recall", scores[kind].recall), ("precision", scores[kind].precision)):
            yield Row(name, f"{kind}, {figure}", share, goal=f"≥ {least:g}", met=share >= least)
    taken.sort()
    yield at_most(name, f"p50 of {len(taken):,}", 1_000 * taken[len(taken) // 2], 5, "ms")
    yield at_most(name, "p99", 1_000 * taken[len(taken) * 99 // 100], 20, "ms")


@dataclass
class Score:
    """`missed` and `wrong` are kept to be looked at."""

    right: int = 0
    missed: list[Edge] = field(default_factory=list)
    wrong: list[Edge] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + len(self.missed))

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + len(self.wrong))

    def add(self, other: "Score") -> None:
        self.right += other.right
        self.missed += other.missed
        self.wrong += other.wrong


def score_of(wanted: set[Edge], found: set[Edge], unknown: set[Edge] = frozenset()) -> Score:  # type: ignore[assignment]
    return Score(len(wanted & found), sorted(wanted - found), sorted(found - wanted - unknown))


class Truth:
    """What ast and jedi say of a package."""

    def __init__(self, told: dict[str, list[Any]]) -> None:
        self.defined = {
            (path, qualname, line): (kind, holder) for path, qualname, kind, line, holder in told["defined"]
        }
        self.at = {
            (path, line): qualname for (path, qualname, line), (kind, _) in self.defined.items() if kind != "value"
        }
        self.classes = {(path, line) for (path, _, line), (kind, _) in self.defined.items() if kind == "class"}
        self.calls: set[Edge] = set()
        self.unknown: set[tuple[str, int]] = set()  # lines with a call that jedi cannot follow
        for path, caller, line, _, targets in told["calls"]:
            inside = [(one[0], one[1]) for one in targets if (one[0], one[1]) in self.at]
            self.calls |= {(*target, path, caller) for target in inside}
            if not targets:
                self.unknown.add((path, line))
        self.below = closed(
            {
                ((path, one[1]), (target[0], target[1]))
                for path, holder, one_line, _, targets in told["bases"]
                for one in [(path, one_line)]
                for target in targets
                if (target[0], target[1]) in self.classes
            }
        )


def closed(pairs: set[tuple[Any, Any]]) -> set[Edge]:
    """Each class with every class that it is derived from, however far."""
    found = set(pairs)
    while True:
        more = {(one, far) for one, near in found for base, far in pairs if near == base} - found
        if not more:
            return {(*base, *one) for one, base in found}
        found |= more


def compared(truth: Truth, index: SymbolIndex) -> Iterator[tuple[str, Score]]:
    names = {qualname.rpartition(".")[2] for _, qualname, _ in truth.defined}
    found = {key(one) for name in names for one in index.answer("definition", name).symbols}
    yield "definition", score_of({(path, qualname, line) for path, qualname, line in truth.defined}, found)
    listed = {
        key(one) for path in {path for path, _, _ in truth.defined} for one in index.answer("outline", path).symbols
    }
    yield "outline", score_of(set(truth.defined), listed)
    members: set[Edge] = set()
    for path, qualname, line in truth.defined:
        if (path, line) in truth.classes:
            members |= {(path, line, one.qualified, one.line) for one in asked(index, "members", path, qualname, line)}
    holders = {(path, truth.at.get((path, line))): line for path, line in truth.classes}
    yield (
        "members",
        score_of(
            {
                (path, holders[path, holder], qualname, line)
                for (path, qualname, line), (_, holder) in truth.defined.items()
                if (path, holder) in holders
            },
            members,
        ),
    )
    callers: set[Edge] = set()
    unknown: set[Edge] = set()
    below: set[Edge] = set()
    for (path, line), qualname in truth.at.items():
        for one in asked(index, "callers", path, qualname, line):
            edge = (path, line, one.path, "" if one.kind == "module" else one.qualified)
            callers.add(edge)
            if all((one.path, at) in truth.unknown for at in one.uses):
                unknown.add(edge)
        if (path, line) in truth.classes:
            below |= {(path, line, one.path, one.line) for one in asked(index, "implementors", path, qualname, line)}
    yield "callers", score_of(truth.calls, callers, unknown)
    yield "implementors", score_of(truth.below, below)


def asked(index: SymbolIndex, what: What, path: str, qualname: str, line: int) -> Iterator[FoundSymbol]:
    """About this definition alone, where several have its name."""
    answer = index.answer(what, f"{path}:{qualname}")
    several = len(answer.meant) > 1
    yield from (one for one in answer.symbols if not several or not one.which or f"{path}:{line} " in one.which)


def key(one: FoundSymbol) -> Edge:
    return one.path, one.qualified, one.line


def seconds(truth: Truth, index: SymbolIndex) -> list[float]:
    """Of every question about every name, each once before: a daemon's first question builds what later ones use."""
    names = sorted({qualname for _, qualname, _ in truth.defined})
    taken = []
    for first in (True, False):
        for name in names:
            for what in QUESTIONS:
                begun = time.perf_counter()
                index.answer(what, name)
                if not first:
                    taken.append(time.perf_counter() - begun)
    return taken


def index_of(root: Path, package: str) -> SymbolIndex:
    documents = [document_from(str(file.relative_to(root)), file.read_bytes()) for file in files_of(root, package)]
    found = [facts(one) for one in documents if one is not None]
    return SymbolIndex({one.path: packed_file(one, to_bytes(one)) for one in found})


def files_of(root: Path, package: str) -> Iterable[Path]:
    return sorted((root / package).rglob("*.py"))


def installed() -> Path:
    """The folder in which the packages lie."""
    python, done = FOLDER / "bin" / "python", FOLDER / "installed.txt"
    if not done.exists() or done.read_text() != "\n".join(PINNED):
        subprocess.run([sys.executable, "-P", "-m", "venv", FOLDER], check=True)
        subprocess.run([python, "-P", "-m", "pip", "install", "--quiet", *PINNED], check=True)
        done.write_text("\n".join(PINNED))
    where = subprocess.run(
        [python, "-P", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(where.stdout.strip())


def told(root: Path, package: str) -> dict[str, list[Any]]:
    """Computed once: jedi takes a minute for a package."""
    kept = FOLDER / f"{package}.json"
    if not kept.exists():
        script = Path(__file__).with_name("symbol_truth.py")
        python = FOLDER / "bin" / "python"
        said = subprocess.run([python, "-P", script, root, package], check=True, stdout=subprocess.PIPE)
        kept.write_bytes(said.stdout)
    found: dict[str, list[Any]] = json.loads(kept.read_bytes())
    return found
