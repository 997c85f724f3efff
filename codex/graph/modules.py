"""Which files an import names: `flask.json.provider`, `./util`, `<net/socket.h>`, `com.acme.Thing`.

    Modules         of any language, to link files: by the longest run of trailing parts that is unique among the paths
    PythonModules   as Python finds them, to say what a name means: one file or none

Knows no text of a file. To `Modules` dots, slashes and `::` all separate parts.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

_PARTED = re.compile(r"[./\\]|::")
_INDEX_NAMES = frozenset({"__init__", "index", "mod", "lib", "main"})
PACKAGES = ("__init__.py", "__init__.pyi")  # the file that a Python package is named by
_PYTHON = (".py", ".pyi")
_AMBIGUOUS = 3  # files that one import may lead to


class Modules:
    """The files of a codebase by the trailing parts of their names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_tail: dict[str, list[str]] = defaultdict(list)
        self._parts: dict[str, tuple[str, ...]] = {}
        self._named: dict[str, list[str]] = {}  # what was asked before: the same modules are imported everywhere
        for path in sorted(paths):
            parts = _parts_of(path)
            if parts:
                self._parts[path] = parts
                self._by_tail[parts[-1]].append(path)

    def of(self, imported: str, by: str = "") -> tuple[str, ...]:
        """Paths that an import may mean, at most three; those nearest to the importing file `by` first."""
        found = self._named.get(imported)
        if found is None:
            found = self._named[imported] = self._meant(imported)
        if len(found) <= 1:
            return tuple(found)
        return tuple(sorted(found, key=lambda path: (-_shared(path.split("/"), by.split("/")), path))[:_AMBIGUOUS])

    def _meant(self, imported: str) -> list[str]:
        parts = [part for part in _PARTED.split(imported.strip()) if part.isidentifier() or "-" in part]
        if parts and imported.rstrip().endswith((".h", ".hpp", ".js", ".ts", ".css", ".rb")):
            parts.pop()
        for tail in (parts, parts[:-1]):  # the last part may be a name inside the module
            found = self._ending(tail) if tail else []
            if found:
                return found
        return []

    def _ending(self, tail: list[str]) -> list[str]:
        """Files whose parts end in as much of the tail as any file's do; none when that is only a common last part."""
        candidates = self._by_tail.get(tail[-1], [])
        matched = [(_shared(self._parts[path][::-1], tail[::-1]), path) for path in candidates]
        best = max((count for count, _ in matched), default=0)
        found = [path for count, path in matched if count == best]
        return found if best == len(tail) or len(found) == 1 else []


def _parts_of(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    parts = (*pure.parts[:-1], pure.stem)
    return parts[:-1] if parts[-1] in _INDEX_NAMES and len(parts) > 1 else parts


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Leading parts that both have."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


# -- as Python finds them


class PythonModules:
    """Files by the name of a module, as Python finds them: below a folder that is no package itself, or relative to who
    imports."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = frozenset(path for path in paths if path.endswith(_PYTHON))
        self._by_last: dict[str, list[str]] = {}
        for path in sorted(self._paths):
            self._by_last.setdefault(module_parts(path)[-1], []).append(path)
        self._known: dict[tuple[str, str], tuple[str, ...]] = {}

    def __call__(self, module: str, by: str) -> tuple[str, ...]:
        """At most one file, a stub beside it left aside; none for a module from elsewhere."""
        folder = by.rpartition("/")[0]
        key = (module, folder)
        if key not in self._known:
            self._known[key] = (
                self._relative(module, folder) if module.startswith(".") else self._absolute(module, folder)
            )
        return self._known[key]

    def _relative(self, module: str, folder: str) -> tuple[str, ...]:
        bare = module.lstrip(".")
        parts = PurePosixPath(folder).parts
        up = len(module) - len(bare) - 1
        if up > len(parts):
            return ()
        below = (*parts[: len(parts) - up], *filter(None, bare.split(".")))
        return self._at("/".join(below))

    def _absolute(self, module: str, folder: str) -> tuple[str, ...]:
        wanted = tuple(module.split("."))
        found = [path for path in self._by_last.get(wanted[-1], ()) if module_parts(path)[-len(wanted) :] == wanted]
        roots = {path: module_parts(path)[: -len(wanted)] for path in found}
        free = [path for path, root in roots.items() if not self._is_package("/".join(root))]
        near = sorted(free, key=lambda path: (-_alike("/".join(roots[path]), folder), path.endswith("i"), path))
        return tuple(near[:1])

    def _at(self, stem: str) -> tuple[str, ...]:
        names = [f"{stem}{ending}" for ending in _PYTHON] + [f"{stem}/{name}" if stem else name for name in PACKAGES]
        return tuple(name for name in names if name in self._paths)[:1]

    def _is_package(self, folder: str) -> bool:
        return bool(folder) and any(f"{folder}/{name}" in self._paths for name in PACKAGES)


def module_parts(path: str) -> tuple[str, ...]:
    """The name of a file's module from the root on; a package is named as its folder."""
    pure = PurePosixPath(path)
    return pure.parts[:-1] if pure.name in PACKAGES and len(pure.parts) > 1 else (*pure.parts[:-1], pure.stem)


def _alike(root: str, folder: str) -> int:
    """How much of a folder's path leads to a root; -1 where it does not lie below it."""
    return len(root) if not root or folder == root or folder.startswith(f"{root}/") else -1
