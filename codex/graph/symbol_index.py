"""Questions about symbols, answered from what the files of a codex say: definition, callers, callees, implementors,
members, and the outline of a file.

    a name ─▶ files that define or use it ─▶ their facts ─▶ each use is resolved ─▶ the symbols asked for

A name is looked up by its last part; what stands before it (`Session.get`, `requests.sessions.Session.get`,
`sessions.py:Session.get`) chooses among several. Of several that are left all are meant, and the answer lists them.

A use whose receiver has no known type is counted only where its name is long and few classes have it, and is then marked as
not certain. Names are kept as hashes in arrays, the facts of files packed, those of the files
asked about last also unpacked.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from codex.graph.modules import PythonModules, module_parts
from codex.graph.resolving import Place, Resolver, scope_of
from codex.outline.facts import BASE, CALL, Defined, FileFacts, Use, from_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

What = Literal["definition", "callers", "callees", "implementors", "members", "outline"]
_UNPACKED = 8 << 20  # bytes of packed facts that are also kept unpacked, of about 30 MB of code
_OWNERS = 3  # classes that may have a method which is meant without a known receiver
_LONG_NAME = 6  # a shorter one is the same by chance
_MOST_FILES = 2_000  # that use one name: it is `get`, and an answer would say nothing
_NEAR = 2_000  # files whose names, and names that a wrong one is compared with
_LONGER = 12  # names that begin with one that nothing has
_FUNCTIONS = frozenset({"function", "method"})
_VALUES = frozenset({"variable", "field", "constant", "key"})
_LOW = frozenset({"section", "heading", "key", "rule", "element"})  # of texts and data
_Calls = dict[tuple[Place, Place], list[tuple[int, bool]]]
"""The lines of calls, each with whether it is certain, by the definition to be shown and the one that was asked for."""


@dataclass(frozen=True, slots=True)
class FoundSymbol:
    """`line` is that of the name, `end` the last of the definition. `uses`: of callers and callees the lines of
    the calls. `certain`: false where a receiver's type is not known. `which`: of several that were meant."""

    name: str
    qualified: str
    kind: str
    path: str
    line: int
    end: int
    signature: str = ""
    doc: str = ""
    uses: tuple[int, ...] = ()
    certain: bool = True
    which: str = ""


@dataclass(frozen=True)
class SymbolAnswer:
    """`meant`: the definitions that the name may mean, where it was not a file's. `near`: names like it, where there is
    none."""

    symbols: tuple[FoundSymbol, ...] = ()
    meant: tuple[FoundSymbol, ...] = ()
    near: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackedFile:
    """The facts of one file, packed; hashes of the names that it defines, that it uses, and that its imports call
    otherwise."""

    packed: bytes
    names: str  # that it defines, a line each
    defined: "NDArray[np.int64]"
    used: "NDArray[np.int64]"
    aliased: "NDArray[np.int64]"


def packed_file(facts: FileFacts, packed: bytes) -> PackedFile:
    return PackedFile(
        packed,
        "\n".join(sorted({one.name for one in facts.defined})),
        _hashes(one.name for one in facts.defined),
        _hashes(one.name for one in facts.uses),
        _hashes(one.member for one in facts.bindings if one.member and one.bound != one.member),
    )


@dataclass(frozen=True)
class _Names:
    """Hashes of names in order, and the number of a file that has each."""

    hashes: "NDArray[np.int64]"
    files: "NDArray[np.int32]"

    def files_with(self, name: str) -> list[int]:
        import numpy as np

        first = int(np.searchsorted(self.hashes, hash(name), "left"))
        last = int(np.searchsorted(self.hashes, hash(name), "right"))
        files: list[int] = self.files[first:last].tolist()
        return files


