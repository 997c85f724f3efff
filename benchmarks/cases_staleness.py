"""Staleness: whether memories turn suspect when the code that they are about changes, over the history of a repository.

`--history PATH` names a git repository; it may be given several times, and none is in this one. Its first-parent history is
walked four times, each walk a quarter of it. At a walk's first commit functions and classes are drawn, and one memory is
bound to the lines of each as `lore memory add --cite` binds it. At each later step the product says which are suspect.

The truth knows nothing of digests. It is Python's own parser: a symbol is unchanged while a symbol of its path and full
name has its text, or while one of its name has its text at a place that did not have it before: it moved. Indentation and
blanks at the ends of lines do not count. What changed once stays changed, as a suspect memory stays suspect. Files that do
not parse say nothing, and are left out.
"""

import ast
import random
import subprocess
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from cases_engine import Bench
from report import Row

from orchestrator.karma.records import CodeCitation, Kind, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore

UID, CODEX = 1000, "replayed"
WALKS, STEPS, DRAWN = 4, 12, 400
GOAL = 0.9
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Texts = Mapping[str, str]


@dataclass(frozen=True)
class Symbol:
    """Of a file: its full name in it, lines from 1, both inclusive; `text` as compared."""

    path: str
    name: str
    start: int
    end: int
    text: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Tree:
    """The Python files of one commit: texts by path, what they define, and those that do not parse."""

    texts: Texts
    symbols: Mapping[tuple[str, str], Symbol]
    unread: frozenset[str]

    @cached_property
    def places(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """Where a name with a text stands."""
        found = defaultdict(set)
        for place, one in self.symbols.items():
            found[one.last, one.text].add(place)
        return found


@dataclass(frozen=True)
class Seen:
    """One memory at one step."""

    suspect: bool
    changed: bool
    moved: bool


def cases(histories: Sequence[Path] = ()) -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {f"memory staleness, {name_of(path)}": partial(replaying, path) for path in histories}


def name_of(path: Path) -> str:
    """Of the repository: a bare one is a folder of its own."""
    resolved = path.resolve()
    return resolved.parent.name if resolved.name in ("repo", ".git") else resolved.name.removesuffix(".git")


def replaying(path: Path, _: Bench) -> Iterator[Row]:
    commits = first_parents(path)
    length = len(commits) // WALKS
    seen = [one for walk in range(WALKS) for one in walked(path, steps(commits[walk * length : (walk + 1) * length]))]
    yield from rows(f"memory staleness, {name_of(path)}", seen)


def rows(case: str, seen: Sequence[Seen]) -> Iterator[Row]:
    """Shares of memories, each counted at every step."""
    suspect, changed = [one for one in seen if one.suspect], [one for one in seen if one.changed]
    moved = [one for one in seen if one.moved and not one.changed]
    both = sum(one.suspect and one.changed for one in seen)
    yield Row(case, "looked at", len(seen), unit="memories at a step")
    yield Row(case, "changed", len(changed) / len(seen))
    yield at_least(case, "precision", both / max(1, len(suspect)))
    yield at_least(case, "recall", both / max(1, len(changed)))
    yield Row(case, "moved unchanged", len(moved), unit="memories at a step")
    yield Row(case, "moved unchanged, called suspect", sum(one.suspect for one in moved) / max(1, len(moved)))


def at_least(case: str, figure: str, ours: float) -> Row:
    return Row(case, figure, ours, goal=f"≥ {GOAL}", met=ours >= GOAL)


# -- a walk


def walked(path: Path, commits: Sequence[str]) -> Iterator[Seen]:
    """From the first commit to the others."""
    first = tree_of(path, commits[0])
    drawn = random.Random(len(commits)).sample(sorted(first.symbols), min(DRAWN, len(first.symbols)))
    known = [first.symbols[one] for one in drawn]
    with tempfile.TemporaryDirectory() as folder, closing(MemoryStore(Path(folder) / "memories.sqlite3")) as store:
        ids = bound(store, first, known)
        changed: set[Symbol] = set()
        for commit in commits[1:]:
            now = tree_of(path, commit)
            changed |= {one for one in known if one not in changed and is_changed(one, first, now)}
            suspect = suspected(store, now)
            for one in known:
                if one.path not in now.unread:
                    yield Seen(ids[one] in suspect, one in changed, (one.path, one.name) not in now.symbols)


def bound(store: MemoryStore, tree: Tree, symbols: Iterable[Symbol]) -> dict[Symbol, str]:
    """A memory of each; their ids."""
    staleness = staleness_at(store, tree)
    made = {}
    for one in symbols:
        cited = staleness.cited(CODEX, [CodeCitation(one.path, one.start, one.end)])
        said = f"{one.name} of {one.path} does what it is for"
        made[one] = store.add(NewMemory(UID, Kind.DECISION, said, codex=CODEX, evidence=cited)).id
    return made


def suspected(store: MemoryStore, tree: Tree) -> set[str]:
    """What the product says at this commit: the ids of all that are suspect by now."""
    staleness_at(store, tree).check(CODEX, store.all_of(UID))
    return {one.id for one in store.all_of(UID) if one.suspect}


def staleness_at(store: MemoryStore, tree: Tree) -> Staleness:
    return Staleness(store, lambda _, path: tree.texts.get(path), lambda _: tree.texts)


# -- the truth


def is_changed(one: Symbol, first: Tree, now: Tree) -> bool:
    stands = now.symbols.get((one.path, one.name))
    if stands is not None and stands.text == one.text:
        return False
    return not now.places[one.last, one.text] - first.places[one.last, one.text]


def defined(path: str, text: str) -> Iterator[Symbol]:
    """Functions and classes with their decorators, also those within others. Raises SyntaxError or ValueError."""
    lines = text.split("\n")

    def within(node: ast.AST, outer: str) -> Iterator[Symbol]:
        for one in ast.iter_child_nodes(node):
            if isinstance(one, Definition):
                start = min(each.lineno for each in (one, *one.decorator_list))
                end = one.end_lineno or one.lineno
                name = f"{outer}{one.name}"
                yield Symbol(path, name, start, end, compared(lines[start - 1 : end]))
                yield from within(one, f"{name}.")
            else:
                yield from within(one, outer)

    yield from within(ast.parse(text), "")


def compared(lines: Iterable[str]) -> str:
    return textwrap.dedent("\n".join(line.rstrip() for line in lines))


# -- the repository


def first_parents(path: Path) -> list[str]:
    """The oldest first."""
    return git(path, "rev-list", "--first-parent", "--reverse", "HEAD").decode().split()


def steps(commits: Sequence[str]) -> list[str]:
    """The first, and STEPS more at equal distances, the last among them."""
    last = len(commits) - 1
    return [commits[last * step // STEPS] for step in range(STEPS + 1)]


def tree_of(path: Path, commit: str) -> Tree:
    texts = dict(python_files(path, commit))
    symbols: dict[tuple[str, str], Symbol] = {}
    unread = set[str]()
    for name, text in texts.items():
        try:
            symbols |= {(name, one.name): one for one in defined(name, text)}
        except (SyntaxError, ValueError):
            unread.add(name)
    return Tree(texts, symbols, frozenset(unread))


def python_files(path: Path, commit: str) -> Iterator[tuple[str, str]]:
    listed = git(path, "ls-tree", "-r", "-z", commit).decode("utf-8", "surrogateescape").split("\0")
    entries = [line.partition("\t") for line in listed if line.endswith(".py") and " blob " in line]
    names = [name for _, _, name in entries]
    blobs = [about.split()[2] for about, _, _ in entries]
    for name, content in zip(names, contents(path, blobs), strict=True):
        if content is not None:
            yield name, content.decode("utf-8", "replace").replace("\r\n", "\n")


def contents(path: Path, blobs: Sequence[str]) -> Iterator[bytes | None]:
    """None for one that the copy of the repository does not have."""
    given = git(path, "cat-file", "--batch", given="".join(f"{one}\n" for one in blobs).encode())
    place = 0
    for _ in blobs:
        end = given.index(b"\n", place)
        head = given[place:end].split()
        if head[1] == b"missing":
            place = end + 1
            yield None
            continue
        size = int(head[2])
        yield given[end + 1 : end + 1 + size]
        place = end + 1 + size + 1


def git(path: Path, *command: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", str(path), *command], input=given, capture_output=True, check=True).stdout