class SymbolIndex:
    """Of one state of a codex; never changed. One thread at a time."""

    def __init__(self, files: Mapping[str, PackedFile]) -> None:
        self._files = files
        self._paths = sorted(files)
        self._defined = _names([files[path].defined for path in self._paths])
        self._used = _names([files[path].used for path in self._paths])
        self._aliased = _names([files[path].aliased for path in self._paths])
        self._kept: OrderedDict[str, FileFacts] = OrderedDict()
        self._room = _UNPACKED
        self._resolver = Resolver(self._facts, PythonModules(self._paths))

    def answer(self, what: What, name: str) -> SymbolAnswer:
        """Never raises for what is asked."""
        if what == "outline":
            return self._outline(name)
        places = self._meant(name)
        if not places:
            if what == "members" and (path := self._path(name)) is not None:
                return SymbolAnswer(self._shown((path, at) for at, one in self._of(path) if one.holder < 0))
            return SymbolAnswer(near=self._near(name))
        meant = self._shown(places)
        if what == "definition":
            return SymbolAnswer(meant, meant)
        found = {"callers": self._callers, "callees": self._callees, "implementors": self._implementors}.get(what)
        symbols, notices = found(places) if found is not None else (self._members(places), ())
        return SymbolAnswer(symbols, meant, (), notices)

    # -- what a name means

    def _meant(self, name: str) -> list[Place]:
        path, _, dotted = name.strip().removesuffix("()").rpartition(":")
        parts = [part for part in re.split(r"\.|::|#|/", dotted) if part]
        if not parts:
            return []
        every = [
            (self._paths[number], at)
            for number in self._defined.files_with(parts[-1])
            for at, one in self._of(self._paths[number])
            if one.name == parts[-1] and (not path or self._is_file(self._paths[number], path.rstrip(":")))
        ]
        named = {place: self._full(place) for place in every}
        exact = [place for place in every if named[place][-len(parts) :] == parts]
        found = exact or [place for place in every if _in_order(parts, named[place])]
        code = [(path, at) for path, at in found if self._facts(path).defined[at].kind not in _LOW]
        found = code or found
        return sorted(found, key=lambda place: self._rank(place, len(parts)))

    def _rank(self, place: Place, parts: int) -> tuple[object, ...]:
        """What is named wholly before what lies deeper, classes and functions before values."""
        one = self._facts(place[0]).defined[place[1]]
        return one.qualname.count(".") + 1 != parts, one.kind in _VALUES, place[0], one.line

    def _full(self, place: Place) -> list[str]:
        qualname = self._facts(place[0]).defined[place[1]].qualname
        return [*module_parts(place[0]), *re.split(r"\.|::", qualname)]

    def _is_file(self, path: str, named: str) -> bool:
        return path == named or path.endswith(f"/{named}")

    def _path(self, name: str) -> str | None:
        """The only file that a path, or a module's name, means."""
        if name in self._files:  # an odd name has backslashes of its own: codex.documents.name_of
            return name
        plain = name.strip().replace("\\", "/").removeprefix("./")
        if plain in self._files:
            return plain
        ending = [path for path in self._paths if path.endswith(f"/{plain}")]
        if not ending and "/" not in plain:
            parts = tuple(plain.split("."))
            ending = [path for path in self._paths if module_parts(path)[-len(parts) :] == parts]
        return ending[0] if len(ending) == 1 else None

    def _near(self, name: str) -> tuple[str, ...]:
        """Names that begin with this one, then names like it, in the first files; of those the ones that begin like it are
        compared first."""
        import difflib

        last = re.split(r"\.|::|#|/|:", name.strip())[-1][:100]
        known = {one for path in self._paths[:_NEAR] for one in self._files[path].names.split("\n") if one}
        alike = sorted(known, key=lambda one: (one.lower() != last.lower(), one[:1].lower() != last[:1].lower(), one))
        longer = [one for one in known if last and one.lower().startswith(last.lower())]
        longer = sorted(longer, key=lambda one: (len(one), one))[:_LONGER]
        return tuple(dict.fromkeys([*longer, *difflib.get_close_matches(last, alike[:_NEAR], n=3, cutoff=0.6)]))

    # -- answers

    def _outline(self, name: str) -> SymbolAnswer:
        path = self._path(name)
        if path is None:
            return SymbolAnswer(near=_near_paths(name, self._paths))
        return SymbolAnswer(self._shown((path, at) for at, _ in self._of(path)))

    def _members(self, places: Sequence[Place]) -> tuple[FoundSymbol, ...]:
        rows: list[FoundSymbol] = []
        for path, at in places:
            of = self._facts(path).defined[at].qualname if len(places) > 1 else ""
            inner = ((path, number) for number, one in self._of(path) if one.holder == at)
            rows += [self._row(place, of=of) for place in inner]
        return tuple(rows)

    def _callers(self, places: Sequence[Place]) -> tuple[tuple[FoundSymbol, ...], tuple[str, ...]]:
        """Each definition that calls one of these, with the lines; a module where the call stands in none."""
        wanted = set(places)
        calls: _Calls = {}
        names = {self._facts(path).defined[at].name for path, at in places}
        notices: list[str] = []
        for name in sorted(names):
            for file, use in self._uses(name, CALL, notices):
                targets, certain = self._targets(file, use, name)
                for target in wanted.intersection(targets):
                    calls.setdefault(((file.path, scope_of(file, use)), target), []).append((use.line, certain))
        rows = self._call_rows(calls, places)
        return tuple(sorted(rows, key=lambda one: (not one.certain, one.path, one.line))), tuple(notices)

    def _callees(self, places: Sequence[Place]) -> tuple[tuple[FoundSymbol, ...], tuple[str, ...]]:
        """Each definition of the codex that is called within one of these, with the lines."""
        calls: _Calls = {}
        for place in places:
            file = self._facts(place[0])
            for use in file.uses:
                if use.kind == CALL and self._within(file, scope_of(file, use), place[1]):
                    targets, certain = self._targets(file, use, use.name)
                    for target in targets:
                        calls.setdefault((target, place), []).append((use.line, certain))
        rows = self._call_rows(calls, places)
        return tuple(sorted(rows, key=lambda one: (not one.certain, one.uses, one.path))), ()

    def _implementors(self, places: Sequence[Place]) -> tuple[tuple[FoundSymbol, ...], tuple[str, ...]]:
        """Of a class all classes below it; of a method those that take its place there."""
        rows: list[FoundSymbol] = []
        notices: list[str] = []
        for path, at in places:
            one, of = self._facts(path).defined[at], self._of_several((path, at), places)
            if one.is_class:
                rows += [self._row(below, of=of) for below in self._below((path, at), notices)]
            elif one.holder >= 0 and one.kind in _FUNCTIONS:
                rows += [self._row(method, of=of) for method in self._overriding((path, one.holder), one.name, notices)]
        return tuple(sorted(dict.fromkeys(rows), key=lambda one: (one.which, one.path, one.line))), tuple(notices)

    def _overriding(self, holder: Place, name: str, notices: list[str]) -> Iterator[Place]:
        for path, at in self._below(holder, notices):
            qualname = f"{self._facts(path).defined[at].qualname}.{name}"
            yield from ((path, number) for number in self._facts(path).by_qualname.get(qualname, ()))

    def _below(self, root: Place, notices: list[str]) -> list[Place]:
        """The classes derived from one, near ones first."""
        found: dict[Place, None] = {}
        waiting = [root]
        while waiting:
            base = waiting.pop(0)
            name = self._facts(base[0]).defined[base[1]].name
            for file, use in self._uses(name, BASE, notices):
                derived = file.path, file.around(use.line)
                if (
                    base in self._targets(file, use, name)[0]
                    and derived[1] >= 0
                    and derived not in found
                    and derived != root
                ):
                    found[derived] = None
                    waiting.append(derived)
        return list(found)

    # -- uses

    def _uses(self, name: str, kind: str, notices: list[str]) -> Iterator[tuple[FileFacts, Use]]:
        """Uses of a name, and of what imports anywhere call it instead."""
        called = self._aliases(name)
        files = sorted({number for one in called for number in self._used.files_with(one)})
        if len(files) > _MOST_FILES:
            notices.append(f"{name} is used in {len(files):,} files: the first {_MOST_FILES:,} were looked at")
        for number in files[:_MOST_FILES]:
            file = self._facts(self._paths[number])
            yield from ((file, use) for use in file.uses if use.name in called and use.kind == kind)

    def _aliases(self, name: str) -> set[str]:
        """The name, and the names that imports give to it, and to these."""
        found, waiting = {name}, [name]
        while waiting:
            one = waiting.pop()
            for number in self._aliased.files_with(one):
                bindings = self._facts(self._paths[number]).bindings
                new = {each.bound for each in bindings if each.member == one} - found
                found |= new
                waiting += new
        return found

    def _targets(self, file: FileFacts, use: Use, name: str) -> tuple[Sequence[Place], bool]:
        """What a use of this name means, and whether that is certain."""
        meant = self._resolver.meant(file, use)
        return (self._by_name(name, use), False) if meant is None else (meant, True)

    def _by_name(self, name: str, use: Use) -> tuple[Place, ...]:
        """What a use may mean of which only the name is known: few definitions of a name that is seldom the same by chance.
        A receiver that is known to be there means a member."""
        found = [
            (self._paths[number], at, one)
            for number in self._defined.files_with(name)[: _OWNERS + 1]
            for at, one in self._of(self._paths[number])
            if one.name == name and one.kind not in _VALUES and one.kind not in _LOW
        ]
        if use.receiver is not None:
            found = [(path, at, one) for path, at, one in found if one.kind == "method"]
            if len(name) < _LONG_NAME:
                return ()
        return tuple((path, at) for path, at, _ in found) if len(found) <= _OWNERS else ()

    def _within(self, file: FileFacts, scope: int, outer: int) -> bool:
        while scope >= 0 and scope != outer:
            scope = file.defined[scope].holder
        return scope == outer

    # -- rows

    def _shown(self, places: Iterable[Place]) -> tuple[FoundSymbol, ...]:
        return tuple(map(self._row, places))

    def _call_rows(self, calls: _Calls, places: Sequence[Place]) -> list[FoundSymbol]:
        return [
            self._row(shown, of=self._of_several(asked, places), uses=lines) for (shown, asked), lines in calls.items()
        ]

    def _row(self, place: Place, *, of: str = "", uses: Sequence[tuple[int, bool]] = ()) -> FoundSymbol:
        path, at = place
        said = tuple(dict.fromkeys(line for line, _ in sorted(uses)))
        certain = all(sure for _, sure in uses)
        if at < 0:
            name = PurePosixPath(path).stem
            return FoundSymbol(
                name, ".".join(module_parts(path)), "module", path, 1, 1, uses=said, certain=certain, which=of
            )
        one = self._facts(path).defined[at]
        told = (one.name, one.qualname, one.kind, path, one.line, one.end, one.signature, one.doc)
        return FoundSymbol(*told, uses=said, certain=certain, which=of)

    def _of_several(self, place: Place, places: Sequence[Place]) -> str:
        if len(places) == 1:
            return ""
        one = self._facts(place[0]).defined[place[1]]
        return f"{place[0]}:{one.line} {one.qualname}"

    # -- facts

    def _of(self, path: str) -> Iterator[tuple[int, Defined]]:
        return enumerate(self._facts(path).defined)

    def _facts(self, path: str) -> FileFacts:
        """Unpacked, and kept as long as there is room."""
        kept = self._kept.get(path)
        if kept is not None:
            self._kept.move_to_end(path)
            return kept
        packed = self._files[path].packed
        found = self._kept[path] = from_bytes(path, packed)
        self._room -= len(packed)
        while self._room < 0 and len(self._kept) > 1:
            gone, _ = self._kept.popitem(last=False)
            self._room += len(self._files[gone].packed)
        return found


def _in_order(parts: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether the parts come in the whole in this order, the last at its end: `requests.Session` is one of
    `requests.sessions.Session`."""
    rest = iter(whole[:-1])
    return whole[-1] == parts[-1] and all(part in rest for part in parts[:-1])


def _near_paths(name: str, paths: Sequence[str]) -> tuple[str, ...]:
    import difflib

    last = name.rpartition("/")[2]
    same = [path for path in paths if path.rpartition("/")[2] == last]
    by_last = {path.rpartition("/")[2]: path for path in paths[:_NEAR]}
    return tuple(same[:3] or [by_last[one] for one in difflib.get_close_matches(last, list(by_last), n=3, cutoff=0.6)])


def _hashes(names: Iterable[str]) -> "NDArray[np.int64]":
    import numpy as np

    distinct = set(names)
    return np.fromiter(map(hash, distinct), np.int64, len(distinct))


def _names(of_files: Sequence["NDArray[np.int64]"]) -> _Names:
    import numpy as np

    if not of_files:
        return _Names(np.zeros(0, np.int64), np.zeros(0, np.int32))
    hashes = np.concatenate(of_files)
    files = np.repeat(np.arange(len(of_files), dtype=np.int32), [len(one) for one in of_files])
    order = np.argsort(hashes, kind="stable")
    return _Names(hashes[order], files[order])
